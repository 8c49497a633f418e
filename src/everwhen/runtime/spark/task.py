"""What a Spark task does for a bucket in an epoch, exactly once in effect however often it is run.

    1. if the epoch's input was published before, that is the input, whatever has come now;
    2. take the state after the epoch before: live in this worker, or loaded and caught up from the files;
    3. step; publish the input (the first one wins; a loser starts again from the winner's); now and then a snapshot;
    4. give the output; keep the state, with its epoch, for the next time.

Kernels are deterministic, so 1. and 2. make every attempt give the same output.  Workers are reused but buckets move
between them: a worker that has not the state asks the one that has it to do all this (`homes`).  Where there is none, a
state that lags behind is caught up by the published inputs it has missed, or loaded anew where these have been tidied
away.  A bucket that gives up tells every bucket of the next stage, so that nobody takes a part of an epoch for the
whole of it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from everwhen.connectors.sinks.base import PartedSink
from everwhen.errors import EverwhenError, InputError, StateError
from everwhen.model.element import Punct
from everwhen.model.punctuation import Promise
from everwhen.model.time import NEVER
from everwhen.operators.base import Emit
from everwhen.plan.stages import Stage
from everwhen.runtime.spark.homes import Answer, Home, Words, ask
from everwhen.runtime.spark.kernel import EpochInput, EpochOutput, StageKernel
from everwhen.runtime.spark.layout import ERROR, HANDED, LATE, NOTE, PROMISE, SOURCE, Layout, control
from everwhen.runtime.spark.progress import BEHIND
from everwhen.runtime.spark.promises import Address, Heard, failure, heard, promise_rows
from everwhen.runtime.spark.rows import handed_rows, result_rows, stream_rows, typed, without_promises
from everwhen.runtime.spark.store import BucketStore


@dataclass
class _Live:
    task: StageTask
    epoch: int
    kernel: StageKernel

    def is_before(self, run: str, epoch: int) -> bool:
        """Whether an epoch of a run can go on from here."""
        return self.task.run == run and self.epoch == epoch - 1


@dataclass(frozen=True)
class _Given:
    """An epoch's input, and how many rows each source had, in time and late."""

    epoch: EpochInput
    fed: dict[str, int]
    late: dict[str, int]


_LIVE: Final[dict[tuple[str, int, int], _Live]] = {}
"""The kernels that this worker process holds, by query, stage and bucket."""

_STEPPING: Final = threading.Lock()
"""Held while a kernel steps: one at a time in a process."""


@dataclass(frozen=True)
class StageTask:
    """The function that `mapInArrow` runs.  `query` names the query's state for ever, `run` one start of it: a live
    kernel is only used for the run it belongs to, since an epoch that failed may be taken back before the next one."""

    query: str
    run: str
    root: str
    stage: Stage
    emit: Emit
    epoch: int
    buckets: int
    sources: tuple[str, ...]
    into: Layout
    out: Layout
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
        started = time.perf_counter()
        answer = self._at_home(bucket, received, started)
        yield from self._answer(bucket, received, started) if answer is None else answer

    def _answer(self, bucket: int, received: pa.Table, started: float) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._run(bucket, received, started)
        except EverwhenError as error:
            yield failure(self.out, self.buckets, error, self.stage.level)

    def _failed(self, text: str) -> pa.RecordBatch:
        return self.out.controls([control(ERROR, to, note=text) for to in range(self.buckets)])

    def _run(self, bucket: int, received: pa.Table, started: float) -> Iterator[pa.RecordBatch]:
        store = BucketStore(self.root, self.stage.level, bucket)
        key = (self.query, self.stage.level, bucket)
        meta: dict[str, Any] = {
            "idle": sorted(self.idle),
            "emit": (self.present or self.emit).value,
            "promised": dict(self.promised),
        }
        with _STEPPING:
            while True:
                published = store.log(self.epoch)
                table, told = published if published is not None else (received, meta)
                live, caught_up = self._state(key, store)
                loaded = time.perf_counter()
                given = self._input(table, told)
                out = live.kernel.step(given.epoch)
                stepped = time.perf_counter()
                size = live.kernel.state_size()
                meta |= {"state_rows": size.rows, "state_bytes": size.bytes}
                if published is not None or store.publish_log(self.epoch, table, meta):
                    break
            if (self.epoch + bucket) % self.snapshot_every == 0:
                store.publish_snapshot(self.epoch, live.kernel.snapshot())
                store.collect(self.epoch)
        logged = time.perf_counter()
        note: dict[str, Any] = {
            "stage": self.stage.level,
            "bucket": bucket,
            "rows_in": table.num_rows,
            "state_rows": size.rows,
            "state_bytes": size.bytes,
            "sources": dict(live.kernel.cti),
            "fed": given.fed,
            "late": given.late,
            "left_out": dict(out.left_out),
            "tau": out.tau,
            "caught_up": caught_up,
            "worker": os.getpid(),
            "damaged": store.damaged,
            "seconds": {"load": loaded - started, "step": stepped - loaded, "state": logged - stepped},
        }
        yield from self._output(out, live.kernel, bucket, note)
        live.kernel.collect()
        live.task, live.epoch = self, self.epoch
        _LIVE[key] = live
        _keep(self._name(bucket))

    # -- at home ------------------------------------------------------------------------------------------------

    def _name(self, bucket: int) -> str:
        return f"{self.run}-{self.stage.level}-{bucket}"

    def _at_home(self, bucket: int, received: pa.Table, started: float) -> list[pa.RecordBatch] | None:
        """What the worker answers that has the state; None if that is this one, or there is none."""
        key = (self.query, self.stage.level, bucket)
        live = _LIVE.get(key)
        if live is not None and live.is_before(self.run, self.epoch):
            return None
        words = {
            "key": key,
            "run": self.run,
            "epoch": self.epoch,
            "idle": sorted(self.idle),
            "present": self.present and self.present.value,
            "promised": dict(self.promised),
            "started": started,
            "held": _held(self.run),
        }
        answer = ask(self._name(bucket), words, received)
        if answer is not None:
            _LIVE.pop(key, None)
        return answer

    # -- state --------------------------------------------------------------------------------------------------

    def _state(self, key: tuple[str, int, int], store: BucketStore) -> tuple[_Live, int]:
        """The state after the epoch before, and how many epochs had to be replayed for it (-1: none, it was live)."""
        live = _LIVE.pop(key, None)
        before = self.epoch - 1
        if live is not None and live.task.run == self.run and live.epoch <= before:
            if live.epoch == before:
                return live, -1
            # Another worker had the bucket meanwhile.  What it published may be collected, once a snapshot covers it.
            if before - live.epoch <= self.snapshot_every:
                with suppress(StateError):
                    return live, self._catch_up(live, store)
        live = _Live(self, -1, StageKernel(self.stage, self.emit, self.lenient, self.buckets))
        snapshot = store.newest_snapshot(before)
        if snapshot is not None:
            live.epoch = snapshot[0]
            live.kernel.restore(snapshot[1])
        return live, self._catch_up(live, store)

    def _catch_up(self, live: _Live, store: BucketStore) -> int:
        """Replay the published inputs of the epochs before this one; how many there were."""
        replayed = 0
        for epoch, table, meta in store.logs_between(live.epoch, self.epoch - 1):
            live.kernel.step(self._input(table, meta).epoch)
            live.kernel.collect()
            live.epoch = epoch
            replayed += 1
        return replayed

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
                        raise InputError(mark["note"], source=source)
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
                        raise InputError(BEHIND, source=source)
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
        kernel: StageKernel,
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

    def _promised(self, name: str, promises: Sequence[Promise], bucket: int) -> Iterator[pa.RecordBatch]:
        """What is promised about the data of a stream that is handed on, or of an answer."""
        if promises:
            yield from promise_rows(self.out, self.onward[name], promises, self.buckets, bucket)


# -- this worker as the home of buckets --------------------------------------------------------------------------


def _held(run: str) -> int:
    return sum(live.task.run == run for live in list(_LIVE.values()))


def _agrees(words: Words) -> Answer | None:
    """How to answer to a worker that got the task of a bucket whose state is here.  A busy worker that holds two more
    than the one that asks lets it have the bucket."""
    query, level, bucket = words["key"]
    live = _LIVE.get((query, level, bucket))
    if live is None or not live.is_before(words["run"], words["epoch"]):
        return None
    if _STEPPING.locked() and _held(words["run"]) >= words["held"] + 2:
        _LIVE.pop((query, level, bucket), None)
        return None
    present = words["present"]
    task = replace(
        live.task,
        epoch=words["epoch"],
        idle=frozenset(words["idle"]),
        present=present and Emit(present),
        promised=words["promised"],
    )
    return lambda rows: task._answer(bucket, rows, words["started"])


_HOME: Home | None = None


def _keep(bucket: str) -> None:
    """Others find the state of a bucket here from now on, if this system has what it takes."""
    global _HOME
    with suppress(OSError):
        _HOME = _HOME or Home(_agrees)
        _HOME.keep(bucket)
