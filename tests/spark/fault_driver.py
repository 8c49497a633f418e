"""The program that `test_exactly_once` kills: two queries, each in two stages with state, into Parquet and PostgreSQL.

It is run as `python -c "from fault_driver import main; main()" <directory> <conninfo>` and ends when all epochs that
lie in `<directory>/S` are done.  Faults are files `<directory>/faults/<epoch>.<point>` with the word `raise` or `kill`
in them: whoever comes to the point in that epoch renames the file and then fails, so each fault strikes once.  `raise`
is an error that nobody expects, `kill` is SIGKILL for the process that is there: a Python worker or the driver.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

import everwhen as ew
from everwhen.api import Stream
from everwhen.connectors.sinks import ChangelogSink, PostgresSink
from everwhen.model.elements import ElementBatch, batch_of
from everwhen.model.history import History
from everwhen.model.schema import Schema
from everwhen.runtime.spark import epoch as epoch_module
from everwhen.runtime.spark.journal import Journal
from everwhen.runtime.spark.kernel import StageKernel
from everwhen.runtime.spark.store import BucketStore
from everwhen.runtime.spark.task import StageTask
from everwhen.testing import reorder

SCHEMA = Schema.of([("k", pa.string()), ("g", pa.int64()), ("x", pa.int64())])
BUCKETS = 2
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


class FaultyTask(StageTask):
    """A task that fails where it is planned to."""

    now = -1
    """The epoch under way in this worker."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        faults = str(Path(self.root).parents[2] / "faults")
        if FaultyTask.now < 0:
            before(StageKernel, "step", lambda *_: strike(faults, FaultyTask.now, "before_step"))
            after(StageKernel, "step", lambda *_: strike(faults, FaultyTask.now, "after_step"))
            after(BucketStore, "publish_log", lambda *_: strike(faults, FaultyTask.now, "after_log"))
            before(BucketStore, "publish_snapshot", lambda *_: strike(faults, FaultyTask.now, "before_snapshot"))
            after(BucketStore, "publish_snapshot", lambda *_: strike(faults, FaultyTask.now, "after_snapshot"))
            after(ChangelogSink, "write_part", lambda *_: strike(faults, FaultyTask.now, "after_part"))
        FaultyTask.now = self.epoch
        yield from super().__call__(batches)


def main() -> None:
    from spark_epochs import read_epochs

    from everwhen.runtime.spark.session import session
    from everwhen.runtime.spark.start import start

    place, conninfo = Path(sys.argv[1]), sys.argv[2]
    faults = str(place / "faults")
    epoch_module.StageTask = FaultyTask  # type: ignore[misc]
    before(Journal, "done", lambda _, epoch, *__: strike(faults, epoch, "after_job"))
    before(ChangelogSink, "commit_parts", lambda _, epoch, *__: strike(faults, epoch, "before_manifest"))
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
        buckets=BUCKETS,
        snapshot_every=SNAPSHOT_EVERY,
    )
    handle.await_termination()
    spark.stop()
