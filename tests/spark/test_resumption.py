"""A query that is started again with parts that do not fit together says so, and loses nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from everwhen.engine.local import LocalRuntime
from everwhen.errors import SinkLostError, StateError
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.spark.api.start import start
from everwhen.spark.driver.epoch_log import EpochDecision, EpochLog, EpochState
from everwhen.spark.state.state_store import PartitionStore
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from spark.fault_driver import PARTITIONS, SCHEMA, SNAPSHOT_EVERY, epochs, go_on, queries
from spark.spark_epochs import read_epochs, write_epochs

FIRST, ALL = 3, 5


@pytest.fixture
def half(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A query that has done the first epochs, and whose input goes on."""
    write_epochs(tmp_path / "S", epochs(ALL, 7)[:FIRST])
    go_on(spark, tmp_path)
    write_epochs(tmp_path / "S", epochs(ALL, 7)[FIRST:], FIRST)
    yield tmp_path


def said(place: Path) -> list[str]:
    return [str(element) for batch in read_changelog(place / "changelog") for element in batch.elements()]


def test_spark_with_an_older_copy_of_its_offsets_is_refused(spark: SparkSession, half: Path) -> None:
    before = said(half)
    sparks = half / "checkpoint" / "spark"
    kept = half / "kept"
    shutil.copytree(sparks, kept)
    for part in ("offsets", "commits"):
        for name in (str(FIRST - 1), f".{FIRST - 1}.crc"):
            (sparks / part / name).unlink(missing_ok=True)
    told = rf"checkpoint.*: epoch {FIRST - 1} is done already, and Spark has planned it anew with other offsets"
    with pytest.raises(StateError, match=told) as caught:
        go_on(spark, half)
    assert str(half / "checkpoint") in str(caught.value)
    assert "Restore the whole checkpoint" in str(caught.value)
    assert said(half) == before
    # what was restored in part is restored as a whole: nothing was lost by the attempt
    shutil.rmtree(sparks)
    shutil.copytree(kept, sparks)
    go_on(spark, half)
    assert ChangelogSink(half / "changelog").committed() == ALL - 1


def test_a_changelog_that_vanishes_between_two_runs_is_not_begun_anew(spark: SparkSession, half: Path) -> None:
    (half / "changelog").rename(half / "elsewhere")
    with pytest.raises(SinkLostError, match=r"epoch 0 of the changelog is gone .* put it back"):
        go_on(spark, half)
    assert not (half / "changelog").exists()
    (half / "elsewhere").rename(half / "changelog")
    (half / "changelog" / "_changelog.json").rename(half / "header")
    with pytest.raises(SinkLostError, match=r"_changelog.json, the header of the changelog, is gone"):
        go_on(spark, half)
    assert not (half / "changelog" / "_changelog.json").exists()
    (half / "header").rename(half / "changelog" / "_changelog.json")
    last = half / "changelog" / "_epochs" / f"{FIRST - 1}.json"
    text = last.read_text()
    last.unlink()
    with pytest.raises(
        SinkLostError, match=rf"'out' has epochs up to {FIRST - 2}, and Spark begins with epoch {FIRST}"
    ):
        go_on(spark, half)
    last.write_text(text)
    go_on(spark, half)
    assert [json.loads(path.read_text())["epoch"] for path in sorted((half / "changelog/_epochs").iterdir())] == [
        *range(ALL)
    ]


def test_a_changelog_that_vanishes_while_the_query_runs_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    batches = epochs(ALL, 7)
    write_epochs(tmp_path / "S", batches[:FIRST])
    handle = start(
        queries()["alike"],
        {"S": read_epochs(spark, tmp_path / "S", SCHEMA)},
        sink=ChangelogSink(tmp_path / "changelog"),
        checkpoint=tmp_path / "checkpoint",
        buckets=PARTITIONS,
        snapshot_every=SNAPSHOT_EVERY,
    )
    try:
        handle.process_available()
        (tmp_path / "changelog").rename(tmp_path / "elsewhere")
        write_epochs(tmp_path / "S", batches[FIRST:], FIRST)
        with pytest.raises(SinkLostError, match=rf"epoch {FIRST - 1} of the changelog is gone .* put it back"):
            handle.process_available()
    finally:
        handle.stop()
    assert not (tmp_path / "changelog" / "_changelog.json").exists()
    shutil.rmtree(tmp_path / "changelog")  # parts that tasks had written before
    (tmp_path / "elsewhere").rename(tmp_path / "changelog")
    go_on(spark, tmp_path)
    assert ChangelogSink(tmp_path / "changelog").committed() == ALL - 1
    expected = LocalRuntime(queries()["alike"])
    answers = [expected.push({"S": batch})["out"] for batch in batches]
    assert_same_history(
        History.of(read_changelog(tmp_path / "changelog"), queries()["alike"].schema),
        History.of(answers, queries()["alike"].schema),
    )


def test_an_epoch_that_is_not_done_is_withdrawn_with_all_rounds_of_its_loops(tmp_path: Path) -> None:
    journal = EpochLog(str(tmp_path))
    decided = EpochDecision(frozenset(), 1.0, {})
    journal.begun(1, decided, {2: 5})
    for stage, versions in ((1, (0, 1)), (2, range(9)), (3, (0, 1))):
        store = PartitionStore(journal.state_root, stage, 0)
        for version in versions:
            store.publish_log(version, pa.table({"x": [version]}), {})
            store.publish_snapshot(version, {})
    journal.begun(1, decided, {2: 5})
    left = {path.name for path in Path(journal.state_root, "stage=2", "bucket=0").iterdir()}
    assert left == {f"{kind}-{step:012d}" for kind in ("log", "snapshot") for step in range(5)}
    for stage in (1, 3):
        found = {path.name for path in Path(journal.state_root, f"stage={stage}", "bucket=0").iterdir()}
        assert found == {"log-000000000000", "snapshot-000000000000"}


def test_an_epoch_that_is_not_done_may_be_planned_anew(tmp_path: Path) -> None:
    journal = EpochLog(str(tmp_path))
    offsets = tmp_path / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{}\n1")
    decided = EpochDecision(frozenset({"S"}), 1.0, {})
    assert journal.begun(0, decided) == decided
    (offsets / "0").write_text("v1\n{}\n2")
    journal.check_plan(0)
    assert journal.begun(0, EpochDecision(frozenset(), 2.0, {})) == decided, "what was decided stays"
    journal.done(0, EpochState())
    journal.check_plan(0)
    (offsets / "0").write_text("v1\n{}\n3")
    with pytest.raises(StateError, match="epoch 0 is done already, and Spark has planned it anew"):
        journal.check_plan(0)


def test_a_journal_of_the_version_before_is_read(tmp_path: Path) -> None:
    journal = EpochLog(str(tmp_path))
    folder = tmp_path / "everwhen" / "epochs"
    folder.mkdir(parents=True)
    (folder / "000000000000.begun").write_text('{"idle": [], "now": 1.0, "level": {}}')
    (folder / "000000000000.done").write_text('{"sources": {"S": 3}, "queries": {}, "seen": {}, "said": {}}')
    journal.check_plan(0)
    assert journal.known(0) == EpochState({"S": 3}, {}, {}, {}, {}, {})
