"""The logical node: its columns, what it refuses, how it is shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.properties.derive import properties
from everwhen.plan.sanity.bounded import unbounded
from everwhen.rewrite.driver import rewrite

p, col = ew.patterns, ew.col
S = ew.source("S", {"k": "string", "t": "timestamp[ms]", "x": "int32", "d": "decimal(9, 2)", "unread": "string"})


def test_columns_are_the_partition_s_and_the_measures() -> None:
    found = S.match_recognize(
        "A B+",
        "t",
        "k",
        measures={"n": p.count("B"), "s": p.sum("x"), "m": p.avg("A.x"), "e": col("d"), "l": p.min("d")},
    )
    assert dict(zip(found.schema.names, found.schema.types, strict=True)) == {
        "k": pa.string(), "n": pa.int64(), "s": pa.int64(), "m": pa.float64(), "e": pa.decimal128(9, 2),
        "l": pa.decimal128(9, 2),
    }  # fmt: skip


def test_it_says_what_it_reads() -> None:
    found = S.match_recognize("A B", "t", "k", define={"B": p.prev("x") > 1}, measures={"e": col("d")}).node
    assert isinstance(found, n.MatchRecognize)
    assert found.reads == ("k", "t", "x", "d")
    assert found.ties == ("x", "d")


def test_columns_that_are_not_read_are_dropped_below() -> None:
    query = S.match_recognize("A B", "t", measures={"e": col("x")})
    assert "Select t, x" in ew.Stream(rewrite(query.node).node).explain()


def test_a_filter_on_the_partition_goes_below() -> None:
    query = S.match_recognize("A B", "t", "k", measures={"e": col("x")})
    below = rewrite(query.where((col("k") == "a") & (col("e") > 1)).node)
    text = ew.Stream(below.node).explain()
    assert text.index("Filter e > 1") < text.index("Match") < text.index("Filter k = 'a'")


def test_matches_of_instants_are_instants() -> None:
    chronons = ew.source("C", {"x": "int64"}, chronons=True).match_recognize("A B", "x")
    assert properties(chronons.node).chronon and not properties(chronons.node).insert_only


def test_rows_that_never_end_are_named() -> None:
    query = S.unbounded().match_recognize("A B", "t", "k", measures={"e": col("x")})
    (found, *_) = unbounded(query.node)
    assert found.fatal and found.operator.startswith("Match (A B) by k") and "keeps every row" in found.why
    assert not unbounded(S.range("1 hour").match_recognize("A B", "t", "k", measures={"e": col("x")}).node)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"order_by": ()}, "needs an ORDER BY"),
        ({"order_by": "nope"}, "nope"),
        ({"define": {"Z": col("x") > 1}}, "'Z' that PATTERN has not; there is A, B"),
        ({"define": {"A": p.sum("Z.x") > 1}}, "no variable 'Z'"),
        ({"define": {"A": col("x")}}, "must be true or false"),
        ({"define": {"A": col("nope") > 1}}, "nope"),
        ({"define": {"A": p.sum("k") > 1}}, "adds integers"),
        ({"define": {"A": col("d") - p.prev("d") > 1}}, "combines values of several rows"),
        ({"define": {"A": ew.function("concat", col("k"), p.prev("k")) == "a"}}, "combines values of several rows"),
        ({"measures": {"m": p.prev("x")}}, "DEFINE only"),
        ({"measures": {"m": p.sum(p.count("A"))}}, "inside the other"),
        ({"measures": {"k": col("x")}, "partition_by": "k"}, "k"),
        ({"descending": "x"}, "none of the columns to order by"),
    ],
)
def test_what_does_not_fit_is_refused(parts: dict[str, object], problem: str) -> None:
    given = {"pattern": "A B", "order_by": "t", **parts}
    with pytest.raises(ew.QueryError, match=problem):
        S.match_recognize(**given)  # type: ignore[arg-type]


def test_it_is_shown_in_one_line() -> None:
    query = S.match_recognize("A (B | C)+", ["k", "t"], define={"B": p.count("B") < 3}, descending="t")
    assert str(query).splitlines()[0] == "Match (A (B | C)+) in the order of k, t descending where B: COUNT(B.*) < 3"
