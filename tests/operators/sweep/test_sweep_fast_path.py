"""`current` answers the present: after every epoch the output is right up to τ, for the input so far."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.engine.local import LocalRuntime
from everwhen.reference import evaluate
from everwhen.stream.element import Element
from everwhen.stream.history import History
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import FIRST, SCHEMA, Said, assert_snapshots, epochs, sources, streams_of
from plans import PLANS, Plan

FEW = settings(max_examples=examples_per_case(12))


@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_current_answers_the_present(plan: Plan, data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    query = plan.build()
    some = histories(SCHEMA, max_events=5, max_time=8, allow_infinite=plan.infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    runtime = LocalRuntime(query, emit="current")
    said = Said(query.schema)
    so_far: dict[str, list[Element]] = {name: [] for name in given_}
    for epoch in epochs(streams_of(given_, rng, plan.infinite), rng):
        said.take(runtime.push(epoch)["out"])
        for name, batch in epoch.items():
            so_far[name] += batch.elements()
        answer = evaluate(query.node, {name: History.of(elements, SCHEMA) for name, elements in so_far.items()})
        assert_snapshots(said, answer, range(FIRST, min(runtime.tau, 20) + 1), f"at the present {runtime.tau}")
