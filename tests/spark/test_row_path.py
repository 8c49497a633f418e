"""The way of a row on Spark, counted in files: from the DataFrame of an epoch to its sink.

What is counted: the files of Everwhen in which, during one epoch of a grouped sum (the third, so nothing is planned or
compiled any more), a function is called that is handed rows: a DataFrame, Arrow or NumPy data, elements, changes or
bytes of them, alone or in a list, a dictionary or a dataclass.  Driver and workers are counted together, and so are
threads of workers that do the step for others.

What is not: `core/`, `errors.py` and `__init__.py`, whose functions are definitions that everybody uses, and the
packages of the engine (ENGINE), through which a row goes on Spark as it goes in process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

import everwhen as ew
from everwhen.rows.changes import Changes
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.spark.api.start import start
from everwhen.spark.driver import epoch_job
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.sources.source import Disorder, SparkSource
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.stage_program import EpochTask
from everwhen.stream.element_batch import ElementBatch

MOST = 20
ENGINE = ("engine", "operators", "containers", "compiled", "rows", "columns", "punctuation", "stream")
SHARED = ("core",)
TRACED = 2
"""The epoch whose rows are followed."""
CARRIERS = (
    DataFrame, pa.Table, pa.RecordBatch, pa.ChunkedArray, pa.Array, pa.Buffer, np.ndarray, memoryview, ElementBatch,
    Changes,
)  # fmt: skip


def carries(value: object, depth: int = 3) -> bool:
    """Whether a value is rows, or holds some."""
    if isinstance(value, CARRIERS):
        return True
    if depth == 0:
        return False
    if isinstance(value, list | tuple):
        return any(carries(each, depth - 1) for each in value[:64])
    if isinstance(value, dict):
        return any(carries(each, depth - 1) for each in list(value.values())[:8])
    if is_dataclass(value):
        return any(carries(getattr(value, field.name, None), depth - 1) for field in fields(value))
    return False


def following(place: str) -> Callable[[FrameType, str, Any], None]:
    """A profiler that leaves a file in a folder for every function of ours that is handed rows."""
    seen: set[CodeType] = set()
    package = os.path.dirname(ew.__file__) + os.sep

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(package):
            return
        taken = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[:taken]
        sys.setprofile(None)
        try:
            if any(carries(frame.f_locals.get(name)) for name in names if name != "self"):
                seen.add(code)
                Path(place, code.co_filename.removeprefix(package).replace(os.sep, "+")).touch()
        finally:
            sys.setprofile(profile)

    return profile


def ways(place: Path) -> tuple[list[str], list[str]]:
    """The files that were found: those that count, and those of the engine."""
    found = sorted(path.name.replace("+", "/") for path in place.iterdir())
    plain = [name for name in found if not name.endswith("__init__.py") and name != "errors.py"]
    engine = [name for name in plain if name.split("/")[0] in ENGINE]
    return [name for name in plain if name.split("/")[0] not in (*ENGINE, *SHARED)], engine


def test_a_row_passes_few_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, found = tmp_path / "in", tmp_path / "found"
    inputs.mkdir()
    found.mkdir()
    place = str(found)
    for epoch in range(TRACED + 1):
        at = [10 * epoch + i // 4 for i in range(40)]
        table = pa.table({"vs": at, "k": [f"k{i % 5}" for i in range(40)], "x": list(range(40))})
        pq.write_table(table, inputs / f"{epoch}.parquet")
        os.utime(inputs / f"{epoch}.parquet", (1_700_000_000 + epoch,) * 2)

    register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests

    class Followed(EpochTask):
        def run(self, batches: Iterator[pa.RecordBatch], context: EpochContext, at: int) -> Iterator[pa.RecordBatch]:
            profile = following(place) if context.epoch == TRACED else None
            threading.setprofile(profile)  # type: ignore[arg-type]  # None ends it
            sys.setprofile(profile)
            try:
                yield from EpochTask.run(self, batches, context, at)
            finally:
                sys.setprofile(None)

    monkeypatch.setattr(epoch_job, "EpochTask", Followed)
    run = EpochRunner._run

    def followed(self: EpochRunner, frame: DataFrame, epoch: int) -> None:
        sys.setprofile(following(place) if epoch == TRACED else None)
        try:
            run(self, frame, epoch)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(EpochRunner, "_run", followed)
    query = ew.source("S", {"k": "string", "x": "int64"}).range(6).group_by("k").agg(total=ew.sum("x"))
    stream = spark.readStream.schema("vs bigint, k string, x bigint").option("maxFilesPerTrigger", 1)
    handle = start(
        query, {"S": stream.parquet(str(inputs))}, sink=ChangelogSink(tmp_path / "out"), checkpoint=tmp_path / "state",
        sources={"S": SparkSource("vs", columns=["k", "x"], progress=Disorder(4))}, trigger="available", buckets=2,
    )  # fmt: skip
    handle.await_termination(300)
    assert sum(map(len, read_changelog(tmp_path / "out"))) > 40
    ours, engine = ways(found)
    assert {"spark/driver/epoch_runner.py", "spark/worker/stage_program.py", "sinks/changelog.py"} <= set(ours)
    assert "operators/sweep/aggregate.py" in engine
    told = "\n".join(["a row passes these files:", *ours, f"and {len(engine)} of the engine:", *engine])
    print(told)
    assert len(ours) <= MOST, told
