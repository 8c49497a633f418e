"""Lanes: which ones aggregations share, how rows fill them, and what pieces of them mean."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.errors import EvaluationError
from everwhen.operators.sweep.accumulators import AccumulatorPlan
from everwhen.rows.codec import RowCodec, decode_column
from operators.stepping import codec_of

TYPES = {"i": pa.int64(), "u": pa.uint64(), "f": pa.float64(), "d": pa.decimal128(9, 2), "s": pa.string()}


def aggregation(function: str, *columns: str) -> Aggregation:
    return Aggregation("out", function, columns)


def codes(codec: RowCodec, **columns: list[Any]) -> np.ndarray:
    n = len(next(iter(columns.values())))
    arrays = [pa.array(columns.get(name, [None] * n), type_) for name, type_ in TYPES.items()]
    return codec.encode(arrays, n)


@pytest.mark.parametrize(
    ("function", "column", "values", "expected"),
    [
        ("sum", "i", [3, None, -5], -2),
        ("avg", "i", [3, None, 4], 3.5),
        ("sum", "u", [2**62, 1], 2**62 + 1),
        ("sum", "f", [1e17, 1.0, -1e17], 1.0),
        ("sum", "f", [1.0, math.inf], math.inf),
        ("avg", "f", [None, None], None),
        ("sum", "d", [Decimal("1.25"), None, Decimal("-9999999.99")], Decimal("-9999998.74")),
        ("avg", "d", [Decimal("1.10"), None, Decimal("2.20")], 1.65),
        ("avg", "d", [None], None),
        ("variance_pop", "f", [2.0, 4.0], 1.0),
        ("count", "s", ["a", None, "b"], 2),
    ],
)
def test_what_is_added_up(function: str, column: str, values: list[Any], expected: Any) -> None:
    """The lanes of single rows, added, are those of all; a row taken out again leaves nothing."""
    codec = codec_of(TYPES)
    asked = aggregation(function, column)
    plan = AccumulatorPlan([asked], codec)
    rows = codes(codec, **{column: [*values, values[0]]})
    weight = np.array([1] * len(values) + [0])
    plan.fill(rows, weight)  # classes of magnitude become known
    lanes = plan.fill(rows, weight)
    total = lanes[:, : plan.ints].sum(axis=0, keepdims=True)
    floats = lanes[:, plan.ints :].view(np.float64).sum(axis=0, keepdims=True)
    words = np.concatenate([total, floats.view(np.int64)], axis=1)
    ((found, valid),) = plan.results(words)
    type_ = asked.result_type(codec.schema)
    (value,) = decode_column(found, valid, type_, codec.pool).to_pylist()
    assert value == expected


def test_lanes_are_shared_and_values_counted_apart_once_there_is_a_null() -> None:
    codec = codec_of(TYPES)
    asked = [aggregation("count"), aggregation("sum", "i"), aggregation("avg", "i"), aggregation("count", "i")]
    plan = AccumulatorPlan(asked, codec, shared=True)
    assert plan.ints == 2, "rows, and the sum"
    assert not plan.separated and plan.summed() == [codec.schema.index("i")]
    assert plan.separate() == [1] and plan.separated and plan.ints == 3
    assert plan.separate() == [], "once"


def test_what_is_neither_counted_nor_added_is_evaluated() -> None:
    codec = codec_of(TYPES)
    plan = AccumulatorPlan([aggregation("max", "i"), aggregation("median", "i"), aggregation("min", "s")], codec)
    assert len(plan.extremes) == 1, "of whole numbers; text has no order code"
    assert [each.function for each in plan.holistic] == ["median", "min"]
    assert plan.evaluated == 1 + 2 * 2 and plan.added == plan.ints and plan.tests == plan.ints


def test_a_sum_that_could_leave_64_bits_is_refused() -> None:
    codec = codec_of(TYPES)
    plan = AccumulatorPlan([aggregation("sum", "i")], codec)
    rows = codes(codec, i=[2**62, 1])
    plan.measure(rows)
    words = plan.fill(rows, np.array([1, 1])).sum(axis=0, keepdims=True)
    plan.check(words, most=1)
    with pytest.raises(EvaluationError, match="a sum of 2 values of 'i'"):
        plan.check(words)
