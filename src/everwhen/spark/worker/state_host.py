"""The state of partitions in Python workers: one owner each, one way to it, exactly once in effect.

    rows of an epoch ─▶ StateHost.run(program, context, partition, rows) ─▶ what the partition gives out

A `Program` is static: what a stage does, and where its state is kept.  A `StateHost` is a worker process as the owner
of partitions: it has their state as it was after the last epoch that they did here.

**Who does a step.**  The owner.  Spark gives a task to any worker that is idle, so a worker that is not the owner sends
the rows to the one that is, and passes its answer on (`owner_rpc`).  The owner answers if its state is that before the
epoch, of this run.  Else, or if it is dead, stuck or on another machine, the worker that got the task becomes the
owner: from the newest state it can have, its own of a few epochs ago or the newest snapshot, it replays the logs.  One
more rule keeps the work spread: an owner that is busy and has two partitions more than the worker that asks does not
answer, and forgets that partition.

**Why it is exactly once.**  A partition's input of an epoch is published once, under a name, before anything is given
out: of several attempts the first one wins, and the others, also later ones, work on what it has published.  Partitions
are deterministic, so all attempts give the same.  Who owns a partition is therefore a matter of speed alone: two
workers that both take themselves for the owner, one that wakes up late, or none, change nothing in what comes out.

Why not one engine process per machine that owns all partitions: we would have to start, watch and end it beside Spark's
workers, also on a cluster whose daemons run already; all rows would take one more copy through a socket, those too that
now come to their owner (with two partitions on two cores about half); and partitions would share one interpreter lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from everwhen.errors import EverwhenError, StateError
from everwhen.operators.contract import StateSize
from everwhen.spark.exchange.schema import check_log
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.owner_rpc import Answer, Request, StateServer, ask
from everwhen.storage.state_format import restore


class Partition(Protocol):
    """A state machine over epochs."""

    def state_size(self) -> StateSize: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...
    def collect(self) -> None:
        """Let go of what the outputs of the last step needed."""


P = TypeVar("P", bound=Partition)
Out = TypeVar("Out")


@dataclass(frozen=True)
class StateSpec:
    """Where the state of a stage is kept.  `query` names it for ever, `run` one start of the query: an owner only goes
    on within a run, since an epoch that failed may be taken back before the next one.  `first` is the first epoch of
    the plan.  `loop`: which loop has its rounds there; its steps count then, where else epochs do."""

    query: str
    run: str
    root: str
    stage: int
    snapshot_every: int = 10
    first: int = 0
    loop: int | None = None


@dataclass(frozen=True)
class Step(Generic[P, Out]):
    """A step that was done, and published.  `caught_up`: how many epochs had to be run again before it (-1: none, the
    state was here); `damaged`: files of the state that could not be read, with the reason."""

    partition: P
    out: Out
    rows: int
    size: StateSize
    caught_up: int
    damaged: list[str]
    seconds: dict[str, float]


class Program(Protocol[P, Out]):
    """What the partitions of a stage do in every epoch."""

    @property
    def state(self) -> StateSpec: ...
    def fresh(self, at: int) -> P:
        """Partition number `at` as it is before the first epoch."""

    def step(self, partition: P, rows: pa.Table, context: EpochContext) -> Out:
        """An epoch."""

    def output(self, at: int, context: EpochContext, done: Step[P, Out]) -> Iterator[pa.RecordBatch]:
        """What partition number `at` gives out after a step."""

    def failed(self, error: EverwhenError) -> pa.RecordBatch:
        """What it gives out instead."""


@dataclass
class _Owned:
    """A partition after an epoch, or a step of its loop, and the program that it runs."""

    program: Program[Any, Any]
    version: int
    partition: Any

    def is_before(self, run: str, context: EpochContext) -> bool:
        """Whether an epoch of a run can go on from here."""
        state = self.program.state
        return state.run == run and self.version == context.version(state.loop) - 1


class StateHost:
    """A process as the owner of partitions.  `shared`: other processes find them here."""

    def __init__(self, shared: bool = False) -> None:
        self._owned: dict[tuple[str, int, int], _Owned] = {}
        self._stepping = threading.Lock()
        """Held while a partition steps: one at a time in a process."""
        self._shared = shared
        self._server: StateServer | None = None

    def run(
        self, program: Program[Any, Any], context: EpochContext, at: int, rows: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        """What partition number `at` gives out for the rows of an epoch, done here or by its owner."""
        started = time.perf_counter()
        state = program.state
        key = (state.query, state.stage, at)
        mine = self._owned.get(key)
        if self._shared and (mine is None or not mine.is_before(state.run, context)):
            request = {"key": key, "run": state.run, "held": self._held(state.run), "started": started}
            answer = ask(_name(state, at), request | {"context": context.to_plain()}, rows)
            if answer is not None:
                self._owned.pop(key, None)
                yield from answer
                return
        yield from self._answer(program, context, at, rows, started)

    def offer(self, request: Request) -> Answer | None:
        """How to answer to a worker that got the rows of a partition; None if it has to become the owner itself."""
        query, stage, at = request["key"]
        context = EpochContext.from_plain(request["context"])
        mine = self._owned.get((query, stage, at))
        if mine is None or not mine.is_before(request["run"], context):
            return None
        if self._stepping.locked() and self._held(request["run"]) >= request["held"] + 2:
            self._owned.pop((query, stage, at), None)
            return None
        return lambda rows: self._answer(mine.program, context, at, rows, request["started"])

    def _held(self, run: str) -> int:
        return sum(owned.program.state.run == run for owned in list(self._owned.values()))

    def _answer(
        self, program: Program[P, Any], context: EpochContext, at: int, rows: pa.Table, started: float
    ) -> Iterator[pa.RecordBatch]:
        state = program.state
        try:
            done = self._step(program, context, at, rows, started)
            yield from program.output(at, context, done)
        except EverwhenError as error:
            yield program.failed(error)
            return
        done.partition.collect()
        self._owned[state.query, state.stage, at] = _Owned(program, context.version(state.loop), done.partition)
        if self._shared:
            with suppress(OSError):  # where a system has not what it takes, every worker is on its own
                self._server = self._server or StateServer(self.offer)
                self._server.keep(_name(state, at))

    def _step(
        self, program: Program[P, Out], context: EpochContext, at: int, rows: pa.Table, started: float
    ) -> Step[P, Out]:
        """Take the state, step, publish the input, and now and then a snapshot."""
        state, version = program.state, context.version(program.state.loop)
        store = PartitionStore(state.root, state.stage, at)
        with self._stepping:
            while True:
                published = _published(store, version)
                table, told = published or (rows, context)
                mine, caught_up = self._state(program, version, at, store)
                loaded = time.perf_counter()
                out = program.step(mine, table, told)
                stepped = time.perf_counter()
                size = mine.state_size()
                meta = context.to_plain() | {"state_rows": size.rows, "state_bytes": size.bytes}
                if published is not None or store.publish_log(version, table, meta):
                    break
            if (version + at) % state.snapshot_every == 0:
                store.publish_snapshot(version, mine.snapshot())
                store.collect(version, None if state.loop is None else context.rounds[state.loop].kept)
        logged = time.perf_counter()
        seconds = {"load": loaded - started, "step": stepped - loaded, "state": logged - stepped}
        return Step(mine, out, table.num_rows, size, caught_up, store.damaged, seconds)

    def _state(self, program: Program[P, Any], version: int, at: int, store: PartitionStore) -> tuple[P, int]:
        """The state before a version: what is here, or what the files say; and how many logs were replayed for it."""
        state = program.state
        mine = self._owned.pop((state.query, state.stage, at), None)
        if mine is not None and mine.program.state.run == state.run and mine.version < version:
            if mine.version == version - 1:
                return mine.partition, -1
            if version - 1 - mine.version <= state.snapshot_every:
                with suppress(StateError):  # what others have logged meanwhile may be gone, as a snapshot covers it
                    return _replayed(program, mine.partition, mine.version, version, store)
        return _loaded(program, version, store)


HOST: Final = StateHost(shared=True)
"""This process."""


def state_before(program: Program[P, Any], epoch: int, store: PartitionStore) -> P:
    """The state before an epoch as the files have it; whoever owns it keeps it."""
    return _loaded(program, epoch, store)[0]


def _loaded(program: Program[P, Any], epoch: int, store: PartitionStore) -> tuple[P, int]:
    partition, after = program.fresh(store.partition), program.state.first - 1
    snapshot = store.newest_snapshot(epoch - 1)
    if snapshot is not None:
        after = snapshot[0]
        restore(partition, snapshot[1], store.place)
    return _replayed(program, partition, after, epoch, store)


def _replayed(program: Program[P, Any], partition: P, after: int, epoch: int, store: PartitionStore) -> tuple[P, int]:
    """A partition with what was logged after an epoch and before another one; and how many epochs that was."""
    for _, table, meta in store.logs_between(after, epoch - 1):
        program.step(partition, check_log(table, store.place), EpochContext.from_plain(meta))
        partition.collect()
    return partition, epoch - 1 - after


def _published(store: PartitionStore, epoch: int) -> tuple[pa.Table, EpochContext] | None:
    found = store.log(epoch)
    return None if found is None else (check_log(found[0], store.place), EpochContext.from_plain(found[1]))


def _name(state: StateSpec, at: int) -> str:
    """What the owner of a partition is found by."""
    return f"{state.run}-{state.stage}-{at}"
