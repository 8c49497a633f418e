"""An operator that was restored goes on with the very elements of one that was never stopped, in every epoch.

Exactly once rests on it: what was said before a restart is in a sink, what is said after it names those events.  So it
is not enough that the histories are equal.  Only the order of elements within an epoch may be another one.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Insert
from everwhen.stream.element_batch import batch_of
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import SCHEMA, epochs, sources, streams_of
from operators.random_plans import Grown, plans
from plans import PLANS, Plan, S, T
from state_files import through_file

FEW = settings(max_examples=examples_per_case(6, 2), suppress_health_check=list(HealthCheck))
EMISSIONS = ("final", "ended", "current", "all")


def assert_goes_on(query: ew.Stream, infinite: bool, data: st.DataObject, rng: random.Random) -> None:
    """Two runs over the same epochs, one of which is put into a new runtime again and again."""
    some = histories(SCHEMA, max_events=12, max_time=10, allow_infinite=infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    emit = data.draw(st.sampled_from(EMISSIONS), label="emit")
    pushes = epochs(streams_of(given_, rng, infinite), rng)
    whole, parts = LocalRuntime(query, emit=emit), LocalRuntime(query, emit=emit)
    for push in pushes:
        said, again = whole.push(push)["out"], parts.push(push)["out"]
        assert sorted(map(str, again.elements())) == sorted(map(str, said.elements()))
        if rng.random() < 0.5:
            state, parts = through_file(parts.snapshot()), LocalRuntime(query, emit=emit)
            parts.restore(state)
    assert sorted(map(str, parts.close()["out"].elements())) == sorted(map(str, whole.close()["out"].elements()))


@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_operator(plan: Plan, data: st.DataObject, seed: int) -> None:
    assert_goes_on(plan.build(), plan.infinite, data, random.Random(seed))


@settings(FEW, max_examples=settings().max_examples)
@given(grown=plans(), data=st.data(), seed=st.integers(0, 2**32))
def test_any_plan(grown: Grown, data: st.DataObject, seed: int) -> None:
    assert_goes_on(grown.stream, grown.sources, data, random.Random(seed))


@pytest.mark.parametrize("emit", EMISSIONS)
def test_a_join_of_many_late_rows(emit: str) -> None:
    """Enough entries of one key for a tree of some depth, rows that are equal among them."""
    rng = random.Random(3)
    query = S.join(T, on="k")
    pushes = []
    for _ in range(12):
        push = {}
        for name in ("S", "T"):
            rows = [(rng.randrange(30), rng.choice("ab"), rng.randrange(2)) for _ in range(15)]
            push[name] = [Insert(at, at + rng.randrange(1, 12), {"k": k, "x": x}) for at, k, x in rows]
        pushes.append(push)
    runs = [LocalRuntime(query, emit=emit), LocalRuntime(query, emit=emit)]
    for push in pushes:
        batch = {name: batch_of(elements, SCHEMA) for name, elements in push.items()}
        said, again = (runtime.push(batch)["out"] for runtime in runs)
        assert sorted(map(str, again.elements())) == sorted(map(str, said.elements()))
        state, runs[1] = runs[1].snapshot(), LocalRuntime(query, emit=emit)
        runs[1].restore(state)
