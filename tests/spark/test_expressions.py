"""differential: an expression on Spark is what the algebra evaluates, value by value, type by type, error by error.

A Spark job costs a third of a second and takes hundreds of columns, so each job compares many expressions at once.
The session runs in a time zone with summer time, and everything is done with Spark's ANSI mode on and off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from everwhen.algebra.expressions.build import Call, Expr, col, function, lit, when
from everwhen.errors import QueryError
from everwhen.spark.translate.expressions import arrow_type, literal, spark_type, translate
from spark.expression_cases import CASES, COMPARISONS, FAILING, NOT_TRANSLATED, UNITS
from spark.expression_rows import (
    ARRAYS,
    BATCH,
    FAILED,
    LEAST,
    MOST,
    ROWS,
    SCHEMA,
    VALUES,
    columns,
    compare,
    expected,
    must_fail,
    same,
)


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


# -- named cases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", CASES)
def test_named_cases(spark: SparkSession, frame: DataFrame, group: str) -> None:
    exprs = CASES[group]
    found: list[Expr] = []
    for start in range(0, len(exprs), 150):
        found += compare(spark, frame, exprs[start : start + 150])
    assert len(found) >= len(exprs) * (0.3 if group == "casts" else 0.5), "most of them are translated"


@pytest.mark.parametrize("expr", FAILING, ids=str)
def test_where_the_algebra_fails_spark_does(spark: SparkSession, frame: DataFrame, expr: Expr) -> None:
    assert must_fail(spark, frame, expr) > 0


def test_a_filter_does_not_hide_a_failure(spark: SparkSession, frame: DataFrame) -> None:
    """Spark drops rows with nulls before it looks at the rest of a plain comparison."""
    batch = [n for n in range(ROWS) if BATCH["i"][n].as_py() == MOST and BATCH["x"][n].as_py() is None]
    assert batch
    for expr in (col("x") > col("i") * 2, (col("i") * 2 > 0) & (col("x") > 0)):
        condition = translate(expr, SCHEMA, columns())
        assert condition is not None
        with pytest.raises(Exception, match="has no value"):
            frame.filter(F.col("n").isin(batch)).filter(condition).collect()


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_an_operand_that_is_not_reached_does_not_fail(spark: SparkSession, frame: DataFrame, ansi: str) -> None:
    """Not even if two columns share it: Spark computes what they have in common beforehand."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    small, grown = (col("i") < 100) & (col("i") > -100), col("i") * 100 > 5
    exprs = [
        small & grown,
        ~small | grown,
        when(small).then(col("i") * 100).otherwise(0),
        when(small).then(col("i") * 100 > 5).otherwise(False),
        function("coalesce", when(small).then(None).otherwise(0), col("i") * 100),
    ]
    found = [translate(expr, SCHEMA, columns()) for expr in exprs]
    chosen = [column.alias(f"e{k}") for k, column in enumerate(found) if column is not None]
    assert len(chosen) == len(exprs)
    table = frame.select("n", *chosen).toArrow().sort_by("n")
    for k, expr in enumerate(exprs):
        assert table.column(f"e{k}").to_pylist() == expr.evaluate(ARRAYS, ROWS).to_pylist(), str(expr)


@pytest.mark.parametrize("expr", NOT_TRANSLATED, ids=str)
def test_what_would_differ_is_left_to_python(spark: SparkSession, expr: Expr) -> None:
    assert translate(expr, SCHEMA, columns()) is None


def test_large_expressions_are_left_to_python(spark: SparkSession) -> None:
    deep = col("i")
    for _ in range(8):
        deep = deep % col("k")
    assert translate(deep, SCHEMA, columns()) is None


def test_a_long_sum_is_translated(spark: SparkSession, frame: DataFrame) -> None:
    total: Expr = col("i")
    for _ in range(6):
        total = total + col("k")
    assert compare(spark, frame, [total]) == [total]


def test_unknown_columns(spark: SparkSession) -> None:
    with pytest.raises(QueryError, match="unknown column"):
        translate(col("nothing"), SCHEMA, columns())
    assert translate(col("i") + 1, SCHEMA, {"j": F.col("j")}) is None


# -- types and constants -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [*SCHEMA.types, pa.int16(), pa.decimal128(38, 38)], ids=str)
def test_types_there_and_back(type_: pa.DataType) -> None:
    there = spark_type(type_)
    assert there is not None and arrow_type(there) == type_


UNCARRIED = [pa.uint8(), pa.timestamp("ms"), pa.timestamp("us", "Europe/Berlin"), pa.date64(), pa.duration("us")]
UNCARRIED += [pa.large_string(), pa.decimal256(40, 2), pa.decimal128(5, -2), pa.list_(pa.int64()), pa.null()]


@pytest.mark.parametrize("type_", UNCARRIED, ids=str)
def test_types_that_spark_does_not_carry(type_: pa.DataType) -> None:
    assert spark_type(type_) is None
    with pytest.raises(QueryError, match="Spark has no such type"):
        literal(None, type_)


@pytest.mark.parametrize(
    "type_",
    [T.ArrayType(T.NullType()), T.StructType([]), T.DayTimeIntervalType(), T.StringType("UTF8_LCASE"), T.NullType()],
    ids=str,
)
def test_types_of_spark_that_have_no_counterpart(type_: T.DataType) -> None:
    assert arrow_type(type_) is None


def test_constants(spark: SparkSession, frame: DataFrame) -> None:
    wanted = [(value, type_) for type_, values in VALUES.values() for value in (*values, None)]
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        chosen = [literal(value, type_).alias(f"e{k}") for k, (value, type_) in enumerate(wanted)]
        table = frame.limit(1).select(*chosen).toArrow()
        for k, (value, type_) in enumerate(wanted):
            found = table.column(f"e{k}")
            assert found.type == type_
            assert same(found[0].as_py(), value), (found[0], value)
            if isinstance(value, float):
                assert math.copysign(1, found[0].as_py()) == math.copysign(1, value) or math.isnan(value)
    with pytest.raises(QueryError, match="not a constant of type"):
        literal("a", pa.int64())


# -- random expressions ------------------------------------------------------------------------------------------------


def cols(*names: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from([col(name) for name in names])


def constants(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Expr]:
    return values.map(lit)


def calls(names: Sequence[str], *args: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.tuples(st.sampled_from(names), *args).map(lambda found: Call(found[0], found[1:]))


SMALL = constants(st.integers(-3, 3))
TEXT = constants(st.text(alphabet="ab%_. äßΣİ\N{GRINNING FACE}'", max_size=3))


def numbers(depth: int) -> st.SearchStrategy[Expr]:
    wide = constants(st.integers(LEAST, MOST) | st.floats() | st.decimals(-99, 99, places=2))
    leaves = cols("i", "k", "h", "j", "f", "x", "g", "d", "i", "f") | SMALL | wide
    if depth == 0:
        return leaves
    below = numbers(depth - 1)
    return st.one_of(
        leaves,
        calls(["+", "-", "*", "/", "%", "//", "least", "greatest", "coalesce", "nullif"], below, below),
        calls(["negate", "abs", "sign", "floor", "ceil", "trunc", "sqrt"], below),
        calls(["round"], below, SMALL),
        calls(["case"], conditions(depth - 1), below, below),
        calls(["length"], texts(depth - 1)),
        calls(["position"], texts(depth - 1), texts(0)),
        calls(["year", "week", "day_of_week", "day_of_year", "month"], times(depth - 1)),
        calls(["hour", "minute", "second", "epoch_ms"], cols("us", "z")),
        st.builds(Expr.cast, below, st.sampled_from(["int64", "int16", "float64", "float32", "decimal(12,1)"])),
    )


def texts(depth: int) -> st.SearchStrategy[Expr]:
    leaves = cols("s", "t") | TEXT
    if depth == 0:
        return leaves
    below = texts(depth - 1)
    return st.one_of(
        leaves,
        calls(["lower", "upper", "reverse", "trim", "ltrim", "rtrim"], below),
        calls(["concat", "coalesce", "least", "trim"], below, below),
        calls(["substr"], below, SMALL, constants(st.integers(0, 3))),
        calls(["left", "right", "substr"], below, SMALL),
        calls(["replace"], below, texts(0), texts(0)),
        calls(["split_part"], below, texts(0), SMALL),
        calls(["case"], conditions(depth - 1), below, below),
        cols("i", "d", "p", "us", "day").map(lambda e: e.cast("string")),
    )


def times(depth: int) -> st.SearchStrategy[Expr]:
    leaves = cols("us", "ut", "z", "day") | constants(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)))
    if depth == 0:
        return leaves
    below = times(depth - 1)
    spans = constants(st.timedeltas(timedelta(days=-400), timedelta(days=400)))
    return st.one_of(
        leaves,
        calls(["date_trunc"], constants(st.sampled_from(UNITS)), below),
        calls(["+", "-"], below, spans),
        calls(["least", "greatest", "coalesce"], below, below),
        st.builds(Expr.cast, below, st.sampled_from(["date32", "timestamp[us]"])),
    )


def conditions(depth: int) -> st.SearchStrategy[Expr]:
    leaves = cols("p", "q") | constants(st.none() | st.booleans())
    if depth == 0:
        return leaves
    below = conditions(depth - 1)
    return st.one_of(
        leaves,
        calls(["and", "or"], below, below),
        calls(["not"], below),
        *(calls(COMPARISONS, each(depth - 1), each(depth - 1)) for each in (numbers, texts, times)),
        calls(["starts_with", "ends_with", "contains", "like"], texts(depth - 1), texts(0)),
        calls(["is_null", "not_null"], numbers(depth - 1)),
        calls(["in"], numbers(depth - 1), SMALL, SMALL | constants(st.floats() | st.none())),
        calls(["in"], texts(depth - 1), TEXT, TEXT),
        st.builds(Expr.cast, numbers(depth - 1), st.just("bool")),
    )


@settings(
    max_examples=max(2, settings.default.max_examples // 20),
    phases=[Phase.explicit, Phase.generate],  # a smaller example costs a job each; the message names the expression
    suppress_health_check=[*HealthCheck],
)
@given(st.data())
def test_random_expressions(spark: SparkSession, frame: DataFrame, data: st.DataObject) -> None:
    kinds = [numbers(3), conditions(3), texts(2), times(2)]
    exprs = [data.draw(kinds[k % 4]) for k in range(60)]
    found = compare(spark, frame, exprs)
    failing = [expr for expr in found if any(value is FAILED for value in expected(expr))]
    for expr in failing[:3]:
        must_fail(spark, frame, expr, most=1)
