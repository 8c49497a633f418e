"""The oracle against DuckDB on single snapshots: filter, map, joins, aggregates, distinct and set operations.

The standard operators are snapshot-reducible, so on one instant they must be SQL's (Krämer, lemma 10.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import everwhen as ew
from everwhen import reference
from everwhen.algebra.aggregates import calls as aggregates
from everwhen.algebra.expressions.build import col, function, when
from everwhen.core.schema import Schema
from everwhen.stream.element_batch import INSERT, ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from everwhen.testing.strategies import histories

COLUMNS = {"k": "int64", "s": "string", "v": "float64"}
SCHEMA = ew.source("A", COLUMNS).schema


def a() -> ew.Stream:
    return ew.source("A", COLUMNS)


def b() -> ew.Stream:
    return ew.source("B", COLUMNS)


QUERIES: dict[str, tuple[ew.Stream, str]] = {
    "filter": (a().where(col("v") > 1), "SELECT * FROM A WHERE v > 1"),
    "filter by three-valued logic": (
        a().where((col("v") <= 0) | ~(col("s") == "a")),
        "SELECT * FROM A WHERE v <= 0 OR NOT (s = 'a')",
    ),
    "filter by null": (
        a().where(col("k").is_null() & col("s").not_null()),
        "SELECT * FROM A WHERE k IS NULL AND s IS NOT NULL",
    ),
    "filter by list": (a().where(col("k").is_in([1, 2])), "SELECT * FROM A WHERE k IN (1, 2)"),
    "map": (
        a().select("s", x=col("k") * 2 - 1, y=when(col("v") > 0).then(col("v")).otherwise(0.0)),
        "SELECT s, k * 2 - 1 AS x, CASE WHEN v > 0 THEN v ELSE 0.0 END AS y FROM A",
    ),
    "map by functions": (
        a().select(u=function("upper", col("s")), c=function("coalesce", col("k"), 5)),
        "SELECT upper(s) AS u, coalesce(k, 5) AS c FROM A",
    ),
    "union": (a().union(b()), "SELECT * FROM A UNION ALL SELECT * FROM B"),
    "product": (a().product(b()), "SELECT * FROM A, B"),
    "equi-join": (a().join(b(), on={"k": "k"}), "SELECT * FROM A JOIN B ON A.k = B.k"),
    "join on two columns, one of them a float": (
        a().join(b(), on={"s": "s", "v": "v"}),
        "SELECT * FROM A JOIN B ON A.s = B.s AND A.v = B.v",
    ),
    "join using": (a().join(b(), on="k"), "SELECT * FROM A JOIN B USING (k)"),
    "theta-join": (a().join(b(), where=col("v") < col("v_right")), "SELECT * FROM A JOIN B ON A.v < B.v"),
    "equi-join with a condition": (
        a().join(b(), on={"k": "k"}, where=col("v") < col("v_right")),
        "SELECT * FROM A JOIN B ON A.k = B.k AND A.v < B.v",
    ),
    "left join": (a().join(b(), on={"k": "k"}, how="left"), "SELECT * FROM A LEFT JOIN B ON A.k = B.k"),
    "left theta-join": (
        a().join(b(), on={"k": "k"}, where=col("v") < col("v_right"), how="left"),
        "SELECT * FROM A LEFT JOIN B ON A.k = B.k AND A.v < B.v",
    ),
    "right join": (a().join(b(), on={"k": "k"}, how="right"), "SELECT * FROM A RIGHT JOIN B ON A.k = B.k"),
    "full join": (a().join(b(), on={"k": "k"}, how="full"), "SELECT * FROM A FULL JOIN B ON A.k = B.k"),
    "semi-join": (a().join(b(), on="k", how="semi"), "SELECT * FROM A WHERE k IN (SELECT k FROM B)"),
    "anti-join": (
        a().join(b(), on="k", how="anti"),
        "SELECT * FROM A WHERE NOT EXISTS (SELECT 1 FROM B WHERE B.k = A.k)",
    ),
    "distinct": (a().distinct(), "SELECT DISTINCT * FROM A"),
    "distinct floats": (a().select("v").distinct(), "SELECT DISTINCT v FROM A"),
    "except all": (a().difference(b()), "SELECT * FROM A EXCEPT ALL SELECT * FROM B"),
    "except": (a().except_(b()), "SELECT * FROM A EXCEPT SELECT * FROM B"),
    "intersect all": (a().intersect(b()), "SELECT * FROM A INTERSECT ALL SELECT * FROM B"),
    "groups": (
        a()
        .group_by("k")
        .agg(
            n=aggregates.count(),
            m=aggregates.count("v"),
            total=aggregates.sum("v"),
            low=aggregates.min("v"),
            high=aggregates.max("v"),
            words=aggregates.count_distinct("s"),
        ),
        """SELECT k, count(*) AS n, count(v) AS m, sum(v) AS total, min(v) AS low, max(v) AS high,
           count(DISTINCT s) AS words FROM A GROUP BY k""",
    ),
    "groups of two columns": (
        a().group_by("s", "v").agg(total=aggregates.sum("k")),
        "SELECT s, v, sum(k)::BIGINT AS total FROM A GROUP BY s, v",
    ),
    "no groups": (
        a().aggregate(
            n=aggregates.count(),
            mean=aggregates.avg("k"),
            middle=aggregates.median("k"),
            most=aggregates.quantile("k", 0.75),
            spread=aggregates.stddev("k"),
            spread_pop=aggregates.stddev_pop("k"),
            variance=aggregates.variance("k"),
            variance_pop=aggregates.variance_pop("k"),
            first=aggregates.min("s"),
            last=aggregates.max("s"),
        ),
        """SELECT count(*) AS n, avg(k) AS mean, median(k) AS middle, quantile_cont(k, 0.75) AS most,
           stddev_samp(k) AS spread, stddev_pop(k) AS spread_pop, var_samp(k) AS variance,
           var_pop(k) AS variance_pop, min(s) AS first, max(s) AS last FROM A HAVING count(*) > 0""",
    ),
    "a query of several operators": (
        a()
        .join(b(), on={"k": "k"})
        .where(col("v") > 0)
        .group_by("s")
        .agg(n=aggregates.count())
        .union(b().distinct().group_by("s").agg(n=aggregates.count("v")))
        .where(col("n") > 1),
        """SELECT * FROM (
             SELECT A.s, count(*) AS n FROM A JOIN B ON A.k = B.k WHERE A.v > 0 GROUP BY A.s
             UNION ALL
             SELECT s, count(v) AS n FROM (SELECT DISTINCT * FROM B) GROUP BY s
           ) WHERE n > 1""",
    ),
}

tables = histories(SCHEMA, max_events=7, min_time=0, max_time=1, chronons=True)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


def duckdb_result(
    connection: duckdb.DuckDBPyConnection, query: str, schema: Schema, inputs: Mapping[str, History]
) -> History:
    """The rows of a query as a history at the instant 0."""
    for name, history in inputs.items():
        connection.register(name, pa.table(list(history.batch().columns), schema=history.schema.to_arrow()))
    rows = connection.execute(query).fetchall()
    columns = tuple(pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(schema.types))
    n = len(rows)
    none, one = np.zeros(n, np.int64), np.ones(n, np.int64)
    return History.of(ElementBatch(schema, np.full(n, INSERT, np.uint8), none, one, none, columns))


@settings(max_examples=30, deadline=None)
@given(a_rows=tables, b_rows=tables)
def test_snapshots_are_sql(connection: duckdb.DuckDBPyConnection, a_rows: History, b_rows: History) -> None:
    """All queries on each pair of tables: drawing tables costs more than querying them."""
    inputs = {"A": a_rows, "B": b_rows}
    for name, (stream, query) in QUERIES.items():
        expected = duckdb_result(connection, query, stream.schema, inputs)
        try:
            assert_same_history(reference.history(stream.node, inputs), expected, tolerance=1e-9)
        except AssertionError as difference:
            raise AssertionError(f"{name}: {difference}") from None
