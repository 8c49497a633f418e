"""The thesis's transformation rules hold for the oracle, for any input (chapter 10; pairs in `thesis_rules`)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen import reference
from everwhen.algebra.expressions.build import col
from everwhen.core.time import INF
from everwhen.stream.element import Insert
from everwhen.stream.history import History, same_history
from everwhen.testing import assert_same_history
from everwhen.testing.strategies import histories, sequences
from papers.thesis_rules import RULES, SCHEMA, Rule, a, b, f

MANY = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@MANY
@given(data=st.data())
def test_rule(rule: Rule, data: st.DataObject) -> None:
    """Both plans have the same snapshot at every instant (definition 10.4)."""
    some = sequences(SCHEMA) if rule.single else histories(SCHEMA, max_events=6, max_time=8)
    inputs = {name: data.draw(some, label=name) for name in "ABC"}
    assert_same_history(reference.history(rule.left(), inputs), reference.history(rule.right(), inputs))


@MANY
@given(s=histories(SCHEMA, max_events=8, max_time=12), g=st.integers(1, 4))
def test_lemma_20_1(s: History, g: int) -> None:
    """At the instants of the coarser granularity a plan's snapshots are those of the finer one."""
    fine = reference.evaluate(a().distinct().node, {"A": s})
    coarse = reference.evaluate(a().granularity(g).distinct().node, {"A": s})
    for t in range(-3 * g, 24, g):
        assert coarse.at(t) == fine.at(t)


def test_rules_10_11_and_10_12_need_their_premise() -> None:
    """With two rows at one instant, a map that turns their order around changes which one is the last.

    Why ROWS does not move past a map in general: ties are broken by the values that the window sees.
    """
    tie = {"A": History.of([Insert(0, 1, {"k": 0, "v": 1}), Insert(0, 1, {"k": 0, "v": 2})])}
    before = reference.history(f(a().rows(1)).node, tie)
    after = reference.history(f(a()).rows(1).node, tie)
    assert [row for _, _, row in before.events()] == [(0, -2)]
    assert [row for _, _, row in after.events()] == [(0, -1)]


def test_filters_do_not_commute_with_rows() -> None:
    """10.3.2: count-based windows depend on the size of the stream."""
    two = {"A": History.of([Insert(0, 1, {"k": 0, "v": 1}), Insert(1, 2, {"k": 0, "v": 0})])}
    inside = reference.history(a().where(col("v") > 0).rows(1).node, two)
    outside = reference.history(a().rows(1).where(col("v") > 0).node, two)
    assert not same_history(inside, outside)


def test_unions_do_not_commute_with_rows() -> None:
    """10.3.2: nor with a union."""
    two = {
        "A": History.of([Insert(0, 1, {"k": 0, "v": 1})]),
        "B": History.of([Insert(1, 2, {"k": 0, "v": 0})]),
    }
    inside = reference.history(a().rows(1).union(b().rows(1)).node, two)
    outside = reference.history(a().union(b()).rows(1).node, two)
    assert not same_history(inside, outside)
    assert inside.snapshot(5) == {(0, 1): 1, (0, 0): 1}
    assert [(vs, ve) for vs, ve, _ in outside.events()] == [(0, 1), (1, INF)]
