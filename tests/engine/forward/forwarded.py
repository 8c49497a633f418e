"""A plan beside itself, one of the two fast-forwarded: what must be true of both after every epoch and at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, reorder
from operators.differential import FIRST, LAST, SCHEMA, Said, sources
from operators.punctuated import with_promises
from state_files import through_file

Epochs = Sequence[Mapping[str, ElementBatch]]
NAMES = "abc"
"""Copies of one stream."""


def history(rng: random.Random, infinite: bool, events: int = 12) -> History:
    """A few events, short and long ones."""
    found: Counter[tuple[int, int, tuple[Any, ...]]] = Counter()
    for _ in range(rng.randrange(3, events)):
        vs = rng.randrange(24)
        ve = INF if infinite and rng.random() < 0.1 else vs + rng.choice((1, 1, 2, 4, 9, 14))
        found[vs, ve, (rng.choice("ab"), rng.randrange(3))] += 1
    return History(SCHEMA, found)


class Heard(Said):
    """The history of an output that also makes promises about data."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.all: list[Element] = []

    def take(self, batch: ElementBatch) -> list[Element]:
        new = list(batch.elements())
        self.all += new
        return super().take(batch_of([e for e in new if not isinstance(e, Punct)], self.schema))


class Forwarded:
    """A query on two runtimes, of which the second is fast-forwarded now and then, restarted and tidied."""

    def __init__(self, query: ew.Stream, emit: str, rng: random.Random, stored: bool = False) -> None:
        self.query, self.emit, self.rng, self.stored = query, emit, rng, stored
        self.plain, self.forward = (LocalRuntime(query, emit=emit) for _ in range(2))
        self.said, self.expected = Heard(query.schema), Heard(query.schema)
        self.t = NEVER

    def fast_forward(self, t: int) -> None:
        self.said.take(self.forward.fast_forward(t)["out"])
        self.t = max(self.t, t)

    def push(self, epoch: Mapping[str, ElementBatch]) -> None:
        self.expected.take(self.plain.push(epoch)["out"])
        self.said.take(self.forward.push(epoch)["out"])

    def restart(self) -> None:
        state = self.forward.snapshot()
        self.forward = LocalRuntime(self.query, emit=self.emit)
        self.forward.restore(through_file(state) if self.stored else state)

    def run(self, epochs: Epochs, moments: Mapping[int, int]) -> None:
        """All epochs, fast-forwarded before some of them; then the end."""
        for number, epoch in enumerate(epochs):
            if number in moments:
                self.fast_forward(moments[number])
            if self.rng.random() < 0.2:
                self.restart()
            if self.rng.random() < 0.1:
                self.forward.plan.pool.collect(force=True)
            self.push(epoch)
            if self.emit == "all":  # nothing waits, so there is nothing that one of them says earlier
                self.compare(f"after epoch {number}")
        self.expected.take(self.plain.close()["out"])
        self.said.take(self.forward.close()["out"])
        self.compare("at the end")
        assert_valid(self.said.all)

    def compare(self, when: str) -> None:
        for u in range(max(self.t, FIRST), LAST) if self.t > NEVER else range(FIRST, LAST):
            got, wanted = self.said.at(u), self.expected.at(u)
            assert got == wanted, f"{when}, t = {self.t}, at {u}: {dict(got)} instead of {dict(wanted)}"


def moments(rng: random.Random, epochs: Epochs) -> dict[int, int]:
    """When to fast-forward, and until when: some to the past, some beyond all."""
    picked = rng.sample(range(len(epochs)), min(len(epochs), rng.choice((1, 1, 2, 3))))
    return {number: rng.randrange(-3, 40) for number in picked}


def floors(runtime: LocalRuntime) -> dict[str, int]:
    """What guards skip."""
    return {name: each.intake.guard.floor for name, each in runtime._ingress.inputs.items()}


def cut_epoch(epoch: Mapping[str, ElementBatch], floor: Mapping[str, int]) -> dict[str, ElementBatch]:
    """The elements of sources that began at their floors: what is said of earlier instants is cut off."""
    return {
        name: batch_of([e for each in batch.elements() if (e := _cut(each, floor[name])) is not None], SCHEMA, name)
        for name, batch in epoch.items()
    }


def _cut(e: Element, floor: int) -> Element | None:
    if isinstance(e, Cti | Punct):
        return e
    assert isinstance(e, Insert | Adjust)
    if isinstance(e, Insert):
        return Insert(max(e.vs, floor), e.ve, e.row) if e.ve > floor else None
    if e.ve <= floor:
        return Insert(floor, e.vnew, e.row) if e.vnew > floor else None
    return Adjust(max(e.vs, floor), e.ve, max(e.vnew, floor), e.row)


def kept(runtime: LocalRuntime) -> int:
    """What guards and operators keep."""
    operators = (placed.operator.state_size().rows for placed in runtime.plan.operators)
    return runtime._ingress.state_size().rows + sum(operators)


def begun_late(query: ew.Stream, emit: str, epochs: Epochs, floor: Mapping[str, int]) -> LocalRuntime:
    """A runtime that has only seen what its sources say from their floors on."""
    runtime = LocalRuntime(query, emit=emit)
    runtime.push({name: batch_of([Cti(floor[name])], SCHEMA) for name in sources(query) if floor[name] > NEVER})
    for epoch in epochs:
        runtime.push(cut_epoch(epoch, floor))
    return runtime


def lagging(rng: random.Random, ctis: float = 0.4, promises: float = 0.0) -> list[dict[str, ElementBatch]]:
    """Copies of one history, of which one leads for a while, and the others lag behind it, and catch up or do not."""
    one = history(rng, False, 25)
    left = {
        name: reorder(one, rng, disorder=rng.choice((0, 4)), corrections=0.4, ctis=ctis, infinite=False, close=False)
        for name in NAMES
    }
    if promises:
        left = {name: with_promises(elements, rng, SCHEMA, promises) for name, elements in left.items()}
    found: list[dict[str, ElementBatch]] = []
    leader = rng.choice(NAMES)
    while any(left.values()):
        if rng.random() < 0.15:
            leader = rng.choice(NAMES)
        epoch = {}
        for name, elements in left.items():
            size = rng.choice((4, 6)) if name == leader or not left[leader] else rng.choice((0, 0, 0, 1, 2))
            epoch[name] = batch_of(elements[:size], SCHEMA, name)
            del elements[:size]
        found.append(epoch)
    return found


def unwilling(runtime: LocalRuntime) -> LocalRuntime:
    """One whose merges ask nothing of their inputs."""
    runtime._dataflow.fast_forward = lambda t=NEVER: {}  # type: ignore[method-assign,assignment]
    return runtime
