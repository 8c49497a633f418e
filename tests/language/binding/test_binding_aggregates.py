"""Calls of aggregates in SQL: what COUNT, DISTINCT, FILTER and parameters mean, and which are refused."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.errors import SqlError

A = ew.source("A", {"k": "string", "v": "int64"})
ROWS = {"A": [ew.Insert(0, 5, {"k": k, "v": v}) for k, v in (("a", 1), ("b", 3), (None, 3), ("c", None))]}


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("COUNT(*)", 4),
        ("COUNT(v)", 3),
        ("COUNT(DISTINCT v)", 2),
        ("SUM(DISTINCT v)", 4),
        ("SUM(v) FILTER (WHERE v > 1)", 6),
        ("COUNT(*) FILTER (WHERE k IS NULL)", 1),
        ("QUANTILE(v, 0.5)", 3.0),
        ("MAX(k)", "c"),
        ("MAX(v + 1)", 4),
        ("SUM(v) + COUNT(*)", 11),
    ],
)
def test_values(call: str, value: object) -> None:
    (row,) = ew.testing.history_of(ew.run(ew.sql(f"SELECT {call} AS x FROM A", A), ROWS)).snapshot(2)
    assert row == (value,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("SUM(*)", r"only COUNT takes \*; write for example SUM\(price\)"),
        ("COUNT()", r"COUNT takes \* or a value"),
        ("QUANTILE(v, v)", "the last argument of QUANTILE is a constant"),
        ("QUANTILE(v, 2)", "QUANTILE|quantile"),
        ("SUM(k)", "needs numbers"),
        ("SUM(MAX(v))", "cannot stand inside another aggregate"),
    ],
)
def test_what_is_refused(call: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ew.sql(f"SELECT {call} AS x FROM A", A)
