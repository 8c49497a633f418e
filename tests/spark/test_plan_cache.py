"""What Spark has planned once is put upon every epoch: answers stay right, whoever reads and whatever fails."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.errors import EverwhenError, InputError
from everwhen.reference.evaluation import evaluate
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.start import start
from everwhen.spark.driver import epoch_job as job_module
from everwhen.spark.internals import plan_cache as chain_module
from everwhen.spark.internals.plan_cache import CachedPlan
from everwhen.spark.sources.source import Disorder, SparkSource
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.stage_program import EpochTask
from everwhen.stream.history import History
from everwhen.testing import assert_valid

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
QUERY = ew.source("S", SCHEMA).range(6, slide=2).group_by("k").agg(t=ew.sum("x"), hi=ew.max("x"), n=ew.count())
DISORDER = 4
Rows = list[tuple[int, str, int]]


def rows_of(epoch: int) -> Rows:
    """Forty rows, late by less than is allowed."""
    rng = random.Random(epoch)
    return [(10 * epoch + at // 4 - rng.randrange(DISORDER), rng.choice("abcde"), rng.randrange(5)) for at in range(40)]


def write(place: Path, epoch: int, rows: Rows) -> None:
    folder = place / "in"
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(("vs", "k", "x"))})
    pq.write_table(table, folder / f"{epoch}.parquet")
    os.utime(folder / f"{epoch}.parquet", (1_700_000_000 + epoch,) * 2)


def begin(spark: SparkSession, place: Path, spread: int | None = None, through: Any = None) -> Handle:
    columns = "unread double, vs bigint, k string, x bigint"
    frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
    if through is not None:
        frame = frame.mapInArrow(through, frame.schema)
    return start(
        QUERY,
        {"S": frame if spread is None else frame.repartition(spread)},
        sink=ChangelogSink(str(place / "out")),
        checkpoint=place / "checkpoint",
        sources={"S": SparkSource("vs", columns=["k", "x"], progress=Disorder(DISORDER))},
        trigger="available",
        buckets=2,
        snapshot_every=2,
    )


def check(place: Path, epochs: int) -> None:
    """What was said is right, at every instant of which all is known."""
    events = [ew.Insert(vs, vs + 1, {"k": k, "x": x}) for at in range(epochs) for vs, k, x in rows_of(at)]
    oracle = evaluate(QUERY.node, {"S": History.of(events, SCHEMA)})
    found = list(read_changelog(place / "out"))
    assert_valid(found)
    answer = History.of([element for batch in found for element in batch.elements()], QUERY.schema)
    for t in range(-6, 10 * epochs - 5):
        assert answer.snapshot(t) == oracle.at(t), t


@pytest.mark.parametrize("spread", [None, 7])
def test_what_is_planned_once_serves_every_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: int | None
) -> None:
    """Read by two tasks, by three that do not merge what they have merged, and by seven that do."""
    planned, read = [], []
    plan, reading = CachedPlan.of, chain_module._reading
    monkeypatch.setattr(CachedPlan, "of", staticmethod(lambda frame: planned.append(frame) or plan(frame)))
    monkeypatch.setattr(chain_module, "_reading", lambda *given: read.append(reading(*given)) or read[-1])
    for epoch in range(4):
        write(tmp_path, epoch, rows_of(epoch))
    handle = begin(spark, tmp_path, spread)
    handle.await_termination(300)
    assert [report.rows_in for report in handle.recent] == [40] * 4
    assert handle.progress is not None
    assert handle.progress.progress == {"S": max(vs for vs, _, _ in rows_of(3)) - DISORDER}
    assert len(planned) == 1
    assert len(read) == 4
    assert all(found is not None for found in read)
    check(tmp_path, 4)
    write(tmp_path, 4, rows_of(4))
    begin(spark, tmp_path, spread).await_termination(300)
    check(tmp_path, 5)


@pytest.mark.parametrize(("point", "ends"), [("step", "kill"), ("publish", "raise")])
def test_a_task_that_fails_in_an_epoch_leaves_no_trace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, ends: str
) -> None:
    """In one partition, before its input is published or after it; the epoch is then run again."""
    mark = str(tmp_path / "failed")

    class Faulty(EpochTask):  # in here, so that workers get it by value
        def run(self, batches: Iterator[pa.RecordBatch], context: EpochContext, at: int) -> Iterator[pa.RecordBatch]:
            found = iter(list(EpochTask.run(self, batches, context, at))) if point == "publish" else None
            if context.epoch == 2 and not os.path.exists(mark):
                with open(mark, "w"):
                    pass
                if ends == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("planned")
            yield from found or EpochTask.run(self, batches, context, at)

    for epoch in range(4):
        write(tmp_path, epoch, rows_of(epoch))
    with monkeypatch.context() as patched:
        patched.setattr(job_module, "EpochTask", Faulty)
        with pytest.raises(EverwhenError):
            begin(spark, tmp_path).await_termination(300)
    assert os.path.exists(mark)
    if point == "publish":
        assert any(PartitionStore(tmp_path / "checkpoint/everwhen/state", 1, b).log(2) is not None for b in (0, 1))
    begin(spark, tmp_path).await_termination(300)
    check(tmp_path, 4)


def test_a_row_that_breaks_a_promise_is_told_of_with_its_time(spark: SparkSession, tmp_path: Path) -> None:
    for epoch in range(2):
        write(tmp_path, epoch, rows_of(epoch))
    write(tmp_path, 2, [*rows_of(2), (3, "a", 1), (4, "b", 1)])
    with pytest.raises(InputError, match="2 rows came behind the promise of their source, the earliest at 3"):
        begin(spark, tmp_path).await_termination(300)
    write(tmp_path, 2, rows_of(2))
    begin(spark, tmp_path).await_termination(300)
    check(tmp_path, 3)


def test_a_row_without_a_time_is_told_of(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, 0, rows_of(0))
    write(tmp_path, 1, [*rows_of(1), (None, "a", 1)])  # type: ignore[list-item]
    with pytest.raises(InputError, match="S: the time in column 'vs' is null"):
        begin(spark, tmp_path).await_termination(300)
    write(tmp_path, 1, rows_of(1))
    begin(spark, tmp_path).await_termination(300)
    check(tmp_path, 2)


def test_a_query_is_stopped_while_rows_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """An epoch under way is run again; nothing went wrong."""

    def slowly(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            time.sleep(60)
            yield batch

    write(tmp_path, 0, rows_of(0))
    begun = tmp_path / "checkpoint" / "everwhen" / "epochs" / f"{0:012d}.begun"
    handle = begin(spark, tmp_path, through=slowly)
    until = time.monotonic() + 60
    while not begun.exists() or not spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < until
        time.sleep(0.05)
    stopped = time.monotonic()
    handle.stop()
    assert time.monotonic() - stopped < 30
    assert handle.status == "stopped"
    assert handle.last_error is None
    begin(spark, tmp_path).await_termination(300)
    check(tmp_path, 1)
