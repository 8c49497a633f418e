"""A running query is moved to other levels: B, M and what is said when.  It contradicts nothing and ends right."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import history as oracle
from everwhen.reference.admission import finalized
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from everwhen.testing.strategies import histories
from operators.differential import SCHEMA, Said, Trial, epochs, sources, streams_of
from plans import PLANS, Plan
from state_files import through_file

S = ew.source("S", SCHEMA)
EMITS = [emit.value for emit in Emit]
GRID = [(0, 0), (0, 2), (2, 2), (3, 6), (0, INF), (2, INF), (9, INF), (INF, INF)]
COUNT = S.group_by("k").agg(n=ew.count(), t=ew.sum("x"))


class Moved(Trial):
    """A trial whose emission policy changes on the way."""

    def change(self, emit: str, restart: bool) -> list[Element]:
        new = self._take(self.runtime.change(emit=emit)["out"])
        if restart:
            state = through_file(self.runtime.snapshot())
            self.runtime = LocalRuntime(self.query, emit=self.emit)
            self.runtime.restore(state)
        return new

    def close(self) -> None:
        self._take(self.runtime.close()["out"])
        assert self.said.cti == INF
        assert_same_history(self.said.elements, oracle(self.query.node, self.histories))
        assert_valid(self.said.elements)

    def _take(self, batch: object) -> list[Element]:
        new = self.said.take(batch)  # type: ignore[arg-type]
        return new


@pytest.mark.parametrize("plan", PLANS, ids=str)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_any_plan_is_moved_to_any_policy(plan: Plan, data: st.DataObject) -> None:
    """The output is valid all the way, right where it has promised to be, and right in the end."""
    query, rng = plan.build(), data.draw(st.randoms(use_true_random=False))
    drawn = {name: data.draw(histories(SCHEMA, max_events=7, allow_infinite=plan.infinite)) for name in sources(query)}
    trial = Moved(query, rng.choice(EMITS), drawn)
    pushes = epochs(streams_of(drawn, rng, plan.infinite), rng)
    present = Emit(trial.emit)
    for epoch in pushes:
        if rng.random() < 0.5:
            asked = Emit(rng.choice(EMITS))
            new = trial.change(asked.value, restart=rng.random() < 0.3)
            if asked.rank <= present.rank:
                assert not new, "a stricter policy says nothing by itself"
            present = asked
        trial.push(epoch)
    trial.close()
    assert_valid(trial.said.elements)


@settings(max_examples=15, deadline=None)
@given(
    histories(SCHEMA, max_events=9), st.randoms(use_true_random=False), st.sampled_from(["final", "ended", "current"])
)
def test_a_laxer_policy_says_what_is_missing(history: History, rng: random.Random, first: str) -> None:
    """What has been said after a change to `all` is what one has said that always did."""
    elements = reorder(history, rng, disorder=rng.choice([0, 3, None]), ctis=0.3)
    turn = rng.randrange(len(elements)) if elements else 0
    moved, always = LocalRuntime(COUNT, emit=first), LocalRuntime(COUNT, emit="all")
    here, there = Said(COUNT.schema), Said(COUNT.schema)
    for at, element in enumerate(elements):
        batch = {"S": batch_of([element], SCHEMA)}
        here.take(moved.push(batch)["out"])
        there.take(always.push(batch)["out"])
        if at == turn:
            here.take(moved.change(emit="all")["out"])
        if at >= turn:
            for t in range(-5, 60):
                assert here.at(t) == there.at(t)


def test_strict_after_lax_takes_back_only_what_is_wrong() -> None:
    a = {"k": "a", "x": 1}
    runtime = LocalRuntime(COUNT)

    def said(*elements: Element) -> list[str]:
        return [str(e) for e in runtime.push({"S": batch_of(elements, SCHEMA)})["out"].elements()]

    assert said(Insert(1, 10, a)) == ["insert [1, ∞) k='a' n=1 t=1"]
    assert not list(runtime.change(emit="final")["out"].elements())
    assert not said(Insert(2, 3, {"k": "b", "x": 1}))
    # the count changes at 4, so what was said of later instants is wrong; what is new waits for a promise
    assert said(Insert(4, 6, a)) == ["adjust [1, ∞ -> 4) k='a' n=1 t=1"]
    assert said(Cti(5)) == ["insert [2, 3) k='b' n=1 t=1", "insert [4, 5) k='a' n=2 t=2", "cti 5"]
    assert [str(e) for e in runtime.change(emit="current")["out"].elements()] == ["insert [5, ∞) k='a' n=2 t=2"]
    # the end at 6 was known before: the present has not reached it
    assert [str(e) for e in runtime.close()["out"].elements()] == [
        "adjust [5, ∞ -> 6) k='a' n=2 t=2", "insert [6, 10) k='a' n=1 t=1", "cti ∞",
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(histories(SCHEMA, max_events=14), st.randoms(use_true_random=False))
def test_ten_changes_of_everything(history: History, rng: random.Random) -> None:
    """B, M and emission change ten times: the answer is the oracle's to what each M admitted in its time."""
    query = S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x"))
    elements = reorder(history, rng, disorder=rng.choice([2, 6]), ctis=rng.choice([0, 0.3]))
    turns = rng.sample(range(len(elements)), min(10, len(elements)))
    level = rng.choice([ew.MIDDLE, ew.WEAK, ew.STRONG, ew.consistency(3, 5)])
    runtime = LocalRuntime(query, consistency=level)
    out = list[Element]()
    changes: dict[int, int] = {}
    for at, element in enumerate(elements):
        if at in turns:
            block, changes[at] = rng.choice(GRID)
            emit = rng.choice([None, *EMITS])
            out += runtime.change(block, changes[at], emit=emit)["out"].elements()
            assert (runtime.consistency.block, runtime.consistency.remember) == (block, changes[at])
            assert emit is None or runtime.consistency.emit.value == emit
            if rng.random() < 0.3:
                fresh = LocalRuntime(query, consistency=level)
                fresh.restore(through_file(runtime.snapshot()))
                assert fresh.consistency.emit is runtime.consistency.emit
                runtime = fresh
        out += runtime.push({"S": batch_of([element], SCHEMA)})["out"].elements()
    out += runtime.close()["out"].elements()
    assert_valid(out)
    admitted = finalized(elements, level.remember, changes)
    kept = [e for e in admitted.elements if not isinstance(e, Cti)]
    assert_same_history(out, oracle(query.node, {"S": History.of(kept, SCHEMA)}))


def test_events_that_passed_can_still_be_adjusted() -> None:
    """A plan that only passes events on keeps none; what has passed is told by its sources."""
    both = {"all": S, "sums": COUNT}
    runtime = LocalRuntime(both, consistency=ew.consistency(2, 5))
    a, b = {"k": "a", "x": 1}, {"k": "b", "x": 1}
    runtime.push({"S": batch_of([Insert(1, 9, a), Insert(4, 9, b)], SCHEMA)})
    runtime.change(emit="final")
    adjusted = runtime.push({"S": batch_of([Adjust(1, 9, 5, a), Insert(8, 9, b)], SCHEMA)})
    assert [str(e) for e in adjusted["all"].elements()] == ["adjust [1, 9 -> 5) k='a' x=1", "cti 3"]
    assert [str(e) for e in runtime.close()["all"].elements()] == [
        "insert [4, 9) k='b' x=1", "insert [8, 9) k='b' x=1", "cti ∞",
    ]  # fmt: skip


def test_what_a_change_of_plan_has_yet_to_say_comes_first() -> None:
    """Another change behind it, of the policy or of the plan, is about what has been said by then."""
    runtime = LocalRuntime(S.aggregate(n=ew.sum("x")))
    history = [Insert(1, 20, {"k": "a", "x": 2}), Insert(5, 9, {"k": "a", "x": 3}), Cti(6)]
    said = list(runtime.push({"S": batch_of(history, SCHEMA)})["out"].elements())
    for least in (3, 2):
        assert runtime.replace(S.where(ew.col("x") >= least).aggregate(n=ew.sum("x"))).done and runtime.owes
    said += runtime.change(emit="all")["out"].elements()
    said += runtime.close()["out"].elements()
    assert_valid(said)
    assert_same_history(said, oracle(S.aggregate(n=ew.sum("x")).node, {"S": History.of(history)}))
