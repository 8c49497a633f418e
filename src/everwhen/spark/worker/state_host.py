"""Tasks whose state lives in a worker from epoch to epoch, exactly once in effect however often they are run.

    1. a worker that has not the state asks the one that has it, the bucket's home, to do the rest (`owner_rpc`);
    2. if the epoch's input was published before, that is the input, whatever has come now;
    3. take the state after the epoch before: live in this worker, or loaded and caught up from the files;
    4. step; publish the input (the first one wins; a loser starts again from the winner's); now and then a snapshot;
    5. give the output; keep the state, with its epoch, for the next time.

Kernels are deterministic, so 2. and 3. make every attempt give the same output.  Where no home answers, a state that
lags behind is caught up by the published inputs it has missed, or loaded anew where these have been tidied away.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from everwhen.errors import StateError
from everwhen.operators.contract import StateSize
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.owner_rpc import Answer, Request, StateServer, ask
from everwhen.storage.state_format import restore


class Kernel(Protocol):
    """A state machine over epochs."""

    def state_size(self) -> StateSize: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...
    def collect(self) -> None:
        """Let go of what the outputs of the last step needed."""


K = TypeVar("K", bound=Kernel)
Out = TypeVar("Out")


@dataclass
class LiveState(Generic[K, Out]):
    """A kernel after an epoch, and the task that was run last with it."""

    task: StatefulTask[K, Out]
    epoch: int
    kernel: K

    def is_before(self, run: str, epoch: int) -> bool:
        """Whether an epoch of a run can go on from here."""
        return self.task.run == run and self.epoch == epoch - 1


@dataclass(frozen=True)
class StepResult(Generic[K, Out]):
    """What a task has done in its epoch.  `caught_up`: how many epochs had to be run again before it (-1: none, the
    state was live); `damaged`: files of the state that could not be read, with the reason."""

    live: LiveState[K, Out]
    out: Out
    table: pa.Table
    size: StateSize
    caught_up: int
    damaged: list[str]
    seconds: dict[str, float]


_LIVE: Final[dict[tuple[str, int, int], LiveState[Any, Any]]] = {}
"""The kernels that this worker process holds, by query, stage and bucket."""

_STEPPING: Final = threading.Lock()
"""Held while a kernel steps: one at a time in a process."""


class StatefulTask(ABC, Generic[K, Out]):
    """A task of a stage in an epoch.  `query` names the query's state for ever, `run` one start of it: a live kernel is
    only used for the run it belongs to, since an epoch that failed may be taken back before the next one."""

    query: str
    run: str
    root: str
    epoch: int
    snapshot_every: int

    @property
    @abstractmethod
    def level(self) -> int:
        """The number of the stage."""

    @abstractmethod
    def fresh(self) -> K:
        """A kernel as it is before the first epoch."""

    @abstractmethod
    def step(self, kernel: K, rows: pa.Table, meta: Mapping[str, Any]) -> Out:
        """An epoch, with its published metadata."""

    @abstractmethod
    def answer(self, bucket: int, received: pa.Table, started: float) -> Iterator[pa.RecordBatch]:
        """The task's output, if it is done in this process; `started` is when a worker got it, by `perf_counter`."""

    @abstractmethod
    def words(self) -> dict[str, Any]:
        """In what this epoch's task differs from other epochs', as JSON says it."""

    @abstractmethod
    def told(self, words: Request) -> Self:
        """The same task in the epoch that such words tell."""

    def answered(self, bucket: int, received: pa.Table) -> Iterator[pa.RecordBatch]:
        """The task's output, from here or from the bucket's home."""
        started = time.perf_counter()
        answer = self._at_home(bucket, received, started)
        yield from self.answer(bucket, received, started) if answer is None else answer

    def stepped(self, bucket: int, received: pa.Table, meta: dict[str, Any], started: float) -> StepResult[K, Out]:
        """Take the state, step, publish.  When the output has been given, `stays` is due."""
        store = PartitionStore(self.root, self.level, bucket)
        with _STEPPING:
            while True:
                published = store.log(self.epoch)
                table, told = published if published is not None else (received, meta)
                live, caught_up = self._state(bucket, store)
                loaded = time.perf_counter()
                out = self.step(live.kernel, table, told)
                stepped = time.perf_counter()
                size = live.kernel.state_size()
                meta |= {"state_rows": size.rows, "state_bytes": size.bytes}
                if published is not None or store.publish_log(self.epoch, table, meta):
                    break
            if (self.epoch + bucket) % self.snapshot_every == 0:
                store.publish_snapshot(self.epoch, live.kernel.snapshot())
                store.collect(self.epoch)
        logged = time.perf_counter()
        seconds = {"load": loaded - started, "step": stepped - loaded, "state": logged - stepped}
        return StepResult(live, out, table, size, caught_up, store.damaged, seconds)

    def stays(self, bucket: int, live: LiveState[K, Out]) -> None:
        """Keep the state after this epoch."""
        live.kernel.collect()
        live.task, live.epoch = self, self.epoch
        _LIVE[self.query, self.level, bucket] = live
        _keep(self._name(bucket))

    # -- state --------------------------------------------------------------------------------------------------

    def _state(self, bucket: int, store: PartitionStore) -> tuple[LiveState[K, Out], int]:
        """The state after the epoch before, and how many epochs had to be replayed for it (-1: none, it was live)."""
        live = _LIVE.pop((self.query, self.level, bucket), None)
        before = self.epoch - 1
        if live is not None and live.task.run == self.run and live.epoch <= before:
            if live.epoch == before:
                return live, -1
            # Another worker had the bucket meanwhile.  What it published may be collected, once a snapshot covers it.
            if before - live.epoch <= self.snapshot_every:
                with suppress(StateError):
                    return live, self._catch_up(live, store)
        live = LiveState(self, -1, self.fresh())
        snapshot = store.newest_snapshot(before)
        if snapshot is not None:
            live.epoch = snapshot[0]
            restore(live.kernel, snapshot[1], store.place)
        return live, self._catch_up(live, store)

    def _catch_up(self, live: LiveState[K, Out], store: PartitionStore) -> int:
        """Replay the published inputs of the epochs before this one; how many there were."""
        replayed = 0
        for epoch, table, meta in store.logs_between(live.epoch, self.epoch - 1):
            self.step(live.kernel, table, meta)
            live.kernel.collect()
            live.epoch = epoch
            replayed += 1
        return replayed

    # -- at home ------------------------------------------------------------------------------------------------

    def _name(self, bucket: int) -> str:
        return f"{self.run}-{self.level}-{bucket}"

    def _at_home(self, bucket: int, received: pa.Table, started: float) -> list[pa.RecordBatch] | None:
        """What the worker answers that has the state; None if that is this one, or there is none."""
        key = (self.query, self.level, bucket)
        live = _LIVE.get(key)
        if live is not None and live.is_before(self.run, self.epoch):
            return None
        about = {"key": key, "run": self.run, "epoch": self.epoch, "held": _held(self.run), "started": started}
        answer = ask(self._name(bucket), about | {"task": self.words()}, received)
        if answer is not None:
            _LIVE.pop(key, None)
        return answer


# -- this worker as the home of buckets ------------------------------------------------------------------------------


def _held(run: str) -> int:
    return sum(live.task.run == run for live in list(_LIVE.values()))


def _agrees(words: Request) -> Answer | None:
    """How to answer to a worker that got the task of a bucket whose state is here.  A busy worker that holds two more
    than the one that asks lets it have the bucket."""
    query, level, bucket = words["key"]
    live = _LIVE.get((query, level, bucket))
    if live is None or not live.is_before(words["run"], words["epoch"]):
        return None
    if _STEPPING.locked() and _held(words["run"]) >= words["held"] + 2:
        _LIVE.pop((query, level, bucket), None)
        return None
    task = live.task.told(words["task"])
    return lambda rows: task.answer(bucket, rows, words["started"])


_HOME: StateServer | None = None


def _keep(bucket: str) -> None:
    """Others find the state of a bucket here from now on, if this system has what it takes."""
    global _HOME
    with suppress(OSError):
        _HOME = _HOME or StateServer(_agrees)
        _HOME.keep(bucket)
