"""What a limit costs does not grow with what has ended long ago, promised or not."""

from __future__ import annotations

import random
import time

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import ElementBatch

S = ew.source("S", {"k": "int64", "x": "int64"}, insert_only=True)


def seconds(rows: int) -> float:
    """Processor time of the top 3 of the last 600 ticks, one row per tick, without any promise."""
    rng = random.Random(rows)
    runtime = LocalRuntime(S.limit(3, "x", descending="x"))
    stream = [ew.Insert(t, t + 600, {"k": rng.randrange(9), "x": rng.randrange(10**6)}) for t in range(rows)]
    batches = [ElementBatch.of(stream[at : at + 1000], S.schema) for at in range(0, rows, 1000)]
    began = time.thread_time()
    for batch in batches:
        runtime.push({"S": batch})
    return time.thread_time() - began


@pytest.mark.slow
def test_without_promises_time_grows_with_the_rows() -> None:
    seconds(2_000)
    few, many = (min(seconds(rows) for _ in range(2)) for rows in (10_000, 40_000))
    assert many < 8 * few + 0.2


def seconds_that_stay(rows: int) -> float:
    """Processor time of the best row of each of 250 keys; all rows stay."""
    rng = random.Random(rows)
    runtime = LocalRuntime(ew.sql("SELECT DISTINCT ON (k) * FROM S WINDOW(UNBOUNDED) ORDER BY k, x", S))
    stream = [ew.Insert(t, t + 1, {"k": rng.randrange(250), "x": rng.randrange(10**6)}) for t in range(rows)]
    batches = [ElementBatch.of(stream[at : at + 2500], S.schema) for at in range(0, rows, 2500)]
    began = time.thread_time()
    for batch in batches:
        runtime.push({"S": batch})
    return time.thread_time() - began


@pytest.mark.slow
def test_rows_that_stay_cost_the_same_however_many_there_are() -> None:
    seconds_that_stay(5_000)
    few, many = (min(seconds_that_stay(rows) for _ in range(3)) for rows in (10_000, 40_000))
    assert many < 5 * few + 0.01
