"""FROM: aliases, windows behind a stream or a subquery, lists of names, and joins without a condition."""

from __future__ import annotations

from dataclasses import fields

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.errors import SqlError

A = ew.source("A", {"k": "int64", "v": "int64"})
B = ew.source("B", {"k": "int64", "w": "int64"})


def windows(text: str) -> list[n.Node]:
    nodes = n.walk(ew.sql(text, A, B, optimize=False).node)
    return [node for node in nodes if isinstance(node, n.TimeWindow | n.RowsWindow | n.Granularity | n.AlterLifetime)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("WINDOW(RANGE 5)", n.TimeWindow(A.node, 5, 1)),
        ("WINDOW(RANGE 1 SECOND SLIDE 500)", n.TimeWindow(A.node, 1000, 500)),
        ("WINDOW(NOW)", n.TimeWindow(A.node, 1, 1)),
        ("WINDOW(UNBOUNDED)", n.TimeWindow(A.node, ew.INF, 1)),
        ("WINDOW(ROWS 3)", n.RowsWindow(A.node, 3, 1, ())),
        ("WINDOW(PARTITION BY k ROWS 3 SLIDE 2)", n.RowsWindow(A.node, 3, 2, ("k",))),
        ("GRANULARITY(4)", n.Granularity(A.node, 4)),
        ("LIFETIME(LENGTH 7)", n.AlterLifetime(A.node, 1, 0, 7)),
    ],
)
def test_windows_stand_behind_a_stream(window: str, expected: n.Node) -> None:
    (found,) = windows(f"SELECT * FROM A {window} a")
    assert type(found) is type(expected)
    assert {f.name: getattr(found, f.name) for f in fields(found) if f.name != "input"} == {
        f.name: getattr(expected, f.name) for f in fields(expected) if f.name != "input"
    }


def test_names_behind_a_subquery_and_a_window_over_it() -> None:
    text = "SELECT x.a, x.b FROM (SELECT v, k FROM A) WINDOW(RANGE 3) x(a, b)"
    assert list(ew.sql(text, A, B).schema.names) == ["a", "b"] and len(windows(text)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM A x, B x", "two of the streams are called x; give each an alias"),
        ("SELECT * FROM (SELECT k, v FROM A) x(a)", "1 names for a query of 2 columns"),
        ("SELECT * FROM A WINDOW(RANGE UNBOUNDED SLIDE 3)", "an unbounded window does not slide"),
        ("SELECT * FROM A WINDOW(RANGE 1.5)", "a whole number of ticks"),
        ("SELECT * FROM A WINDOW(ROWS 1.5)", "a whole number of rows"),
        ("SELECT * FROM A LEFT JOIN B", "expected ON with the condition of the join"),
        ("SELECT * FROM C", "unknown stream 'C'"),
    ],
)
def test_what_cannot_stand_in_from(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ew.sql(text, A, B)
