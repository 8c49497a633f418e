"""Two jobs on one checkpoint: the second is refused and told who is the first, which goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.errors import InUseError, QueryError
from everwhen.sinks import MemorySink
from spark.test_bad_input import END, PATIENCE, begin, finish, five_epochs, same, write


def test_the_second_job_is_refused_and_the_first_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "S", 0, [("insert", 1, 5, None, "a", 2)])
    sink, other = MemorySink(), MemorySink()
    first = begin(spark, tmp_path, sink, trigger=None)
    try:
        first.process_available()
        with pytest.raises(
            InUseError, match=rf"checkpoint {tmp_path}/checkpoint is in use by .*process {os.getpid()} on"
        ):
            begin(spark, tmp_path, other)
        assert other.committed() == -1
        write(tmp_path / "S", 1, [("insert", 6, 7, None, "a", 3), END])
        first.process_available()
        assert first.is_active and sink.committed() == 1
    finally:
        first.stop()
    same(sink, {"a": [(1, 5, 2), (6, 7, 3)]})


def test_a_job_that_ended_or_could_not_be_started_holds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    five_epochs(tmp_path)
    ended = begin(spark, tmp_path, MemorySink())
    assert ended.stream.awaitTermination(int(PATIENCE)), "past the handle, which so does not know"
    with pytest.raises(QueryError, match="holds the state of another query"):
        begin(spark, tmp_path, MemorySink(), ew.source("S", {"k": "string", "x": "int64"}).distinct())
    sink = MemorySink()
    write(tmp_path / "S", 5, [("insert", 9, 10, None, "b", 1)])
    failing = begin(spark, tmp_path, sink)
    with pytest.raises(ew.EverwhenError):  # the stream had ended
        failing.await_termination(PATIENCE)
    write(tmp_path / "S", 5, [("cti", None, None, None, None, None)])
    finish(begin(spark, tmp_path, sink))
