"""Subqueries in expressions: three-valued answers over empty and null ones, and what cannot stand there."""

from __future__ import annotations

from typing import Any

import pytest

import everwhen as ew
from everwhen.errors import SqlError

A = ew.source("A", {"k": "int64", "v": "int64"})
B = ew.source("B", {"k": "int64", "w": "int64"})
ROWS: dict[str, list[ew.Insert]] = {
    "A": [ew.Insert(0, 5, {"k": k, "v": v}) for k, v in ((1, 10), (2, 20), (3, None))],
    "B": [ew.Insert(0, 5, {"k": k, "w": w}) for k, w in ((1, 10), (1, 15), (2, None))],
}


def answers(expression: str, optimize: bool) -> dict[int, Any]:
    """The value of an expression for each k of A."""
    query = ew.sql(f"SELECT A.k, {expression} AS x FROM A", A, B, optimize=optimize)
    found = ew.testing.history_of(ew.run(query, ROWS)).snapshot(2)
    assert set(found.values()) == {1}, "as many rows as before"
    return dict(found.keys())


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("EXISTS (SELECT 1 FROM B WHERE B.k = A.k)", {1: True, 2: True, 3: False}),
        ("NOT EXISTS (SELECT 1 FROM B WHERE B.k = A.k)", {1: False, 2: False, 3: True}),
        ("A.v IN (SELECT w FROM B)", {1: True, 2: None, 3: None}),
        ("A.v NOT IN (SELECT w FROM B)", {1: False, 2: None, 3: None}),
        ("A.v IN (SELECT w FROM B WHERE w > 100)", {1: False, 2: False, 3: False}),
        ("A.v IN (SELECT w FROM B WHERE B.k = A.k)", {1: True, 2: None, 3: False}),
        ("A.v > ALL (SELECT w FROM B WHERE B.k = A.k)", {1: False, 2: None, 3: True}),
        ("A.v >= ANY (SELECT w FROM B WHERE B.k = A.k)", {1: True, 2: None, 3: False}),
        ("(SELECT MAX(w) FROM B WHERE B.k = A.k)", {1: 15, 2: None, 3: None}),
        ("(SELECT COUNT(*) FROM B WHERE B.k = A.k)", {1: 2, 2: 1, 3: 0}),
        ("(SELECT COUNT(w) FROM B WHERE B.k = A.k) + 1", {1: 3, 2: 1, 3: 1}),
    ],
)
def test_values_of_subqueries(expression: str, expected: dict[int, Any], optimize: bool) -> None:
    assert answers(expression, optimize) == expected


@pytest.mark.parametrize("optimize", [False, True])
def test_rows_of_values_where_only_the_truth_counts(optimize: bool) -> None:
    query = ew.sql("SELECT A.k FROM A WHERE (A.k, A.v) IN (SELECT k, w FROM B)", A, B, optimize=optimize)
    assert ew.testing.history_of(ew.run(query, ROWS)).snapshot(2) == {(1,): 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT (SELECT w FROM B) FROM A", "must be a single row at every instant"),
        ("SELECT (SELECT MAX(w), MIN(w) FROM B) FROM A", "column"),
        ("SELECT * FROM A WHERE (k, v) > ALL (SELECT k, w FROM B)", "stands only before IN"),
        ("SELECT (k, v) IN (SELECT k, w FROM B) AS x FROM A", "can be tested with IN where only the truth counts"),
        ("SELECT * FROM A WHERE v IN (SELECT k, w FROM B)", "2 columns where 1 is compared"),
    ],
)
def test_subqueries_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ew.sql(text, A, B)
