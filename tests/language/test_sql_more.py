"""What users of other systems write: keys in groups and subqueries, the calendar, zones, JSON, lists, spellings."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.expressions.build import Expr, col, function, lit
from everwhen.errors import EvaluationError, SqlError
from everwhen.testing import history_of

D, T = datetime.date, datetime.datetime

HERE: dict[str, Any] = {
    "DATE '2024-01-31' + INTERVAL '1' MONTH": D(2024, 2, 29),
    "DATE '2024-03-31' - INTERVAL '1' MONTH": D(2024, 2, 29),
    "DATE '1998-12-01' - INTERVAL '90' DAY (3)": D(1998, 9, 2),
    "INTERVAL '2' YEAR + DATE '2024-02-29'": D(2026, 2, 28),
    "DATE '2024-01-31' + 1": D(2024, 2, 1),
    "DATE '2024-01-31' + INTERVAL '1' HOUR": T(2024, 1, 31, 1),
    "TIMESTAMP '2024-01-31 10:00:00' + INTERVAL '1 year 1 month 2 days'": T(2025, 3, 2, 10),
    "TIMESTAMP '2024-01-31 10:00:00' - INTERVAL '1-1' YEAR TO MONTH": T(2022, 12, 31, 10),
    "to_char(TIMESTAMP '2024-01-31 10:05:00', 'YYYY-MM-DD HH24:MI')": "2024-01-31 10:05",
    "date_format(TIMESTAMP '2024-01-31 10:05:00', 'dd.MM.yyyy''T''HH:mm')": "31.01.2024T10:05",
    "to_date('31.01.2024', 'dd.MM.yyyy')": D(2024, 1, 31),
    "to_timestamp(1)": T(1970, 1, 1, 0, 0, 1),
    "make_date(2024, 2, 29)": D(2024, 2, 29),
    "last_day(DATE '2024-02-03')": D(2024, 2, 29),
    "datediff(DATE '2024-03-01', DATE '2024-02-01')": 29,
    "date_sub(DATE '2024-03-01', 1)": D(2024, 2, 29),
    "EXTRACT(EPOCH FROM TIMESTAMP '1970-01-01 00:00:01.5')": 1.5,
    "EXTRACT(MILLISECONDS FROM TIMESTAMP '1969-12-31 23:59:58.5')": 58500,
    "EXTRACT(ISOYEAR FROM DATE '2021-01-01')": 2020,
    "TIMESTAMP '2024-07-01 12:00:00' AT TIME ZONE 'Europe/Berlin'": T(2024, 7, 1, 14),
    "to_utc_timestamp(TIMESTAMP '2024-07-01 14:00:00', 'Europe/Berlin')": T(2024, 7, 1, 12),
    "'{\"a\": {\"b\": [1, 2]}}' -> 'a' -> 'b'": "[1,2]",
    "'{\"a\": {\"b\": [1, \"x\"]}}' -> 'a' -> 'b' ->> 1": "x",
    "json_value('{\"a\": [1, {\"b\": 2.50}]}', '$.a[1].b')": "2.50",
    "json_value('no json', '$.a')": None,
    "CAST('abcdef' AS VARCHAR(3))": "abc",
    "concat_ws('-', 'a', NULL, 'b')": "a-b",
    "300::INT8": 300,
    "'2024-01-01T00:00:00+02:00'::TIMESTAMPTZ": T(2023, 12, 31, 22),
}


@pytest.mark.parametrize("expression", HERE)
@pytest.mark.parametrize("optimize", [True, False])
def test_what_an_expression_is(expression: str, optimize: bool) -> None:
    query = ew.sql(f"CREATE STREAM S (n INT); SELECT {expression} AS v FROM S", optimize=optimize)
    (row,) = history_of(list(ew.run(query, {"S": [ew.Insert(1, 2, {"n": 1})]}))).snapshot(1)
    assert row == (HERE[expression],) and type(row[0]) is type(HERE[expression])


MOMENTS = [T(2024, 1, 31, 23, 5, 6, 789000), T(1960, 2, 29, 1), T(1970, 1, 1), T(2100, 12, 31, 23, 59, 59), None]
BY_COLUMNS: dict[str, tuple[Any, str]] = {
    "add_months": (lambda x: function("add_months", x, -13), "x - INTERVAL 13 MONTH"),
    "epoch": (lambda x: function("epoch", x), "epoch(x)"),
    "millisecond": (lambda x: function("millisecond", x), "millisecond(x)"),
    "microsecond": (lambda x: function("microsecond", x), "microsecond(x)"),
    "iso_year": (lambda x: function("iso_year", x), "isoyear(x)"),
    "last_day": (lambda x: function("last_day", x), "last_day(x)"),
    "datediff": (lambda x: function("datediff", x, lit(D(2000, 1, 1))), "date_diff('day', DATE '2000-01-01', x::DATE)"),
    "date_add": (lambda x: function("date_add", x.cast("date32[day]"), 40), "x::DATE + 40"),
}


LENGTHS = [
    datetime.timedelta(hours=1, microseconds=500_000),
    datetime.timedelta(days=-1, seconds=1),
    datetime.timedelta(0),
    None,
]


def test_the_length_of_an_interval_in_seconds() -> None:
    expression = function("epoch", col("x"))
    by_columns = expression.evaluate({"x": pa.array(LENGTHS, pa.duration("us"))}, len(LENGTHS)).to_pylist()
    by_values = [expression.value({"x": value}) for value in LENGTHS]
    assert by_columns == by_values == [3600.5, -86399.0, 0.0, None]


@pytest.mark.parametrize("name", BY_COLUMNS)
def test_functions_of_moments_are_duckdb_s_by_columns_and_by_values(name: str) -> None:
    build, theirs = BY_COLUMNS[name]
    expr: Expr = build(col("x"))
    by_columns = expr.evaluate({"x": pa.array(MOMENTS, pa.timestamp("us"))}, len(MOMENTS)).to_pylist()
    assert by_columns == [expr.value({"x": x}) for x in MOMENTS]
    moments = pa.table({"x": pa.array(MOMENTS, pa.timestamp("us"))})  # noqa: F841 - DuckDB reads it by its name
    assert by_columns == [row[0] for row in duckdb.sql(f"SELECT {theirs} FROM moments").fetchall()]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC", "+05:30", "-03:00"])
def test_zones_by_columns_and_by_values(zone: str) -> None:
    for name in ("from_utc_timestamp", "to_utc_timestamp"):
        expr = function(name, col("x"), lit(zone))
        found = expr.evaluate({"x": pa.array(MOMENTS, pa.timestamp("us"))}, len(MOMENTS)).to_pylist()
        assert found == [expr.value({"x": x}) for x in MOMENTS]


def test_bits_by_columns_and_by_values() -> None:
    numbers = [0, 1, -1, 5, 2**63 - 1, -(2**63), None]
    for place in range(32):
        expr = function("_bit_pair", col("x"), place)
        found = expr.evaluate({"x": pa.array(numbers, pa.int64())}, len(numbers)).to_pylist()
        assert found == [expr.value({"x": x}) for x in numbers]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("INTERVAL '1' MONTH", "has no length of its own"),
        ("date_format(t, 'QQ')", "QQ in the format"),
        ("t AT TIME ZONE 'Nowhere/Here'", "the name of a time zone"),
        ("json_value(s, 'a.b')", r"a path such as '\$.a.b\[0\]'"),
        ("s -> t", "stands a constant"),
    ],
)
def test_what_is_refused(expression: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ew.sql(f"CREATE STREAM S (s TEXT, t TIMESTAMP); SELECT {expression} AS v FROM S")


def test_a_day_that_there_is_not() -> None:
    query = ew.sql("CREATE STREAM S (n INT); SELECT make_date(2023, 2, n) AS d FROM S")
    with pytest.raises(EvaluationError, match="there is no day 29"):
        list(ew.run(query, {"S": [ew.Insert(1, 2, {"n": 29})]}))


# -- keys --------------------------------------------------------------------------------------------------------------

KEYED = "CREATE STREAM Bid (item INT, price INT); CREATE VARYING RELATION Item (id INT KEY, name TEXT, kind INT);"
GIVEN = {
    "Bid": [ew.Insert(1, 9, {"item": i, "price": p}) for i, p in ((1, 10), (1, 20), (2, 5), (3, 7))],
    "Item": [
        ew.Insert(0, 5, {"id": 1, "name": "chair", "kind": 1}),
        ew.Insert(5, 9, {"id": 1, "name": "seat", "kind": 1}),
        ew.Insert(0, 9, {"id": 2, "name": "table", "kind": 2}),
    ],
}


def at(text: str, t: int) -> Any:
    given = {name: rows for name, rows in GIVEN.items() if name in text}
    return dict(history_of(list(ew.run(ew.sql(KEYED + text), given))).snapshot(t))


def test_columns_that_follow_from_a_key_need_not_be_grouped_by() -> None:
    text = "SELECT i.id, i.name, SUM(b.price) AS total FROM Item i JOIN Bid b ON b.item = i.id GROUP BY i.id"
    assert at(text, 3) == {(1, "chair", 30): 1, (2, "table", 5): 1}
    assert at(text, 7) == {(1, "seat", 30): 1, (2, "table", 5): 1}
    with pytest.raises(SqlError, match="neither grouped by nor inside an aggregate"):
        ew.sql(KEYED + "SELECT i.kind, i.name FROM Item i GROUP BY i.kind")


def test_the_row_of_a_key_is_a_value() -> None:
    text = "SELECT b.price, (SELECT name FROM Item i WHERE i.id = b.item) AS name FROM Bid b"
    assert at(text, 3) == {(10, "chair"): 1, (20, "chair"): 1, (5, "table"): 1, (7, None): 1}
    with pytest.raises(SqlError, match="the row of a KEY"):
        ew.sql(KEYED + "SELECT b.price, (SELECT name FROM Item i WHERE i.kind = b.item) AS name FROM Bid b")


def test_mode_takes_the_smallest_of_the_most_frequent() -> None:
    text = "SELECT MODE(price) AS m, MODE() WITHIN GROUP (ORDER BY item) AS i FROM Bid"
    assert at(text, 3) == {(5, 1): 1}


def test_a_key_of_a_side_that_is_padded_does_not_tell_null_rows_apart() -> None:
    """A row of C whose s is null, and those of B without a partner, are one group."""
    b, c = ew.source("B", {"k": "int64"}), ew.source("C", {"v": "int64", "s": "string"})
    text = "FROM B FULL JOIN C WINDOW(PARTITION BY s ROWS 1) c ON B.k = c.v GROUP BY c.s"
    query = ew.sql(f"SELECT c.s, COUNT(*) AS n, MIN(c.v) AS least {text}", b, c)
    inputs = {"B": [ew.Insert(5, 6, {"k": 7})], "C": [ew.Insert(5, 6, {"v": 2, "s": None})]}
    said = ew.run(query, inputs, consistency=ew.STRONG)
    found = [dict(e.row) for e in said if isinstance(e, ew.Insert) and e.vs == 5]
    assert found == [{"s": None, "n": 2, "least": 2}]
    with pytest.raises(SqlError, match="v is neither grouped by nor inside an aggregate"):
        ew.sql(f"SELECT c.s, c.v {text}", b, c)


@pytest.mark.parametrize("optimize", [True, False])
def test_array_join_passes_over_nulls(optimize: bool) -> None:
    """As in Spark, PostgreSQL and DuckDB; one null made the text null."""
    query = ew.sql(
        "CREATE STREAM S (a TEXT, b TEXT); SELECT array_join([a, 'z', b], '-') AS v, "
        "array_join(['a', NULL], '/') AS w, array_join(CASE WHEN a IS NULL THEN [b] END, '-') AS u FROM S",
        optimize=optimize,
    )
    given = [("x", None), (None, "y"), (None, None), ("x", "y")]
    said = history_of(list(ew.run(query, {"S": [ew.Insert(1, 2, {"a": a, "b": b}) for a, b in given]}))).snapshot(1)
    assert said == {
        ("x-z", "a", None): 1, ("z-y", "a", "y"): 1, ("z", "a", ""): 1, ("x-z-y", "a", None): 1
    }  # fmt: skip


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT k, GROUPING(k) AS g FROM S GROUP BY ROLLUP(k)", {(1, 0): 1, (2, 0): 1, (None, 1): 1}),
        ("SELECT 1 AS one FROM S GROUP BY GROUPING SETS ((), (k))", {(1,): 3}),
        ("SELECT GROUPING(k) AS g FROM S GROUP BY CUBE(k) HAVING GROUPING(k) = 1", {(1,): 1}),
    ],
)
def test_sets_of_groups_without_an_aggregate(text: str, rows: dict[tuple[Any, ...], int], optimize: bool) -> None:
    """The set () was refused with words about Python's aggregate()."""
    query = ew.sql(f"CREATE STREAM S (k INT); {text}", optimize=optimize)
    said = history_of(list(ew.run(query, {"S": [ew.Insert(1, 3, {"k": 1}), ew.Insert(1, 4, {"k": 2})]})))
    assert said.snapshot(2) == rows and not said.snapshot(4)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    ("test", "kept"),
    [
        ("(x, y) NOT IN (SELECT MAX(x), MAX(y) FROM S)", [1, 2]),
        ("NOT ((x, y) IN (SELECT MAX(x), MAX(y) FROM S))", [1, 2]),
        ("(x, y) NOT IN (SELECT MAX(x), MAX(y) FROM S WHERE x > 9)", []),
        ("((x, y) NOT IN (SELECT MAX(x), MAX(y) FROM S)) IS NULL", [3]),
    ],
)
def test_a_row_of_values_is_not_in_the_row_of_an_aggregate(test: str, kept: list[int], optimize: bool) -> None:
    """It was refused with "rows of values are compared with IN only"."""
    query = ew.sql(f"CREATE STREAM S (x INT, y INT); SELECT x FROM S WHERE {test}", optimize=optimize)
    rows = [(1, 1), (2, None), (3, None), (3, 2)]
    said = history_of(list(ew.run(query, {"S": [ew.Insert(1, 2, {"x": x, "y": y}) for x, y in rows]}))).snapshot(1)
    assert sorted(row for (row,) in said) == kept
