"""Netting: the same sum in disjoint segments, and events said and taken back that leave nothing."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from everwhen.core.time import INF
from everwhen.operators.net import NetOperator, cancelled, netted
from everwhen.rows.changes import Changes
from operators.stepping import Stepped, changes, codec_of, said

CODEC = codec_of({"k": pa.int64(), "s": pa.string()})


def snapshots(batch: Changes) -> dict[int, Counter[tuple[object, ...]]]:
    found = {t: Counter[tuple[object, ...]]() for t in range(-1, 40)}
    for (lo, hi, *row), weight in said(batch).items():
        for t, now in found.items():
            if lo <= t < hi:
                now[tuple(row)] += weight
    return {t: Counter({row: n for row, n in now.items() if n}) for t, now in found.items()}


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_the_same_and_no_two_segments_of_a_row_overlap(seed: int) -> None:
    rng = random.Random(seed)
    given = []
    for _ in range(rng.randint(0, 30)):
        lo = rng.randint(0, 30)
        hi = INF if rng.random() < 0.2 else lo + rng.randint(1, 9)
        given.append((lo, hi, rng.choice((-2, -1, 1, 3)), rng.randint(0, 2), rng.choice(("a", None))))
    batch = changes(CODEC, *given)
    out = netted(batch)
    assert snapshots(out) == snapshots(batch)
    if any(weight < 0 for _, _, weight, *_ in given):
        spans = sorted(((row, lo, hi) for lo, hi, *row in said(out)), key=lambda each: (str(each[0]), each[1]))
        for (row, _, hi), (other, lo, _) in pairwise(spans):
            assert row != other or hi <= lo or hi == INF
        assert all(weight for weight in said(out).values())


def test_what_cancels_is_gone() -> None:
    batch = changes(CODEC, (0, 10, 1, 1, "a"), (0, 10, -1, 1, "a"), (0, 5, 1, 2, "b"))
    assert said(netted(batch)) == {(0, 5, 2, "b"): 1}
    assert len(netted(changes(CODEC, (0, 10, 1, 1, "a"), (0, 10, -1, 1, "a")))) == 0


def test_batches_that_take_nothing_back_are_left_as_they_are() -> None:
    batch = changes(CODEC, (0, 10, 1, 1, "a"), (5, 15, 1, 1, "a"))
    assert netted(batch) is batch


def test_only_whole_events_cancel_each_other() -> None:
    """Unlike netting: an event that is taken back by another end is another event."""
    parts = [
        changes(CODEC, (0, 10, 2, 1, "a"), (3, 4, 1, 1, "a")),
        changes(CODEC, (0, 10, -1, 1, "a"), (3, 5, -1, 1, "a")),
    ]
    assert said(cancelled(CODEC, parts)) == {(0, 10, 1, "a"): 1, (3, 4, 1, "a"): 1, (3, 5, 1, "a"): -1}


def test_as_an_operator_it_keeps_nothing_and_hands_progress_on() -> None:
    trial = Stepped(lambda: NetOperator(CODEC), CODEC)
    assert trial.step([(0, 10, -1, 1, "a"), (0, 12, 1, 1, "a")], ctis=[7]) == {(10, 12, 1, "a"): 1}
    assert trial.frontier.time == 7 and trial.rows == 0 and trial.operator.stateless
