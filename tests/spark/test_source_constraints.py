"""What a query declares of its sources is checked on Spark as in one process, also where rows are merged in the JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.sinks import MemorySink
from everwhen.spark.api.run_bounded import run
from spark.test_bad_input import DDL, Row, begin, failure, finish, write

COLUMNS = {"k": "string", "x": "int64"}
TICKS = ew.source("S", COLUMNS, chronons=True)
BOTH = ew.source("S", COLUMNS, chronons=True, insert_only=True)
GOOD: list[Row] = [
    ("insert", 1, 2, None, "a", 1), ("insert", 3, 4, None, "a", 2), ("insert", 5, 6, None, "b", 3),
    ("adjust", 5, 6, 5, "b", 3), ("insert", 7, 8, None, "a", 4), ("cti", 9, None, None, None, None),
]  # fmt: skip
LONG: Row = ("insert", 20, 25, None, "a", 1)


def test_lifetimes_of_more_than_a_tick_stop_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    query = TICKS.rows(2, partition_by="k").group_by("k").agg(total=ew.sum("x"))
    sink = MemorySink()
    write(tmp_path / "S", 0, GOOD)
    finish(begin(spark, tmp_path, sink, query))
    write(tmp_path / "S", 1, [LONG])
    text = failure(begin(spark, tmp_path, sink, query))
    assert text.startswith("S: the lifetime [20, 25) on a source that is declared to live one tick")


def test_declarations_hold_where_rows_are_merged_before_a_guard(spark: SparkSession, tmp_path: Path) -> None:
    """Insert-only chronons are windowed and summed by Spark itself."""
    query = BOTH.range(5).group_by("k").agg(total=ew.sum("x"))
    write(tmp_path / "S", 0, [GOOD[0], ("adjust", 1, 2, 1, "a", 1)])
    assert "an adjust on a source that is declared insert-only" in failure(begin(spark, tmp_path, MemorySink(), query))


def test_declarations_hold_in_a_bounded_pass(spark: SparkSession) -> None:
    query = TICKS.rows(2)
    good = run(query, {"S": spark.createDataFrame(GOOD, DDL)}, form="snapshot", at=7).collect()
    assert sorted(row.x for row in good) == [2, 4]
    with pytest.raises(PySparkException, match=r"\[20, 25\) on a source that is declared to live one tick"):
        run(query, {"S": spark.createDataFrame([*GOOD, LONG], DDL)}).collect()
