"""Operators and random plans under attribute punctuation, against the oracle and the rules of Tucker's tables.

What is checked after every epoch stands in `punctuated.PunctuatedTrial`.  `-k "[distinct]"` runs one plan alone.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation, Range
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError
from everwhen.reference import evaluate
from everwhen.reference.promise_rules import promised, promises
from everwhen.stream.element import Adjust, Element, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.stream.validity import check
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import EMITS, FIRST, LAST, SCHEMA, epochs, sources, streams_of
from operators.punctuated import HORIZON, Inputs, PunctuatedOutput, PunctuatedTrial, punctuated
from operators.random_plans import Grown, plans
from plans import PLANS, Plan, S, T
from state_files import through_file

FEW = settings(max_examples=examples_per_case(20, 2), suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=examples_per_case(2), suppress_health_check=list(HealthCheck))


def tried(trial: PunctuatedTrial, seed: int, infinite: bool) -> None:
    """Random streams with promises for the trial's histories, with restarts in between."""
    rng = random.Random(seed)
    streams = punctuated(streams_of(trial.histories, rng, infinite), rng, SCHEMA)
    for epoch in epochs(streams, rng):
        trial.push(epoch)
        if rng.random() < 0.15:
            trial.restart(through_file)
    trial.close()


@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), emit=st.sampled_from(EMITS), seed=st.integers(0, 2**32))
def test_promises_change_no_answer(plan: Plan, data: st.DataObject, emit: str, seed: int) -> None:
    """The oracle's history, and a valid and grammatical stream, whatever was promised."""
    query = plan.build()
    some = histories(SCHEMA, max_events=6, max_time=10, allow_infinite=plan.infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    tried(PunctuatedTrial(query, emit, given_, demand=False), seed, plan.infinite)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), emit=st.sampled_from(("final", *EMITS)), seed=st.integers(0, 2**32))
def test_promises_go_as_far_as_the_rules_say(plan: Plan, data: st.DataObject, emit: str, seed: int) -> None:
    """Pass and propagate: what is promised is out in `final`, and the promise itself is said in every policy."""
    query = plan.build()
    some = histories(SCHEMA, max_events=6, max_time=10, allow_infinite=plan.infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    tried(PunctuatedTrial(query, emit, given_), seed, plan.infinite)


@pytest.mark.parametrize("demand", [False, True], ids=["answers", "rules"])
@MANY
@given(data=st.data(), grown=plans(), emit=st.sampled_from(("final", *EMITS)), seed=st.integers(0, 2**32))
def test_any_plan(demand: bool, data: st.DataObject, grown: Grown, emit: str, seed: int) -> None:
    some = histories(SCHEMA, max_events=5, max_time=8, allow_infinite=grown.sources)
    given_ = {name: data.draw(some, label=name) for name in sources(grown.stream)}
    tried(PunctuatedTrial(grown.stream, emit, given_, demand), seed, grown.sources)


# --- what a promise concerns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vnew", "fits"), [(3, False), (4, False), (5, True), (7, True)])
def test_a_pattern_concerns_an_adjust_of_a_matching_row(vnew: int, fits: bool) -> None:
    """It forbids what changes an instant before its time, by an insert or an adjust (semantics, 16): the event's start
    does not count."""
    row = {"k": "a", "x": 1}
    stream: list[Element] = [Insert(0, 9, row), Punct(Punctuation({"x": Range(ge=1)}, 5)), Adjust(0, 9, vnew, row)]
    runtime = LocalRuntime(S.distinct(), emit="current")
    assert check(stream).grammatical == fits
    for element in stream[:2]:
        runtime.push({"S": batch_of([element], SCHEMA, "S")})
    if fits:
        runtime.push({"S": batch_of(stream[2:], SCHEMA, "S")})
    else:
        with pytest.raises(InputError, match="before 5"):
            runtime.push({"S": batch_of(stream[2:], SCHEMA, "S")})


def test_a_weaker_promise_takes_nothing_back() -> None:
    """A promise waits in the join for kept rows; one for less that comes behind it does not take its place."""
    key: dict[str, AttributePattern] = {"k": OneOf(("a",))}
    runtime = LocalRuntime(S.join(T, on="k"), emit="final")
    waiting = [Insert(0, INF, {"k": "a", "x": 1}), Punct(Punctuation(key, INF)), Punct(Punctuation(key, 5))]
    for element in waiting:
        assert not len(runtime.push({"S": batch_of([element], SCHEMA, "S")})["out"])
    rest: list[AttributePattern] = [OneOf((None,)), Range(le=3), Range(gt=3)]
    said = PunctuatedOutput(S.join(T, on="k").schema)
    for pattern in rest:  # the last of them closes the key on the right
        punct = Punct(Punctuation({**key, "x": pattern}, INF))
        said.take(runtime.push({"T": batch_of([punct], SCHEMA, "T")})["out"])
    assert promised(said.known(), ("a", 1, 2)) == INF
    assert promised(said.known(), ("a", 1, 7)) == INF
    assert any(promise.match == key and promise.t == INF for promise in said.promises)


PIECES: dict[str, list[AttributePattern]] = {
    "halves": [Range(lt=1), Range(ge=1), OneOf((None,))],
    "whole numbers leave no gap": [Range(le=0), OneOf((1, 2, None)), Range(gt=2)],
    "overlapping": [OneOf((None, 7)), Range(gt=-5), Range(lt=3)],
}
COVERED = {
    "map": S.select("k"),
    "grouping": S.group_by("k").agg(n=ew.count()),
    "rows per partition": S.rows(1, partition_by=["k"]),
}


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("plan", COVERED)
def test_patterns_that_cover_a_dropped_column_count_as_one(plan: str, pieces: str) -> None:
    """The paper's open point (5.3): with the last piece everything of the key is out, up to the least of the times."""
    query, times = COVERED[plan], [INF, 4, 9]
    events = [Insert(0, 6, {"k": "a", "x": 1}), Insert(2, 3, {"k": "b", "x": 2})]
    said = PunctuatedOutput(query.schema)
    runtime = LocalRuntime(query, emit="final")
    said.take(runtime.push({"S": batch_of(events, SCHEMA, "S")})["out"])
    for pattern, t in zip(PIECES[pieces], times, strict=True):
        assert not said.promises and not said.elements
        punct = Punct(Punctuation({"k": OneOf(("a",)), "x": pattern}, t))
        said.take(runtime.push({"S": batch_of([punct], SCHEMA, "S")})["out"])
    (promise,) = said.promises
    assert promise == Punctuation({"k": OneOf(("a",))}, 4)
    out = [(element.vs, element.ve) for element in said.elements if isinstance(element, Insert)]
    assert sorted(t for vs, ve in out for t in range(vs, min(ve, 4))) == [0, 1, 2, 3]  # a window of rows says instants


# --- the rules themselves ---------------------------------------------------------------------------------------------


def assert_sound(query: ew.Stream, given_: dict[str, History], seed: int, infinite: bool) -> None:
    """After every epoch: what the rules settle of the answer so far is the same in the end."""
    rng = random.Random(seed)
    final = evaluate(query.node, given_)
    inputs = Inputs(SCHEMA)
    for epoch in epochs(punctuated(streams_of(given_, rng, infinite), rng, SCHEMA, chance=0.4), rng):
        inputs.take(epoch)
        so_far = {name: inputs.history(name) for name in given_}
        known = promises(query.node, {name: inputs.promises(name) for name in given_}, so_far, HORIZON)
        now = evaluate(query.node, so_far)
        for t in range(FIRST, LAST):
            for row in now.at(t).keys() | final.at(t).keys():
                if t < promised(known, row):
                    assert now.at(t)[row] == final.at(t)[row], f"{row} at {t} is settled by the rules, and changes"


@pytest.mark.parametrize("plan", PLANS, ids=str)
@settings(max_examples=2)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_what_the_rules_settle_stays(plan: Plan, data: st.DataObject, seed: int) -> None:
    query = plan.build()
    some = histories(SCHEMA, max_events=5, max_time=8, allow_infinite=plan.infinite)
    assert_sound(query, {name: data.draw(some, label=name) for name in sources(query)}, seed, plan.infinite)


@settings(max_examples=examples_per_case(3), suppress_health_check=list(HealthCheck))
@given(data=st.data(), grown=plans(), seed=st.integers(0, 2**32))
def test_what_the_rules_settle_of_any_plan_stays(data: st.DataObject, grown: Grown, seed: int) -> None:
    some = histories(SCHEMA, max_events=4, max_time=8, allow_infinite=grown.sources)
    given_ = {name: data.draw(some, label=name) for name in sources(grown.stream)}
    assert_sound(grown.stream, given_, seed, grown.sources)
