"""Late rows are counted over the life of a query, and it is said when they are many."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from everwhen.core.consistency import consistency
from everwhen.sinks import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.driver.epoch_log import EpochState
from everwhen.spark.driver.late_rows import LateWarnings, counted, late_words
from everwhen.spark.sources.source import Disorder, ResolvedSource, SparkSource, resolve
from spark.test_bad_input import PLAIN, TOTALS, begin, finish, write

DDL = "t bigint, k string, x bigint"


def source(late: str) -> ResolvedSource:
    frame = StructType().add("t", "long").add("k", "string").add("x", "long")
    return resolve(frame, "S", SparkSource("t", progress=Disorder(2), late=late))  # type: ignore[arg-type]


def test_totals_go_on_from_the_epoch_before() -> None:
    known = EpochState()
    for fed, late in ((50, 0), (50, 30), (100, 70)):
        known = counted(known, EpochState(sources={"S": fed}), {"S": fed}, {"S": late} if late else {}, {})
    assert (known.rows, known.late, known.sources) == ({"S": 200}, {"S": 100}, {"S": 100})
    assert late_words(known) == "S 100 of 200 rows (50 %)"
    assert late_words(EpochState(rows={"S": 5})) == ""


def test_what_a_level_gives_up_as_late_is_counted_once() -> None:
    known = counted(EpochState(), EpochState(), {"S": 10}, {}, {"S": {"late": 4, "forgotten": 2}})
    known = counted(known, EpochState(), {"S": 10}, {}, {"S": {"late": 7, "forgotten": 2}})
    assert (known.rows, known.late) == ({"S": 27}, {"S": 7})


@pytest.mark.parametrize(
    ("totals", "warned"),
    [
        ([(99, 100)], []),  # too few
        ([(100, 10_000)], []),  # too small a share
        ([(101, 10_000)], [101]),
        ([(100, 200), (150, 300), (199, 400), (200, 500), (399, 600), (401, 700)], [100, 200, 401]),
    ],
)
def test_a_warning_comes_once_and_when_they_have_doubled(
    totals: Sequence[tuple[int, int]], warned: Sequence[int], caplog: pytest.LogCaptureFixture
) -> None:
    warnings = LateWarnings({"S": source("drop")}, lambda name: f"late/{name}")
    for late, rows in totals:
        warnings.look(EpochState(rows={"S": rows}, late={"S": late}))
    assert [int(record.getMessage().split(": ")[1].split(" of ")[0]) for record in caplog.records] == warned
    for record in caplog.records:
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith("source 'S': ")
        assert "dropped; those that were dropped are in late/S" in record.getMessage()
        assert "Disorder(…)), 2 ticks now), let its files" in record.getMessage()


def late_files(place: Path) -> None:
    """Files read out of order: half of the rows lie behind what the first file has promised."""
    for at, first in enumerate((1_000, 0, 2_000, 100)):
        write(place / "S", at, [(first + i % 50, "a", 1) for i in range(150)], PLAIN)


def run(spark: SparkSession, place: Path, **options: object) -> Handle:
    described = SparkSource("t", progress=Disorder(60), late="drop")
    return finish(begin(spark, place, MemorySink(), TOTALS, ddl=DDL, sources={"S": described}, **options))


def test_files_read_out_of_order_are_noticed_and_the_count_survives_a_restart(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late_files(tmp_path)
    handle = run(spark, tmp_path)
    assert [dict(report.late_total) for report in handle.recent] == [{}, {"S": 150}, {"S": 150}, {"S": 300}]
    assert handle.recent[-1].rows_total == {"S": 600} and handle.late == {"S": 300}
    told = [record.getMessage() for record in caplog.records if record.name.endswith("late_rows")]
    assert [text.split(" so far")[0] for text in told] == [
        "source 'S': 150 of 300 rows (50 %)",
        "source 'S': 300 of 600 rows (50 %)",
    ]
    write(tmp_path / "S", 4, [(2_100, "a", 1), (5, "a", 1)], PLAIN)
    again = run(spark, tmp_path)
    assert again.late == {"S": 301} and again.recent[-1].late == {"S": 1}


def test_what_comes_too_late_for_a_level_is_counted_too(spark: SparkSession, tmp_path: Path) -> None:
    late_files(tmp_path)
    handle = run(spark, tmp_path, consistency=consistency("10ms", "100ms"))
    assert handle.late == {"S": 300}
    assert handle.dropped["S"]["late"] == 300
