"""What is known of an emitted stream, under each emission policy, is true of what comes out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.core.emit import Emit
from everwhen.plan.properties import emitted
from everwhen.testing import assert_valid
from everwhen.testing.strategies import histories
from example_counts import sampled_pairs
from operators.differential import SCHEMA, in_turn, run_all, sources
from operators.test_perfect_input import perfect
from plans import PLANS, Plan, S, T


def declared(node: n.Node) -> n.Node:
    """The plan over sources that are never corrected and come in order."""
    if isinstance(node, n.Source):
        return replace(node, insert_only=True, ordered=True)
    return n.over(node, *map(declared, node.inputs))


@pytest.mark.parametrize(("plan", "emit"), sampled_pairs(PLANS, Emit, each=2))
@settings(max_examples=4)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_what_is_emitted_is_what_is_known(plan: Plan, emit: Emit, data: st.DataObject, seed: int) -> None:
    node = declared(plan.build().node)
    known, query = emitted(node, emit), ew.Stream(node)
    rng = random.Random(seed)
    some = histories(SCHEMA, max_events=6, allow_infinite=plan.infinite)
    pushes = [epoch for name in sources(query) for epoch in in_turn(perfect(data.draw(some), rng, 0.3), 1, name)]
    report = assert_valid(run_all(query, emit.value, pushes))
    if known.insert_only:
        assert report.adjusts == 0
    if known.ordered:
        assert report.ordered, report.offences["ordered"]


def test_policies_differ_in_what_is_known() -> None:
    perfect_ = ew.source("S", {"k": "string", "x": "int64"}, insert_only=True, ordered=True)
    sums = perfect_.range(5).group_by("k").agg(total=ew.sum("x")).node
    one = perfect_.range(5).aggregate(total=ew.sum("x")).node
    kept = perfect_.where(ew.col("x") > 1).node
    found = {emit.value: [emitted(node, emit).insert_only for node in (sums, one, kept)] for emit in Emit}
    assert found == {
        "final": [True, True, True], "ended": [True, True, True],
        "current": [False, False, True], "all": [False, False, True],
    }  # fmt: skip
    assert [emitted(one, emit).ordered for emit in Emit] == [True, True, False, False]
    assert [emitted(S.node, emit).insert_only for emit in Emit] == [True, False, False, False]
    assert not emitted(S.union(T).node, Emit.CURRENT).ordered
