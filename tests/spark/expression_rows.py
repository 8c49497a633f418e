"""Awkward rows, and the comparison of an expression on Spark with the algebra's own evaluation of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from everwhen.algebra.expressions.build import Expr
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError, QueryError
from everwhen.spark.translate.expressions import translate

NAN, INFINITY, LEAST, MOST = math.nan, math.inf, -(2**63), 2**63 - 1
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 12, 30, 1, 500),
    datetime(2024, 3, 31, 2, 30),  # an hour that Berlin skips
    datetime(2024, 10, 27, 2, 30),  # and one that it has twice
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, -1, 2, -7, 10, 10**9, LEAST, MOST, LEAST + 1, 2**53 + 1]),
    "k": (pa.int64(), [3, -1, 0, 7, -2, MOST, LEAST, 5]),
    "h": (pa.int8(), [0, 1, -1, 127, -128]),
    "j": (pa.int32(), [0, 5, -5, 2**31 - 1, -(2**31)]),
    "f": (
        pa.float64(),
        [
            0.0,
            -0.0,
            1.0,
            -2.5,
            0.5,
            0.15,
            2.675,
            0.49999999999999994,
            1e308,
            5e-324,
            NAN,
            INFINITY,
            -INFINITY,
            2.0**63,
            -(2.0**63),
            127.9,
            -128.9,
            4503599627370498.0,
            1000000000000000.0,
            -1.005,
        ],
    ),
    "x": (pa.float64(), [2.0, 0.0, -3.0, -0.0, 0.1, NAN, INFINITY, -INFINITY, 7.5]),
    "g": (pa.float32(), [0.5, -1.5, NAN, -0.0, INFINITY, 3.0]),
    "d": (pa.decimal128(10, 2), [*map(Decimal, ("0.00", "1.00", "-2.55", "0.15", "99999999.99", "-99999999.99"))]),
    "e": (pa.decimal128(38, 6), [Decimal(0), Decimal("-3.5"), Decimal("9" * 32), Decimal("0.000001")]),
    "p": (pa.bool_(), [True, False]),
    "q": (pa.bool_(), [False, True, True]),
    "s": (
        pa.string(),
        [
            "",
            "a",
            "Ab ",
            "%",
            "a_b",
            "ß",
            "\uffff",
            "😀a",
            "12",
            "-7",
            "-1.5",
            "true",
            "FALSE",
            "0",
            " x ",
            "İstanbul ΣΑΣ ǆ",
            "a,b,,c",
            "a\nb",
            "9223372036854775808",
            "007",
            "a%b",
            "1 ",
            "+1",
        ],
    ),
    "t": (pa.string(), ["a", "", ",", "\U0001f600", "b", "Ab", "ΐﬀ"]),
    "b": (pa.binary(), [b"", b"a", b"\xff\x00", b"\x7f"]),
    "us": (pa.timestamp("us"), MOMENTS),
    "ut": (pa.timestamp("us"), MOMENTS[::-1]),
    "z": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), date(2021, 1, 3), date(1, 1, 1), date(9999, 12, 31)]),
}
SCHEMA = Schema.of([(name, type_) for name, (type_, _) in VALUES.items()])
ROWS = 229  # prime, and more than any list: columns of different lengths go round against each other
PARTNERS = {"k": "i", "x": "f", "t": "s", "q": "p", "ut": "us"}  # these two columns have all pairs of their values


def the_batch() -> pa.RecordBatch:
    arrays = []
    for name, (type_, values) in VALUES.items():
        ring, partner = [*values, None], PARTNERS.get(name)
        slowness = len(VALUES[partner][1]) + 1 if partner else 1
        turn = (
            0 if name in (*PARTNERS, *PARTNERS.values()) else 1
        )  # the others turn, whatever the lengths have in common
        arrays.append(pa.array([ring[(n // slowness + turn * (n // 12)) % len(ring)] for n in range(ROWS)], type_))
    return pa.record_batch(arrays, names=list(VALUES))


BATCH = the_batch()
ARRAYS = dict(zip(BATCH.schema.names, BATCH.columns, strict=True))
FAILED = object()


def columns() -> dict[str, Column]:
    return {name: F.col(name) for name in SCHEMA.names}


def expected(expr: Expr) -> list[Any]:
    """What the algebra gives, FAILED for rows without a value."""
    try:
        return expr.evaluate(ARRAYS, ROWS).to_pylist()
    except EvaluationError:
        return [one_row(expr, n) for n in range(ROWS)]


def one_row(expr: Expr, n: int) -> Any:
    try:
        return expr.evaluate({name: array.slice(n, 1) for name, array in ARRAYS.items()}, 1).to_pylist()[0]
    except EvaluationError:
        return FAILED


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def shown(expr: Expr, n: int) -> dict[str, Any]:
    """What an expression reads of a row."""
    return {name: ARRAYS[name][n].as_py() for name in expr.columns()}


def compare(spark: SparkSession, frame: DataFrame, exprs: Sequence[Expr]) -> list[Expr]:
    """Both modes of Spark give what the algebra gives; returns the expressions that are translated."""
    kept: list[tuple[Expr, pa.DataType, list[Any]]] = []
    chosen: list[Column] = []
    of_spark = columns()
    for expr in exprs:
        try:
            type_ = expr.bind(SCHEMA)
        except QueryError:
            continue
        column = translate(expr, SCHEMA, of_spark)
        if column is None:
            continue
        try:
            wanted = expected(expr)
        except (OverflowError, ValueError):  # a time beyond Python's calendar, which has no definition
            continue
        good = [n for n, value in enumerate(wanted) if value is not FAILED]
        chosen.append(column if len(good) == ROWS else F.when(F.col("n").isin(good), column))
        kept.append((expr, type_, wanted))
    for ansi in ("true", "false") if kept else ():
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        named = [column.alias(f"e{k}") for k, column in enumerate(chosen)]
        table = frame.select("n", *named).toArrow().sort_by("n")
        for k, (expr, type_, wanted) in enumerate(kept):
            found = table.column(f"e{k}")
            assert found.type == type_, f"{expr}: {found.type}, not {type_}"
            for n, (got, want) in enumerate(zip(found.to_pylist(), wanted, strict=True)):
                assert want is FAILED or same(got, want), (
                    f"{expr}: {got!r}, not {want!r}, in {shown(expr, n)} (ANSI {ansi})"
                )
    return [expr for expr, _, _ in kept]


def must_fail(spark: SparkSession, frame: DataFrame, expr: Expr, most: int = 2) -> int:
    """Rows for which the algebra raises make Spark raise too, one in ANSI mode and one without; returns how many there
    are."""
    failing = [n for n, value in enumerate(expected(expr)) if value is FAILED]
    column = translate(expr, SCHEMA, columns())
    assert column is not None, str(expr)
    for k, n in enumerate(failing[:most]):
        spark.conf.set("spark.sql.ansi.enabled", str(k % 2 == 0).lower())
        with pytest.raises(Exception, match="has no value"):
            frame.filter(F.col("n") == n).select(column).collect()
    return len(failing)
