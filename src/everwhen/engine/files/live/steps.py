"""The steps of a run that goes on: what is taken of each input, what is done with it, and the same again.

A step is one look at all inputs and one push.  It is told by the positions that the inputs had after it, the inputs
that ended with it, the instant to which the answer was fast-forwarded before it, the plan to which the run went over
before it, and the time of the clock, where an input may come to rest (IDLE AFTER).  That is all there is to know to
repeat it, because inputs give the same elements again (`inputs.py`) and a runtime says the same to the same steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.epochs import joined
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.engine.idle_sources import NotedClock
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError, QueryError
from everwhen.formats.changelog.layout import Start
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch, empty_elements


@dataclass(frozen=True)
class Step:
    """What is taken: the batches, the positions of those inputs that moved, the starts of writers that are new."""

    batches: Mapping[str, ElementBatch] = field(default_factory=dict)
    positions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: Mapping[str, Start] = field(default_factory=dict)
    closes: tuple[str, ...] = ()
    forward: int | None = None
    now: float | None = None
    plan: str | None = None

    def to_plain(self) -> dict[str, Any]:
        found: dict[str, Any] = {"inputs": dict(self.positions)}
        if self.closes:
            found["closes"] = list(self.closes)
        if self.forward is not None:
            found["forward"] = self.forward
        if self.now is not None:
            found["now"] = self.now
        if self.plan is not None:
            found["plan"] = self.plan
        return found


class LiveSteps:
    """A runtime and its inputs, step by step.  `closed`: the inputs that have ended."""

    _anew = "a new output"
    """What is taken with a new checkpoint, where nothing can go on."""

    def __init__(
        self, runtime: LocalRuntime, inputs: Mapping[str, LiveInput], schema: Schema, clock: NotedClock | None = None
    ) -> None:
        self.runtime, self.inputs, self.schema = runtime, inputs, schema
        self.clock = clock or NotedClock()
        sources = runtime.plan.sources
        self._patience = {n: s for n in inputs if n in sources and (s := sources[n].policy.idle) is not None}
        self._heard: dict[str, float] = {}
        self.closed: set[str] = set()
        self.begins: dict[str, int] = {}
        """From when on inputs were right at their first start, where that is not throughout."""
        self.read = 0
        self.done = False
        self.largest_end = NEVER
        self._started: set[str] = set()
        self._unknown: dict[str, tuple[int, int]] = {}
        self._unknown_since = 0.0

    # -- taking -------------------------------------------------------------------------------------------------

    def look(self, most: int, forward: int | None = None) -> Step | None:
        """What is there now; None if that is nothing.  Relations come before everything else."""
        first = [name for name, each in self.inputs.items() if each.given.known_whole and name not in self.closed]
        taken: dict[str, ElementBatch | None] = {}
        moved: dict[str, Mapping[str, Any]] = {}
        for name in first or self.inputs:
            if name not in self.closed:
                before = self.inputs[name].position
                taken[name] = self.inputs[name].take(most)
                if self.inputs[name].position != before:
                    moved[name] = self.inputs[name].position
        closes = tuple(name for name in taken if self.inputs[name].ended)
        step = self._step(taken, moved, closes, forward)
        if self._patience:
            step = replace(step, now=time.time())
        is_any = step.batches or step.closes or step.begun or forward is not None or self.owes
        return step if is_any or self._rests(step) else None

    def _rests(self, step: Step) -> bool:
        """Whether an input has come to rest since the last step."""
        if step.now is None:
            return False
        last = {name: self._heard.setdefault(name, step.now) for name in self._patience}
        return any(self.clock.now < last[name] + after <= step.now for name, after in self._patience.items())

    def again(self, plain: Mapping[str, Any]) -> Step:
        """A step that was told before."""
        taken = {name: self.inputs[name].take_to(position) for name, position in plain["inputs"].items()}
        step = self._step(taken, plain["inputs"], tuple(plain.get("closes", ())), plain.get("forward"))
        return replace(step, now=plain.get("now"), plan=plain.get("plan"))

    def _step(
        self,
        taken: Mapping[str, ElementBatch | None],
        positions: Mapping[str, Mapping[str, Any]],
        closes: tuple[str, ...],
        forward: int | None,
    ) -> Step:
        batches = {name: batch for name, batch in taken.items() if batch is not None and len(batch)}
        if len(self.inputs) > 1:
            for batch in batches.values():
                if batch.at is not None:
                    remedy = 'inputs of a run that goes on are taken as they come; leave "at" out'
                    problem = '"at" cannot say in which order several inputs arrive'
                    raise InputError(problem, source=batch.source, line=batch.line(0), remedy=remedy)
        begun = {name: start for name in taken if (start := self.inputs[name].begun) is not None}
        return Step(batches, dict(positions), begun, closes, forward)

    @property
    def owes(self) -> bool:
        """Whether a change of plan has brought something that has not been said yet."""
        return self.runtime.owes

    # -- doing --------------------------------------------------------------------------------------------------

    def do(self, step: Step) -> ElementBatch:
        """What is said to a step.  On an error of an element nothing was taken."""
        said: list[ElementBatch] = []
        with self._taking(step) as fresh:
            if step.forward is not None:
                said += self.runtime.fast_forward(step.forward).values()
            for name, start in step.begun.items():
                for found in self._begin(self.runtime, name, start, name in fresh):
                    said += found.values()
            if step.batches or step.now is not None or self.runtime.owes:
                said += self.runtime.push(step.batches).values()
        for name in step.closes:
            self.closed.add(name)
            said += self.runtime.close_input(name).values()
        self.read += sum(map(len, step.batches.values()))
        if all(reached == INF for reached in self.runtime.progress.values()) and not _ends(said):
            said += self.runtime.close().values()
        self.done = self.done or _ends(said)
        for batch in said:
            self.largest_end = max(self.largest_end, int(batch.ve[batch.op == INSERT].max(initial=NEVER)))
            self.largest_end = max(self.largest_end, int(batch.vnew[batch.op == ADJUST].max(initial=NEVER)))
        return together(said, self.schema)

    @contextmanager
    def _taking(self, step: Step) -> Iterator[set[str]]:
        """Around what runtimes do with a step: an error of an element has its place.  Gives the inputs whose writers
        have begun for the first time."""
        if step.now is not None:
            self.clock.now = step.now
            self._heard |= dict.fromkeys(step.batches, step.now)
        fresh = step.begun.keys() - self._started
        self._started |= fresh
        try:
            yield fresh
        except InputError as bad:
            for each in self.inputs.values():
                placed = each.place_of(bad)
                if placed is not bad:
                    raise placed from None
            raise

    def _begin(
        self, runtime: LocalRuntime, name: str, start: Start, fresh: bool
    ) -> Iterator[Mapping[str, ElementBatch]]:
        """The writer of an input has begun, at first or anew: what is said because of it."""
        if fresh and start.since > NEVER:
            self.begins[name] = start.since
        if not fresh and name not in runtime.merged:
            raise InputError(
                f"the writer of {name} has begun anew (start {start.id}), and what it said before does not count",
                source=self.inputs[name].given.file,
                remedy=f"a merge takes such a copy for a new input: LMERGE; or take a new checkpoint and {self._anew}",
            )
        if name in runtime.merged and (start.since > NEVER or not fresh):
            if name in runtime.present:
                yield runtime.detach(name)
            yield runtime.attach(name, since=start.since)

    def tell_unknown(self, tell: Callable[[str], None], after: float) -> None:
        """Tell once, after so many seconds, that a merge waits because no copy that is there knows a span of time."""
        spans = self.runtime.unknown_spans()
        if spans != self._unknown:
            self._unknown, self._unknown_since = spans, time.monotonic()
        elif spans and time.monotonic() - self._unknown_since >= after:
            self._unknown_since = math.inf
            for merge, (first, end) in spans.items():
                span = f"from {show(first)} to {show(end)}"
                tell(f"{merge} waits: no copy that is there knows the instants {span}; let one begin that does")

    def going_on(self, positions: Mapping[str, Mapping[str, Any]], closed: Iterable[str]) -> None:
        """Inputs go on from positions that were reached before."""
        for name, position in positions.items():
            if name not in self.inputs:
                raise QueryError(f"the checkpoint has an input {name!r}, and the query does not read it")
            self.inputs[name].seek(position)
            if position.get("start") is not None:
                self._started.add(name)
        self.closed |= set(closed)


def together(batches: Iterable[ElementBatch], schema: Schema) -> ElementBatch:
    """What several batches say, as one."""
    found = [batch for batch in batches if len(batch)]
    return joined(found) if found else empty_elements(schema)


def _ends(said: Iterable[ElementBatch]) -> bool:
    return any(bool(((batch.op == CTI) & (batch.vs == INF)).any()) for batch in said)
