"""Fast-forward: from t on the answer is the same, the output is valid, and state is as if the plan had begun there."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.forward.forwarded import Forwarded, begun_late, cut_epoch, floors, history, kept, moments
from everwhen.algebra import nodes as n
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError, QueryError
from everwhen.operators.contract import Operator, Output
from everwhen.operators.stateless.linear import AlterLifetimeOperator, GranularityOperator, TimeWindowOperator
from everwhen.plan.lower import lower
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.testing import reorder
from everwhen.testing.step_invariants import Invariants
from operators.differential import EMITS, SCHEMA, epochs, in_turn, sources, streams_of
from operators.punctuated import with_promises
from operators.random_plans import Grown, plans
from plans import COMPOSED, PLANS, Plan, S, T, col

A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}
INVARIANT = ("distinct", "min and max by group", "coalesce", "equi-join", "full join", "difference", "rows", "rstream")
CODEC = RowCodec(SCHEMA, Interner())


# --- every plan -------------------------------------------------------------------------------------------------------


def check(query: ew.Stream, emit: str, seed: str, infinite: bool, stored: bool = False) -> None:
    rng = random.Random(seed)
    given_ = {name: history(rng, infinite) for name in sources(query)}
    some = epochs(streams_of(given_, rng, infinite), rng)
    Forwarded(query, emit, rng, stored).run(some, moments(rng, some))


@pytest.mark.property
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_from_t_on_the_answer_is_the_same(plan: Plan) -> None:
    """Corrections, disorder, restarts; one to three times, also back and beyond everything.  Two policies, in turns."""
    at = PLANS.index(plan)
    for emit in (EMITS[at % len(EMITS)], EMITS[(at + 1 + at // len(EMITS) % 3) % len(EMITS)]):
        check(plan.build(), emit, f"{plan} {emit}", plan.infinite)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_many_times(plan: Plan) -> None:
    for emit in EMITS:
        for number in range(12):
            check(plan.build(), emit, f"{plan} {emit} {number}", plan.infinite, stored=True)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(grown=plans(), emit=st.sampled_from(EMITS), seed=st.integers(0, 2**32))
def test_any_plan(grown: Grown, emit: str, seed: int) -> None:
    check(grown.stream, emit, str(seed), grown.sources, stored=seed % 4 == 0)


def test_sort() -> None:
    for number in range(6):
        check(S.sort("x"), "final", f"sort {number}", False)


@pytest.mark.parametrize("emit", EMITS)
def test_punctuate_inside_a_plan(emit: str) -> None:
    """What the schemes promise of rows that it sees is true of all."""
    query = S.range(3).punctuate(ew.punctuation.sorted_by("x")).group_by("x").agg(n=ew.count())
    for seed in range(3):
        rng = random.Random(seed)
        elements = [Insert(at, at + 1, {"k": "a", "x": at // 3}) for at in range(30)]
        some = in_turn([*elements[:15], Cti(9), *elements[15:]], rng.choice((1, 4)))
        Forwarded(query, emit, rng).run(some, moments(rng, some))


@pytest.mark.parametrize("emit", EMITS)
def test_with_promises_about_data(emit: str) -> None:
    """Punctuation in the input closes groups and rows, before and after the cut."""
    queries = (
        S, S.range(3).group_by("k").agg(n=ew.count(), t=ew.sum("x")), S.distinct(), S.join(T.range(2), on="k"),
        S.difference(T), S.coalesce(), S.lifetime(length=4), S.range(4, slide=3).join(T, on="k", how="left"),
    )  # fmt: skip
    for number, query in enumerate(queries):
        rng = random.Random(f"{emit} {number}")
        streams = streams_of({name: history(rng, False) for name in sources(query)}, rng, False)
        promised = {name: with_promises(each, rng, SCHEMA, 0.3) for name, each in streams.items()}
        some = epochs(promised, rng)
        Forwarded(query, emit, rng).run(some, moments(rng, some))


@pytest.mark.parametrize("emit", EMITS)
def test_schemes_of_a_source(emit: str) -> None:
    """The guard watches over all that comes, what is skipped included."""
    counted = ew.source("S", SCHEMA).punctuate(ew.punctuation.sorted_by("x"))
    query = counted.range(2).group_by("x").agg(n=ew.count())
    for seed in range(3):
        rng = random.Random(seed)
        elements = [Insert(at, at + rng.choice((1, 6)), {"k": "a", "x": at // 3}) for at in range(30)]
        some = in_turn([*elements[:15], Cti(9), *elements[15:]], rng.choice((1, 4)))
        Forwarded(query, emit, rng).run(some, moments(rng, some))
    runtime = LocalRuntime(query, emit=emit)
    runtime.push({"S": batch_of([Insert(1, 2, {"k": "a", "x": 7})], SCHEMA)})
    runtime.fast_forward(30)
    with pytest.raises(InputError, match="x"):
        runtime.push({"S": batch_of([Insert(2, 3, {"k": "a", "x": 6})], SCHEMA)})


@pytest.mark.parametrize("plan", [each for each in PLANS if each in COMPOSED or each.name in INVARIANT], ids=str)
def test_operators_are_as_after_any_other_step(plan: Plan) -> None:
    """The invariants of running operators hold of what was cut."""
    query = plan.build()
    for emit in EMITS:
        rng = random.Random(f"{plan} {emit}")
        streams = streams_of({name: history(rng, False) for name in sources(query)}, rng, False)
        runtime = LocalRuntime(query, emit=emit, check=Invariants())
        some = epochs(streams, rng)
        for number, epoch in enumerate(some):
            if number == len(some) // 3:
                runtime.fast_forward(rng.randrange(2, 20))
            runtime.push(epoch)
        runtime.close()


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.name != "merged copies of events"], ids=str)
def test_state_is_as_if_it_had_begun_there(plan: Plan) -> None:
    """Right after it where operators look at single instants; else when progress has passed t.

    Inputs without corrections: a correction is kept beside what it corrects, which may have begun before.  A merge of
    events keeps more: of those that began before t and come later, also under which start they are emitted.
    """
    query = plan.build()
    for emit in ("final", "current"):
        rng = random.Random(f"{plan} {emit}")
        streams = {
            name: reorder(history(rng, plan.infinite, 30), rng, disorder=6, corrections=0.0, ctis=0.3)
            for name in sources(query)
        }
        some = epochs(streams, rng)
        t, at = rng.randrange(4, 24), rng.randrange(len(some))
        runtime = LocalRuntime(query, emit=emit)
        for epoch in some[:at]:
            runtime.push(epoch)
        runtime.fast_forward(t)
        floor = floors(runtime)
        late = begun_late(query, emit, some[:at], floor)
        single = all(each in (t, NEVER) for each in floor.values())
        for epoch in some[at:]:
            if single or min(runtime.progress.values()) >= t:
                more = 2 * len(sources(query)) if "coalesce" in plan.name else 0  # an interval that ends at the floor
                if "recursion" in plan.name:  # a row is in pieces where it was born in different rounds
                    more = kept(late) // 10
                if any(isinstance(each, n.Rank | n.Over) for each in n.walk(query.node)):
                    more = 2  # rows of different starts before t are one where it had begun there
                assert kept(runtime) <= kept(late) + more, f"{emit}, t = {t}, floor {floor}"
            runtime.push(epoch)
            late.push(cut_epoch(epoch, floor))


def test_state_falls_at_once() -> None:
    """Guard, join, aggregate and output keep nothing that is over."""
    query = S.range(5).join(T.range(5), on="k").group_by("k").agg(n=ew.count())
    runtime = LocalRuntime(query)
    for name in "ST":
        elements = [Insert(at, at + 3, {"k": f"k{at % 7}", "x": at}) for at in range(1000)]
        runtime.push({name: batch_of(elements, SCHEMA)})
    before = runtime.state_size().rows
    runtime.fast_forward(10_000)
    assert before > 4_000 and runtime.state_size().rows == 0


# --- times ------------------------------------------------------------------------------------------------------------


def test_only_finite_instants() -> None:
    runtime = LocalRuntime(S)
    for wrong in (INF, NEVER, True, 2.5, MAX_TIME + 1, "now"):
        with pytest.raises(QueryError, match="finite instant"):
            runtime.fast_forward(wrong)  # type: ignore[arg-type]
    runtime.fast_forward(MIN_TIME)
    runtime.close()
    with pytest.raises(QueryError, match="closed"):
        runtime.fast_forward(3)


def test_an_earlier_time_changes_nothing() -> None:
    runtime = LocalRuntime(S.range(3).aggregate(n=ew.count()))
    assert [str(e) for e in runtime.fast_forward(20)["out"].elements()] == ["cti 18"]
    assert floors(runtime) == {"S": 18}
    for t in (5, 20, 19):
        assert not list(runtime.fast_forward(t)["out"].elements())
        assert floors(runtime) == {"S": 18}


def test_what_needs_all_of_the_past_gets_it() -> None:
    """A window of rows beside a window of time: only the source of the second is cut."""
    runtime = LocalRuntime(S.rows(2).join(T.range(4), on="k"))
    runtime.fast_forward(50)
    assert floors(runtime) == {"S": NEVER, "T": 47}


class _Odd(Operator):
    """Exact from no instant that can be computed backwards."""

    codec = CODEC

    def step(self, inputs, frontiers, tau) -> Output:  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def exact_from(self, since: int) -> int:
        return since // 1000 * 1000 + 700 + 3 * (since % 1000 > 250)


@pytest.mark.parametrize(
    "operator",
    [
        TimeWindowOperator(60, 1, CODEC), TimeWindowOperator(60, 7, CODEC), TimeWindowOperator(2, 500, CODEC),
        GranularityOperator(100, CODEC), AlterLifetimeOperator(300, 5, 40, CODEC),
        AlterLifetimeOperator(1, -30, 2, CODEC), AlterLifetimeOperator(1, -30, None, CODEC), _Odd(),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_the_largest_instant_that_will_do(operator: Operator) -> None:
    for wanted in (*range(-40, 700, 13), 10**12 + 7):
        found = operator.needs_from(wanted)
        assert operator.exact_from(found) <= wanted < operator.exact_from(found + 1)
    assert operator.needs_from(NEVER) == NEVER and operator.needs_from(INF) == INF


def test_what_no_instant_will_do() -> None:
    never = TimeWindowOperator(INF, 1, CODEC)
    assert never.needs_from(5) == NEVER
    assert TimeWindowOperator(60, 1, CODEC).needs_from(MIN_TIME) == NEVER
    assert AlterLifetimeOperator(1, -30, None, CODEC).needs_from(MAX_TIME) == MAX_TIME


def test_a_slide_of_a_day_is_found_at_once() -> None:
    day = 86_400_000_000
    assert TimeWindowOperator(1, day, CODEC).needs_from(5 * day - 2) == 4 * day - 1


def test_a_long_way_costs_nothing() -> None:
    """Instants that are skipped are not cut out one by one."""
    runtime = LocalRuntime(S.rstream(), emit="current")
    runtime.push({"S": batch_of([Insert(0, 10**12, A)], SCHEMA)})
    assert [str(e) for e in runtime.fast_forward(10**12 - 3)["out"].elements()] == [f"cti {10**12 - 3}"]
    state = runtime.snapshot()
    runtime = LocalRuntime(S.rstream(), emit="current")
    runtime.restore(state)
    said = runtime.push({"S": batch_of([Cti(10**12)], SCHEMA)})["out"]
    assert [e.vs for e in said.elements() if isinstance(e, Insert)] == [10**12 - 3, 10**12 - 2, 10**12 - 1]


def test_below_both_runtimes() -> None:
    """A partition's dataflow: what is handed to another stage is cut with the rest, and each root has its own time."""
    query = S.range(4).group_by("k").agg(n=ew.count())
    plan = lower({}, Emit.CURRENT, handed={"sums": query.node, "events": T.node})
    flow = FixedDataflow(plan)
    assert flow.fast_forward({"sums": 20, "events": 7}) == {"S": 17, "T": 7}
    codec = plan.codecs["S"]
    rows = codec.encode(batch_of([Insert(0, 1, A)] * 2, SCHEMA).columns, 2)
    some = Changes(codec, np.array([3, 9]), np.array([12, 30]), np.ones(2, np.int64), rows)
    flow.step({port: Output(some, Frontier(2)) for port in flow.source_ports}, 9)
    handed = flow.handed()
    events = handed["events"].changes
    assert list(zip(events.lo.tolist(), events.hi.tolist(), strict=True)) == [(9, 30), (7, 12)]
    assert handed["events"].frontier.time == 7 and handed["sums"].frontier.time == 17
    assert flow.fast_forward({"sums": 5}) == {"S": 17, "T": 7}


# --- what was said before ---------------------------------------------------------------------------------------------


def test_events_that_reach_over_t_can_still_be_corrected() -> None:
    """Under the names by which they were said; what begins before and is new begins at t."""
    runtime = LocalRuntime(S)
    runtime.push({"S": batch_of([Insert(1, 50, A), Insert(2, 8, B)], SCHEMA)})
    said = [str(e) for e in runtime.fast_forward(10)["out"].elements()]
    assert said == ["cti 10"]
    late = [Adjust(1, 50, 30, A), Insert(3, 9, A), Insert(4, 40, B), Adjust(4, 40, 5, B), Adjust(2, 8, 20, B)]
    said = [str(e) for e in runtime.push({"S": batch_of(late, SCHEMA)})["out"].elements()]
    assert said == ["insert [10, 20) k='b' x=2", "adjust [1, 50 -> 30) k='a' x=1"]
    later = [Adjust(1, 30, 4, A), Adjust(2, 20, 25, B), Adjust(3, 9, 12, A)]
    said = [str(e) for e in runtime.push({"S": batch_of(later, SCHEMA)})["out"].elements()]
    assert said == ["adjust [1, 30 -> 10) k='a' x=1", "insert [10, 12) k='a' x=1", "adjust [10, 20 -> 25) k='b' x=2"]


def test_another_policy_afterwards() -> None:
    """Events are known to the output by the names that they have there."""
    for seed in range(6):
        rng = random.Random(seed)
        some = epochs(streams_of({"S": history(rng, False)}, rng, False), rng)
        trial = Forwarded(S.where(col("x") >= 0), "current", rng)
        for number, epoch in enumerate(some):
            if number == len(some) // 3:
                trial.fast_forward(rng.randrange(4, 20))
            if number == len(some) // 2:
                trial.expected.take(trial.plain.change(emit="final")["out"])
                trial.said.take(trial.forward.change(emit="final")["out"])
            trial.push(epoch)
        trial.expected.take(trial.plain.close()["out"])
        trial.said.take(trial.forward.close()["out"])
        trial.compare("at the end")


def test_levels_that_wait_and_forget() -> None:
    """Align and Finalize behind the guard: the cut is behind them."""
    for seed in range(8):
        rng = random.Random(seed)
        query = S.range(4).group_by("k").agg(n=ew.count(), t=ew.sum("x"))
        some = epochs(streams_of({"S": history(rng, False)}, rng, False), rng)
        level = replace(ew.MIDDLE, block=rng.choice((0, 3)), remember=rng.choice((10, 40, INF)))
        trial = Forwarded(query, "current", rng)
        trial.plain, trial.forward = (LocalRuntime(query, consistency=level) for _ in range(2))
        for number, epoch in enumerate(some):
            if number == len(some) // 2:
                trial.fast_forward(rng.randrange(4, 24))
            trial.push(epoch)
        trial.expected.take(trial.plain.close()["out"])
        trial.said.take(trial.forward.close()["out"])
        trial.compare("at the end")
        assert trial.plain.dropped == trial.forward.dropped


def test_progress_of_inputs_is_their_own() -> None:
    runtime = LocalRuntime(S.union(T))
    runtime.push({"S": batch_of([Cti(4)], SCHEMA)})
    runtime.fast_forward(30)
    assert runtime.progress == {"S": 4, "T": NEVER}
