"""Inserts that wait in order: against a sorted list, whatever comes and goes, with restarts and within bounds."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.time import INF
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.operators.ingress.sorted_buffer import SortedBuffer
from operators.stepping import codec_of
from state_files import through_file

CODEC = codec_of({"k": pa.int64()})


def inserts(times: list[int], first: int, ordered: bool) -> CheckedBatch:
    """Inserts numbered in the order of arrival."""
    vs, n = np.array(times, np.int64), len(times)
    rows = CODEC.encode([pa.array(range(first, first + n), pa.int64())], n)
    return CheckedBatch(CODEC, np.zeros(n, np.uint8), vs, vs + 5, vs, rows, 0, ordered=ordered)


def numbers(batch: CheckedBatch) -> list[tuple[int, int]]:
    return list(zip(batch.vs.tolist(), CODEC.column(batch.rows, 0).to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_it_is_a_sorted_list(seed: int) -> None:
    rng = random.Random(seed)
    buffer, waiting, number, now = SortedBuffer(CODEC), list[tuple[int, int]](), 0, 0
    for _ in range(60):
        ordered = rng.random() < 0.6
        times = [now + rng.randint(0, 20) for _ in range(rng.choice((0, 1, 2, 30)))]
        times = sorted(times) if ordered else times
        if buffer.take(inserts(times, number, ordered)):
            waiting += [(t, number + i) for i, t in enumerate(times)]
            waiting.sort()
            number += len(times)
        assert len(buffer) == len(waiting) and buffer.lowest == (waiting[0][0] if waiting else INF)
        assert numbers(buffer.all()) == waiting
        if rng.random() < 0.5:
            now += rng.randint(0, 9)
            assert numbers(buffer.due(now)) == [each for each in waiting if each[0] <= now]
            waiting = [each for each in waiting if each[0] > now]
        if rng.random() < 0.2:
            state, buffer = through_file(buffer.snapshot()), SortedBuffer(CODEC)
            buffer.restore(state)


def test_memory_is_that_of_what_waits_twice_at_most() -> None:
    buffer = SortedBuffer(CODEC)
    assert buffer.take(inserts(list(range(1000)), 0, ordered=True))
    full = buffer.nbytes
    buffer.due(9)
    buffer.due(799)
    assert len(buffer) == 200 and buffer.nbytes <= full / 2
    buffer.due(INF)
    assert buffer.nbytes == 0


def test_what_would_move_too_much_is_left_to_another() -> None:
    """One late row before a thousand that wait: it is not taken, and nothing has changed."""
    buffer = SortedBuffer(CODEC)
    buffer.take(inserts(list(range(100, 1100)), 0, ordered=True))
    before = numbers(buffer.all())
    assert not buffer.take(inserts([1], 1000, ordered=True))
    assert numbers(buffer.all()) == before
