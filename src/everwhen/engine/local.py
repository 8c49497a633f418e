"""The local runtime: a push graph in this process.

One `push` is one epoch: at most one batch per input, a consistent cut, through the intakes of the sources and the graph
of operators (`dataflow.py`).  Any cutting of the inputs into epochs gives the same histories.  The level of consistency
says what the intakes hold back and what they give up (`core/consistency.py`); it may change while the runtime runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency, Duration, emit_named
from everwhen.core.emit import Emit
from everwhen.core.late_count import LateCount
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.engine.change_emit import recalled
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.epochs import Epoch
from everwhen.engine.forward.needs import an_instant
from everwhen.engine.ingress import Ingress, OnDropped
from everwhen.engine.interruption import Steps
from everwhen.engine.latest_dropped import LatestDropped
from everwhen.engine.merge_inputs import grow, merge_port, restart, right_from, unknown_spans, with_copy
from everwhen.engine.node import OperatorNode, StepCheck
from everwhen.engine.observe.find_waiting import find_waiting
from everwhen.engine.observe.metadata import OperatorMetadata, filter_metadata, node_metadata
from everwhen.engine.observe.situation import situation
from everwhen.engine.observe.waiting import Waiting
from everwhen.engine.output_port import standing_elements
from everwhen.engine.source_levels import Bounds, bounds_of
from everwhen.errors import QueryError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import Reason
from everwhen.plan.lower import lower
from everwhen.plan.physical import PhysicalPlan, Port
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch, joined

Query = Stream | Node


class LocalRuntime:
    """Queries over shared inputs, run step by step; call `push` any number of times, then `close` once.

    `emit`: the emission policy, if not that of `consistency`.  `dropped` is called with the input's name and the
    elements that were dropped.  After `idle` seconds without an element an input no longer holds the others back; what
    it sends later, behind their frontier, is dropped.  `check` sees every step (`everwhen.testing.step_invariants`).

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
        dropped: OnDropped | None = None,
        idle: float | None = None,
        check: StepCheck | None = None,
    ) -> None:
        named = queries if isinstance(queries, Mapping) else {"out": queries}
        if not named:
            raise QueryError("there is no query to run")
        if emit is not None:
            consistency = consistency.emitting(emit if isinstance(emit, Emit) else emit_named(emit))
        self._queries = {name: legal_loops(q.node if isinstance(q, Stream) else q) for name, q in named.items()}
        self._asked = self._queries
        plan = lower(self._queries, consistency.emit)
        self._consistency = consistency
        self._idle = idle is not None
        self._waiting = plan.waiting_sources()
        self._paced = {name for name, source in plan.sources.items() if not source.is_finite} - plan.merged_sources()
        self._latest = LatestDropped(dropped)
        self._ingress = Ingress(clock, idle, self._latest.note)
        self._logs = plan.shared_logs()
        for name, source in plan.sources.items():
            opened = self._ingress.open(source, plan.codecs[name], self._bounds(name), log=self._logs.get(name))
            self._ingress.add(name, opened)
        self._dataflow = FixedDataflow(plan, check)
        self._attached: list[tuple[str, str]] = []
        self._clock, self._since = clock, clock()
        self._closed = False

    def _bounds(self, name: str) -> Bounds:
        return bounds_of(name, self._consistency, self._waiting, idle=self._idle)

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by input name; returns the elements of each output.

        Without a batch it lets time pass: what has waited long enough by the clock goes on.  If a batch is wrong
        (`InputError`), none of the epoch's batches has been taken.
        """
        self._require_open("no more input is possible")
        self._ingress.check(batches)
        return self._epoch()

    def close(self) -> dict[str, ElementBatch]:
        """The end of all inputs: CTI(∞) on each."""
        if self._closed:
            return self._dataflow.nothing_new()
        self._end(self.inputs)
        self._dataflow.flow.finish()
        self._closed = True
        return self._epoch()

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one input."""
        self._end([name])
        return self._epoch()

    def _end(self, names: Collection[str]) -> None:
        self._ingress.end(names)
        self._dataflow.flow.end(self._ingress.ended)

    # -- inputs of a merge -------------------------------------------------------------------------------------

    def detach(self, name: str) -> dict[str, ElementBatch]:
        """An input of a merge goes away, before its end: from now on the merge follows the others only.

        >>> import everwhen as ew
        >>> a, b = (ew.source(name, {"x": "int64"}) for name in "ab")
        >>> runtime = LocalRuntime(ew.lmerge(a, b))
        >>> _ = runtime.detach("b")
        >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], a.schema)
        >>> print(*runtime.push({"a": batch})["out"].elements())
        insert [0, 5) x=1 cti 3
        >>> _ = runtime.attach("b", since=3)
        >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(9)], a.schema)
        >>> print(*runtime.push({"b": batch})["out"].elements())
        cti 9
        """
        self._require_open("its inputs cannot go any more")
        merge_port(self.plan, name)
        if name in self._ingress.ended:
            raise QueryError(f"{name!r} has gone already")
        self._ingress.end([name])
        self._dataflow.flow.end(self._ingress.ended, leaving=[name])
        return self._epoch()

    def attach(self, name: str, since: int | None = None, like: str | None = None) -> dict[str, ElementBatch]:
        """An input of a merge begins anew, after it has gone; or a new one joins, a copy as `like` is one.

        `since`: from when on it is right; by default from the start.  It counts once the merge has come that far.
        """
        self._require_open("no input can join any more")
        start = NEVER if since is None else since
        if like is None:
            merge_port(self.plan, name)
            if name not in self._ingress.ended:
                raise QueryError(f"{name!r} is there: it can begin anew once it has ended, or after detach({name!r})")
            fresh = lower(self._queries, self._consistency.emit, self.plan.pool)
            restart(self._dataflow, fresh, name, start)
            self._ingress.ended.discard(name)
        else:
            if name in self._ingress.inputs:
                raise QueryError(f"there is an input {name!r} already; without `like` it begins anew")
            merge_port(self.plan, like)
            self._grow(name, like, start)
        self._open(name)
        return self._epoch()

    def _open(self, name: str) -> None:
        plan, log = self.plan, self._logs.get(name)
        if log is not None:
            log.begin_anew()
        self._ingress.add(name, self._ingress.open(plan.sources[name], plan.codecs[name], self._bounds(name), log=log))

    def _grow(self, name: str, like: str, since: int) -> None:
        queries = {each: with_copy(query, name, like) for each, query in self._queries.items()}
        grow(self._dataflow, lower(queries, self._consistency.emit, self.plan.pool), name, since)
        self._queries = queries
        self._attached.append((name, like))
        if like in self._waiting:
            self._waiting |= {name}

    def _require_open(self, what: str) -> None:
        if self._closed:
            raise QueryError(f"the runtime is closed: {what}")

    @property
    def present(self) -> frozenset[str]:
        """The inputs that have neither ended nor gone."""
        return frozenset(self._ingress.inputs) - self._ingress.ended

    @property
    def merged(self) -> frozenset[str]:
        """The inputs that feed merges."""
        return self.plan.merged_sources()

    def right_from(self, since: Mapping[str, int]) -> int:
        """From when on the answer is right, if inputs are right from these instants on only; infinity: never."""
        return right_from(self.plan, since)

    def answers(self, epochs: Iterable[Epoch], steps: Steps | None = None) -> Iterator[ElementBatch]:
        """What a runtime with one query says to epochs; `steps`: how each step is done, in another way than at once."""
        do: Steps = steps or (lambda rows, step: step())
        for epoch in epochs:
            for step in [self.close] if epoch.last else [partial(self.close_input, name) for name in epoch.closes]:
                yield do(None, step)["out"]
            if epoch.batches and not epoch.last:
                yield do(sum(map(len, epoch.batches.values())), partial(self.push, epoch.batches))["out"]

    def _epoch(self) -> dict[str, ElementBatch]:
        ingress = self._ingress
        arrived = ingress.advance((self._paced,))
        inputs = {port: ingress.output(port, arrived) for port in self._dataflow.source_ports}
        starts = {name: each.intake.tau for name, each in ingress.inputs.items()}
        results = self._dataflow.step(inputs, max(starts.values()), starts)
        if self._dataflow.flow.merges:  # of copies that lag nothing is needed that has been promised by now
            self._ingress.raise_floors(self._dataflow.fast_forward())
        self.plan.pool.collect()
        return results

    def fast_forward(self, t: int) -> dict[str, ElementBatch]:
        """From now on the answer before `t` is of no interest: what each output says because of it.

        From `t` on every answer is what it would have been.  What is over by then is skipped where it comes in, and
        forgotten; windows of rows and other operators that need all of the past still get it.  What has been said
        before stands.  It is not taken back: an earlier `t` than before changes nothing.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> runtime = LocalRuntime(s.range(10).aggregate(total=ew.sum("x")))
        >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(1, 2, {"x": 1})], s.schema)})
        >>> print(*runtime.fast_forward(100)["out"].elements())
        adjust [1, ∞ -> 11) total=1 cti 91
        """
        self._require_open("there is nothing to skip any more")
        self._ingress.raise_floors(self._dataflow.fast_forward(an_instant(t)))
        return self._epoch()

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
        self._require_open("its consistency cannot change any more")
        asked = self._consistency.changed(block, remember, emit, tick)
        first = self._dataflow.nothing_new()
        if asked.emit is not self._consistency.emit:
            first, _ = self._dataflow.change_emit(asked.emit, self._standing)
        self._consistency = asked
        for name in sorted(self._waiting):
            self._ingress.change(name, self._bounds(name))
        then = self._epoch()
        return {name: joined(first[name], said) for name, said in then.items()}

    def _standing(self, port: Port) -> Changes | None:
        """What a source has said that stands; of one that is never corrected nothing need be known."""
        intake = self._ingress.inputs[port.source or ""].intake
        if intake.guard.insert_only:
            return no_changes(intake.codec)
        return self._dataflow.flow.floors.known(port, intake.standing())

    @property
    def dropped(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each input were given up, by reason; inputs that lost none are left out."""
        return self._ingress.dropped(self._ingress.inputs)

    @property
    def late(self) -> dict[str, LateCount]:
        """The rows of each input that came behind its promises, where it declares what becomes of them."""
        return self._ingress.late

    def latest_dropped(self) -> Iterator[tuple[str, Element, Reason]]:
        """The elements that were given up last, with their inputs and reasons: the last thousand and some."""
        return self._latest.elements()

    # -- looking ------------------------------------------------------------------------------------------------

    def unknown_spans(self) -> dict[str, tuple[int, int]]:
        """The merges that wait because no input that is there knows a span of time, and the span: attach one that
        does."""
        return unknown_spans(self._dataflow)

    def waiting(self, query: str = "out") -> Waiting:
        """Why a query says nothing now: who holds it back, and which promise would bring something; it tries on copies.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> runtime = LocalRuntime(s.range(10).aggregate(total=ew.sum("x")), emit="final")
        >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(1, 2, {"x": 1}), ew.Cti(0)], s.schema)})
        >>> print(runtime.waiting().needs[0].remedy)
        {"op":"cti","t":2} of S
        """
        flow, state, now = self._dataflow.flow, self.snapshot(), self._clock()

        def copy() -> LocalRuntime:
            copied = LocalRuntime(self._asked, clock=lambda: now, consistency=self._consistency)
            copied.restore(state)
            return copied

        ports = flow.below(flow.outputs[query].port)
        return find_waiting(situation(query, flow, self._ingress, ports, copy, self.unknown_spans()))

    @property
    def plan(self) -> PhysicalPlan:
        """The operators that run."""
        return self._dataflow.plan

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._ingress.inputs)

    def schema_of(self, name: str) -> Schema:
        """The payload columns that an input must have."""
        return self._ingress.of(name)[0].intake.codec.schema

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each input, forced or its own."""
        return self._ingress.progress

    @property
    def tau(self) -> int:
        """The largest start seen on any input, of what does not wait."""
        return self._dataflow.tau

    def state_size(self) -> StateSize:
        """All that is kept: intakes, operators and chains."""
        return self._ingress.state_size() + self._dataflow.flow.state_size()

    @property
    def operators(self) -> list[OperatorNode]:
        """The operators at work, inputs before their users."""
        return list(self._dataflow.flow.nodes.values())

    def metadata(self) -> list[OperatorMetadata]:
        """Per operator: rates, selectivity, state, progress, what it waits for."""
        elapsed, flow = max(self._clock() - self._since, 1e-9), self._dataflow.flow
        filters = (filter_metadata(flow, output, elapsed) for output in flow.outputs.values())
        return [*(node_metadata(flow, node, elapsed) for node in flow.nodes.values()), *filter(None, filters)]

    def standing(self) -> tuple[int, ElementBatch] | None:
        """What the one output has said that stands: an instant, and the events that live from then on as inserts, under
        the names by which they may still be adjusted, with the CTI.  Who hears this and all that is said later knows
        the answer from the instant on.  None: it is not kept.
        """
        (output,) = self._dataflow.flow.outputs.values()
        flow, intakes = self._dataflow.flow, {name: each.intake for name, each in self._ingress.inputs.items()}
        found = output.standing(lambda port: recalled(port, flow.nodes, flow.below(port), intakes))
        return None if found is None else (found[0], standing_elements(found[1], found[0], output.encoder.cti))

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere, as plain data."""
        return {
            "consistency": self._consistency.to_plain(),
            "attached": list(self._attached),
            "ended": sorted(self._ingress.ended),
            "ingress": self._ingress.snapshot(),
            "dataflow": self._dataflow.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a runtime with the same queries, at the level that it had."""
        if (level := Consistency.from_plain(state["consistency"])) != self._consistency:
            self._consistency = level
            for name in sorted(self._waiting):
                self._ingress.change(name, self._bounds(name))
        for name, like in state["attached"]:
            self._grow(name, like, NEVER)
            self._open(name)
        self._ingress.ended |= set(state["ended"])
        self._ingress.restore(state["ingress"])
        self._dataflow.restore(state["dataflow"])
