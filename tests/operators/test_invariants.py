"""The CEDR paper's invariants (τ-S, τ-O, POS, ECQ) of running operators, after every step, and that they can fail."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.containers.run_pool import LENGTH, START
from everwhen.engine.local import LocalRuntime
from everwhen.operators.contract import EVERYTHING
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.sweep.sweep import Sweep
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.testing.step_invariants import Invariants
from everwhen.testing.strategies import histories
from example_counts import examples_per_case, sampled_pairs
from operators.differential import EMITS, SCHEMA, Trial, epochs, sources, streams_of
from operators.random_plans import Grown, plans
from plans import PLANS, Plan, S, T

FEW = settings(max_examples=examples_per_case(12), suppress_health_check=list(HealthCheck))
SOME = settings(max_examples=settings().max_examples, suppress_health_check=list(HealthCheck))
A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}


def run_checked(query: ew.Stream, emit: str, infinite: bool, data: st.DataObject, rng: random.Random) -> Invariants:
    check = Invariants()
    some = histories(SCHEMA, max_events=5, max_time=10, allow_infinite=infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    trial = Trial(query, emit, given_, check)
    for epoch in epochs(streams_of(given_, rng, infinite), rng):
        trial.push(epoch)
        match rng.randrange(8):
            case 0:
                trial.restart()
            case 1:
                trial.collect()
    trial.close()
    return check


@pytest.mark.parametrize(("plan", "emit"), sampled_pairs(PLANS, EMITS))
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_after_every_step(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    run_checked(plan.build(), emit, plan.infinite, data, random.Random(seed))


@pytest.mark.parametrize("emit", EMITS)
@SOME
@given(data=st.data(), grown=plans(), seed=st.integers(0, 2**32))
def test_after_every_step_of_any_plan(emit: str, data: st.DataObject, grown: Grown, seed: int) -> None:
    run_checked(grown.stream, emit, grown.sources, data, random.Random(seed))


# --- breaking the state on purpose ------------------------------------------------------------------------------------


def running(query: ew.Stream, emit: str = "ended") -> tuple[LocalRuntime, Invariants]:
    """A query in the middle of a run: τ = 9, promised 2."""
    check = Invariants()
    runtime = LocalRuntime(query, emit=emit, check=check)
    runtime.push({"S": batch_of([Insert(1, 6, A), Insert(3, 12, A), Insert(9, 15, B), Cti(2)], SCHEMA)})
    return runtime, check


def go_on(runtime: LocalRuntime) -> None:
    runtime.push({"S": batch_of([Insert(9, 11, B), Adjust(3, 12, 10, A)], SCHEMA)})


def sweep_of(runtime: LocalRuntime) -> Sweep:
    sweep = runtime.plan.operators[-1].operator._sweep  # type: ignore[attr-defined]
    assert isinstance(sweep, Sweep)
    return sweep


def edges_of(runtime: LocalRuntime, key: int = 0) -> np.ndarray:
    """The edges of a key, as they stand in the pool: -∞ or the base, then 3, 6, 12."""
    runs = sweep_of(runtime)._runs
    start, length = int(runs.place[key, START]), int(runs.place[key, LENGTH])
    return runs.pool[start : start + length]


def lose_the_last_edge(runtime: LocalRuntime) -> None:
    sweep = sweep_of(runtime)
    key = next(int(key) for key in sweep.keys.ids() if edges_of(runtime, int(key))[-1, 0] == 15)
    sweep._runs.place[key, LENGTH] -= 1


def count_one_more(runtime: LocalRuntime) -> None:
    edges_of(runtime)[1, 1] += 1


def swap_two_edges(runtime: LocalRuntime) -> None:
    edges = edges_of(runtime)
    edges[[1, 2]] = edges[[2, 1]]


def move_an_edge(runtime: LocalRuntime) -> None:
    edges_of(runtime)[2, 0] = 7


def forget_tau(runtime: LocalRuntime) -> None:
    sweep = sweep_of(runtime)
    step = sweep.step

    def stepped(*given: object, **named: object) -> object:
        pieces = step(*given, **named)  # type: ignore[arg-type]
        sweep.tau -= 1
        return pieces

    setattr(sweep, "step", stepped)  # noqa: B010


def say_the_future(runtime: LocalRuntime) -> None:
    """The state is right, but more has been said of it than the policy allows."""
    sweep = sweep_of(runtime)
    sweep.policy, policy = EVERYTHING, sweep.policy
    runtime.push({"S": batch_of([Insert(9, 14, B)], SCHEMA)})
    sweep.policy = policy


def go_back_in_time(runtime: LocalRuntime) -> None:
    runtime._ingress.inputs["S"].intake.guard.tau = 4
    for node in runtime._dataflow.flow.nodes.values():
        node.tau = 4
    runtime.push({"S": batch_of([Insert(5, 6, B)], SCHEMA)})


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (lose_the_last_edge, "invariant ECQ"),
        (count_one_more, "invariant POS"),
        (swap_two_edges, "invariant POS"),
        (move_an_edge, "invariant POS"),
        (forget_tau, "invariant τ-S"),
        (say_the_future, "invariant τ-O"),
        (go_back_in_time, "invariant τ-S"),
    ],
)
def test_a_broken_sweep_is_found(breaks: Callable[[LocalRuntime], None], message: str) -> None:
    query = S.group_by("k").agg(n=ew.count())
    runtime, check = running(query)
    go_on(runtime)
    assert check.checked["AggregateOperator"] == 2
    runtime, _ = running(query)
    with pytest.raises(AssertionError, match=message):
        breaks(runtime)
        go_on(runtime)


def test_a_lost_live_row_is_found() -> None:
    runtime, _ = running(S.group_by("k").agg(m=ew.max("x")))
    live = runtime.plan.operators[-1].operator._live  # type: ignore[attr-defined]
    start = int(live.runs.place[0, START])
    live.runs.pool[start, 1] = 3  # [1, 6) ends earlier than the sweep knows
    with pytest.raises(AssertionError, match="invariant ECQ"):
        go_on(runtime)


def test_a_lost_partner_is_found() -> None:
    check = Invariants()
    runtime = LocalRuntime(S.join(T, on="k"), check=check)
    runtime.push({"S": batch_of([Insert(1, 6, A), Insert(3, 12, A)], SCHEMA), "T": batch_of([Insert(2, 9, A)], SCHEMA)})
    join = next(each.operator for each in runtime.plan.operators if isinstance(each.operator, JoinOperator))
    join._kept[0].log[1, 1] = 10
    with pytest.raises(AssertionError, match="side 0 of the join"):
        runtime.push({"T": batch_of([Insert(4, 5, B)], SCHEMA)})
