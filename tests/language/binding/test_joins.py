"""Joins of sides whose columns have the same names, and the order of the columns that `*` shows behind USING."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.errors import SqlError

L = ew.source("L", {"k": "int64", "v": "string"})
M = ew.source("M", {"k": "int64", "v": "string"})
ROWS = {
    "L": [ew.Insert(0, 5, {"k": 1, "v": "left"}), ew.Insert(0, 5, {"k": 3, "v": "lonely"})],
    "M": [ew.Insert(0, 5, {"k": 1, "v": "right"}), ew.Insert(0, 5, {"k": 2, "v": "only right"})],
}

T1 = ew.source("T1", {"a": "int64", "x": "int64", "y": "int64"})
T2 = ew.source("T2", {"x": "int64", "b": "int64", "y": "int64"})
T3 = ew.source("T3", {"c": "int64", "b": "int64"})


def answer(text: str, optimize: bool) -> set[tuple]:
    query = ew.sql(text, L, M, optimize=optimize)
    found = ew.testing.history_of(ew.run(query, ROWS, batch=1)).snapshot(2)
    assert set(found.values()) == {1}
    return set(found)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_right_join_of_equal_names_keeps_its_sides(optimize: bool) -> None:
    kept = {("left", "right"), (None, "only right")}
    assert answer("SELECT a.v AS x, b.v AS y FROM L a RIGHT JOIN M b ON a.k = b.k", optimize) == kept
    assert answer("SELECT a.v AS x, b.v AS y FROM L a RIGHT JOIN M b USING (k)", optimize) == kept
    assert answer("SELECT a.v AS x, b.v AS y FROM L a RIGHT JOIN M b ON a.k + 1 = b.k + 1", optimize) == kept
    assert answer("SELECT a.v AS x, b.v AS y FROM L a RIGHT JOIN M b ON a.k = b.k AND a.v < b.v", optimize) == kept
    every = {(1, "left", 1, "right"), (None, None, 2, "only right")}
    assert answer("SELECT * FROM L a RIGHT JOIN M b ON a.k = b.k", optimize) == every


@pytest.mark.parametrize("optimize", [False, True])
def test_a_right_join_with_itself(optimize: bool) -> None:
    text = "SELECT a.v AS x, b.v AS y FROM L a RIGHT JOIN L b ON a.k = b.k + 2"
    found = ew.testing.history_of(ew.run(ew.sql(text, L, optimize=optimize), {"L": ROWS["L"]}))
    assert set(found.snapshot(2)) == {("lonely", "left"), (None, "lonely")}


@pytest.mark.parametrize("kind", ["", "LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize(
    ("joined", "shown"),
    [
        ("T1 {} JOIN T2 USING (x)", "x a y b T2_y"),
        ("T1 {} JOIN T2 USING (y, x)", "y x a b"),
        ("T1 {} JOIN T2 USING (x) {} JOIN T3 USING (b)", "b x a y T2_y c"),
        ("T1 {} JOIN (T2 {} JOIN T3 USING (b)) USING (x)", "x a y b T2_y c"),
        ("T1 p {} JOIN T1 q USING (x) {} JOIN T1 r USING (x)", "x a y q_a q_y r_a r_y"),
    ],
)
def test_the_columns_of_using_come_first(kind: str, joined: str, shown: str) -> None:
    text = joined.replace("{}", kind)
    assert ew.sql(f"SELECT * FROM {text}", T1, T2, T3).schema.names == tuple(shown.split())


def test_a_side_keeps_its_own_columns() -> None:
    query = ew.sql("SELECT T2.*, T1.* FROM T1 JOIN T2 USING (x)", T1, T2)
    assert query.schema.names == ("x", "b", "y", "a", "T1_x", "T1_y")


def test_a_name_of_using_beside_another_table() -> None:
    with pytest.raises(SqlError, match=r"b could be that of T2 or T3; write for example T2\.b"):
        ew.sql("SELECT b FROM T1 JOIN T2 USING (x), T3", T1, T2, T3)
    with pytest.raises(SqlError, match=r"x could be that of T1 or r; write for example T1\.x"):
        ew.sql("SELECT x FROM T1 JOIN T2 USING (x), T1 r", T1, T2)
