"""Perfect input (ordered, no adjusts, CTIs in order) one element at a time: nothing is taken back, and order is kept.

In `ended` and `final` there is not a single adjust.  Ungrouped unary operators also keep the order of sync times
(semantics, decision 4); with groups the pieces of different groups end at different times.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from everwhen.testing.strategies import histories
from example_counts import examples_per_case, sampled_pairs
from operators.differential import EMITS, SCHEMA, Trial, in_turn, run_all, sources
from plans import PLANS, UNARY, Plan

FEW = settings(max_examples=examples_per_case(4))


def perfect(history: History, rng: random.Random, ctis: float) -> list[Element]:
    """Inserts in the order of their starts, with CTIs that neither promise too much nor come too late."""
    elements: list[Element] = []
    said, before = NEVER, None
    for vs, ve, row in history.events():
        if rng.random() < ctis:
            t = rng.randint(vs - 3 if before is None else before, vs)
            if t > said:
                elements.append(Cti(t))
                said = t
        elements.append(Insert(vs, ve, dict(zip(history.schema.names, row, strict=True))))
        before = vs
    return [*elements, Cti(INF)]


@pytest.mark.parametrize("emit", ["final", "ended"])
@pytest.mark.parametrize("plan", UNARY, ids=str)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32), ctis=st.sampled_from([0.0, 0.4, 1.0]))
def test_perfect_input_gives_no_adjusts(plan: Plan, emit: str, data: st.DataObject, seed: int, ctis: float) -> None:
    history = data.draw(histories(SCHEMA, allow_infinite=plan.infinite))
    elements = perfect(history, random.Random(seed), ctis)
    trial = Trial(plan.build(), emit, {"S": history})
    for epoch in in_turn(elements, 1):
        trial.push(epoch)
    trial.close()
    report = assert_valid(trial.said.elements)
    assert report.adjusts == 0
    if plan.ordered:
        assert report.ordered, f"{report.offences['ordered']}: {[str(e) for e in trial.said.elements]}"


@pytest.mark.parametrize("emit", ["final", "ended"])
@pytest.mark.parametrize("plan", UNARY, ids=str)
@settings(max_examples=examples_per_case(6))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_perfect_chronons_give_no_adjusts(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    """Many equal rows that follow each other: pieces that say the same meet exactly at the present."""
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ab")), max_size=9))
    history = History.of([Insert(t, t + 1, {"k": k, "x": 2}) for t, k in drawn], SCHEMA)
    report = assert_valid(run_all(plan.build(), emit, in_turn(perfect(history, random.Random(seed), 0.2), 1)))
    assert report.adjusts == 0
    assert report.ordered or not plan.ordered


@pytest.mark.parametrize(("plan", "emit"), sampled_pairs(PLANS, EMITS))
@settings(max_examples=examples_per_case(12))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_batch_size_does_not_matter(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    """Batches of 1, 3 and 1000 elements give the same history, whatever the arrival."""
    query = plan.build()
    found = []
    names = sources(query)
    some = histories(SCHEMA, max_events=6, allow_infinite=plan.infinite)
    streams = {name: reorder(data.draw(some), random.Random(seed), infinite=plan.infinite) for name in names}
    for size in (1, 3, 1000):
        pushes = [epoch for name in names for epoch in in_turn(streams[name], size, name)]
        found.append(History.of(run_all(query, emit, pushes), query.schema))
    assert_same_history(found[1], found[0], tolerance=1e-12)
    assert_same_history(found[2], found[0], tolerance=1e-12)
