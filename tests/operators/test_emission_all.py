"""`all`, the emission of minimum latency: the whole answer, the future too, is said at once and corrected later.

After every epoch the output's snapshots at *every* instant are the oracle's for the input so far.  And what is left of
the CEDR paper's theorem 9: who waits longer says no more.  `final`, `ended` and `all` are counted on the same input;
only cuts are not counted, since who waits has to cut an open piece at a promise, and says it in parts.  Single
operators, compositions and random plans; why it holds is in `docs/papers.md`.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.core.emit import Emit
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.operators.clip import CUT, ENDING
from everwhen.operators.contract import EVERYTHING, Policy
from everwhen.plan.lower import lower
from everwhen.reference import evaluate
from everwhen.reference.order import canonical
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, batches, stream_from_table
from everwhen.testing.strategies import histories
from example_counts import examples_per_case, sampled_pairs
from operators.differential import (
    FIRST,
    LAST,
    SCHEMA,
    Said,
    assert_snapshots,
    epochs,
    flies,
    in_turn,
    sources,
    streams_of,
)
from operators.random_plans import Grown, plans
from plans import COMPOSED, PLANS, Plan, S, T, col

FEW = settings(max_examples=examples_per_case(10, 3), suppress_health_check=list(HealthCheck))
EXAMPLES = settings(max_examples=2 * settings().max_examples, suppress_health_check=list(HealthCheck))


def one_by_one(streams: Mapping[str, Sequence[Element]], rng: random.Random) -> list[dict[str, ElementBatch]]:
    """Streams interleaved at random, one element at a time."""
    turns = [name for name, elements in streams.items() for _ in elements]
    rng.shuffle(turns)
    left = {name: iter(elements) for name, elements in streams.items()}
    return [{name: batch_of([next(left[name])], SCHEMA, name)} for name in turns]


def cuts_into_instants(node: n.Node) -> bool:
    """Whether windows of rows count instants: those of a row without end are said up to the present only."""
    return any(isinstance(each, n.RowsWindow) for each in n.walk(node))


def cuts_endless_rows(node: n.Node) -> bool:
    """Whether a window of rows stands on rows that may have no end, though those of the sources have one."""
    windows = [each for each in n.walk(node) if isinstance(each, n.RowsWindow)]
    return any(_endless(below) for each in windows for below in n.walk(each.input))


def _endless(node: n.Node) -> bool:
    match node:
        case n.RowsWindow() | n.Deletes():
            return True
        case n.TimeWindow(_, size):
            return size == ew.INF
        case n.AlterLifetime():
            return node.length == ew.INF
    return False


# --- the whole answer, always -----------------------------------------------------------------------------------------


def assert_all_said(query: ew.Stream, pushes: Iterable[Mapping[str, ElementBatch]]) -> None:
    """After every push the output is the oracle's answer to the input so far, at every instant."""
    runtime = LocalRuntime(query, emit="all")
    said = Said(query.schema)
    so_far: dict[str, list[Element]] = {name: [] for name in sources(query)}
    for epoch in pushes:
        said.take(runtime.push(epoch)["out"])
        for name, batch in epoch.items():
            so_far[name] += batch.elements()
        answer = evaluate(query.node, {name: History.of(elements, SCHEMA) for name, elements in so_far.items()})
        assert_snapshots(said, answer, range(FIRST, LAST), f"with {so_far}")
    assert_valid(said.elements)


@pytest.mark.parametrize(("plan", "single"), sampled_pairs(PLANS, [True, False]))
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_future_is_said_at_once(plan: Plan, single: bool, data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    query = plan.build()
    infinite = plan.infinite and not cuts_into_instants(query.node)
    some = histories(SCHEMA, max_events=5, max_time=8, allow_infinite=infinite)
    streams = streams_of({name: data.draw(some, label=name) for name in sources(query)}, rng, infinite)
    assert_all_said(query, one_by_one(streams, rng) if single else epochs(streams, rng))


@EXAMPLES
@given(data=st.data(), grown=plans(), seed=st.integers(0, 2**32))
def test_the_future_of_any_plan_is_said_at_once(data: st.DataObject, grown: Grown, seed: int) -> None:
    assume(not flies(grown.stream.node))  # what still circulates is said later
    assume(not cuts_endless_rows(grown.stream.node))
    rng = random.Random(seed)
    some = histories(SCHEMA, max_events=4, max_time=8, allow_infinite=False)
    streams = streams_of({name: data.draw(some, label=name) for name in sources(grown.stream)}, rng, infinite=False)
    assert_all_said(grown.stream, epochs(streams, rng))


def test_what_never_ends_is_cut_into_instants_up_to_the_present_only() -> None:
    """Infinitely many instants cannot be said; those of finite lifetimes are, however far ahead."""
    runtime = LocalRuntime(S.rstream(), emit="all")
    said = Said(SCHEMA)
    never, soon = {"k": "a", "x": 1}, {"k": "b", "x": 2}
    for epoch in in_turn([Insert(0, ew.INF, never), Insert(2, 6, soon), Cti(4)], 1):
        said.take(runtime.push(epoch)["out"])
    assert [sum(said.at(t).values()) for t in range(-1, 8)] == [0, 1, 1, 2, 2, 1, 1, 0, 0]
    said.take(runtime.push({"S": batch_of([Adjust(0, ew.INF, 7, never)], SCHEMA)})["out"])
    assert [sum(said.at(t).values()) for t in range(-1, 8)] == [0, 1, 1, 2, 2, 2, 2, 1, 0]
    assert_valid(said.elements)


def test_an_example_with_its_future() -> None:
    out = []
    runtime = LocalRuntime(S.aggregate(n=ew.count()), emit="all")
    table = stream_from_table("vs | ve | k | x\n 1 | 9 | a | 1\n 4 | 6 | a | 1", SCHEMA)
    for batch in batches(table, SCHEMA, 1):
        out += [str(element) for element in runtime.push({"S": batch})["out"].elements()]
    assert out == ["insert [1, 9) n=1", "adjust [1, 9 -> 4) n=1", "insert [4, 6) n=2", "insert [6, 9) n=1"]


def test_all_has_a_name_everywhere() -> None:
    """`ew.run`, the runtime and the session take it by name."""
    query = S.group_by("k").agg(n=ew.count())
    elements = [Insert(1, 9, {"k": "a", "x": 1})]
    expected = [Insert(1, 9, {"k": "a", "n": 1})]
    found = list(ew.run(query, {"S": elements}, emit="all"))
    assert found == [*expected, Cti(ew.INF)]
    session = Session(emit="all")
    handle = session.register("q", query)
    assert list(session.push({"S": batch_of(elements, SCHEMA)})[handle.name].elements()) == expected


def test_the_clip_of_all() -> None:
    assert EVERYTHING.clip(3, 2) == (CUT, ew.INF)
    assert Policy(Emit.ALL, cut=True).clip(3, 2) == (ENDING, 4)
    assert Policy(Emit.ALL, cut=True).clip(3, 9) == (ENDING, 9)


# --- who waits longer says no more ------------------------------------------------------------------------------------


Row = tuple[object, ...]
Interval = tuple[int, int]


def levels(events: Mapping[Interval, int]) -> list[Interval]:
    """The level form of a row's events: level k is where its multiplicity is at least k."""
    jumps: Counter[int] = Counter()
    for (vs, ve), copies in events.items():
        jumps[vs] += copies
        jumps[ve] -= copies
    found: list[Interval] = []
    begun: list[int] = []
    for t in sorted(jumps):
        for _ in range(-jumps[t]):
            found.append((begun.pop(), t))
        begun += [t] * jumps[t]
    return found


class Counted:
    """The outputs of a run, cuts not counted: what is said anew, and what is shortened or taken back.

    Events of a row that meet are one, so a piece that is said in parts counts once, and to go on with it is free.
    """

    def __init__(self) -> None:
        self.outputs = 0
        self._events: dict[Row, Counter[Interval]] = {}

    def take(self, elements: Iterable[Element]) -> None:
        """What is said in one epoch."""
        before: dict[Row, list[Interval]] = {}
        for element in elements:
            if isinstance(element, Cti):
                continue
            assert isinstance(element, Insert | Adjust)
            row = tuple(canonical(value) for value in element.row.values())
            events = self._events.setdefault(row, Counter())
            before.setdefault(row, levels(events))
            if isinstance(element, Insert):
                events[element.vs, element.ve] += 1
            else:
                events[element.vs, element.ve] -= 1
                events[element.vs, element.vnew] += element.vnew > element.vs
        self.outputs += sum(_changed(old, levels(self._events[row])) for row, old in before.items())


def _changed(old: list[Interval], new: list[Interval]) -> int:
    """How many intervals are new, shorter or gone; an interval goes by its start."""
    changed = 0
    for start in {vs for vs, _ in (*old, *new)}:
        was, now = (sorted((ve for vs, ve in each if vs == start), reverse=True) for each in (old, new))
        changed += abs(len(was) - len(now)) + sum(b < a for a, b in zip(was, now, strict=False))
    return changed


def outputs(query: ew.Stream, emit: str, pushes: Iterable[Mapping[str, ElementBatch]]) -> int:
    runtime, counted = LocalRuntime(query, emit=emit), Counted()
    for epoch in pushes:
        counted.take(runtime.push(epoch)["out"].elements())
    counted.take(runtime.close()["out"].elements())
    return counted.outputs


totals: dict[str, Counter[str]] = {"operators": Counter(), "compositions": Counter(), "random plans": Counter()}


def assert_who_waits_says_no_more(
    kind: str, query: ew.Stream, infinite: bool, data: st.DataObject, rng: random.Random, single: bool
) -> None:
    """final ≤ ended ≤ all on one case; what was counted is noted with the example, and added up."""
    some = histories(SCHEMA, max_events=5, max_time=10, allow_infinite=infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    streams = streams_of(given_, rng, infinite)
    pushes = one_by_one(streams, rng) if single else epochs(streams, rng)
    final, ended, everything = (outputs(query, emit, pushes) for emit in ("final", "ended", "all"))
    note(f"outputs, cuts not counted: final {final}, ended {ended}, all {everything}")
    totals[kind].update(cases=1, final=final, ended=ended, all=everything)
    assert final <= ended <= everything


@pytest.mark.parametrize(("plan", "single"), sampled_pairs(PLANS, [True, False]))
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_who_waits_longer_says_no_more(plan: Plan, single: bool, data: st.DataObject, seed: int) -> None:
    kind = "compositions" if plan in COMPOSED else "operators"
    assert_who_waits_says_no_more(kind, plan.build(), plan.infinite, data, random.Random(seed), single)


@pytest.mark.parametrize("single", [True, False], ids=["one by one", "epochs"])
@EXAMPLES
@given(data=st.data(), grown=plans(), seed=st.integers(0, 2**32))
def test_who_waits_longer_says_no_more_with_any_plan(
    single: bool, data: st.DataObject, grown: Grown, seed: int
) -> None:
    """Random plans of two to five operators."""
    assert_who_waits_says_no_more("random plans", grown.stream, grown.sources, data, random.Random(seed), single)


def test_a_cut_below_is_no_end_above() -> None:
    """Only the outermost operator clips: else a piece that the one below has not said yet would look deleted."""
    query = S.distinct().dstream()
    elements = [Insert(0, 9, {"k": "a", "x": 1}), Cti(3), Insert(4, 5, {"k": "b", "x": 1}), Cti(6)]
    runtime, said = LocalRuntime(query, emit="ended"), Said(SCHEMA)
    for epoch in in_turn(elements, 1):
        said.take(runtime.push(epoch)["out"])
    said.take(runtime.close()["out"])
    assert [str(e) for e in said.elements if not isinstance(e, Cti)] == [
        "insert [5, 6) k='b' x=1", "insert [9, 10) k='a' x=1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "clip"),
    [
        (S.range(3).where(col("x") > 0), None),
        (S.group_by("k").agg(n=ew.count()), "aggregate"),
        (S.group_by("k").agg(n=ew.count()).select("k", m=col("n") + 1), "aggregate"),
        (S.aggregate(n=ew.count()).select(m=col("n") % 2), "aggregate"),
        (S.group_by("k").agg(n=ew.count()).select("n"), "clip"),  # groups that end at different times meet in a row
        (S.distinct().union(T), "clip"),
        (S.distinct().join(T, on="k"), "clip"),
        (S.distinct().range(3), "clip"),
        (S.coalesce().lifetime(length=3), "clip"),
        (S.distinct().dstream(), "dstream"),
        (S.group_by("k").agg(t=ew.sum("x")).aggregate(m=ew.max("t")), "aggregate"),
    ],
    ids=str,
)
def test_one_operator_clips(query: ew.Stream, clip: str | None) -> None:
    """In `ended` one operator clips, the last that can; all below it say everything."""
    plan = lower({"out": query.node}, Emit.ENDED)
    clipping = [
        placed.name
        for placed in plan.operators
        if (sweep := getattr(placed.operator, "_sweep", None)) is not None and sweep.policy.emit is Emit.ENDED
    ]
    assert clipping == ([clip] if clip else [])


def test_the_measured_numbers(record_property: Callable[[str, object], None]) -> None:
    """After all cases above: how much more is said for less waiting.  `pytest -s` and the JUnit report show it."""
    for kind, counted in totals.items():
        shown = ", ".join(f"{emit} {counted[emit]}" for emit in ("final", "ended", "all"))
        sys.stdout.write(f"\noutputs of {kind}, cuts not counted, {counted['cases']} cases: {shown}")
        record_property(kind, shown)
        assert counted["final"] <= counted["ended"] <= counted["all"]
