"""Columns that hold no nulls, and conditions that let none through: what is derived, and what must not be."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col, lit
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.nullability import never_null, never_true

S, T = ew.source("S", {"k": "int64", "x": "int64"}), ew.source("T", {"k": "int64", "x": "int64"})
FULL = S.where(col("x") > 0)


@pytest.mark.parametrize(
    ("query", "column", "known"),
    [
        (S, "x", False),
        (FULL, "x", True),
        (FULL, "k", False),
        (FULL.range(3).distinct(), "x", True),
        (S.where(col("x").not_null() | col("k").not_null()), "x", False),
        (FULL.group_by("k").agg(m=ew.max("x"), n=ew.count()), "m", True),
        (S.group_by("k").agg(m=ew.max("x"), n=ew.count()), "m", False),
        (S.group_by("k").agg(m=ew.max("x"), n=ew.count()), "n", True),
        (FULL.group_by("k").agg(v=ew.variance("x")), "v", False),  # of one value there is none
        (S.select("k", y=lit(1), z=ew.function("coalesce", col("x"), lit(0))), "z", True),
        (FULL.union(S), "x", False),
        (S.join(T, on={"k": "k"}), "k", True),
        (S.join(FULL, on={"k": "k"}), "x_right", True),
        (S.join(FULL, on={"k": "k"}, how="left"), "x_right", False),
        (FULL.join(T, on={"k": "k"}, how="left"), "x", True),
        (FULL.join(T, on={"k": "k"}, how="full"), "x", False),
        (S.join(T, on="k", how="semi"), "k", True),
        (S.join(T, on="k", how="anti"), "k", False),
    ],
)
def test_columns_without_nulls(query: Stream, column: str, known: bool) -> None:
    assert never_null(query.node, column) == known


def test_null_safe_keys_may_be_null() -> None:
    assert not never_null(n.Join(S.node, T.node, ("k",), ("k",), null_safe=True), "k")


def test_conditions_that_no_null_gets_through() -> None:
    assert never_true((col("x") > 0) & (col("k") > 0), ["x"])
    assert not never_true((col("x") > 0) | (col("k") > 0), ["x"])
    assert never_true((col("x") > 0) | (col("k") > 0), ["x", "k"])
    assert not never_true(col("x").is_null(), ["x"])


def test_what_a_single_instant_leaves_of_rows_comes_once() -> None:
    once = ew.source("U", {"k": "int64"}, chronons=True, keys="k")
    groups = S.range(4).group_by("k").agg(m=ew.max("x"))
    assert frozenset({"k"}) in properties(groups.join(once, on="k", how="semi").node).history_keys
    several = properties(S.join(once, on="k", how="semi").node)  # rows without a key of their own
    lasting = ew.source("U", {"k": "int64"}, keys="k")
    assert not several.history_keys
    assert not properties(groups.join(lasting, on="k", how="semi").node).history_keys
