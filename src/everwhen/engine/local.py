"""The local runtime: a push graph in this process.

One `push` is one epoch: at most one batch per input, a consistent cut, through the intakes of the sources and the graph
of operators (`dataflow.py`).  Any cutting of the inputs into epochs gives the same histories.  The level of consistency
says what the intakes hold back and what they give up (`core/consistency.py`); it may change while the runtime runs.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency, Duration, emit_named
from everwhen.core.emit import Emit
from everwhen.core.punctuation import NO_PROGRESS
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.change_emit import standing_at
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.epochs import Epoch
from everwhen.engine.ingress import Ingress, OnDropped
from everwhen.engine.metadata import OperatorMetadata, filter_metadata, node_metadata
from everwhen.engine.node import OperatorNode, StepCheck
from everwhen.engine.output_port import standing_elements
from everwhen.engine.source_levels import Bounds, bounds_of
from everwhen.errors import QueryError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import DroppedElements, Reason
from everwhen.operators.merge.lmerge import LMergeOperator
from everwhen.plan.lower import lower
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch, joined

Query = Stream | Node

_LATEST: Final = 1_000
"""So many of the elements that were given up last can be looked at."""


class LocalRuntime:
    """Queries over shared inputs, run step by step; call `push` any number of times, then `close` once.

    `emit`: the emission policy, if not that of `consistency`.  `dropped` is called with the input's name and the
    elements that were dropped.  After `idle` seconds without an element an input no longer holds the others back; what
    it sends later, behind their frontier, is dropped.  `check` is called for every step of every operator
    (`everwhen.testing.step_invariants`).

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
        plan = lower({name: q.node if isinstance(q, Stream) else q for name, q in named.items()}, consistency.emit)
        self._plan = plan
        self._consistency = consistency
        self._idle = idle is not None
        self._waiting = plan.waiting_sources()
        self._paced = self._waiting - plan.merged_sources()
        self._dropped = dropped
        self._latest: deque[tuple[str, DroppedElements]] = deque()
        self._ingress = Ingress(clock, idle, self._note)
        for name, source in plan.sources.items():
            self._ingress.add(name, self._ingress.open(source, plan.codecs[name], self._bounds(name)))
        self._dataflow = FixedDataflow(plan, check)
        self._clock = clock
        self._since = clock()
        self._closed = False

    def _bounds(self, name: str) -> Bounds:
        return bounds_of(name, self._consistency, self._waiting, idle=self._idle)

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by input name; returns the elements of each output.

        Without a batch it lets time pass: what has waited long enough by the clock goes on.  If a batch is wrong
        (`InputError`), none of the epoch's batches has been taken.
        """
        if self._closed:
            raise QueryError("the runtime is closed: no more input is possible")
        self._ingress.check(batches)
        return self._epoch()

    def close(self) -> dict[str, ElementBatch]:
        """The end of all inputs: CTI(∞) on each."""
        if self._closed:
            return self._dataflow.nothing_new()
        self._end(self.inputs)
        self._closed = True
        return self._epoch()

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one input."""
        self._end([name])
        return self._epoch()

    def _end(self, names: Collection[str]) -> None:
        self._ingress.end(names)
        self._dataflow.flow.end(self._ingress.ended)

    # `detach` and `attach` are the least that live runs need; the lead's take their place
    def detach(self, name: str) -> dict[str, ElementBatch]:
        """An input of a merge leaves: it decides nothing any more, until it is attached again."""
        for node, port in self._merge_ports(name):
            node.placed.operator.end([port])
        return self._dataflow.nothing_new()

    def attach(self, name: str, since: int = NEVER) -> dict[str, ElementBatch]:
        """A new input takes the place of one of a merge that has left.  It is right from `since` on."""
        ports = self._merge_ports(name)
        plan = self._plan
        self._ingress.ended.discard(name)
        self._ingress.add(name, self._ingress.open(plan.sources[name], plan.codecs[name], self._bounds(name)))
        for node in self._dataflow.flow.nodes.values():
            reached = zip(node.placed.inputs, node.frontiers, strict=True)
            node.frontiers = [NO_PROGRESS if port.source == name else known for port, known in reached]
        for node, port in ports:
            operator = node.placed.operator
            assert isinstance(operator, LMergeOperator), "only a merge has inputs that come and go"
            operator.begin_anew(port, since)
        return self._dataflow.nothing_new()

    def _merge_ports(self, name: str) -> list[tuple[OperatorNode, int]]:
        """The ports of merges that a source feeds; it must feed nothing else."""
        found: list[tuple[OperatorNode, int]] = []
        nodes = list(self._dataflow.flow.nodes.values())
        for node in nodes:
            ports = [at for at, port in enumerate(node.placed.inputs) if port.source == name]
            if ports and not isinstance(node.placed.operator, LMergeOperator):
                found = []
                break
            found += [(node, port) for port in ports]
        if not found:
            raise QueryError(
                f"{name!r} is not an input of a merge, so it cannot leave and come again: only LMERGE takes a copy in "
                "the place of another"
            )
        return found

    @property
    def merged(self) -> frozenset[str]:
        """The inputs that feed merges."""
        return self._plan.merged_sources()

    def right_from(self, since: Mapping[str, int]) -> int:
        """From when on the answer is right, if inputs are right from these instants on only; infinity: never."""
        known: list[int] = []
        plan = self._plan

        def of(port: Port) -> int:
            return known[port.operator] if port.source is None else since.get(port.source, NEVER)

        for placed in plan.operators:
            ports = [of(port) for port in placed.inputs]
            given = min(ports) if isinstance(placed.operator, LMergeOperator) else max(ports)
            known.append(given if given in (NEVER, INF) else placed.operator.exact_from(given))
        return max(of(sink.port) for sink in plan.sinks)

    def answers(self, epochs: Iterable[Epoch]) -> Iterator[ElementBatch]:
        """What a runtime with one query says to epochs."""
        for epoch in epochs:
            if epoch.last:
                yield self.close()["out"]
                continue
            for name in epoch.closes:
                yield self.close_input(name)["out"]
            if epoch.batches:
                yield self.push(epoch.batches)["out"]

    def _epoch(self) -> dict[str, ElementBatch]:
        ingress = self._ingress
        arrived = ingress.advance((self._paced,))
        inputs = {port: ingress.output(port, arrived) for port in self._dataflow.source_ports}
        results = self._dataflow.step(inputs, max([each.intake.tau for each in ingress.inputs.values()]))
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
        return no_changes(intake.codec) if intake.guard.insert_only else intake.standing()

    def _note(self, name: str, dropped: DroppedElements) -> None:
        if self._dropped is not None:
            self._dropped(name, dropped)
        self._latest.append((name, dropped))
        while len(self._latest) > 1 and sum(len(each) for _, each in self._latest) - len(self._latest[0][1]) >= _LATEST:
            self._latest.popleft()

    @property
    def dropped(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each input were given up, by reason; inputs that lost none are left out."""
        return self._ingress.dropped(self._ingress.inputs)

    def latest_dropped(self) -> Iterator[tuple[str, Element, Reason]]:
        """The elements that were given up last, with their inputs and reasons: the last thousand and some."""
        for name, each in self._latest:
            for element, reason in zip(each.elements.elements(), each.reasons, strict=True):
                yield name, element, reason

    # -- looking ------------------------------------------------------------------------------------------------

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

    def metadata(self) -> list[OperatorMetadata]:
        """Per operator: rates, selectivity, state, progress, what it waits for."""
        elapsed = max(self._clock() - self._since, 1e-9)
        flow = self._dataflow.flow
        filters = [filter_metadata(flow, output, elapsed) for output in flow.outputs.values()]
        nodes = [node_metadata(flow, node, elapsed) for node in flow.nodes.values()]
        return [*nodes, *(each for each in filters if each is not None)]

    def standing(self) -> tuple[int, ElementBatch] | None:
        """What the one output has said that stands: an instant, and the events that live from then on as inserts, under
        the names by which they may still be adjusted, with the CTI.

        Who hears this and all that is said later knows the answer from the instant on.  None: it is not kept.
        """
        (output,) = self._dataflow.flow.outputs.values()
        found = output.standing(self._recalled)
        return None if found is None else (found[0], standing_elements(found[1], found[0], output.encoder.cti))

    def _recalled(self, port: Port) -> tuple[int, Changes] | None:
        """What a port has brought that stands, and from when on that is all."""
        nodes = self._dataflow.flow.nodes
        if port.source is None and (
            found := nodes[port.operator].placed.operator.standing(nodes[port.operator].frontiers)
        ):
            return found
        below = [self._ingress.inputs[each.source].intake for each in self._dataflow.flow.below(port) if each.source]
        if any(intake.standing() is None for intake in below):
            return None
        changes = standing_at(port, nodes, lambda each: self._ingress.inputs[each.source or ""].intake.standing())
        return None if changes is None else (max(intake.known_from for intake in below), changes)

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere, as plain data."""
        return {
            "consistency": self._consistency.to_plain(),
            "ingress": self._ingress.snapshot(),
            "dataflow": self._dataflow.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a runtime with the same queries, at the level that it had."""
        level = Consistency.from_plain(state["consistency"])
        if level != self._consistency:
            self._consistency = level
            for name in sorted(self._waiting):
                self._ingress.change(name, self._bounds(name))
        self._ingress.restore(state["ingress"])
        self._dataflow.restore(state["dataflow"])
