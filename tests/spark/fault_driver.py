"""The program that `test_exactly_once` kills: two queries over two stages with state, into Parquet and PostgreSQL.

It is run as `python -c "from spark.fault_driver import main; main()" <directory> <conninfo>` and ends when all epochs
that lie in `<directory>/S` are done.  Faults are files `<directory>/faults/<epoch>.<point>` with the word `raise` or
`kill` in them: whoever comes to the point in that epoch renames the file and then fails, so each fault strikes once.
`raise` is an error that nobody expects, `kill` is SIGKILL for the process that is there: a Python worker or the driver.

`Driver` is the other side: it starts the program again and again until it ends well, and kills it from outside.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.core.schema import Schema
from everwhen.sinks import ChangelogSink, PostgresSink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.session import session
from everwhen.spark.api.start import start
from everwhen.spark.driver import plan_jobs as epoch_module
from everwhen.spark.driver.epoch_log import EpochLog
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.stage_program import StageOutput, StageProgram
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import reorder
from spark.spark_epochs import read_epochs

SCHEMA = Schema.of([("k", pa.string()), ("g", pa.int64()), ("x", pa.int64())])
PARTITIONS = 2
SNAPSHOT_EVERY = 3
IN_TASKS = ("before_step", "after_step", "after_log", "before_snapshot", "after_snapshot", "after_part")
IN_DRIVER = ("after_job", "before_manifest", "between_sinks", "after_sinks")


def queries() -> dict[str, Stream]:
    """Totals per key, and over these: the groups' largest, and how many keys have the same total."""
    totals = ew.source("S", {"k": "string", "g": "int64", "x": "int64"}).range(7)
    totals = totals.group_by("k", "g").agg(total=ew.sum("x"), n=ew.count())
    return {
        "highest": totals.group_by("g").agg(most=ew.max("total"), keys=ew.count()),
        "alike": totals.group_by("total").agg(keys=ew.count(), events=ew.sum("n")),
    }


def epochs(count: int, seed: int) -> list[ElementBatch]:
    """A stream with disorder, corrections and promises, in so many pieces."""
    rng = random.Random(seed)
    events = []
    for at in range(count * 6):
        vs = at // 3 + rng.randrange(3)
        k = rng.choice("abcdefg")
        events.append(ew.Insert(vs, vs + rng.choice([1, 1, 2, 5]), {"k": k, "g": ord(k) % 3, "x": rng.randrange(5)}))
    elements = reorder(History.of(events, SCHEMA), rng, disorder=6, close=True, infinite=False)
    bounds = [len(elements) * at // count for at in range(count + 1)]
    return [batch_of(elements[a:b], SCHEMA, "S") for a, b in pairwise(bounds)]


def go_on(spark: SparkSession, place: Path) -> Handle:
    """The second query over all epochs that lie in `<place>/S` and are not done, until they are."""
    handle = start(
        queries()["alike"],
        {"S": read_epochs(spark, place / "S", SCHEMA)},
        sink=ChangelogSink(place / "changelog"),
        checkpoint=place / "checkpoint",
        trigger="available",
        buckets=PARTITIONS,
        snapshot_every=SNAPSHOT_EVERY,
    )
    handle.await_termination(PATIENCE)
    return handle


# -- faults ----------------------------------------------------------------------------------------------------------


class Planned(RuntimeError):
    """A fault that a test has planned."""


def strike(faults: str, epoch: int, point: str) -> None:
    """Fail, if that is planned for this epoch and point."""
    plan = Path(faults, f"{epoch}.{point}")
    struck = plan.with_name(f"{epoch}.{point}.struck")
    try:
        plan.rename(struck)
    except FileNotFoundError:
        return
    if struck.read_text() == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Planned(f"planned at {point} of epoch {epoch}")


def before(holder: type, name: str, act: Callable[..., None]) -> None:
    """Calls `act` with the arguments of a method before the method itself."""
    method = getattr(holder, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        act(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(holder, name, wrapped)


def after(holder: type, name: str, act: Callable[..., None]) -> None:
    """Calls `act` with the arguments of a method after the method itself."""
    method = getattr(holder, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        act(*args, **kwargs)
        return found

    setattr(holder, name, wrapped)


class FaultyProgram(StageProgram):
    """A program that fails where it is planned to."""

    ready = False
    """Whether this worker comes to faults of the store and the sink."""

    @property
    def faults(self) -> str:
        return str(Path(self.state.root).parents[2] / "faults")

    def step(self, partition: StagePartition, rows: pa.Table, context: EpochContext) -> StageOutput:
        faults = self.faults
        if not FaultyProgram.ready:
            FaultyProgram.ready = True
            after(PartitionStore, "publish_log", lambda _, epoch, *__: strike(faults, epoch, "after_log"))
            before(PartitionStore, "publish_snapshot", lambda _, epoch, *__: strike(faults, epoch, "before_snapshot"))
            after(PartitionStore, "publish_snapshot", lambda _, epoch, *__: strike(faults, epoch, "after_snapshot"))
            after(ChangelogSink, "write_part", lambda _, epoch, *__: strike(faults, epoch, "after_part"))
        strike(faults, context.epoch, "before_step")
        found = super().step(partition, rows, context)
        strike(faults, context.epoch, "after_step")
        return found


def plan_faults(place: Path) -> str:
    """Fail where it is planned, in tasks and in the driver up to the first sink; the folder of plans."""
    faults = str(place / "faults")
    epoch_module.StageProgram = FaultyProgram  # type: ignore[misc]
    before(EpochLog, "done", lambda _, epoch, *__: strike(faults, epoch, "after_job"))
    before(ChangelogSink, "commit_parts", lambda _, epoch, *__: strike(faults, epoch, "before_manifest"))
    return faults


def main() -> None:
    place, conninfo = Path(sys.argv[1]), sys.argv[2]
    faults = plan_faults(place)
    before(PostgresSink, "commit", lambda _, epoch, *__: strike(faults, epoch, "between_sinks"))
    after(PostgresSink, "commit", lambda _, epoch, *__: strike(faults, epoch, "after_sinks"))
    settings = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 2}
    spark = session("local[2,4]", "faults", **settings)  # a task is tried four times
    handle = start(
        queries(),
        {"S": read_epochs(spark, place / "S", SCHEMA)},
        sink={"highest": ChangelogSink(place / "changelog"), "alike": PostgresSink(conninfo, "alike")},
        checkpoint=place / "checkpoint",
        trigger="available",
        buckets=PARTITIONS,
        snapshot_every=SNAPSHOT_EVERY,
    )
    handle.await_termination()
    spark.stop()


# -- who starts it, and ends it ----------------------------------------------------------------------------------------

TESTS = Path(__file__).parents[1]
SOURCES = TESTS.parent / "src"
PATIENCE = 600.0
"""Seconds after which a life is given up; a driver takes 15 seconds to start, and a minute on a busy machine."""


@dataclass
class Faults:
    """What is planned: files for the points inside, and what is done from outside at a moment of an epoch."""

    folder: Path
    outside: list[tuple[int, float, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def plan(self, epoch: int, point: str, act: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{epoch}.{point}").write_text(act)

    @property
    def struck(self) -> list[str]:
        """Every fault that has happened, those from outside last."""
        return sorted(path.name.removesuffix(".struck") for path in self.folder.glob("*.struck")) + self.done


@dataclass
class Driver:
    """The driver program, started again until it has done everything."""

    place: Path
    database: str
    faults: Faults
    rng: random.Random
    lives: list[int] = field(default_factory=list)
    """How each life ended."""
    program: str = "from spark.fault_driver import main; main()"

    def run(self, lives: int) -> None:
        """Until a life ends well; at most so many of them."""
        while not self.lives or self.lives[-1] != 0:
            assert len(self.lives) < lives, f"driver ended {self.lives}: {self.said()}"
            process = self._start()
            try:
                self._watch(process, time.monotonic() + PATIENCE)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                self.lives.append(process.wait())

    def said(self) -> str:
        return (self.place / "driver.log").read_text()[-4000:]

    def _start(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(SOURCES), str(TESTS)])
        with (self.place / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", self.program, str(self.place), self.database],
                env=os.environ | {"PYTHONPATH": paths},
                stdout=log,
                stderr=log,
                start_new_session=True,  # its Java is in the same group; Python workers make one of their own
            )

    def _watch(self, process: subprocess.Popen[bytes], until: float) -> None:
        while process.poll() is None:
            assert time.monotonic() < until, self.said()
            time.sleep(0.02)
            if not self.faults.outside or self._epoch() < self.faults.outside[0][0]:
                continue
            _, moment, whom = self.faults.outside[0]
            time.sleep(moment)
            if whom == "driver":
                os.killpg(process.pid, signal.SIGKILL)
            elif not self._kill_worker(process.pid):
                continue
            self.faults.done.append(f"{self._epoch()}.{whom}")
            del self.faults.outside[0]

    def _epoch(self) -> int:
        """The epoch under way, or the last one."""
        folder = self.place / "checkpoint" / "everwhen" / "epochs"
        return max((int(path.stem) for path in folder.glob("*.begun")), default=-1)

    def _kill_worker(self, driver: int) -> bool:
        """Kill one of the driver's Python workers: those that the daemon among its descendants has forked."""
        daemons = [pid for pid in descendants(driver) if b"everwhen.spark.worker.daemon" in command(pid)]
        workers = [pid for pid in daemons if parent(pid) in daemons]
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.rng.choice(workers), signal.SIGKILL)
        return True


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            children.setdefault(parent(int(entry.name)), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found[1:]
