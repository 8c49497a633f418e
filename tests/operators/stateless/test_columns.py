"""Rows of other columns, above all one for each element of a list: which rows, how corrections and promises pass, and
what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.expressions.build import function
from everwhen.algebra.table_nodes import Unnest
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF
from everwhen.errors import EvaluationError, QueryError
from everwhen.operators.stateless.columns import UnnestOperator
from operators.stepping import Stepped, codec_of

COLUMNS = {"k": pa.string(), "l": pa.list_(pa.int64()), "a": pa.int64(), "b": pa.int64()}
S = ew.source("S", COLUMNS)
CODEC = codec_of(COLUMNS)
col = ew.col


def stepped(kind: Any = "list", *args: ew.Expr, place: str | None = None, outer: bool = False) -> Stepped:
    node = Unnest(S.node, kind, args or (col("l"),), "y", place, outer)
    target = codec_of({field.name: field.type for field in node.schema}, CODEC.pool)
    return Stepped(lambda: UnnestOperator(node, CODEC, target), CODEC)


def test_a_row_for_each_element_with_the_row_s_lifetime_and_weight() -> None:
    unnest = stepped("list", function("array", col("a"), col("b")))
    found = unnest.step([(1, 5, 1, "a", None, 7, 8), (2, INF, -2, "b", None, 9, 9)])
    assert found == {(1, 5, "a", None, 7, 8, 7): 1, (1, 5, "a", None, 7, 8, 8): 1, (2, INF, "b", None, 9, 9, 9): -4}


def test_elements_may_be_null_and_places_count_from_one() -> None:
    query = ew.Stream(Unnest(S.node, "list", (col("l"),), "y", "at")).select("k", "y", "at")
    rows = [ew.Insert(0, 3, {"k": "a", "l": [None, 4], "a": 0, "b": 0}), ew.Insert(0, 3, {"k": "b", "l": None})]
    assert [str(e) for e in ew.run(query, {"S": rows})] == [
        "insert [0, 3) k='a' y=null at=1",
        "insert [0, 3) k='a' y=4 at=2",
        "cti ∞",
    ]


def test_rows_without_elements_are_kept_if_asked_for() -> None:
    query = ew.Stream(Unnest(S.node, "list", (col("l"),), "y", "at", True)).select("k", "y", "at")
    rows = [ew.Insert(0, 3, {"k": k, "l": some, "a": 0, "b": 0}) for k, some in (("a", []), ("b", None), ("c", [1]))]
    assert [str(e) for e in ew.run(query, {"S": rows})] == [
        "insert [0, 3) k='a' y=null at=null",
        "insert [0, 3) k='b' y=null at=null",
        "insert [0, 3) k='c' y=1 at=1",
        "cti ∞",
    ]


@pytest.mark.parametrize(
    ("kind", "a", "b", "step", "elements"),
    [
        ("series", 1, 4, 1, [1, 2, 3, 4]),
        ("series", 1, 4, 2, [1, 3]),
        ("series", 4, 1, -2, [4, 2]),
        ("series", 4, 1, 1, []),
        ("range", 1, 4, 1, [1, 2, 3]),
        ("range", 4, 1, -1, [4, 3, 2]),
        ("range", 1, 5, 2, [1, 3]),
        ("range", 3, 3, 1, []),
        ("series", None, 3, 1, []),
    ],
)
def test_series(kind: str, a: int | None, b: int, step: int, elements: list[int]) -> None:
    found = stepped(kind, col("a"), col("b"), ew.lit(step)).step([(0, 1, 1, "k", None, a, b)])
    assert [key[-1] for key in found] == elements


def test_promises_about_columns_hold_for_the_rows_made_of_them() -> None:
    unnest = stepped()
    promise = Punctuation({"k": OneOf(("a",))}, 9)
    unnest.step([], ctis=[3], promises=[[promise]])
    assert unnest.frontier.time == 3
    assert [str(p) for p in unnest.frontier.promises] == [str(promise)]


def test_what_is_refused() -> None:
    with pytest.raises(QueryError, match="UNNEST needs a list"):
        Unnest(S.node, "list", (col("a"),), "y")
    with pytest.raises(QueryError, match="whole numbers, or of timestamps"):
        Unnest(S.node, "series", (col("a"), col("k"), ew.lit(1)), "y")
    with pytest.raises(EvaluationError, match="would not end"):
        stepped("series", col("a"), col("b"), ew.lit(0)).step([(0, 1, 1, "k", None, 1, 4)])
    with pytest.raises(EvaluationError, match="rows in one step"):
        stepped("series", col("a"), col("b"), ew.lit(1)).step([(0, 1, 1, "k", None, 0, 10**12)])
