"""The local runtime: a push graph in this process.

One `push` is one epoch: at most one batch per input, a consistent cut, through the intakes of the sources and the graph
of operators (`graph.py`).  Any cutting of the inputs into epochs gives the same histories.  The level of consistency
says what the intakes hold back and what they give up (`consistency.py`); it may change while the runtime runs.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string", "x": "int64"})
    >>> runtime = LocalRuntime(s.group_by("k").agg(total=ew.sum("x")), emit="final")
    >>> batch = ew.testing.stream_from_table('''
    ...     vs | ve | k | x
    ...     1  | 5  | a | 2
    ...     3  | 8  | a | 4
    ... ''', s.schema).batch()
    >>> for element in (*runtime.push({"S": batch})["out"].elements(), *runtime.close()["out"].elements()):
    ...     print(element)
    insert [1, 3) k='a' total=2
    insert [3, 5) k='a' total=6
    insert [5, 8) k='a' total=4
    cti ∞
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from everwhen.algebra.nodes import Node
from everwhen.api import Stream
from everwhen.errors import InputError, QueryError
from everwhen.model.changes import Changes, no_changes
from everwhen.model.element import Element
from everwhen.model.elements import ElementBatch, joined
from everwhen.model.schema import Schema
from everwhen.operators.base import Emit, Output, StateSize
from everwhen.operators.finalize import GivenUp, Reason
from everwhen.operators.guard import Guard, Guarded
from everwhen.operators.intake import Intake
from everwhen.operators.punctuator import source_punctuators
from everwhen.plan.lower import lower
from everwhen.plan.physical import Form, Port
from everwhen.runtime.consistency import MIDDLE, Consistency, Duration, emit_named
from everwhen.runtime.graph import Graph, StepCheck
from everwhen.runtime.horizon import Horizon
from everwhen.runtime.idleness import Idleness

Query = Stream | Node

_LATEST: Final = 1_000
"""So many of the elements that were given up last can be looked at."""


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """What an operator has done and keeps.  Rates are per second of the clock; progress is its promise.

    `queries` names those that use it, in a session.
    """

    name: str
    rows_in: int
    rows_out: int
    input_rate: float
    output_rate: float
    selectivity: float
    state_rows: int
    state_bytes: int
    progress: int
    keeps: str
    waits_for: tuple[str, ...]
    queries: tuple[str, ...] = ()


class LocalRuntime:
    """Queries over shared inputs, run step by step; call `push` any number of times, then `close` once.

    `emit`: the emission policy, if not that of `consistency`.  `given_up` is called with the input's name and the
    elements that were dropped.  After `idle` seconds without an element an input no longer holds the others back; what
    it sends later, behind their frontier, is dropped.  `check` is called for every step of every operator
    (`everwhen.testing_invariants`).

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> runtime = LocalRuntime(s.where(ew.col("x") > 1))
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": x}) for x in (1, 2)], s.schema)
    >>> print(*runtime.push({"S": batch})["out"].elements(), *runtime.close()["out"].elements())
    insert [0, 5) x=2 cti ∞
    """

    def __init__(
        self,
        queries: Query | Mapping[str, Query],
        emit: str | Emit | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        consistency: Consistency = MIDDLE,
        given_up: Callable[[str, GivenUp], None] | None = None,
        idle: float | None = None,
        check: StepCheck | None = None,
    ) -> None:
        named = queries if isinstance(queries, Mapping) else {"out": queries}
        if not named:
            raise QueryError("there is no query to run")
        if emit is not None:
            consistency = consistency.emitting(emit if isinstance(emit, Emit) else emit_named(emit))
        plan = lower({name: q.node if isinstance(q, Stream) else q for name, q in named.items()}, consistency.emit)
        self._plan = plan
        self._consistency = consistency
        # relations are known whole before anything else comes: their rows are neither late nor early
        self._bounded = {
            name for name in plan.stateful_sources() if plan.sources[name].kind not in ("constant", "temporal")
        }
        self._intakes = {
            name: Intake(
                Guard(
                    name,
                    plan.codecs[name],
                    source.insert_only,
                    source.chronons,
                    punctuator=source_punctuators(source),
                ),
                consistency.remember,
                finalizes=(consistency.finalizes or idle is not None) and name in self._bounded,
                aligns=consistency.aligns and name in self._bounded,
            )
            for name, source in plan.sources.items()
        }
        self._side = given_up
        self._latest: deque[tuple[str, GivenUp]] = deque()
        self._horizon = Horizon(clock)
        self._idleness = Idleness(clock, idle, self._bounded)
        self._graph = Graph(plan, check)
        self._clock = clock
        self._since = clock()
        self._closed = False

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by input name; returns the elements of each output.

        Without a batch it lets time pass: what has waited long enough by the clock goes on.  If a batch is wrong
        (`InputError`), none of the epoch's batches has been taken.
        """
        if self._closed:
            raise QueryError("the runtime is closed: no more input is possible")
        unknown = set(batches) - set(self._intakes)
        if unknown:
            raise QueryError(
                f"there is no input {', '.join(sorted(unknown))}; there is {', '.join(sorted(self._intakes))}"
            )
        checked: list[Intake] = []
        try:
            for name, batch in batches.items():
                self._intakes[name].check(batch)
                checked.append(self._intakes[name])
        except InputError:
            for intake in checked:
                intake.undo()
            raise
        self._idleness.heard(name for name, batch in batches.items() if len(batch))
        return self._epoch()

    def close(self) -> dict[str, ElementBatch]:
        """The end of all inputs: CTI(∞) on each."""
        if self._closed:
            return self._graph.silence()
        for intake in self._intakes.values():
            intake.check_end()
        self._closed = True
        for intake in self._intakes.values():
            intake.close()
        return self._epoch()

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one input."""
        self._intake(name).check_end()
        self._intake(name).close()
        return self._epoch()

    def _epoch(self) -> dict[str, ElementBatch]:
        arrived: dict[str, Guarded] = {}
        for name, intake in self._intakes.items():
            said, given_up = intake.take()
            if said is not None:
                arrived[name] = said
            self._note(name, given_up)
        if self._idleness.seconds is not None:
            for name, reached in self._idleness.forced(self.progress).items():
                self._note(name, self._intakes[name].hurry(reached))
        aligned = {name: intake for name, intake in self._intakes.items() if intake.align is not None}
        if aligned:
            # elements of one input may be late for those of another, so there is one horizon for all
            latest, level = max(intake.latest for intake in aligned.values()), self._consistency
            horizon = self._horizon.reached(latest, level.block, level.within)
            promised = min(intake.cti for intake in aligned.values())
            for name, intake in aligned.items():
                released = intake.release(horizon, promised)
                if released is not None:
                    arrived[name] = released
        inputs: dict[tuple[str, Form], Output] = {}
        for name, form in self._graph.forms:
            intake = self._intakes[name]
            said_now = arrived.get(name)
            if said_now is None:
                changes = no_changes(intake.codec)
            else:
                changes = said_now.segments() if form == "segments" else said_now.events()
            inputs[name, form] = Output(changes, intake.frontier)
        results = self._graph.step(inputs, max(intake.tau for intake in self._intakes.values()))
        self._plan.pool.collect()
        return results

    # -- consistency --------------------------------------------------------------------------------------------

    @property
    def consistency(self) -> Consistency:
        return self._consistency

    def change(
        self,
        block: Duration | None = None,
        remember: Duration | None = None,
        tick: str = "1ms",
        *,
        emit: str | Emit | None = None,
    ) -> dict[str, ElementBatch]:
        """Wait and remember for another time from now on, and say other things when; returns what each output says at
        once because of it.

        What has been said and promised stands.  To remember longer does not bring back what was forgotten.  A stricter
        emission policy takes nothing back; a laxer one says what is missing.  Without `emit` the policy stays as it is:
        a query that says only what is final goes on to do so, however short it blocks.
        """
        if self._closed:
            raise QueryError("the runtime is closed: its consistency cannot change any more")
        asked = self._consistency.changed(block, remember, emit, tick)
        first = self._graph.silence()
        if asked.emit is not self._consistency.emit:
            first, _ = self._graph.emitting(asked.emit, self._standing)
        self._consistency = asked
        for name in sorted(self._bounded):
            intake = self._intakes[name]
            if asked.aligns:
                intake.block()
            if asked.finalizes:
                self._note(name, intake.remember(asked.remember))
        then = self._epoch()
        return {name: joined(first[name], said) for name, said in then.items()}

    def _standing(self, port: Port) -> Changes | None:
        """What a source has said that stands; of one that is never corrected nothing need be known."""
        intake = self._intakes[port.source or ""]
        return no_changes(intake.codec) if intake.guard.insert_only else intake.standing()

    def _note(self, name: str, given_up: tuple[GivenUp, ...]) -> None:
        for each in given_up:
            if self._side is not None:
                self._side(name, each)
            self._latest.append((name, each))
        while len(self._latest) > 1 and sum(len(each) for _, each in self._latest) - len(self._latest[0][1]) >= _LATEST:
            self._latest.popleft()

    @property
    def given_up(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each input were given up, by reason; inputs that lost none are left out."""
        counted = {name: intake.finalize for name, intake in self._intakes.items()}
        return {name: dict(each.counts) for name, each in counted.items() if each is not None and each.counts}

    def latest_given_up(self) -> Iterator[tuple[str, Element, Reason]]:
        """The elements that were given up last, with their inputs and reasons: the last thousand and some."""
        for name, each in self._latest:
            for element, reason in zip(each.elements.elements(), each.reasons, strict=True):
                yield name, element, reason

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._intakes)

    def schema_of(self, name: str) -> Schema:
        """The payload columns that an input must have."""
        return self._intake(name).codec.schema

    def _intake(self, name: str) -> Intake:
        if name not in self._intakes:
            raise QueryError(f"there is no input {name}; there is {', '.join(sorted(self._intakes))}")
        return self._intakes[name]

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each input, forced or its own."""
        return {name: intake.cti for name, intake in self._intakes.items()}

    @property
    def tau(self) -> int:
        """The largest start seen on any input, of what does not wait."""
        return self._graph.tau

    def state_size(self) -> StateSize:
        """All that is kept: intakes, operators and chains."""
        return sum((intake.state_size() for intake in self._intakes.values()), self._graph.state_size())

    def metadata(self) -> list[OperatorMetadata]:
        """Per operator: rates, selectivity, state, progress, what it waits for."""
        elapsed = max(self._clock() - self._since, 1e-9)
        found = []
        for at, placed in enumerate(self._plan.operators):
            size = placed.operator.state_size()
            rows_in, rows_out = self._graph.rows_in[at], self._graph.rows_out[at]
            waits = placed.operator.waits_for(self._graph.frontiers[at])
            found.append(
                OperatorMetadata(
                    f"{at} {placed.name}",
                    rows_in,
                    rows_out,
                    rows_in / elapsed,
                    rows_out / elapsed,
                    rows_out / rows_in if rows_in else 0.0,
                    size.rows,
                    size.bytes,
                    self._graph.outputs[at].frontier.time,
                    placed.operator.keeps,
                    tuple(self._graph.port_name(placed.inputs[p]) for p in waits),
                )
            )
        return found

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere, as plain data."""
        level = self._consistency
        return {
            "bounds": (level.block, level.remember, level.emit.value),
            "intakes": {name: intake.snapshot() for name, intake in self._intakes.items()},
            "graph": self._graph.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a runtime with the same queries, with the B and M that it had."""
        block, remember, emit = state["bounds"]
        level = self._consistency
        if (block, remember, emit) != (level.block, level.remember, level.emit.value):
            self._consistency = level.changed(block, remember, emit)
        for name, intake in self._intakes.items():
            intake.restore(state["intakes"][name])
        self._graph.restore(state["graph"])
