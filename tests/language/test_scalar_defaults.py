"""A subquery over nothing: a COUNT is 0, every other aggregate is null, whatever the columns below are called."""

from __future__ import annotations

import pytest

import everwhen as ew

A = ew.source("A", {"k": "int64", "s": "string"})
ROWS = {"A": [ew.Insert(0, 5, {"k": 1, "s": "a"})]}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    ("inner", "value"),
    [
        ("SELECT MAX(d.c) AS c FROM (SELECT COUNT(*) AS c FROM A GROUP BY s) d WHERE d.c > 9", None),
        ("SELECT SUM(d.count) AS count FROM (SELECT COUNT(*) FROM A GROUP BY s) d WHERE d.count > 9", None),
        ("SELECT MAX(d.s) AS c FROM (SELECT s, COUNT(*) AS c FROM A GROUP BY s) d WHERE d.c > 9", None),
        ("SELECT COUNT(*) AS c FROM (SELECT s, MAX(k) AS c FROM A GROUP BY s) d WHERE d.c > 9", 0),
        ("SELECT COUNT(DISTINCT d.c) AS c FROM (SELECT s, MAX(k) AS c FROM A GROUP BY s) d WHERE d.c > 9", 0),
    ],
)
def test_only_the_counts_of_the_subquery_itself_are_zero(inner: str, value: int | None, optimize: bool) -> None:
    query = ew.sql(f"SELECT k, ({inner}) AS x FROM A", A, optimize=optimize)
    assert dict(ew.testing.history_of(ew.run(query, ROWS)).snapshot(2)) == {(1, value): 1}
