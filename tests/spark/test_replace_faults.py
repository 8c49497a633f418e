"""A query that is killed while another one takes over: nothing is lost, nothing comes twice.

Run as a program it is what is killed: `python -c "from spark.test_replace_faults import main; main()" <directory> -`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.errors import EverwhenError
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.sinks.base import EpochSink
from everwhen.spark.api.replacing import Replacement
from everwhen.spark.api.session import session
from everwhen.spark.api.start import start
from everwhen.spark.driver.epoch_log import EpochLog
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.driver.plan_log import read_record
from everwhen.spark.worker.answer_span import WHOLE
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.stage_program import StageOutput, StageProgram
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.fault_driver import SNAPSHOT_EVERY, Driver, Faults, plan_faults
from spark.spark_epochs import read_epochs, write_epochs
from spark.test_replace import BIDS, NEW, OLD, SCHEMA, epochs, events, spliced

EPOCHS = 12


def versions() -> list[ew.Stream]:
    """Queries of one and two stages that need the same columns of the source."""
    sums = BIDS.range(3).group_by("item", "price").agg(many=ew.count())
    return [
        OLD,
        BIDS.range(5).group_by("item").agg(n=ew.count(), v=ew.min("price")),
        sums.group_by("item").agg(n=ew.max("many"), v=ew.max("price")),
        BIDS.group_by("item", "price").agg(n=ew.count()).select("item", "n", v=ew.col("price")),
        OLD,
    ]


def main() -> None:
    place = Path(sys.argv[1])
    plan_faults(place)
    spark = session("local[2,4]", "faults", **{"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 2})
    record = read_record(str(place / "checkpoint"))
    number, cuts = 0, place / "cuts"
    if record is not None:
        number = record.number
        (cuts / str(number)).write_text(str(record.at))
    given = versions()
    handle = start(
        Replacement(given[number - 1], given[number]) if number else given[0],
        {"Bid": read_epochs(spark, place / "Bid", SCHEMA)},
        sink=ChangelogSink(place / "changelog"),
        checkpoint=place / "checkpoint",
        buckets=2,
        snapshot_every=SNAPSHOT_EVERY,
        trigger="300 milliseconds",
    )
    while handle.progress is None or handle.progress.epoch < EPOCHS - 1:
        if not handle.is_active:
            raise handle.last_error or RuntimeError("stopped")
        done = -1 if handle.progress is None else handle.progress.epoch
        if number + 1 < len(given) and handle.replaced_at is None and done >= 2 * number + 1:
            t = handle.replace(given[number + 1])
            number += 1
            (cuts / str(number)).write_text(str(t))
        time.sleep(0.05)
    handle.stop()
    spark.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_query_that_is_killed_while_others_take_over(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    given = events(seed, 70)
    write_epochs(tmp_path / "Bid", epochs(given, seed, EPOCHS))
    (tmp_path / "cuts").mkdir()
    faults = Faults(tmp_path / "faults")
    for point in ("after_step", "after_log", "before_snapshot", "after_part"):
        fitting = [e for e in range(2, EPOCHS - 1) if "snapshot" not in point or e % SNAPSHOT_EVERY != 1]
        faults.plan(rng.choice(fitting), point, "kill")
    faults.plan(rng.choice(range(2, 5)), "before_manifest", "kill")
    faults.plan(rng.choice(range(5, 9)), "after_job", "raise")
    faults.outside = sorted((rng.randrange(2, EPOCHS - 1), rng.uniform(0, 1), "driver") for _ in range(3))
    driver = Driver(tmp_path, "-", faults, rng, program="from spark.test_replace_faults import main; main()")
    driver.run(12)
    assert len(driver.lives) > 3 and len(faults.struck) >= 5, faults.struck
    found = list(read_changelog(tmp_path / "changelog"))
    manifests = sorted(int(path.stem) for path in (tmp_path / "changelog" / "_epochs").iterdir())
    assert manifests == list(range(EPOCHS))
    assert_valid(found)
    elements = [element for batch in found for element in batch.elements()]
    assert elements[-1] == ew.Cti(ew.INF)
    cuts = [
        int((tmp_path / "cuts" / str(at)).read_text()) for at in range(1, len(list((tmp_path / "cuts").iterdir())) + 1)
    ]
    assert len(cuts) > 1
    parts = list(zip([NEVER, *cuts], versions(), strict=False))
    assert_same_history(History.of(found, OLD.schema), spliced(parts, given))


def test_whoever_dies_the_same_is_said(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is killed in the first epoch of both plans, the driver fails in the next one before it is done, and in
    the one after before its sink has it."""
    given = events(9)
    cut = epochs(given, 10, 7)
    write_epochs(tmp_path / "Bid", cut[:2])
    kill = str(tmp_path / "kill")

    class Deadly(StageProgram):
        def step(self, partition: StagePartition, rows: pa.Table, context: EpochContext) -> StageOutput:
            if context.epoch == 2 and context.span != WHOLE:
                try:
                    os.unlink(kill)
                except FileNotFoundError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            return super(Deadly, self).step(partition, rows, context)  # noqa: UP008 - pickled by value

    def once(holder: type, name: str, at: int) -> None:
        method, left = getattr(holder, name), [True]

        def wrapped(self: Any, *args: Any) -> Any:
            if at in args and left:
                left.pop()
                raise EverwhenError("planned")
            return method(self, *args)

        monkeypatch.setattr(holder, name, wrapped)

    monkeypatch.setattr("everwhen.spark.driver.plan_jobs.StageProgram", Deadly)
    once(EpochLog, "done", 3)
    once(EpochRunner, "_commit", 4)

    def begun(query: ew.Stream | Replacement) -> Any:
        sink: EpochSink = ChangelogSink(tmp_path / "out")
        frame = read_epochs(spark, tmp_path / "Bid", SCHEMA)
        return start(query, {"Bid": frame}, sink=sink, checkpoint=tmp_path / "state", buckets=2, snapshot_every=2)

    handle = begun(OLD)
    handle.process_available()
    Path(kill).touch()
    t = handle.replace(NEW, at=45)
    write_epochs(tmp_path / "Bid", cut[2:], first=2)
    failures = []
    for _ in range(4):
        try:
            handle.process_available()
            break
        except EverwhenError as failed:
            failures.append(str(failed))
            handle.stop()
            handle = begun(Replacement(OLD, NEW))
    handle.stop()
    assert len(failures) == 3 and not Path(kill).exists(), failures
    found = list(read_changelog(tmp_path / "out"))
    assert_valid(found)
    assert_same_history(History.of(found, OLD.schema), spliced([(NEVER, OLD), (t, NEW)], given))
    folders = [path.name for path in (tmp_path / "state" / "everwhen").iterdir() if path.name.startswith("state")]
    assert sorted(folders) in (["state-1"], ["state", "state-1"])
