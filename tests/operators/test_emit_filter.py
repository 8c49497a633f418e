"""The emission filter against its guarantee, over random changes, frontiers, punctuation and changes of policy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.operators.contract import Policy
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

SCHEMA = Schema.of([("k", pa.int64()), ("s", pa.string())])
KEYS, LAST = 3, 24


def changes(codec: RowCodec, segments: list[tuple[int, int, int, int]]) -> Changes:
    """Signed segments (lo, hi, weight, key); the latest instant stands for infinity."""
    if not segments:
        return no_changes(codec)
    lo, hi, weight, key = (np.array(column, np.int64) for column in zip(*segments, strict=True))
    rows = codec.encode([pa.array(key), pa.array([f"row {k}" for k in key])], len(key))
    return Changes(codec, lo, np.where(hi == LAST, INF, hi), weight, rows)


def add(total: np.ndarray, step: Changes) -> None:
    keys = step.codec.decode(step.rows)[0].to_pylist() if len(step) else []
    for lo, hi, weight, key in zip(step.lo, step.hi, step.weight, keys, strict=True):
        total[key, lo : min(hi, LAST)] += weight


def legal(rng: random.Random, came: np.ndarray, limit: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Changes that touch nothing before the limit of their row, and take back only what is there."""
    found = []
    for _ in range(rng.randrange(4)):
        key, lo = rng.randrange(KEYS), rng.randrange(LAST)
        hi = rng.choice([LAST, rng.randint(lo + 1, LAST)])
        if lo < limit[key]:
            continue
        weight = rng.choice([1, 1, -1])
        if weight > 0 or (came[key, lo:hi] > 0).all():
            came[key, lo:hi] += weight
            found.append((lo, hi, weight, key))
    return found


@pytest.mark.parametrize("starts", [False, True])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), emits=st.lists(st.sampled_from(list(Emit)), min_size=1, max_size=4))
def test_what_goes_on_stands_until_it_is_wrong(seed: int, emits: list[Emit], starts: bool) -> None:
    rng = random.Random(seed)
    codec = RowCodec(SCHEMA, Interner())
    policy = Policy(Emit.ENDED) if starts else None
    kept = EmitFilter(codec, emits[0], policy)
    came, gone = np.zeros((KEYS, LAST), np.int64), np.zeros((KEYS, LAST), np.int64)
    limit, time, tau = np.zeros(KEYS, np.int64), 0, 0
    for _ in range(12):
        if rng.random() < 0.3:
            kept.emit = rng.choice(emits)
        segments = legal(rng, came, limit)
        tau = max([tau, *(lo for lo, _, _, _ in segments)])
        promises: list[Punctuation] = []
        if rng.random() < 0.4:
            time = min(LAST, time + rng.randrange(5))
        if rng.random() < 0.2:
            key, until = rng.randrange(KEYS), rng.randrange(LAST)
            promises.append(Punctuation.constants({"k": key}, until))
            limit[key] = max(limit[key], until)
        limit = np.maximum(limit, time)
        before = gone.copy()
        out = kept.step(changes(codec, segments), tau, Frontier(time if time < LAST else INF, tuple(promises)))
        add(gone, out)
        assert (gone >= 0).all() and (gone <= came).all(), "less than has come, and nothing that has not"
        for key in range(KEYS):
            assert (gone[key, : limit[key]] == came[key, : limit[key]]).all(), "all that is promised is out"
        assert (gone >= np.minimum(before, came)).all(), "only what is wrong is retracted"
        if set(emits) == {Emit.FINAL}:
            assert (out.weight > 0).all() and all((gone[k, limit[k] :] == 0).all() for k in range(KEYS))
        elif kept.emit is Emit.ALL:
            assert (gone == came).all()
        elif kept.emit is Emit.CURRENT:
            assert (gone[:, : tau + 1] == came[:, : tau + 1]).all()
        kept = again(kept, policy) if rng.random() < 0.2 else kept
        assert kept.state_size().rows <= 2 * max(1, int(came.sum()))


def again(kept: EmitFilter, policy: Policy | None) -> EmitFilter:
    """The same filter from its snapshot, with the same interner."""
    restored = EmitFilter(kept.codec, kept.emit, policy)
    state: dict[str, Any] = kept.snapshot()
    restored.restore(state)
    return restored


def test_events_without_end_that_are_taken_back_do_not_pile_up() -> None:
    """`final` without a frontier: an insert and its removal, over and over, leave nothing."""
    codec = RowCodec(SCHEMA, Interner())
    kept = EmitFilter(codec, Emit.FINAL)
    for _ in range(4000):
        kept.step(changes(codec, [(1, LAST, 1, 0)]), 1, Frontier(0))
        kept.step(changes(codec, [(1, LAST, -1, 0)]), 1, Frontier(0))
    assert sum(map(len, kept._parts)) < 2100
    assert kept.state_size().rows == 0
