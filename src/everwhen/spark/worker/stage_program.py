"""What the partitions of a stage do in every epoch: read messages and rows, step, hand on, answer.

A partition that gives up tells every partition of the next stage, so that nobody takes a part of an epoch for the
whole; one that is told so passes it on, and does nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import NEVER
from everwhen.errors import EverwhenError
from everwhen.plan.stages.model import Stage
from everwhen.sinks.base import PartedSink
from everwhen.spark.exchange.codec import handed_rows, result_rows, stream_rows, typed, without_promises
from everwhen.spark.exchange.messages import (
    PUNCTUATION,
    Failure,
    Message,
    RowsBehind,
    RowsLate,
    SourceProgress,
    StreamProgress,
    TaskNote,
    WrongRows,
    kinds_in,
    message_rows,
    messages_in,
)
from everwhen.spark.exchange.punctuation_rows import Address, Heard, heard, promise_rows
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.exchange.watermarks import BEHIND, WRONG
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.partition import EpochInput, EpochOutput, StagePartition
from everwhen.spark.worker.state_host import HOST, Program, StateSpec, Step
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST

_PARTITIONS: Final = 100_000
"""More than any plan has."""


def part_number(plan: int, partition: int) -> int:
    """The number of what a partition of a plan writes in an epoch: plans that run side by side may have different
    numbers of partitions."""
    return plan * _PARTITIONS + partition


@dataclass(frozen=True)
class EpochTask:
    """The function that `mapInArrow` runs: a program, in the epoch that the task is told."""

    program: Program[Any, Any]
    into: ExchangeSchema
    out: ExchangeSchema
    partitions: int
    first: bool = False
    """Whether this is the stage that gets what is known of the sources beforehand."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        context = EpochContext.told(task)
        yield from self.run(batches, context, task.partitionId())

    def run(self, batches: Iterator[pa.RecordBatch], context: EpochContext, at: int) -> Iterator[pa.RecordBatch]:
        given = [typed(batch, self.into) for batch in batches]
        if self.first and context.progress:
            given.append(message_rows(self.into, [at], context.progress))
        rows = pa.Table.from_batches(given, self.into.arrow)
        messages = messages_in(rows)
        failures = [message for message in messages if isinstance(message, Failure)]
        if failures:
            yield message_rows(self.out, range(self.partitions), failures[:1])
            return
        notes = [message for message in messages if isinstance(message, TaskNote)]
        if notes:
            yield message_rows(self.out, [0], notes)
        yield from HOST.run(self.program, context, at, rows)


@dataclass(frozen=True)
class StageOutput:
    """What an epoch gives, and how many rows each source had, in time and late."""

    epoch: EpochOutput
    fed: Mapping[str, int]
    late: Mapping[str, int]


@dataclass(frozen=True)
class StageProgram:
    """A stage of a query.  `sources` are those of the whole plan; late rows of those in `lenient` are no error.
    `sinks` write their parts here; `onward` says where punctuations go of a stream that is handed on, or of an
    answer.  `number` is that of the plan: two that run side by side write parts of different names."""

    state: StateSpec
    stage: Stage
    emit: Emit
    partitions: int
    sources: tuple[str, ...]
    out: ExchangeSchema
    lenient: frozenset[str] = frozenset()
    sinks: Mapping[str, PartedSink] = field(default_factory=dict)
    onward: Mapping[str, Address] = field(default_factory=dict)
    number: int = 0

    def fresh(self, at: int) -> StagePartition:
        return StagePartition(self.stage, self.emit, self.lenient, self.partitions, at)

    def failed(self, error: EverwhenError) -> pa.RecordBatch:
        return message_rows(self.out, range(self.partitions), [Failure.of(error, self.stage.level)])

    # -- input --------------------------------------------------------------------------------------------------

    def step(self, partition: StagePartition, rows: pa.Table, context: EpochContext) -> StageOutput:
        sources: dict[str, tuple[int, int]] = {}
        fed: dict[str, int] = {}
        late: dict[str, int] = {}
        handed: dict[str, int] = {}
        starts: dict[str, int] = {}
        times: dict[str, dict[int, int]] = {}
        names = {stream.tag: stream.name for stream in self.stage.inputs}
        tau = context.tau
        for message in messages_in(rows):
            match message:
                case SourceProgress(at) | RowsLate(at) if self.sources[at] in context.detached:
                    pass
                case SourceProgress(at, start, cti, count, wrong):
                    if wrong:
                        raise WrongRows(f"{wrong} {WRONG}", source=self.sources[at])
                    sources[self.sources[at]], fed[self.sources[at]] = (start, cti), count
                case RowsLate(at, earliest, count):
                    source = self.sources[at]
                    if source in self.lenient:
                        late[source] = count
                    elif earliest < context.promised.get(source, NEVER):
                        raise RowsBehind(BEHIND, source=source)
                case StreamProgress(stream, sender, frontier, known, start):
                    name = names[stream]
                    starts[name] = max(starts.get(name, start), start)
                    handed[name] = min(handed.get(name, frontier), frontier)
                    times.setdefault(name, {})[sender] = frontier
                    tau = max(tau, known)
        turn = None if self.stage.loop is None else context.rounds[self.stage.loop]
        kinds = kinds_in(rows)
        promises = heard(rows, {s.tag: s.schema for s in self.stage.inputs}) if (kinds == PUNCTUATION).any() else {}
        ignored = {s.name for s in self.stage.inputs if s.feed and s.feed.source.name in context.detached}
        given = EpochInput(
            {name: found for name, found in stream_rows(rows, kinds, self.stage).items() if name not in ignored},
            sources,
            frozenset(name for name in context.idle if not fed.get(name)),
            handed,
            tau,
            context.level.emit,
            {names[tag]: found.whole for tag, found in promises.items() if names[tag] not in ignored},
            {name: promises.get(tag, Heard()).frontiers(times[name]) for tag, name in names.items() if name in times},
            starts,
            context.ended | context.detached,
            context.anew if turn is None or not turn.number else {},
            context.until,
            context.span,
            None if turn is None else turn.phase,
            NEVER if turn is None else turn.promise,
            context.measure,
        )
        return StageOutput(partition.step(given), fed, late)

    # -- output -------------------------------------------------------------------------------------------------

    def output(
        self, at: int, context: EpochContext, done: Step[StagePartition, StageOutput]
    ) -> Iterator[pa.RecordBatch]:
        out, partition, written = done.out.epoch, done.partition, 0
        progress: list[Message] = []
        sent, external = 0, min((turn.external for turn in partition.turns), default=None)
        for handed in partition.plan.handed:
            output, stream = out.handed[handed.name], int(handed.name[1:])
            written += len(output.changes)
            yield from handed_rows(self.out, stream, handed.codec, output.changes)
            if handed.name in self.stage.returns:
                sent += len(output.changes)
                continue
            yield from self._promised(handed.name, output.frontier.promises, at)
            start = partition.start(handed.port)
            progress.append(StreamProgress(stream, at, output.frontier.time, out.tau, start))
        if progress:
            yield message_rows(self.out, range(self.partitions), progress)
        parts: dict[str, Sequence[str]] = {}
        ends: dict[str, int] = {}
        for number, (name, batch) in enumerate(out.results.items()):
            data = without_promises(batch)
            said = [said.promise for said in batch.promises.values() if isinstance(said, Punct)]
            yield from self._promised(name, said, at)
            written += len(data)
            if len(data):
                ends[name] = int(np.where(data.op == ADJUST, data.vnew, data.ve).max())
            if name in self.sinks:
                named = part_number(self.number, at)
                parts[name] = [self.sinks[name].write_part(context.epoch, named, data)] if len(data) else []
            else:
                yield from result_rows(self.out, number, data)
        note = TaskNote(
            self.stage.level, at, done.rows, written, done.size.rows, done.size.bytes, dict(partition.cti),
            done.out.fed, done.out.late, out.left_out, out.progress, parts, out.tau, done.caught_up, os.getpid(),
            done.damaged, done.seconds, ends, sent, external,
            next((turn.sample for turn in partition.turns), ""), partition.gauges.samples(),
        )  # fmt: skip
        yield message_rows(self.out, [0], [note])

    def _promised(self, name: str, promises: Sequence[Punctuation], at: int) -> Iterator[pa.RecordBatch]:
        """What is promised about the data of a stream that is handed on, or of an answer."""
        if promises:
            yield from promise_rows(self.out, self.onward[name], promises, self.partitions, at)
