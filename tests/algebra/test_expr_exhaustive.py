"""differential: every operator and function over every pair of column types and every pair of awkward values.

Where the random expressions of `test_expr_parity` combine, this enumerates: nothing depends on luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from everwhen.algebra.expressions.build import FUNCTIONS, Call, Expr, col, function, lit
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError, QueryError

NAN, INFINITY, LEAST, MOST = math.nan, math.inf, -(2**63), 2**63 - 1
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [None, 0, 1, -1, 2, -7, 10, LEAST, MOST, 2**53 + 1]),
    "k": (pa.uint8(), [None, 0, 1, 7, 255]),
    "f": (pa.float64(), [None, 0.0, -0.0, 1.0, -2.5, 0.15, 1e308, 5e-324, NAN, INFINITY, -INFINITY, 2.0**63]),
    "g": (pa.float32(), [None, 0.5, -1.5, NAN]),
    "d": (pa.decimal128(10, 2), [None, *map(Decimal, ("0.00", "1.00", "-2.55", "0.15", "99999999.99"))]),
    "e": (pa.decimal128(38, 0), [None, Decimal(0), Decimal(-3), Decimal("9" * 36)]),
    "p": (pa.bool_(), [None, True, False]),
    "s": (pa.string(), [None, "", "a", "Ab ", "%", "a_", "ß", "\uffff", "\U0001f600", "12", "-1.5"]),
    "ms": (pa.timestamp("ms"), [None, datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2024, 2, 29, 12)]),
    "us": (pa.timestamp("us"), [None, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 12)]),
    "day": (pa.date32(), [None, date(1969, 12, 31), date(2024, 2, 29), date(2021, 1, 3)]),
    "span": (pa.duration("ms"), [None, timedelta(0), timedelta(milliseconds=-1), timedelta(days=400)]),
    "fine": (pa.duration("us"), [None, timedelta(microseconds=-1), timedelta(seconds=5)]),
}
PAIRS = list(product(VALUES, VALUES))
BINARY = [name for name, entry in FUNCTIONS.items() if entry.least <= 2 and (entry.most is None or entry.most >= 2)]
UNARY = [name for name, entry in FUNCTIONS.items() if entry.least <= 1]
TARGETS = ["int64", "int8", "uint64", "float64", "float32", "decimal(6,1)", "decimal(38,10)", "bool", "string"]
TARGETS += ["timestamp[s]", "timestamp[us]", "date", "duration[s]"]
# These want constants, or patterns that are well formed.
SPECIAL = {"in", "regexp_matches", "regexp_extract", "regexp_replace"}
# Lists, structures, zones, paths and formats are not among the values here; their tests are in tests/language.
SPECIAL |= {
    "array",
    "string_split",
    "array_join",
    "array_contains",
    "element_at",
    "cardinality",
    "from_utc_timestamp",
    "to_utc_timestamp",
    "named_struct",
    "struct_extract",
}
SPECIAL |= {"json_extract", "json_value", "json_text", "_read_time", "_bit_pair"}


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-12)
    return bool(a == b)


def check(expr: Expr, schema: Schema, rows: Sequence[tuple[Any, ...]], exact_kernels: bool = True) -> bool:
    """Whether the expression fits the types; if so, that both forms agree on every row."""
    try:
        type_ = expr.bind(schema)
    except QueryError:
        return False
    good: list[tuple[Any, ...]] = []
    expected: list[Any] = []
    for row in rows:
        try:
            expected.append(expr.value(dict(zip(schema.names, row, strict=True))))
            good.append(row)
        except EvaluationError:
            with pytest.raises((EvaluationError, OverflowError, ValueError)):  # not even Python's calendar has it
                expr.evaluate(columns([row], schema), 1).to_pylist()
    batch = columns(good, schema)
    if exact_kernels and expr.columns():
        expr._compiled([batch[name].type for name in expr._names]).run(batch, len(good))
    found = expr.evaluate(batch, len(good))
    assert found.type == type_
    for got, want, row in zip(found.to_pylist(), expected, good, strict=True):
        assert same(got, want), (str(expr), row, got, want)
    return True


def columns(rows: Sequence[tuple[Any, ...]], schema: Schema) -> dict[str, pa.Array]:
    return {field.name: pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)}


def rows_of(left: str, right: str) -> list[tuple[Any, ...]]:
    """All pairs; a duration is not multiplied beyond its unit's 64 bits, which Python's does not know."""
    rows = list(product(VALUES[left][1], VALUES[right][1]))
    if not {left, right} & {"span", "fine"}:
        return rows
    return [row for row in rows if not any(isinstance(value, int) and abs(value) > 2**53 for value in row)]


def pair_schema(left: str, right: str) -> Schema:
    return Schema.of([("x", VALUES[left][0]), ("y", VALUES[right][0])])


@pytest.mark.parametrize("name", [name for name in BINARY if name not in SPECIAL])
def test_two_columns(name: str) -> None:
    expr = Call(name, (col("x"), col("y")))
    fitting = [check(expr, pair_schema(left, right), rows_of(left, right), name != "*") for left, right in PAIRS]
    wants_constant = name in ("round", "date_trunc", "strftime")
    assert any(fitting) != wants_constant


@pytest.mark.parametrize("name", [name for name in BINARY if name not in SPECIAL])
def test_a_column_and_a_constant(name: str) -> None:
    fitting = []
    for left, right in PAIRS:
        type_, values = VALUES[right]
        schema = Schema.of([("x", VALUES[left][0])])
        for value in values:
            rows = [(x,) for x, y in rows_of(left, right) if y is value]
            fitting.append(check(Call(name, (col("x"), lit(value, type_))), schema, rows, name != "*"))
            fitting.append(check(Call(name, (lit(value, type_), col("x"))), schema, rows, name != "*"))
    assert any(fitting) or name in ("date_trunc", "strftime")


@pytest.mark.parametrize("name", [name for name in UNARY if name not in SPECIAL - {"in"}])
def test_one_column(name: str) -> None:
    fitting = [
        check(Call(name, (col("x"),)), Schema.of([("x", type_)]), [(value,) for value in values])
        for type_, values in VALUES.values()
    ]
    assert any(fitting)


@pytest.mark.parametrize("target", TARGETS)
def test_casts(target: str) -> None:
    for type_, values in VALUES.values():
        check(col("x").cast(target), Schema.of([("x", type_)]), [(value,) for value in values])


def test_membership() -> None:
    for type_, values in VALUES.values():
        schema, rows = Schema.of([("x", type_)]), [(value,) for value in values]
        for listed in product(values, values):
            assert check(Call("in", (col("x"), *(lit(value, type_) for value in listed))), schema, rows)


@pytest.mark.parametrize("unit", ["second", "minute", "hour", "day", "week", "month", "quarter", "year"])
def test_truncated_times(unit: str) -> None:
    for name in ("ms", "us", "day"):
        type_, values = VALUES[name]
        rows = [(value,) for value in values]
        assert check(function("date_trunc", unit, col("x")), Schema.of([("x", type_)]), rows)


@pytest.mark.parametrize("digits", [-15, -3, -1, 0, 1, 3, 15])
def test_rounding(digits: int) -> None:
    for name in ("i", "k", "f", "g", "d", "e"):
        type_, values = VALUES[name]
        assert check(function("round", col("x"), digits), Schema.of([("x", type_)]), [(value,) for value in values])


@pytest.mark.parametrize("start", range(-4, 5))
@pytest.mark.parametrize("length", [0, 1, 2, 9])
def test_substrings(start: int, length: int) -> None:
    rows = [(value,) for value in ["", "a", "äb", "abc", "ab\U0001f600d", None]]
    assert check(function("substr", col("x"), start, length), Schema.of([("x", pa.string())]), rows)
