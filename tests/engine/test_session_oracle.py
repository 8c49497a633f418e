"""Queries that join and leave a running session, against the oracle.

From the instant `valid_from` on, every snapshot of a query's answer is that of the oracle over the whole history of the
sources; before it the query says nothing.  Every output is a valid stream, and closed at the end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from everwhen.testing.strategies import histories
from operators.differential import EMITS, FIRST, LAST, SCHEMA, Said, assert_snapshots, epochs, sources, streams_of
from operators.random_plans import Grown, plans
from plans import PLANS, Plan, S, T, col


@dataclass
class Listener:
    """One run of a query from its start on."""

    name: str
    query: ew.Stream
    valid_from: int
    said: Said = field(init=False)

    def __post_init__(self) -> None:
        self.said = Said(self.query.schema)

    def take(self, batch: ElementBatch) -> None:
        for element in self.said.take(batch):
            if not isinstance(element, ew.Cti):
                ends = (element.vnew, element.ve) if isinstance(element, ew.Adjust) else (element.vs,)
                assert min(ends) >= self.valid_from, f"{element} speaks of what was before {self.valid_from}"

    def check(self, given: dict[str, History], first: int, last: int, when: str) -> None:
        oracle = evaluate(self.query.node, {name: given[name] for name in sources(self.query)})
        assert_snapshots(self.said, oracle, range(max(self.valid_from, first), last), f"{self.name} {when}")


class Run:
    """A session, with a listener for every query that runs."""

    def __init__(self, emit: str, given: dict[str, History]) -> None:
        self.emit = emit
        self.session = Session(emit=emit)
        self.given = given
        self.listeners: dict[str, Listener] = {}
        self.refused = 0

    def register(self, name: str, query: ew.Stream) -> None:
        try:
            handle = self.session.register(name, query)
        except QueryError as error:
            assert "cannot join now" in str(error)
            self.refused += 1
            return
        self.listeners[name] = Listener(name, query, handle.valid_from)

    def push(self, epoch: dict[str, ElementBatch]) -> None:
        found = self.session.push({name: batch for name, batch in epoch.items() if name in self.session.inputs})
        assert set(found) == set(self.listeners), [each.error for each in self.session.queries()]
        for name, batch in found.items():
            self.listeners[name].take(batch)

    def stop(self, name: str) -> None:
        listener = self.listeners.pop(name)
        self.session.remove(name)
        # all that it has promised is right
        listener.check(self.given, FIRST, min(listener.said.cti, LAST), "as far as it was promised")
        assert_valid(listener.said.elements)

    def close(self) -> None:
        for name, batch in self.session.close().items():
            self.listeners[name].take(batch)
        for listener in self.listeners.values():
            assert listener.said.cti == INF
            listener.check(self.given, FIRST, LAST, "at the end")
            report = assert_valid(listener.said.elements)
            if self.emit == "final":
                assert not report.adjusts and report.ordered
        assert self.session.state_size().rows == 0


def run(emit: str, base: Sequence[ew.Stream], later: Sequence[ew.Stream], given: dict[str, History], rng: random.Random,
        infinite: bool) -> Run:  # fmt: skip
    """Base queries from the start, so that both sources are read; others join and leave at random."""
    trial = Run(emit, given)
    trial.register("s", S)
    trial.register("t", T)
    for at, query in enumerate(base):
        trial.register(f"base {at}", query)
    pushes = epochs(streams_of(given, rng, infinite), rng)
    first = rng.choice((0, len(pushes) // 2, len(pushes) // 2))
    waiting = [(f"late {at}", query, rng.randrange(first, len(pushes) + 1)) for at, query in enumerate(later)]
    for at, epoch in enumerate(pushes):
        for name, query, when in waiting:
            if when == at:
                trial.register(name, query)
        going = [name for name in trial.listeners if name not in "st"]
        if going and rng.random() < 0.15:
            trial.stop(rng.choice(going))
        if rng.random() < 0.2:
            trial.session._network.pool.collect(force=True)
        trial.push(epoch)
    trial.close()
    return trial


def family(query: ew.Stream) -> list[ew.Stream]:
    """A query, what it is above, and others above it."""
    found = [query, query.where(~col(query.schema.names[0]).is_null()), query.distinct()]
    numbers = [each.name for each in query.schema if str(each.type) == "int64"]
    if numbers:
        found.append(query.where(col(numbers[-1]) >= 1))
        found.append(query.where(col(numbers[-1]) < 2).aggregate(n=ew.count(), m=ew.max(numbers[-1])))
    return found


@pytest.mark.parametrize("plan", PLANS, ids=str)
@settings(max_examples=5)
@given(data=st.data(), emit=st.sampled_from(EMITS), seed=st.integers(0, 2**32))
def test_joining_and_leaving(plan: Plan, data: st.DataObject, emit: str, seed: int) -> None:
    some = histories(SCHEMA, max_events=6, allow_infinite=plan.infinite)
    given_ = {name: data.draw(some, label=name) for name in ("S", "T")}
    rng = random.Random(seed)
    both = family(plan.build()), family(plan.build())
    base = [query for query in both[0] if rng.random() < 0.5]
    run(emit, base, both[1], given_, rng, plan.infinite)


@settings(max_examples=60)
@given(first=plans(1, 3), second=plans(1, 3), data=st.data(), emit=st.sampled_from(EMITS), seed=st.integers(0, 2**32))
def test_random_pairs_of_plans(first: Grown, second: Grown, data: st.DataObject, emit: str, seed: int) -> None:
    infinite = first.sources and second.sources
    some = histories(SCHEMA, max_events=6, allow_infinite=infinite)
    given_ = {name: data.draw(some, label=name) for name in ("S", "T")}
    rng = random.Random(seed)
    later = [first.stream, second.stream, first.stream.where(~col(first.stream.schema.names[0]).is_null())]
    run(emit, [second.stream] if rng.random() < 0.5 else [], later, given_, rng, infinite)
