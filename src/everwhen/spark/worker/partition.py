"""One partition of one stage: a deterministic state machine over epochs.

It holds what the local runtime holds, guards and a graph of operators, for its share of the rows.  An epoch's input is
what crossed the exchange: rows of streams in any order, what each source has promised, and what the partitions of the
stage before have promised for the streams they hand over.  No clock, no files, no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import NEVER
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.merge_inputs import begin_anew, leave_at
from everwhen.engine.observe.gauge import Window
from everwhen.operators.contract import Output, StateSize
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.operators.ingress.unordered_guard import UnorderedGuard
from everwhen.operators.loop.turn import TurnOperator, TurnPhase
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import EventChangelogEncoder
from everwhen.operators.punctuate.punctuator import source_punctuators
from everwhen.plan.lower import lower
from everwhen.plan.physical import Port
from everwhen.plan.stages.model import Stage, StreamIn
from everwhen.punctuation.api import PortIntersection
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.spark.exchange.codec import Rows
from everwhen.spark.worker.answer_span import WHOLE, AnswerSpan, said_by, span_of, speak_for
from everwhen.spark.worker.partition_gauges import PartitionGauges
from everwhen.stream.element_batch import ElementBatch, joined


@dataclass(frozen=True)
class EpochInput:
    """What a partition gets in an epoch.  `sources`: (largest start, CTI) each; `idle`: those that have been silent for
    too long to hold the others back; `handed`: the lowest promise of the partitions that hand a stream over; `tau`: the
    largest start that they know of; `emit`: the policy from this epoch on, if not that of the one before.

    `promises` are those about the data of a stream that hold for it as they are; `said` is what each partition of the
    stage before has promised of its own share, its time and what is new.  `starts`: the largest start of the sources
    below a stream that is handed over; `ended`: the sources that have left the merges that they feed; `anew`: those
    that are other streams from now on, each right from a time on; `until`: what these promise counts up to an instant
    only; `span`: the instants of the answer that the plan speaks for.

    Where rounds of a loop cross exchanges, a step is a round, and `phase` says what its head does; to settle, `promise`
    is what is final of the loop."""

    rows: Mapping[str, Rows] = field(default_factory=dict)
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    handed: Mapping[str, int] = field(default_factory=dict)
    tau: int = NEVER
    emit: Emit | None = None
    promises: Mapping[str, Sequence[Punctuation]] = field(default_factory=dict)
    said: Mapping[str, Mapping[int, Frontier]] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    anew: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    span: AnswerSpan = WHOLE
    phase: TurnPhase | None = None
    promise: int = NEVER
    measure: tuple[Window, ...] = ()
    """In which windows operators and inputs are measured."""


@dataclass(frozen=True)
class EpochOutput:
    """The elements of each query and the changes of each stream that is handed on.  `left_out`: how many adjusts of
    each stream were left out because their event is not there (it came too late itself)."""

    results: Mapping[str, ElementBatch]
    handed: Mapping[str, Output]
    progress: Mapping[str, int]
    tau: int
    left_out: Mapping[str, int] = field(default_factory=dict)


_NONE: Final = np.empty(0, np.int64)


class StagePartition:
    """The state of a partition; call `step` once per epoch."""

    def __init__(
        self, stage: Stage, emit: Emit, lenient: frozenset[str] = frozenset(), partitions: int = 1, at: int = 0
    ) -> None:
        self.stage = stage
        self.emit = emit
        self.plan = lower(
            stage.queries,
            emit,
            handed=stage.handed,
            facing=stage.facing,
            circulating=stage.circulating,
            first=at == 0,
        )
        self.dataflow = FixedDataflow(self.plan)
        self.tau = NEVER
        self.starts = {stream.name: NEVER for stream in stage.inputs}
        self._ended: frozenset[str] = frozenset()
        self.span, self._first_emit = WHOLE, emit
        self.cti = {s.feed.source.name: NEVER for s in stage.inputs if s.feed is not None}
        self.promised = {s.name: NEVER for s in stage.inputs if s.feed is None}
        self.gathered = {s.name: PortIntersection(s.schema, partitions) for s in stage.inputs if s.feed is None}
        self._partitions = partitions
        self._lenient = lenient
        self.gauges = PartitionGauges(stage, self.dataflow)
        self.guards: dict[str, UnorderedGuard] = {
            stream.name: self._guard(stream)
            for stream in stage.inputs
            if stream.form == "elements" and stream.feed is not None and stream.name in self.plan.sources
        }

    def _guard(self, stream: StreamIn) -> UnorderedGuard:
        assert stream.feed is not None
        source, codec, declared = stream.feed.source.name, self.plan.codecs[stream.name], self.plan.sources[stream.name]
        return UnorderedGuard(
            source,
            codec,
            declared.insert_only,
            source in self._lenient,
            declared.chronons,
            source_punctuators(declared, ordered=False),
        )

    def step(self, given: EpochInput) -> EpochOutput:
        """One epoch."""
        taken = self._spoken_for(given.span)
        for name, since in given.anew.items():
            self._begin_anew(name, since)
        for name, until in given.until.items():
            leave_at(self.dataflow.flow, {s.name for s in self.stage.inputs if s.sources == {name}}, until)
        for name, (start, cti) in given.sources.items():
            self.cti[name] = max(self.cti.get(name, NEVER), cti)
            self.tau = max(self.tau, start)
        awake = [cti for name, cti in self.cti.items() if name not in given.idle | self.stage.merged]
        for name in given.idle & set(self.cti):
            self.cti[name] = max(self.cti[name], min(awake, default=NEVER))
        for name, promise in given.handed.items():
            self.promised[name] = max(self.promised[name], promise)
        self.tau = max(self.tau, given.tau)
        for stream in self.stage.inputs:
            fed = NEVER if stream.feed is None else given.sources.get(stream.feed.source.name, (NEVER, NEVER))[0]
            self.starts[stream.name] = max(self.starts[stream.name], given.starts.get(stream.name, fed))
        self._end(given.ended)
        self.gauges.observe(given.measure)
        self._tell(given.phase, given.promise)
        inputs: dict[Port, Output] = {}
        before = {name: guard.left_out for name, guard in self.guards.items()}
        for stream in self.stage.inputs:
            wanted = [port for port in self.dataflow.source_ports if port.source == stream.name]
            if wanted:
                self._take(stream, given, wanted, inputs)
        if given.measure:
            self.gauges.came(inputs, self.starts)
        first, brought = self._moved(given.emit)
        said_now = self.dataflow.step(inputs, self.tau, self.starts)
        results = {name: joined(joined(taken[name], first[name]), said) for name, said in said_now.items()}
        handed = {
            name: Output(concat(brought[name], output.changes), output.frontier) if name in brought else output
            for name, output in self.dataflow.handed().items()
        }
        progress = {name: output.encoder.cti for name, output in self.dataflow.flow.outputs.items()}
        left_out = {name: guard.left_out - before[name] for name, guard in self.guards.items()}
        return EpochOutput(results, handed, progress, self.tau, left_out)

    def _spoken_for(self, span: AnswerSpan) -> dict[str, ElementBatch]:
        """Speak for other instants from now on: what is taken back."""
        if span == self.span:
            return self.dataflow.nothing_new()
        self.span = span
        return speak_for(self.dataflow, span, self._first_emit, self._recalled)

    def _recalled(self, port: Port) -> Changes | None:
        """What a source has brought that stands; None if that is not kept."""
        guard = self.guards.get(port.source or "")
        return None if guard is None or guard.insert_only else guard.standing()

    def recalls(self, query: str, promised: int, ends: int) -> int:
        """From which instant on the events are known that a query has said.  An encoder knows them, or the operator
        below; else the guards, from the largest promise of a source on, or nobody.  Then it is the largest end said."""
        output = self.dataflow.flow.outputs[query]
        if not isinstance(output.encoder, EventChangelogEncoder):
            return NEVER
        known = said_by(output, self.dataflow, self._recalled) is not None
        return min(promised, ends) if known else ends

    def _begin_anew(self, source: str, since: int) -> None:
        """Forget what a copy has said and promised: what comes of it now is another stream."""
        mine = [stream for stream in self.stage.inputs if stream.sources == {source}]
        if source in self.cti:
            self.cti[source] = NEVER
        for stream in mine:
            self.starts[stream.name] = NEVER
            if stream.name in self.guards:
                self.guards[stream.name] = self._guard(stream)
            if stream.feed is None:
                self.promised[stream.name] = NEVER
                self.gathered[stream.name] = PortIntersection(stream.schema, self._partitions)
        names = {stream.name for stream in mine}
        begin_anew(self.dataflow.flow, names, since)
        self._ended -= names

    def _end(self, sources: frozenset[str]) -> None:
        """Tell merges which of their inputs have left."""
        ended = frozenset(stream.name for stream in self.stage.inputs if stream.sources <= sources)
        if ended != self._ended:
            self._ended = ended
            self.dataflow.flow.end(ended)

    def _tell(self, phase: TurnPhase | None, promise: int) -> None:
        """Tell the head of a loop what to do in this round, and those who read the loop what is final of it."""
        if phase is None:
            return
        for turn in self.turns:
            turn.tell(phase, promise)
        for stream in self.stage.inputs:
            if stream.returning and phase == "settle":
                self.promised[stream.name] = max(self.promised[stream.name], promise)

    @cached_property
    def turns(self) -> list[TurnOperator]:
        """The heads of loops whose rounds cross exchanges."""
        return [each.operator for each in self.plan.operators if isinstance(each.operator, TurnOperator)]

    def start(self, port: Port) -> int:
        """The largest start of the sources below a port."""
        below = [each.source for each in self.dataflow.flow.below(port) if each.source is not None]
        return max((self.starts[source] for source in below), default=NEVER)

    def _moved(self, emit: Emit | None) -> tuple[dict[str, ElementBatch], dict[str, Changes]]:
        """Follow another emission policy: what is said and handed on because of it."""
        if emit is None or emit is self.emit:
            return self.dataflow.nothing_new(), {}
        self.emit = emit
        return self.dataflow.change_emit(emit, self._standing)

    def _standing(self, port: Port) -> Changes | None:
        guard = self.guards.get(port.source or "")
        codec = self.plan.codecs[port.source or ""]
        return no_changes(codec) if guard is None else self.dataflow.flow.floors.known(port, guard.standing())

    def collect(self) -> None:
        """Let go of values that nothing holds; after this the outputs of the last step cannot be read any more."""
        self.plan.pool.collect()

    def _take(self, stream: StreamIn, given: EpochInput, wanted: list[Port], inputs: dict[Port, Output]) -> None:
        rows, promises = given.rows.get(stream.name), given.promises.get(stream.name, ())
        codec = self.plan.codecs[stream.name]
        guarded: CheckedBatch | None = None
        if stream.name in self.guards:
            assert stream.feed is not None
            rows = rows or Rows(_NONE, _NONE, _NONE, _NONE, tuple(pa.array([], t) for t in stream.schema.types))
            cti = self.cti[stream.feed.source.name]
            guarded = self.guards[stream.name].step(
                rows.weight, rows.lo, rows.hi, rows.vnew, rows.columns, cti, promises
            )
            promises = self.guards[stream.name].frontier.promises
        elif stream.feed is None:
            said = given.said.get(stream.name, {})
            ports = [said.get(partition, Frontier()) for partition in range(self._partitions)]
            promises = [*promises, *self.gathered[stream.name].intersect(ports)]
        frontier = Frontier(self.frontier(stream), tuple(promises))
        for port in wanted:
            if guarded is not None:
                changes = guarded.segments() if port.form == "segments" else guarded.events()
            elif rows is None:
                changes = no_changes(codec)
            else:
                changes = Changes(codec, rows.lo, rows.hi, rows.weight, codec.encode(rows.columns, len(rows.lo)))
                changes = netted(changes) if stream.rounds else changes
            inputs[port] = Output(changes, frontier)

    def frontier(self, stream: StreamIn) -> int:
        """What is promised for a stream."""
        if stream.feed is None:
            return self.promised[stream.name]
        cti = self.cti[stream.feed.source.name]
        if stream.feed.window is not None:
            return stream.feed.window.promised(cti)
        return cti

    def state_size(self) -> StateSize:
        return sum((guard.state_size() for guard in self.guards.values()), self.dataflow.flow.state_size())

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "tau": self.tau,
            "starts": dict(self.starts),
            "cti": dict(self.cti),
            "promised": dict(self.promised),
            "guards": {name: guard.snapshot() for name, guard in self.guards.items()},
            "gathered": {name: gathering.snapshot() for name, gathering in self.gathered.items() if len(gathering)},
            "dataflow": self.dataflow.snapshot(),
            "emit": self.emit.value,
            **({} if self.span == WHOLE else {"span": self.span.to_plain()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of the same stage and partition."""
        self.tau, self.cti, self.promised = state["tau"], dict(state["cti"]), dict(state["promised"])
        self.starts |= state.get("starts", {})
        for name, guard in self.guards.items():
            guard.restore(state["guards"][name])
        for name, gathered in state["gathered"].items():
            self.gathered[name].restore(gathered)
        self.span = span_of(state.get("span"))
        if self.span != WHOLE:
            speak_for(self.dataflow, self.span, self._first_emit, None)
        self.dataflow.restore(state["dataflow"])
        self.emit = Emit(state["emit"])
