"""What partitions keep of the past of sources, as rows: where a plan that takes over begins.

A task per partition of a stage reads the partition's state before an epoch from its files, as a worker does that
becomes its owner, and gives out the events that its guards keep.  The state itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.rows.changes import Changes
from everwhen.spark.exchange.schema import NUMBERS, ExchangeSchema
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.stage_program import StageProgram
from everwhen.spark.worker.state_host import state_before
from everwhen.stream.element_batch import CTI, INSERT


@dataclass(frozen=True)
class Recalled:
    """A source whose past a stream tells: its kind in the frame, its columns, and whether every partition has all."""

    stream: str
    kind: int
    schema: Schema
    copied: bool


@dataclass(frozen=True)
class PastRows:
    """The function that `mapInArrow` runs over numbers: number i is partition i of the stages, one stage after the
    other.  (The number of a task says nothing: a union counts the tasks of all its frames.)  `recalled`: what is asked
    of each stage, by its program's place; `words`: what each source has promised."""

    programs: Sequence[StageProgram]
    recalled: Mapping[int, Sequence[Recalled]]
    epoch: int
    partitions: int
    layout: ExchangeSchema
    words: Mapping[int, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        for number in numbers:
            yield from self._told(*divmod(number, self.partitions))

    def _told(self, place: int, at: int) -> Iterator[pa.RecordBatch]:
        if place == at == 0 and self.words:
            yield self._promises()
        asked = self.recalled.get(place, ())
        if not asked:
            return
        program = self.programs[place]
        store = PartitionStore(program.state.root, program.state.stage, at)
        partition = state_before(program, self.epoch, store)
        for each in asked:
            if at == 0 or not each.copied:
                yield from self._rows(partition, each)

    def _promises(self) -> pa.RecordBatch:
        kinds, times = (np.array(column, np.int64) for column in (list(self.words), list(self.words.values())))
        zeros, op = np.zeros(len(kinds), np.int64), np.full(len(kinds), CTI, np.int64)
        given = {name: pa.array(column) for name, column in zip(NUMBERS, (times, times, zeros, op), strict=True)}
        return self.layout.batch(len(kinds), {**given, "kind": pa.array(kinds.astype(np.int32))})

    def _rows(self, partition: StagePartition, asked: Recalled) -> Iterator[pa.RecordBatch]:
        guard = partition.guards[asked.stream]
        events = guard.standing()
        events = events.take(np.repeat(np.arange(len(events)), events.weight))
        if not len(events):
            return
        named = dict(zip(guard.codec.schema.names, guard.codec.decode(events.rows), strict=True))
        columns = [_plain(named[name]) for name in asked.schema.names]
        yield self.layout.rows(asked.kind, _numbers(events), asked.schema, columns)


def _numbers(events: Changes) -> list[pa.Array]:
    zeros = np.zeros(len(events), np.int64)
    return [pa.array(column) for column in (events.lo, events.hi, zeros, np.full(len(events), INSERT, np.int64))]


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
