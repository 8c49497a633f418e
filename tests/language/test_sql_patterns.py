"""MATCH_RECOGNIZE in SQL: the same plans as in Python, and errors at their places."""

from __future__ import annotations

import pytest

import everwhen as ew

p, col = ew.patterns, ew.col
S = ew.source("S", {"k": "string", "t": "int64", "price": "float64"})


def matched(inside: str, behind: str = "M", source: str = "S") -> ew.Stream:
    return ew.sql(f"SELECT * FROM {source} MATCH_RECOGNIZE ({inside}) {behind}", S)


@pytest.mark.parametrize(
    ("inside", "built"),
    [
        (
            "PARTITION BY k ORDER BY t MEASURES FIRST(A.t) AS b, t AS e, COUNT(B.*) AS n PATTERN (A B+) "
            "DEFINE B AS price < PREV(price)",
            S.match_recognize(
                "A B+",
                "t",
                "k",
                {"B": col("price") < p.prev("price")},
                {"b": p.first("A.t"), "e": col("t"), "n": p.count("B")},
            ),
        ),
        (
            "ORDER BY k, t DESC NULLS LAST MEASURES SUM(A.price * 2) AS s ONE ROW PER MATCH "
            "AFTER MATCH SKIP TO NEXT ROW PATTERN (A{2,3} | (B C)?) WITHIN 10 "
            "DEFINE A AS A.price > 1, C AS C.price > b.price AND COUNT(*) < 4",
            S.match_recognize(
                "A{2,3} | (B C)?",
                ["k", "t"],
                define={"A": col("price") > 1, "C": (col("price") > p.last("B.price")) & (p.count() < 4)},
                measures={"s": ew.patterns.sum("A.price")},
                within=10,
                descending="t",
            ),
        ),
        (
            "ORDER BY t PATTERN (A) DEFINE A AS NULL",
            S.match_recognize("A", "t", define={"A": ew.lit(None).cast("bool")}),
        ),
    ],
)
def test_sql_means_the_same_plan(inside: str, built: ew.Stream) -> None:
    found = str(matched(inside)).replace("SUM(A.price * 2)", "SUM(A.price)").replace("└─ Select t\n   └─", "└─")
    turned = str(built).replace("PREV(price) > price", "price < PREV(price)")
    assert found == turned.replace("LAST(B.price) < price", "price > LAST(B.price)")


def test_names_are_found_whatever_their_case_and_through_subqueries() -> None:
    query = ew.sql(
        "SELECT m.n + 1 AS n FROM (SELECT k, t AS at FROM S WINDOW(RANGE 5)) R MATCH_RECOGNIZE (PARTITION BY R.k "
        'ORDER BY "at" '
        "MEASURES COUNT(a.*) AS n PATTERN (A b?) DEFINE B AS b.at > FIRST(At)) m WHERE m.k = 'x'",
        S,
    )
    assert query.schema.names == ("n",)
    assert "Match (A b?) by k in the order of at where b: at > FIRST(at): n = COUNT(A.*)" in str(query)


def test_matches_may_be_windowed_joined_and_matched_again() -> None:
    query = ew.sql(
        "SELECT M.e, T.k FROM S WINDOW(RANGE 9) MATCH_RECOGNIZE (ORDER BY t MEASURES t AS e PATTERN (A B)) "
        "MATCH_RECOGNIZE (ORDER BY e MEASURES e AS e PATTERN (C D)) M WINDOW(RANGE 3) JOIN S T ON M.e = T.t",
        S,
    )
    assert str(query).count("Match (") == 2


@pytest.mark.parametrize(
    ("inside", "at", "problem"),
    [
        ("PATTERN (A)", "PATTERN", "ORDER BY"),
        ("ORDER BY nope PATTERN (A)", "nope", "unknown column 'nope'"),
        ("ORDER BY t NULLS FIRST PATTERN (A)", "NULLS", "NULLS FIRST"),
        ("PARTITION BY z ORDER BY t PATTERN (A)", "z ORDER", "unknown column 'z'"),
        ("ORDER BY t PATTERN (A B) DEFINE C AS price > 1", "C AS", "does not have; there is A, B"),
        ("ORDER BY t PATTERN (A) DEFINE A AS price > 1, a AS t > 1", "a AS", "has a condition already"),
        ("ORDER BY t PATTERN (A) DEFINE A AS Z.price > 1", "Z.price", "reads a variable Z that PATTERN does not have"),
        ("ORDER BY t MEASURES FIRST(Z.t) AS z PATTERN (A B)", "Z.t", "MEASURES reads a variable Z"),
        ("ORDER BY t MEASURES t PATTERN (A)", "PATTERN", "AS with the name"),
        ("ORDER BY t MEASURES PREV(t) AS x PATTERN (A)", "PREV(t)", "DEFINE only"),
        ("ORDER BY t MEASURES SUM(k) AS x PATTERN (A)", "SUM(k)", "adds integers"),
        ("ORDER BY t MEASURES LAST(t, 1) AS c PATTERN (A)", "LAST(t, 1)", "takes one value"),
        ("ORDER BY t MEASURES SUM(A.t + B.t) AS c PATTERN (A B)", "SUM(A.t", "of one variable, not of A and B"),
        ("ORDER BY t MEASURES SUM(*) AS c PATTERN (A B)", "SUM(*)", "only COUNT takes"),
        ("ORDER BY t MEASURES MAX(SUM(t)) AS c PATTERN (A B)", "SUM(t)", "inside another"),
        ("ORDER BY t MEASURES FINAL LAST(t) AS c PATTERN (A B)", "FINAL", "leave it out"),
        ("ORDER BY t MEASURES COUNT(DISTINCT t) AS c PATTERN (A)", "COUNT(DISTINCT", "takes no DISTINCT"),
        ("PARTITION BY k ORDER BY t MEASURES t AS k PATTERN (A)", "k PATTERN", "two columns"),
        ("ORDER BY t ALL ROWS PER MATCH PATTERN (A)", "ALL", "one row per match"),
        ("ORDER BY t AFTER MATCH SKIP PAST LAST ROW PATTERN (A)", "PAST LAST ROW", "SKIP TO NEXT ROW"),
        ("ORDER BY t PATTERN (A+? B)", "? B", "reluctant"),
        ("ORDER BY t PATTERN (PERMUTE(A, B))", "PERMUTE", "PERMUTE"),
        ("ORDER BY t PATTERN (A {- B -} C)", "{-", "exclusions"),
        ("ORDER BY t PATTERN (^A)", "^A", "anchors"),
        ("ORDER BY t PATTERN (A | )", ") ", "expected a variable"),
        ("ORDER BY t PATTERN (A) SUBSET U = (A)", "SUBSET", "SUBSET"),
        ("ORDER BY t PATTERN (A) DEFINE A AS NEXT(t) > 1", "NEXT(t)", "NEXT"),
        ("ORDER BY t PATTERN (A) DEFINE A AS CLASSIFIER() = 'A'", "CLASSIFIER()", "CLASSIFIER"),
        ("ORDER BY t PATTERN (A) DEFINE A AS price", "price", "true or false"),
        ("ORDER BY t PATTERN (A B) DEFINE B AS PREV(A.t) > 1", "PREV(A.t)", "without A"),
        ("ORDER BY t PATTERN (A B) DEFINE B AS k || PREV(k) = 'x'", "k || PREV(k) = 'x'", "several rows"),
        ("ORDER BY t PATTERN (A B) DEFINE B AS t > (SELECT 1 FROM S)", "t > (SELECT", "subquery"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(inside: str, at: str, problem: str) -> None:
    text = f"SELECT * FROM S MATCH_RECOGNIZE ({inside} ) M"
    with pytest.raises(ew.SqlError) as caught:
        ew.sql(text, S)
    assert problem in str(caught.value)
    assert f"line 1, column {text.index(at) + 1}:" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "SELECT * FROM S WINDOW(RANGE 3) MATCH_RECOGNIZE (ORDER BY t PATTERN (A) WITHIN 5) M",
            "a window, and the stream",
        ),
        ("SELECT * FROM (S JOIN S T ON S.t = T.t) MATCH_RECOGNIZE (ORDER BY t PATTERN (A)) M", "put the join into"),
        ("SELECT COUNT(S.*) AS n FROM S", "stands only"),
    ],
)
def test_where_it_cannot_stand(text: str, problem: str) -> None:
    with pytest.raises(ew.SqlError, match=problem):
        ew.sql(text, S)
