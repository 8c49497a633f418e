"""Operator semantics: what a filter is says which rows will never come (Tucker, 6.2)."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.complement import complement
from everwhen.errors import QueryError
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.plans.share_common import same_plans
from everwhen.stream.element import Element, Insert, Punct

col = ew.col
R = ew.source("R", {"sid": "string", "hour": "uint8", "temp": "float64"})
ROWS: list[Element] = [
    Insert(t, ew.INF, {"sid": "s", "hour": hour, "temp": 1.0}) for t, hour in enumerate((0, 9, 2, 7, 3))
]


def said(query: ew.Stream, batch: int) -> list[Element]:
    return list(ew.run(query, {"R": ROWS}, consistency=ew.STRONG, batch=batch))


@pytest.mark.parametrize("batch", [1, 2, 10])
def test_a_filter_says_once_and_first_what_never_comes(batch: int) -> None:
    kept = R.where(col("hour") < 4)
    found = said(kept.punctuate(ew.punctuation.selection()), batch)
    promises = [element.promise for element in found if isinstance(element, Punct)]
    assert promises == complement(col("hour") < 4, R.schema)
    first = next(i for i, element in enumerate(found) if isinstance(element, Punct))
    assert all(isinstance(element, Insert) for element in found[:first]) and first <= batch
    rows = [element for element in found if isinstance(element, Insert)]
    assert rows == [element for element in said(kept, batch) if isinstance(element, Insert)]


def test_groups_outside_of_the_filter_are_promised_through_the_plan() -> None:
    query = R.where(col("hour") < 4).punctuate(ew.punctuation.selection()).group_by("hour").agg(c=ew.count())
    promises = [element.promise.match for element in said(query, 1) if isinstance(element, Punct)]
    assert [set(match) for match in promises] == [{"hour"}] * len(promises) and promises


def test_rewriting_may_move_the_filter_but_not_what_it_says() -> None:
    query = R.select("hour", "temp").where(col("hour") < 4).punctuate(ew.punctuation.selection()).select("temp")
    rewritten = rewrite(query.node).node
    assert said(ew.Stream(rewritten), 2) == said(query, 2)
    again = R.select("hour", "temp").where(col("hour") < 4).punctuate(ew.punctuation.selection()).select("temp")
    other = R.select("hour", "temp").where(col("hour") < 5).punctuate(ew.punctuation.selection()).select("temp")
    assert same_plans((query.node,), (again.node,)) and not same_plans((query.node,), (other.node,))


def test_it_stands_behind_a_filter_that_says_something() -> None:
    for wrong in (
        lambda: R.punctuate(ew.punctuation.selection()),
        lambda: R.distinct().punctuate(ew.punctuation.selection()),
    ):
        with pytest.raises(QueryError, match=r"directly behind \.where"):
            wrong()
    with pytest.raises(QueryError, match="can tell nothing of the condition"):
        R.where(col("temp") + 1 > col("hour")).punctuate(ew.punctuation.selection())
    with pytest.raises(QueryError, match=r"directly behind \.where"):
        n.Source("S", R.schema, schemes=(ew.punctuation.selection(),))


def test_a_source_that_is_given_punctuation_only_declares_it() -> None:
    assert said(R.punctuate(ew.punctuation.given("hour")), 2) == said(R, 2)
    with pytest.raises(QueryError, match="GIVEN in the source 'R' names no column"):
        R.punctuate(ew.punctuation.given())
