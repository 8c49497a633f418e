"""A join by order looks at what is alive at the same time, also where no promise lets it forget the past."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.engine.local import LocalRuntime
from everwhen.reference import history as reference_history
from everwhen.stream.element_batch import INSERT, ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_same_history

SCHEMA = Schema.of([("x", pa.int64())])
S, T = ew.source("S", SCHEMA), ew.source("T", SCHEMA)
QUERY = S.join(T, where=ew.col("x") < ew.col("x_right"))


def batch(first: int, n: int, length: int) -> ElementBatch:
    vs = np.arange(first, first + n)
    x = (vs * 7919) % 1009
    return ElementBatch(
        SCHEMA, np.full(n, INSERT, np.uint8), vs, vs + length, np.zeros(n, np.int64), (pa.array(x),)
    )  # fmt: skip


def seconds(n: int) -> float:
    """What the later half of a stream of so many events costs."""
    runtime, took = LocalRuntime(QUERY, emit="current"), 0.0
    for first in range(0, n, 500):
        began = time.process_time()
        runtime.push({"S": batch(first, 500, 3), "T": batch(first, 500, 2)})
        took += (time.process_time() - began) * (first >= n // 2)
    return took


def test_the_past_costs_little() -> None:
    """As many events cost the same when ten times as many have gone before, but for what memory takes."""
    seconds(2_000)
    short = min(seconds(4_000) for _ in range(3)) / 2_000
    long = min(seconds(40_000) for _ in range(2)) / 20_000
    assert long < 4 * short


def test_both_ways_give_the_same() -> None:
    """Short lifetimes are looked up by time, long ones by value."""
    for length in (2, 10_000):
        given = {"S": batch(0, 120, length), "T": batch(0, 120, length)}
        runtime = LocalRuntime(QUERY, emit="all")
        out = list(runtime.push(given)["out"].elements())
        out += runtime.push({"S": batch(200, 5, length), "T": batch(100, 5, length)})["out"].elements()
        out += runtime.close()["out"].elements()
        events = {
            "S": [*given["S"].elements(), *batch(200, 5, length).elements()],
            "T": [*given["T"].elements(), *batch(100, 5, length).elements()],
        }
        histories = {name: History.of(elements, SCHEMA) for name, elements in events.items()}
        assert_same_history(History.of(out, QUERY.schema), reference_history(QUERY.node, histories))
