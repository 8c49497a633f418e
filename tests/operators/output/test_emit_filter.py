"""The emission filter against its guarantee, over random changes, frontiers, punctuation and changes of policy."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Policy
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.stepping import Said, changes, codec_of, said
from state_files import through_file

SCHEMA = Schema.of([("k", pa.int64()), ("s", pa.string())])
KEYS, LAST = 3, 24


def drawn(codec: RowCodec, segments: list[tuple[int, int, int, int]]) -> Changes:
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
        out = kept.step(drawn(codec, segments), tau, Frontier(time if time < LAST else INF, tuple(promises)))
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
    restored.restore(through_file(kept.snapshot()))
    return restored


def test_events_without_end_that_are_taken_back_do_not_pile_up() -> None:
    """`final` without a frontier: an insert and its removal, over and over, leave nothing."""
    codec = RowCodec(SCHEMA, Interner())
    kept = EmitFilter(codec, Emit.FINAL)
    for _ in range(4000):
        kept.step(drawn(codec, [(1, LAST, 1, 0)]), 1, Frontier(0))
        kept.step(drawn(codec, [(1, LAST, -1, 0)]), 1, Frontier(0))
    assert kept._waiting.size < 100
    assert kept.state_size().rows == 0


# -- one statement at a time -------------------------------------------------------------------------------------------

CODEC = codec_of({"k": pa.int64()})
GIVEN = changes(CODEC, (0, 4, 1, 1), (2, 9, 1, 2), (6, 8, 1, 3))


class Fed:
    """A filter, and the frontier that it has been told last."""

    def __init__(self, emit: Emit, starts: bool = False) -> None:
        self._make = lambda: EmitFilter(CODEC, emit, Policy(Emit.ENDED) if starts else None)
        self.filter = self._make()
        self._time = NEVER

    def step(self, *segments: tuple[int, int, int, int], cti: int = NEVER, tau: int = 0, k: int | None = None) -> Said:
        self._time = max(self._time, cti)
        promises = () if k is None else (Punctuation.constants({"k": k}, 20),)
        return said(self.filter.step(changes(CODEC, *segments), tau, Frontier(self._time, promises)))

    def restart(self) -> None:
        state = through_file(self.filter.snapshot())
        self.filter = self._make()
        self.filter.restore(state)

    @property
    def rows(self) -> int:
        return self.filter.state_size().rows


def test_a_segment_goes_out_as_far_as_it_is_promised() -> None:
    fed = Fed(Emit.FINAL)
    assert fed.step((0, 10, 1, 7)) == {}
    assert fed.step(cti=4) == {(0, 4, 7): 1}
    assert fed.step(cti=4) == {}, "said once"
    assert fed.step(cti=INF) == {(4, 10, 7): 1}
    assert fed.rows == 0


def test_corrections_are_cut_out_while_they_wait() -> None:
    fed = Fed(Emit.FINAL)
    fed.step((0, 10, 2, 7), cti=2)
    assert fed.step((5, 10, -1, 7), (6, 8, 1, 8)) == {}
    fed.restart()
    assert fed.step(cti=INF) == {(2, 5, 7): 2, (5, 10, 7): 1, (6, 8, 8): 1}


def test_a_row_that_is_promised_for_longer_goes_out_for_longer() -> None:
    fed = Fed(Emit.FINAL)
    fed.step((0, 10, 1, 7), (0, 10, 1, 8))
    assert fed.step(cti=3, k=7) == {(0, 10, 7): 1, (0, 3, 8): 1}
    assert fed.rows == 1
    assert fed.step(cti=5) == {(3, 5, 8): 1}


def test_segments_go_out_when_they_begin() -> None:
    fed = Fed(Emit.ENDED, starts=True)
    assert fed.step((0, 5, 1, 1), (3, 8, 1, 1), (6, 9, 1, 2), tau=2) == {(0, 5, 1): 1}
    assert fed.rows == 2
    fed.restart()
    assert fed.step(tau=3) == {(3, 8, 1): 1}
    assert fed.step(cti=7, tau=3) == {(6, 9, 2): 1}, "a promise lets it out as well"
    assert fed.rows == 0


def test_a_row_that_was_corrected_no_longer_waits() -> None:
    """Not even the part that lies ahead: it would be a second correction of the same row."""
    fed = Fed(Emit.ENDED, starts=True)
    assert fed.step((0, 20, 1, 1), (10, 30, 1, 2), tau=0) == {(0, 20, 1): 1}
    assert fed.step((4, 20, -1, 1), (12, 20, 1, 1), tau=1) == {(4, 12, 1): -1}
    assert fed.step((15, 40, 1, 1), tau=2) == {(15, 40, 1): 1}
    assert fed.step(tau=10) == {(10, 30, 2): 1}


@pytest.mark.parametrize(
    ("emit", "first", "last"),
    [
        (Emit.FINAL, {(0, 3, 1): 1, (2, 3, 2): 1}, {(3, 4, 1): 1, (3, 9, 2): 1, (6, 8, 3): 1}),
        (Emit.ENDED, {(0, 4, 1): 1, (2, 3, 2): 1}, {(3, 9, 2): 1, (6, 8, 3): 1}),
        (Emit.CURRENT, {(0, 4, 1): 1, (2, 9, 2): 1}, {(6, 8, 3): 1}),
        (Emit.ALL, {(0, 4, 1): 1, (2, 9, 2): 1, (6, 8, 3): 1}, {}),
    ],
    ids=lambda value: value.value if isinstance(value, Emit) else "",
)
def test_what_each_policy_lets_through(emit: Emit, first: Said, last: Said) -> None:
    """At τ = 5, with everything before 3 promised; then the end."""
    kept = EmitFilter(CODEC, emit)
    assert said(kept.step(GIVEN, 5, Frontier(3))) == first
    assert said(kept.step(changes(CODEC), 5, Frontier(INF))) == last
    assert kept.state_size().rows == 0


@pytest.mark.parametrize("emit", Emit)
def test_what_is_wrong_is_taken_back_at_once_and_what_waits_is_cut(emit: Emit) -> None:
    fed = Fed(emit)
    went, back, rest = fed.step((0, 9, 1, 1), tau=2), fed.step((4, 9, -1, 1), tau=2), fed.step(cti=INF, tau=2)
    total = {(0, 9, 1): 1, (4, 9, 1): -1} if went else {(0, 4, 1): 1}
    assert {**went, **back, **rest} == total


def test_a_stricter_policy_takes_nothing_back_and_a_laxer_one_lets_go() -> None:
    kept = EmitFilter(CODEC, Emit.CURRENT)
    kept.step(GIVEN, 5, Frontier(3))
    kept.emit = Emit.FINAL
    assert said(kept.step(changes(CODEC), 7, Frontier(3))) == {}
    kept.emit = Emit.ALL
    assert said(kept.step(changes(CODEC), 7, Frontier(3))) == {(6, 8, 3): 1}
