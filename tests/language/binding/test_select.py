"""SELECT, GROUP BY, HAVING and *: which columns an answer has, and the rules of groups."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.errors import SqlError

A = ew.source("A", {"k": "string", "v": "int64", "w": "int64"})
B = ew.source("B", {"k": "string", "z": "int64"})
ROWS = {"A": [ew.Insert(0, 5, {"k": k, "v": v, "w": 1}) for k, v in (("a", 1), ("a", 4), ("b", 9))]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM A", ["k", "v", "w"]),
        ("SELECT A.*, z FROM A, B", ["k", "v", "w", "z"]),
        ("SELECT v AS total, v + 1 AS next FROM A", ["total", "next"]),
        ("SELECT * FROM A JOIN B USING (k)", ["k", "v", "w", "z"]),
        ("SELECT k, COUNT(*) AS n, MAX(v) AS m FROM A GROUP BY k", ["k", "n", "m"]),
        ("SELECT DISTINCT w, k FROM A", ["w", "k"]),
    ],
)
def test_the_columns_of_an_answer(text: str, names: list[str]) -> None:
    assert list(ew.sql(text, A, B).schema.names) == names


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT k, SUM(v) AS t FROM A GROUP BY k", {("a", 5), ("b", 9)}),
        ("SELECT k, SUM(v) AS t FROM A GROUP BY 1", {("a", 5), ("b", 9)}),
        ("SELECT SUM(v) AS t FROM A GROUP BY k HAVING COUNT(*) > 1", {(5,)}),
        ("SELECT v % 2 AS odd, COUNT(*) AS n FROM A GROUP BY v % 2", {(1, 2), (0, 1)}),
        ("SELECT SUM(v) FILTER (WHERE k = 'a') AS t FROM A", {(5,)}),
        ("SELECT COUNT(DISTINCT k) AS n FROM A HAVING MAX(v) > 100", set()),
    ],
)
def test_groups(text: str, rows: set[tuple[object, ...]], optimize: bool) -> None:
    found = ew.testing.history_of(ew.run(ew.sql(text, A, optimize=optimize), ROWS)).snapshot(2)
    assert set(found) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT k, v FROM A GROUP BY k", "neither grouped by nor inside an aggregate"),
        ("SELECT v FROM A HAVING v > 1", "HAVING needs groups or aggregates"),
        ("SELECT COUNT(*) FROM A GROUP BY *", r"\*"),
        ("SELECT v AS a, w AS a FROM A", "two columns are called a"),
    ],
)
def test_what_groups_do_not_allow(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ew.sql(text, A)
