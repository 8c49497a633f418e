"""differential: an expression on Spark equals the algebra's own evaluation, value by value, type by type, error by error.

A Spark job costs a third of a second and takes hundreds of columns, so each job compares many expressions at once.
The session runs in a time zone with summer time, and everything is done with Spark's ANSI mode on and off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from everwhen.algebra.expr import Call, Expr, col, function, lit, udf, when
from everwhen.errors import EvaluationError, QueryError
from everwhen.model.schema import Schema
from everwhen.runtime.spark.expressions import arrow_type, literal, spark_type, translate

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
        [0.0, -0.0, 1.0, -2.5, 0.5, 0.15, 2.675, 0.49999999999999994, 1e308, 5e-324, NAN, INFINITY, -INFINITY]
        + [2.0**63, -(2.0**63), 127.9, -128.9, 4503599627370497.5, 1e15, -1.005],
    ),
    "x": (pa.float64(), [2.0, 0.0, -3.0, -0.0, 0.1, NAN, INFINITY, -INFINITY, 7.5]),
    "g": (pa.float32(), [0.5, -1.5, NAN, -0.0, INFINITY, 3.0]),
    "d": (pa.decimal128(10, 2), [*map(Decimal, ("0.00", "1.00", "-2.55", "0.15", "99999999.99", "-99999999.99"))]),
    "e": (pa.decimal128(38, 6), [Decimal(0), Decimal("-3.5"), Decimal("9" * 32), Decimal("0.000001")]),
    "p": (pa.bool_(), [True, False]),
    "q": (pa.bool_(), [False, True, True]),
    "s": (
        pa.string(),
        ["", "a", "Ab ", "%", "a_b", "ß", "\uffff", "\U0001f600a", "12", "-7", "-1.5", "true", "FALSE", "0", " x "]
        + ["İstanbul ΣΑΣ ǆ", "a,b,,c", "a\nb", "9223372036854775808", "007", "a%b", "1 ", "+1"],
    ),
    "t": (pa.string(), ["a", "", ",", "\U0001f600", "b", "Ab", "ΐﬀ"]),
    "b": (pa.binary(), [b"", b"a", b"\xff\x00", b"\x7f"]),
    "us": (pa.timestamp("us"), MOMENTS),
    "ut": (pa.timestamp("us"), MOMENTS[::-1]),
    "z": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), date(2021, 1, 3), date(1, 1, 1), date(9999, 12, 31)]),
}
SCHEMA = Schema.of([(name, type_) for name, (type_, _) in VALUES.items()])
ROWS = 173  # prime, and more than any list: columns of different lengths go round against each other
COLUMNS = {name: F.col for name in SCHEMA.names}


def the_batch() -> pa.RecordBatch:
    arrays = []
    for type_, values in VALUES.values():
        ring = [*values, None]
        arrays.append(pa.array([ring[n * (1 + n // len(ring)) % len(ring)] for n in range(ROWS)], type_))
    return pa.record_batch(arrays, names=list(VALUES))


BATCH = the_batch()
ARRAYS = dict(zip(BATCH.schema.names, BATCH.columns, strict=True))
FAILED = object()


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    """The rows as a Parquet file, so that Spark compiles the expressions instead of folding them."""
    path = Path(tmp_path_factory.mktemp("rows")) / "rows.parquet"
    pq.write_table(pa.Table.from_batches([BATCH]).append_column("n", pa.array(range(ROWS), pa.int32())), path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark.read.parquet(str(path))
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.unset("spark.sql.ansi.enabled")


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


def compare(spark: SparkSession, frame: DataFrame, exprs: Sequence[Expr]) -> list[Expr]:
    """Both modes of Spark give what the algebra gives; returns the expressions that are translated."""
    kept: list[tuple[Expr, pa.DataType, list[Any]]] = []
    chosen: list[Column] = []
    for expr in exprs:
        try:
            type_ = expr.bind(SCHEMA)
        except QueryError:
            continue
        column = translate(expr, SCHEMA, columns())
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
                row = {name: ARRAYS[name][n].as_py() for name in expr.columns()}
                assert want is FAILED or same(got, want), f"{expr}: {got!r}, not {want!r}, in {row} (ANSI {ansi})"
    return [expr for expr, _, _ in kept]


def must_fail(spark: SparkSession, frame: DataFrame, expr: Expr, most: int = 3) -> int:
    """Rows for which the algebra raises make Spark raise too; returns how many there are."""
    failing = [n for n, value in enumerate(expected(expr)) if value is FAILED]
    column = translate(expr, SCHEMA, columns())
    assert column is not None, str(expr)
    for k, n in enumerate(failing[:most]):
        spark.conf.set("spark.sql.ansi.enabled", str(k % 2 == 0).lower())
        with pytest.raises(Exception, match="has no value"):
            frame.filter(F.col("n") == n).select(column).collect()
    return len(failing)


# -- named cases -------------------------------------------------------------------------------------------------------

NUMBERS = ["i", "k", "h", "j", "f", "x", "g", "d", "e"]
TEXTS = ["s", "t"]
TIMES = ["us", "ut", "z", "day"]
CONSTANTS: list[Any] = [0, 1, -1, 3, -3, LEAST, MOST, 0.0, -0.0, 0.5, -2.5, NAN, INFINITY, 9007199254740993.0, None]
UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def pairs(names: Sequence[str], symbols: Sequence[str]) -> list[Expr]:
    return [Call(symbol, (col(a), col(b))) for symbol in symbols for a, b in product(names, names)]


def with_constants(names: Sequence[str], symbols: Sequence[str], values: Sequence[Any]) -> list[Expr]:
    found: list[Expr] = []
    for symbol, name, value in product(symbols, names, values):
        found += [Call(symbol, (col(name), lit(value))), Call(symbol, (lit(value), col(name)))]
    return found


CAST_TARGETS = ["int8", "int16", "int32", "int64", "float32", "float64", "decimal(6,1)", "decimal(38,10)", "bool"]
CAST_TARGETS += ["string", "date32", "timestamp[us]", "binary"]
CASES: dict[str, list[Expr]] = {
    "arithmetic": pairs(NUMBERS, ["+", "-", "*", "/", "//", "%"]),
    "arithmetic with constants": with_constants(["i", "j", "f", "d"], ["+", "-", "*", "/", "//", "%"], CONSTANTS),
    "comparisons": pairs([*NUMBERS, *TEXTS, *TIMES, "p", "q", "b"], COMPARISONS),
    "comparisons with constants": [
        *with_constants(["i", "j", "f", "g", "d"], COMPARISONS, CONSTANTS),
        *with_constants(["s"], COMPARISONS, ["", "a", "ß", "\uffff", None]),
        *with_constants(["us"], COMPARISONS, [*MOMENTS, None]),
        *with_constants(["day"], COMPARISONS, [date(1, 1, 1), date(2024, 2, 29)]),
        *with_constants(["d", "i"], COMPARISONS, [Decimal("0.15"), Decimal("-2.55")]),
        *with_constants(["b"], COMPARISONS, [b"a"]),
    ],
    "functions of numbers": [
        *(function(name, col(x)) for name in ("negate", "abs", "sign", "floor", "ceil", "trunc", "sqrt") for x in NUMBERS),
        *(function("round", col(x), digits) for x in NUMBERS for digits in (-15, -3, -1, 0, 1, 2, 3, 11, 15)),
        *(function("round", col(x)) for x in NUMBERS),
    ],
    "functions of text": [
        *(function(name, col(x)) for name in ("lower", "upper", "reverse", "length", "trim", "ltrim", "rtrim") for x in TEXTS),
        *(function(name, col("s"), x) for name in ("trim", "ltrim", "rtrim") for x in ("", "a ", "\U0001f600ß", col("t"))),
        *(function("substr", col("s"), n) for n in range(-4, 5)),
        *(function("substr", col("s"), n, size) for n in range(-4, 5) for size in (0, 1, 2, 9, 2**40)),
        *(function(name, col("s"), n) for name in ("left", "right") for n in (-2, 0, 1, 2, 99, 2**40)),
        *(function("replace", col("s"), old, new) for old, new in product(("", "a", col("t")), ("", "xy", col("t")))),
        *(function("split_part", col("s"), by, n) for by in (",", "", "a", col("t")) for n in (-4, -1, 0, 1, 2, 5)),
        *(function(name, col("s"), x) for name in ("position", "contains") for x in ("", "a", "ß", col("t"))),
        *(function(name, col("s"), x) for name in ("starts_with", "ends_with") for x in ("", "a", "ß", col("t"))),
        *(function("concat", *args) for args in ((col("s"),), (col("s"), col("t"), "x"), (col("s"), lit(None)))),
        *(function("like", col("s"), x) for x in ("", "%", "_", "a%", "%b", "a_b", "a\\_b", "a\\%b", "%\\%", "\\%%", "%a%")),
        *(function("like", col("s"), x) for x in ("a\\", "\\a", "a\\\\b", "%,%", "_%_", "\\_", "a%%b", ".", "a.b")),
    ],
    "functions of times": [
        *(function(name, col(x)) for name in ("year", "quarter", "month", "week", "day") for x in TIMES),
        *(function(name, col(x)) for name in ("day_of_week", "day_of_year") for x in TIMES),
        *(function(name, col(x)) for name in ("hour", "minute", "second", "epoch_ms") for x in TIMES),
        *(function("date_trunc", unit, col(x)) for unit in UNITS for x in TIMES),
        *(Call(symbol, (col(x), lit(span))) for symbol in "+-" for x in TIMES for span in (
            timedelta(0), timedelta(days=3, microseconds=1), timedelta(microseconds=-1), timedelta(hours=-25),
        )),
        lit(timedelta(hours=1)) + col("us"),
        col("us") + lit(5, pa.duration("s")),
        col("us") + lit(None, pa.duration("s")),
        col("us") - col("ut"),
    ],
    "casts": [col(name).cast(target) for name in VALUES for target in CAST_TARGETS]
    + [col("i").cast(pa.timestamp("us", "UTC")), col("z").cast(pa.date32())],
    "logic": [
        *(Call(name, (col("p"), x)) for name in ("and", "or") for x in (col("q"), lit(True), lit(False), lit(None))),
        *(Call(name, (col("p"), col("i") + 1 > col("j"))) for name in ("and", "or")),
        *(Call(name, (col("i") + 1 > col("j"), col("p"))) for name in ("and", "or")),
        *(Call(name, (col("i") + 1 > 0, x)) for name in ("and", "or") for x in (lit(True), lit(False), lit(None))),
        (col("p") | (col("i") * 3 > 7)) & ~(col("q") & (col("s").cast("int64") > 1)) & (col("h") > 0),
        ~col("p"),
        *(function(name, x) for name in ("is_null", "not_null") for x in (col("s"), col("f") / 2, col("i") + 1)),
        col("f").is_in([0.0, NAN, 1.0]),
        col("f").is_in([-0.0, None]),
        col("f").is_in([float(n) for n in range(14)] + [NAN]),
        col("i").is_in([1, 2, None]),
        col("i").is_in([]),
        (col("i") + 1).is_in([]),
        (col("i") + 1).is_in([1, 3]),
        col("i").is_in([0.5, 9007199254740992.0]),
        col("s").is_in(["a", "ß"]),
        col("j").is_in([2**40, 5]),
        col("d").is_in([Decimal("0.150"), 1]),
        col("i").between(0, 10),
        when(col("p")).then(col("i")).otherwise(col("f")),
        when(col("p")).then(col("i") + 1).when(col("q")).then(col("i") * 2).otherwise(None),
        when(col("i") > 0).then(col("i") - 1).otherwise(col("i") + 1),
        when(col("i") + 1 > 0).then("a").otherwise("a"),
        when(col("i") + 1 > 0).then("a").otherwise("b"),
        when(col("s") == "12").then(col("s").cast("int64")).otherwise(0),
        function("coalesce", col("i"), col("j"), 0),
        function("coalesce", col("g"), col("f")),
        function("coalesce", lit(None), col("s")),
        function("coalesce", col("k"), col("i") * 10),
        function("coalesce", col("i") + 1, 0) > col("j"),
        function("nullif", col("f"), col("i")),
        function("nullif", col("i"), 0),
        function("nullif", col("s"), "a"),
        function("nullif", col("k"), col("i") + 1),
        *(function(name, *args) for name in ("least", "greatest") for args in (
            (col("i"), col("k")), (col("i"), col("f"), 0), (col("s"), col("t")), (col("f"),), (col("us"), col("ut")),
            (col("i") + 1, col("k")), (col("d"), col("i")),
        )),
    ],
}


@pytest.mark.parametrize("group", CASES)
def test_named_cases(spark: SparkSession, frame: DataFrame, group: str) -> None:
    exprs = CASES[group]
    found: list[Expr] = []
    for start in range(0, len(exprs), 150):
        found += compare(spark, frame, exprs[start : start + 150])
    assert len(found) >= len(exprs) * {"casts": 0.3, "comparisons": 0.25}.get(group, 0.5)
