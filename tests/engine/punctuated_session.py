"""Sessions over punctuated streams that queries join late, judged by the oracle.

A `Rehearsal` is all that one seed decides: two punctuated streams cut into epochs, queries that run from the start, and
others that join, leave, move to another level, and restarts in between.  From the instant `valid_from` on, every
snapshot of a query's answer is the oracle's; before it the query says nothing.  Every output is valid and grammatical.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import everwhen as ew
from everwhen.core.consistency import Consistency, consistency
from everwhen.core.time import INF
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.differential import EMITS, FIRST, LAST, SCHEMA, assert_snapshots, epochs, sources, streams_of
from operators.punctuated import PunctuatedOutput, punctuated
from plans import S, T, col
from state_files import through_file

KEYS, VALUES = ("a", "b", "c", None), (0, 1, 2, None)


def some_history(rng: random.Random, infinite: bool, most: int = 7) -> History:
    """A few events of a few rows, near each other."""
    events: list[Element] = []
    for _ in range(rng.randint(1, most)):
        start = rng.randint(0, 10)
        end = INF if infinite and rng.random() < 0.1 else start + rng.choice((1, 1, 2, 3, 6))
        events.append(Insert(start, end, {"k": rng.choice(KEYS), "x": rng.choice(VALUES)}))
    return History.of(events, SCHEMA)


def family(query: ew.Stream) -> list[ew.Stream]:
    """A query, and others above it."""
    found = [query, query.where(~col(query.schema.names[0]).is_null()), query.distinct()]
    numbers = [each.name for each in query.schema if str(each.type) == "int64"]
    if numbers:
        found.append(query.where(col(numbers[-1]) < 2).aggregate(n=ew.count(), m=ew.max(numbers[-1])))
    return found


@dataclass
class Listener:
    """One run of a query, from its start on."""

    name: str
    query: ew.Stream
    valid_from: int
    final: bool
    said: PunctuatedOutput = field(init=False)

    def __post_init__(self) -> None:
        self.said = PunctuatedOutput(self.query.schema)

    def take(self, batch: ElementBatch) -> None:
        for element in self.said.take(batch):
            if isinstance(element, Cti | Punct):
                continue
            first = min(element.vnew, element.ve) if isinstance(element, Adjust) else element.sync
            assert first >= self.valid_from, f"{self.name}: {element} is about what was before {self.valid_from}"
            assert not (self.final and isinstance(element, Adjust)), f"{self.name}: {element} in `final`"

    def check(self, given: Mapping[str, History], last: int, when: str) -> None:
        oracle = evaluate(self.query.node, {name: given[name] for name in sources(self.query)})
        valid = f"{self.name}, valid from {self.valid_from}, {when}"
        assert_snapshots(self.said, oracle, range(max(self.valid_from, FIRST), last), valid)
        assert_valid(self.said.all)


class Rehearsal:
    """A session, with a listener for every query that runs."""

    def __init__(self, emit: str, given: Mapping[str, History], rng: random.Random) -> None:
        self.emit, self.given, self.rng = emit, given, rng
        self.session = Session(emit=emit)
        self.listeners: dict[str, Listener] = {}
        self.refused: list[str] = []
        self.joined_late = 0

    def register(self, name: str, query: ew.Stream, level: Consistency | None = None) -> None:
        try:
            handle = self.session.register(name, query, consistency=level)
        except QueryError as error:
            assert "cannot join now" in str(error), error
            self.refused.append(str(error))
            return
        self.joined_late += handle.valid_from < LAST
        final = self.emit == "final" and level is None
        self.listeners[name] = Listener(name, query, handle.valid_from, final)

    def push(self, epoch: Mapping[str, ElementBatch]) -> None:
        self._take(self.session.push({name: batch for name, batch in epoch.items() if name in self.session.inputs}))

    def _take(self, found: Mapping[str, ElementBatch]) -> None:
        assert set(found) == set(self.listeners), [each.error for each in self.session.queries() if each.error]
        for name, batch in found.items():
            self.listeners[name].take(batch)

    def stop(self, name: str) -> None:
        listener = self.listeners.pop(name)
        self.session.remove(name)
        listener.check(self.given, min(listener.said.cti, LAST), "as far as it was promised")

    def move(self, name: str) -> None:
        """To another emission policy; what has been said stands, so it may be corrected."""
        self.session.change(name, emit=self.rng.choice(EMITS))
        self.listeners[name].final = False

    def restart(self) -> None:
        state = through_file(self.session.snapshot())
        self.session = Session(emit=self.emit)
        self.session.restore(state, {name: listener.query for name, listener in self.listeners.items()})

    def close(self) -> None:
        self._take(self.session.close())
        for listener in self.listeners.values():
            assert listener.said.cti == INF
            listener.check(self.given, LAST, "at the end")
            report = assert_valid(listener.said.all)
            assert report.grammatical, f"{listener.name}: {report.offences['grammatical']}"
        assert self.session.state_size().rows == 0


def rehearse(
    seed: int, base: Sequence[ew.Stream], later: Sequence[ew.Stream], infinite: bool, moves: float = 0.0
) -> Rehearsal:
    """Base queries from the start, so that both sources are read; others join and leave at random.

    `moves`: how often a query moves to another level or the session is restarted, and how many wait (BLOCK).
    """
    rng = random.Random(seed)
    given = {name: some_history(rng, infinite) for name in ("S", "T")}
    trial = Rehearsal(rng.choice(EMITS), given, rng)
    trial.register("s", S)
    trial.register("t", T)
    for at, query in enumerate(base):
        trial.register(f"base {at}", query)
    pushes = epochs(punctuated(streams_of(given, rng, infinite), rng, SCHEMA, rng.choice((None, 0.4))), rng)
    waiting = [(f"late {at}", query, rng.randrange(len(pushes) + 1)) for at, query in enumerate(later)]
    for at, epoch in enumerate(pushes):
        for name, query, when in waiting:
            if when == at:
                waits = rng.random() < moves and trial.emit != "final"
                trial.register(name, query, consistency(block=3, emit=trial.emit) if waits else None)
        going = [name for name in trial.listeners if name not in "st"]
        if going and rng.random() < 0.15:
            trial.stop(rng.choice(going))
        elif going and rng.random() < moves:
            trial.move(rng.choice(going))
        if rng.random() < 0.2:
            trial.session._network.pool.collect(force=True)
        if rng.random() < moves:
            trial.restart()
        trial.push(epoch)
    trial.close()
    return trial
