"""Bands: which one a condition has, that it leaves no partner out, and that a join by order looks at little past."""

from __future__ import annotations

import math
import operator
import time

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.engine.local import LocalRuntime
from everwhen.operators.join.band_condition import Band
from everwhen.reference import history as reference_history
from everwhen.stream.element_batch import INSERT, ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from operators.stepping import codec_of

col = ew.col
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


@pytest.mark.parametrize(
    ("condition", "band"),
    [
        (col("x") < col("y"), (0, 0, 0.0, math.inf)),
        (col("y") <= col("x") + 3, (0, 0, -math.inf, 3.0)),
        ((col("x") <= col("y") + 1) & (col("x") >= col("y") - 1), (0, 0, -1.0, 1.0)),
        (col("x") == col("y") - 2, (0, 0, 2.0, 2.0)),
        ((col("x") < col("y")) & (col("x") < col("z")) & (col("z") < col("x") + 9), (0, 1, 0.0, 9.0)),
        ((col("x") < col("y")) | (col("x") < col("z")), None),
        (col("x") < 3, None),
        (col("x") * 2 < col("y"), None),
        (col("x") != col("y"), None),
    ],
    ids=str,
)
def test_which_band_a_condition_has(condition: ew.Expr, band: tuple[int, int, float, float] | None) -> None:
    """`low ≤ right - left ≤ high`: the narrowest of those that a conjunct states."""
    left, right = Schema.of([("x", pa.int64())]), Schema.of([("y", pa.int64()), ("z", pa.float64())])
    found = Band.of(condition, left, right, Schema((*left.fields, *right.fields)))
    assert found == (None if band is None else Band(*band))


def test_bounds_hold_all_partners_and_nulls_and_nan_have_any() -> None:
    codec = codec_of({"x": pa.float64()})
    values = [1e15 + 0.25, -3.5, math.nan, None]
    rows = codec.encode([pa.array(values, pa.float64())], 4)
    band = Band(0, 0, -1.0, 2.0)
    low, high = band.bounds(0, codec, rows)
    for value, least, most in zip(values[:2], low.tolist(), high.tolist(), strict=False):
        assert value is not None and least <= value - 1.0 and value + 2.0 <= most
        assert most - least < 3.1 + 1e-10 * abs(value), "and hardly more"
    assert low[2:].tolist() == [-math.inf] * 2 and high[2:].tolist() == [math.inf] * 2
    assert band.values(1, codec, rows)[2:].tolist() == [math.inf] * 2


@pytest.mark.parametrize("offset", [0.0, 2.0, -1e300])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("first", ["A", "B"])
def test_infinities_find_their_partners(first: str, op: str, offset: float) -> None:
    """Also where a bound of the band is infinite itself; whichever side comes first."""
    values = [math.inf, -math.inf, 1.0, 2.0, 1e308, math.nan, None]
    left, right = (ew.source(name, {name.lower(): "float64"}) for name in "AB")
    sides = {name: [ew.Insert(0, 9, {name.lower(): value}) for value in values] for name in "AB"}
    compared = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[op]
    query = left.join(right, where=compared(col("a") + offset, col("b")))
    runtime = LocalRuntime(query)
    said: list[ew.Element] = []
    for name in sorted(sides, key=lambda name: name != first):
        said += runtime.push({name: ElementBatch.of(sides[name], runtime.schema_of(name))})["out"].elements()
    events = {name: History.of(sides[name], runtime.schema_of(name)) for name in sides}
    assert_same_history(History.of(said, query.schema), reference_history(query.node, events))
