"""Aggregations: definitions against DuckDB and by hand, result types, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.algebra.aggregates import calls as agg
from everwhen.algebra.aggregates.calls import AggregateCall, Aggregation, UserAggregate
from everwhen.algebra.expressions.build import col
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError, QueryError

NAN, INFINITY = math.nan, math.inf

SQL = {
    ("count", ()): "count(x)",
    ("count", None): "count(*)",
    ("sum", ()): "sum(x)",
    ("avg", ()): "avg(x)",
    ("min", ()): "min(x)",
    ("max", ()): "max(x)",
    ("stddev", ()): "stddev_samp(x)",
    ("stddev_pop", ()): "stddev_pop(x)",
    ("variance", ()): "var_samp(x)",
    ("variance_pop", ()): "var_pop(x)",
    ("count_distinct", ()): "count(DISTINCT x)",
    ("median", ()): "median(x)",
    ("quantile", (0.3,)): "quantile_cont(x, 0.3)",
    ("quantile", (1,)): "quantile_cont(x, 1.0)",
    ("top_k", (2,)): "max(x, 2)",
}
SQL_OF_TEXT = {
    ("min", ()): "min(x)",
    ("max", ()): "max(x)",
    ("count_distinct", ()): "count(DISTINCT x)",
}


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def close(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        return (a != a and b != b) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)


def against_duckdb(
    database: duckdb.DuckDBPyConnection, values: list[Any], type_: pa.DataType, sql: dict[Any, str]
) -> None:
    table = pa.table({"x": pa.array(values, type_)})
    query = ", ".join(sql.values())
    expected = database.from_arrow(table).aggregate(query).fetchall()[0]
    for (function, parameters), want in zip(sql, expected, strict=True):
        plain = parameters is None
        found = Aggregation("y", function, () if plain else ("x",), parameters or ())
        got = found.evaluate([() if plain else (value,) for value in table.column("x").to_pylist()])
        if function == "top_k" and want is None:
            want = []
        assert close(got, want), (str(found), got, want)
        pa.array([got], found.result_type(Schema.of([("x", type_)])))  # the result is of the type it should be


@given(st.lists(st.none() | st.integers(-1000, 1000), min_size=1, max_size=8))
def test_integers_as_in_duckdb(database: duckdb.DuckDBPyConnection, values: list[int | None]) -> None:
    against_duckdb(database, values, pa.int64(), SQL)


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_floats_as_in_duckdb(database: duckdb.DuckDBPyConnection, values: list[float | None]) -> None:
    against_duckdb(database, values, pa.float64(), SQL)


@given(st.lists(st.none() | st.decimals(-1000, 1000, places=2), min_size=1, max_size=8))
def test_decimals_as_in_duckdb(database: duckdb.DuckDBPyConnection, values: list[Decimal | None]) -> None:
    quantiles = {key for key in SQL if key[0] in ("median", "quantile")}  # DuckDB's stay decimal, rounded
    against_duckdb(database, values, pa.decimal128(10, 2), {k: v for k, v in SQL.items() if k not in quantiles})


@given(st.lists(st.none() | st.sampled_from([NAN, 1.0, -0.0, 0.0, INFINITY, -INFINITY]), min_size=1, max_size=6))
def test_special_floats_as_in_duckdb(database: duckdb.DuckDBPyConnection, values: list[float | None]) -> None:
    names = ("count", "sum", "avg", "min", "max", "count_distinct", "top_k")
    against_duckdb(database, values, pa.float64(), {k: v for k, v in SQL.items() if k[0] in names})


@given(st.lists(st.none() | st.text(alphabet="abZä\N{GRINNING FACE}", max_size=3), min_size=1, max_size=6))
def test_texts_as_in_duckdb(database: duckdb.DuckDBPyConnection, values: list[str | None]) -> None:
    against_duckdb(database, values, pa.string(), SQL_OF_TEXT)


@given(
    st.lists(st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(-2, 2)), min_size=1, max_size=8),
    st.sampled_from(["first", "last"]),
)
def test_first_and_last_as_in_duckdb(
    database: duckdb.DuckDBPyConnection, rows: list[tuple[int | None, int | None]], function: str
) -> None:
    table = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.int64()), "k": pa.array([by for _, by in rows], pa.int64())}
    )
    order = "ASC" if function == "first" else "DESC"
    query = f"SELECT x FROM t WHERE k IS NOT NULL ORDER BY k {order}, x ASC NULLS FIRST LIMIT 1"
    found = database.from_arrow(table).query("t", query).fetchall()
    assert Aggregation("y", function, ("x", "by")).evaluate(rows) == (found[0][0] if found else None)


BY_HAND: list[tuple[Aggregation, list[Any], Any]] = [
    (Aggregation("y", "count", ()), [(), ()], 2),
    (Aggregation("y", "count", ("x",)), [None, 1], 1),
    (Aggregation("y", "count", ("x",)), [None], 0),
    (Aggregation("y", "count_distinct", ("x",)), [None], 0),
    (Aggregation("y", "count_distinct", ("x",)), [NAN, NAN, 0.0, -0.0], 2),
    (Aggregation("y", "sum", ("x",)), [None, None], None),
    (Aggregation("y", "sum", ("x",)), [0.1] * 10, 1.0),
    (Aggregation("y", "sum", ("x",)), [1e308, 1e308, -1e308], 1e308),
    (Aggregation("y", "sum", ("x",)), [1e308, 1e308], INFINITY),
    (Aggregation("y", "sum", ("x",)), [INFINITY, -INFINITY], NAN),
    (Aggregation("y", "sum", ("x",)), [1.0, NAN], NAN),
    (Aggregation("y", "sum", ("x",)), [2**63 - 1, 1, -1], 2**63 - 1),
    (Aggregation("y", "sum", ("x",)), [Decimal("0.1"), Decimal("1" + "0" * 36 + ".2")], Decimal("1" + "0" * 36 + ".3")),
    (Aggregation("y", "avg", ("x",)), [2**62, 2**62, 2**62], float(2**62)),
    (Aggregation("y", "avg", ("x",)), [1.0, NAN], NAN),
    (Aggregation("y", "avg", ("x",)), [Decimal("0.10"), Decimal("0.20")], 0.15),
    (Aggregation("y", "min", ("x",)), [NAN, 1.0], 1.0),
    (Aggregation("y", "min", ("x",)), [NAN], NAN),
    (Aggregation("y", "max", ("x",)), [NAN, INFINITY], NAN),
    (Aggregation("y", "max", ("x",)), [date(2024, 1, 1), None, date(2023, 1, 1)], date(2024, 1, 1)),
    (Aggregation("y", "stddev", ("x",)), [3], None),
    (Aggregation("y", "stddev_pop", ("x",)), [3], 0.0),
    (Aggregation("y", "variance", ("x",)), [2**62, 2**62 + 1], 0.5),
    (Aggregation("y", "variance", ("x",)), [1.0, NAN], NAN),
    (Aggregation("y", "variance", ("x",)), [1.0, INFINITY], NAN),
    (Aggregation("y", "median", ("x",)), [1, 2], 1.5),
    (Aggregation("y", "median", ("x",)), [Decimal("0.10"), Decimal("0.20")], 0.15),
    (Aggregation("y", "median", ("x",)), ["b", "a"], "a"),
    (Aggregation("y", "median", ("x",)), [True, False, True, True], True),
    (Aggregation("y", "median", ("x",)), [1.0, NAN, 2.0], 2.0),
    (Aggregation("y", "median", ("x",)), [INFINITY, INFINITY], INFINITY),
    (Aggregation("y", "quantile", ("x",), (0.25,)), [0, 10], 2.5),
    (Aggregation("y", "quantile", ("x",), (1.0,)), ["a", "b"], "b"),
    (Aggregation("y", "top_k", ("x",), (2,)), [1, 3, None, 3], [3, 3]),
    (Aggregation("y", "top_k", ("x",), (5,)), [1.0, NAN], [NAN, 1.0]),
    (Aggregation("y", "top_k", ("x",), (2,)), [None], []),
    (Aggregation("y", "first", ("x", "by")), [("b", 1), ("a", 1), ("c", None)], "a"),
    (Aggregation("y", "first", ("x", "by")), [("b", 1), (None, 1)], None),
    (Aggregation("y", "first", ("x", "by")), [("b", None)], None),
    (Aggregation("y", "last", ("x", "by")), [("b", 1.0), ("a", NAN)], "a"),
]


@pytest.mark.parametrize(("aggregation", "values", "expected"), BY_HAND)
def test_by_hand(aggregation: Aggregation, values: list[Any], expected: Any) -> None:
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    assert close(aggregation.evaluate(rows), expected)


@pytest.mark.parametrize(
    "values", [[2**63 - 1, 1], [Decimal("9" * 38), Decimal(1)]], ids=["more than 64 bits", "more than 38 digits"]
)
def test_a_sum_that_does_not_fit_is_an_error(values: list[Any]) -> None:
    with pytest.raises(EvaluationError, match="overflow"):
        Aggregation("y", "sum", ("x",)).evaluate([(value,) for value in values])


PRODUCT = UserAggregate(
    init=lambda v: v,
    merge=lambda s, v: s * v,
    eval=float,
    inverse=lambda s, v: s / v,
    result=pa.float64(),
    name="product",
)


def test_user_aggregates_skip_nulls() -> None:
    product = Aggregation("y", "user", ("x",), (PRODUCT,))
    assert product.evaluate([(2,), (None,), (5,)]) == 10.0
    assert product.evaluate([(None,)]) is None
    assert product.result_type(Schema.of([("x", pa.list_(pa.int8()))])) == pa.float64()
    assert str(product) == "product(x)"


SCHEMA = Schema.of(
    [
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("ms")),
        ("l", pa.list_(pa.int64())),
    ]
)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (agg.count(), pa.int64()),
        (agg.count("l"), pa.int64()),
        (agg.count_distinct("s"), pa.int64()),
        (agg.sum("i"), pa.int64()),
        (agg.sum("f"), pa.float64()),
        (agg.sum("d"), pa.decimal128(38, 2)),
        (agg.avg("d"), pa.float64()),
        (agg.stddev("i"), pa.float64()),
        (agg.stddev_pop("i"), pa.float64()),
        (agg.variance("i"), pa.float64()),
        (agg.variance_pop("i"), pa.float64()),
        (agg.min("f"), pa.float32()),
        (agg.max("b"), pa.bool_()),
        (agg.median("d"), pa.float64()),
        (agg.median("t"), pa.timestamp("ms")),
        (agg.quantile("s", 0.1), pa.string()),
        (agg.top_k("i", 3), pa.list_(pa.int32())),
        (agg.first("s", by="t"), pa.string()),
        (agg.last(col("f"), by=col("i")), pa.float32()),
        (agg.aggregate(PRODUCT)("f"), pa.float64()),
    ],
)
def test_result_types(call: AggregateCall, expected: pa.DataType) -> None:
    aggregation = Aggregation("y", call.function, tuple(str(arg) for arg in call.args), call.parameters)
    assert aggregation.result_type(SCHEMA) == expected


@pytest.mark.parametrize(
    ("aggregation", "parts"),
    [
        (Aggregation("y", "sum", ("s",)), ["sum(s) needs numbers", "s is of type string"]),
        (Aggregation("y", "avg", ("b",)), ["avg(b) needs numbers", "bool"]),
        (Aggregation("y", "sum", ("ii",)), ["unknown column 'ii' in sum(ii)"]),
        (Aggregation("y", "max", ("l",)), ["max(l) needs values that can be ordered", "list"]),
        (Aggregation("y", "first", ("s", "l")), ["can be ordered", "l is of type list"]),
        (Aggregation("y", "count_distinct", ("l",)), ["count(distinct l)", "can be compared"]),
        (Aggregation("y", "summ", ("i",)), ["unknown aggregate function 'summ'", "did you mean 'sum'?"]),
        (Aggregation("y", "zzz", ("i",)), ["there are count, sum"]),
        (Aggregation("y", "sum", ()), ["sum takes 1 columns, not 0"]),
        (Aggregation("y", "count", ("i", "f")), ["0 or 1"]),
        (Aggregation("y", "first", ("i",)), ["first takes 2 columns"]),
        (Aggregation("y", "quantile", ("i",)), ["quantile takes 1 parameters, not 0"]),
        (Aggregation("y", "sum", ("i",), (3,)), ["sum takes 0 parameters"]),
        (Aggregation("y", "quantile", ("i",), (1.5,)), ["between 0 and 1", "1.5"]),
        (Aggregation("y", "quantile", ("i",), (NAN,)), ["between 0 and 1"]),
        (Aggregation("y", "top_k", ("i",), (0,)), ["at least 1", "not 0"]),
        (Aggregation("y", "top_k", ("i",), (True,)), ["whole number"]),
        (Aggregation("y", "user", ("i",), (sum,)), ["needs a UserAggregate"]),
    ],
)
def test_wrong_aggregations_are_refused(aggregation: Aggregation, parts: list[str]) -> None:
    with pytest.raises(QueryError) as error:
        aggregation.result_type(SCHEMA)
    for part in parts:
        assert part in str(error.value)


def test_calls_read_as_text() -> None:
    assert str(agg.count()) == "count(*)"
    assert str(agg.count_distinct(col("a") + 1)) == "count(distinct a + 1)"
    assert str(agg.quantile("a", 0.9)) == "quantile(a, 0.9)"
    assert str(agg.last("a", by="t")) == "last(a by t)"
    assert str(agg.aggregate(PRODUCT)("a")) == "product(a)"
    assert str(Aggregation("y", "top_k", ("a",), (3,))) == "top_k(a, 3)"


def test_an_argument_is_a_name_or_an_expression() -> None:
    with pytest.raises(QueryError, match="not 5; for a constant use lit"):
        agg.sum(5)  # type: ignore[arg-type]


def test_times_keep_their_type() -> None:
    moments = [datetime(2024, 1, 1), datetime(2024, 1, 3), None]
    rows = [(moment,) for moment in moments]
    assert Aggregation("y", "median", ("x",)).evaluate(rows) == datetime(2024, 1, 1)
    assert Aggregation("y", "max", ("x",)).evaluate(rows) == datetime(2024, 1, 3)
