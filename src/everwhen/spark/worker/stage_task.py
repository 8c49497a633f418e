"""What a Spark task does for a bucket of a stage in an epoch (`state_host` says how that is exactly once in effect).

A bucket that gives up tells every bucket of the next stage, so that nobody takes a part of an epoch for the whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from everwhen.spark.exchange.faults import RowsBehind, WrongRows
from everwhen.spark.exchange.punctuation_rows import Address, Heard, failure, heard, promise_rows
from everwhen.spark.exchange.schema import ERROR, HANDED, LATE, NOTE, PROMISE, SOURCE, ExchangeSchema, control
from everwhen.spark.exchange.watermarks import BEHIND
from everwhen.spark.worker.owner_rpc import Request
from everwhen.spark.worker.partition import EpochInput, EpochOutput, StagePartition
from everwhen.spark.worker.state_host import StatefulTask
from everwhen.stream.element import Punct


@dataclass(frozen=True)
class _Given:
    """An epoch's input, and how many rows each source had, in time and late."""

    epoch: EpochInput
    fed: dict[str, int]
    late: dict[str, int]


@dataclass(frozen=True)
class _Done:
    given: _Given
    out: EpochOutput


@dataclass(frozen=True)
class StageTask(StatefulTask[StagePartition, _Done]):
    """The function that `mapInArrow` runs."""

    query: str
    run: str
    root: str
    stage: Stage
    emit: Emit
    epoch: int
    buckets: int
    sources: tuple[str, ...]
    into: ExchangeSchema
    out: ExchangeSchema
    idle: frozenset[str] = frozenset()
    lenient: frozenset[str] = frozenset()
    snapshot_every: int = 10
    parts: Mapping[str, PartedSink] = field(default_factory=dict)
    present: Emit | None = None
    """The emission policy of this epoch, if the query was moved to another one."""
    promised: Mapping[str, int] = field(default_factory=dict)
    """What the sources had promised before this epoch."""
    onward: Mapping[str, Address] = field(default_factory=dict)
    """Where promises about data go that are made of a stream that is handed on, or of an answer."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bucket = TaskContext.get().partitionId()  # type: ignore[union-attr]
        received = pa.Table.from_batches([typed(batch, self.into) for batch in batches], self.into.arrow)
        tags = received.column("tag").to_numpy()
        notes = np.flatnonzero((tags == NOTE) | (tags == ERROR)).tolist()
        messages = [(int(tags[i]), str(received.column("note")[i])) for i in notes]
        problems = [note for tag, note in messages if tag == ERROR]
        if problems:
            yield self._failed(problems[0])
            return
        if messages:
            yield self.out.controls([control(tag, 0, note=note) for tag, note in messages])
        yield from self.answered(bucket, received)

    def _failed(self, text: str) -> pa.RecordBatch:
        return self.out.controls([control(ERROR, to, note=text) for to in range(self.buckets)])

    # -- the state's side ---------------------------------------------------------------------------------------

    @property
    def level(self) -> int:
        return self.stage.level

    def fresh(self) -> StagePartition:
        return StagePartition(self.stage, self.emit, self.lenient, self.buckets)

    def step(self, kernel: StagePartition, rows: pa.Table, meta: Mapping[str, Any]) -> _Done:
        given = self._input(rows, meta)
        return _Done(given, kernel.step(given.epoch))

    def words(self) -> dict[str, Any]:
        present = self.present and self.present.value
        return {"epoch": self.epoch, "idle": sorted(self.idle), "present": present, "promised": dict(self.promised)}

    def told(self, words: Request) -> StageTask:
        present = words["present"] and Emit(words["present"])
        idle = frozenset(words["idle"])
        return replace(self, epoch=words["epoch"], idle=idle, present=present, promised=words["promised"])

    def answer(self, bucket: int, received: pa.Table, started: float) -> Iterator[pa.RecordBatch]:
        meta: dict[str, Any] = {
            "idle": sorted(self.idle),
            "emit": (self.present or self.emit).value,
            "promised": dict(self.promised),
        }
        try:
            done = self.stepped(bucket, received, meta, started)
            given, out, kernel = done.out.given, done.out.out, done.live.kernel
            note: dict[str, Any] = {
                "stage": self.stage.level,
                "bucket": bucket,
                "rows_in": done.table.num_rows,
                "state_rows": done.size.rows,
                "state_bytes": done.size.bytes,
                "sources": dict(kernel.cti),
                "fed": given.fed,
                "late": given.late,
                "left_out": dict(out.left_out),
                "tau": out.tau,
                "caught_up": done.caught_up,
                "worker": os.getpid(),
                "damaged": done.damaged,
                "seconds": done.seconds,
            }
            yield from self._output(out, kernel, bucket, note)
            self.stays(bucket, done.live)
        except EverwhenError as error:
            yield failure(self.out, self.buckets, error, self.stage.level)

    # -- input --------------------------------------------------------------------------------------------------

    def _input(self, table: pa.Table, meta: Mapping[str, Any]) -> _Given:
        tags = table.column("tag").combine_chunks().to_numpy(zero_copy_only=False)
        sources: dict[str, tuple[int, int]] = {}
        fed: dict[str, int] = {}
        late: dict[str, int] = {}
        handed: dict[str, int] = {}
        times: dict[str, dict[int, int]] = {}
        names = {stream.tag: stream.name for stream in self.stage.inputs}
        tau, promised = NEVER, meta.get("promised", {})
        marks = table.take(pa.array(np.flatnonzero((tags < 0) & (tags > NOTE)))).to_pylist()
        for mark in marks:
            match mark["tag"]:
                case tag if tag == SOURCE:
                    source = self.sources[mark["w"]]
                    if mark["note"]:
                        raise WrongRows(mark["note"], source=source)
                    sources[source] = (mark["a"], mark["b"])
                    fed[source] = mark["c"]
                case tag if tag == HANDED:
                    name = names[mark["w"]]
                    handed[name] = min(handed.get(name, mark["b"]), mark["b"])
                    times.setdefault(name, {})[mark["c"]] = mark["b"]
                    tau = max(tau, mark["a"])
                case tag if tag == LATE:
                    source = self.sources[mark["w"]]
                    if source in self.lenient:
                        late[source] = int(mark["a"])
                    elif mark["b"] < promised.get(source, NEVER):
                        raise RowsBehind(BEHIND, source=source)
        rows = stream_rows(table, tags, self.stage)
        silent = frozenset(name for name in meta.get("idle", ()) if not fed.get(name))
        promises = heard(table, {s.tag: s.schema for s in self.stage.inputs}) if (tags == PROMISE).any() else {}
        whole = {names[tag]: found.whole for tag, found in promises.items()}
        said = {name: promises.get(tag, Heard()).frontiers(times[name]) for tag, name in names.items() if name in times}
        given = EpochInput(rows, sources, silent, handed, tau, Emit(meta["emit"]), whole, said)
        return _Given(given, fed, late)

    # -- output -------------------------------------------------------------------------------------------------

    def _output(
        self,
        out: EpochOutput,
        kernel: StagePartition,
        bucket: int,
        note: dict[str, Any],
    ) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, object]] = []
        written = 0
        for handed in kernel.plan.handed:
            output = out.handed[handed.name]
            tag = int(handed.name[1:])
            written += len(output.changes)
            yield from handed_rows(self.out, tag, handed.codec, output.changes)
            time = output.frontier.time
            rows += [control(HANDED, to, a=out.tau, b=time, c=bucket, w=tag) for to in range(self.buckets)]
            yield from self._promised(handed.name, output.frontier.promises, bucket)
        parts = {}
        for at, (name, batch) in enumerate(out.results.items()):
            data = without_promises(batch)
            yield from self._promised(
                name, [said.promise for said in batch.promises.values() if isinstance(said, Punct)], bucket
            )
            written += len(data)
            if name in self.parts:
                parts[name] = [self.parts[name].write_part(self.epoch, bucket, data)] if len(data) else []
            else:
                yield from result_rows(self.out, at, data)
        text = json.dumps(note | {"rows_out": written, "progress": dict(out.progress), "parts": parts})
        yield self.out.controls([*rows, control(NOTE, 0, note=text)])

    def _promised(self, name: str, promises: Sequence[Punctuation], bucket: int) -> Iterator[pa.RecordBatch]:
        """What is promised about the data of a stream that is handed on, or of an answer."""
        if promises:
            yield from promise_rows(self.out, self.onward[name], promises, self.buckets, bucket)
