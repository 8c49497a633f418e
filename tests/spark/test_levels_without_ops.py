"""Levels that wait or forget over frames of plain rows: no op column, progress by a bound of the disorder."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.connectors.sinks.memory import MemorySink
from everwhen.model.element import Cti, Element, Insert
from everwhen.model.elements import batch_of
from everwhen.model.schema import Schema
from everwhen.model.time import INF
from everwhen.runtime.local import LocalRuntime
from everwhen.runtime.spark.source import Disorder, SparkSource
from everwhen.runtime.spark.start import start
from everwhen.testing import assert_same_history, assert_valid

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
S = ew.source("S", SCHEMA, insert_only=True, chronons=True)
QUERIES = {
    "merged in Spark": S.range(4, slide=4).group_by("k").agg(total=ew.sum("x"), n=ew.count()),
    "crossing as they are": S.range(3).group_by("k").agg(m=ew.max("x"), d=ew.count_distinct("x")),
}
BOUND = 6


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize(("block", "remember"), [(3, INF), (0, 2), (2, 4)])
def test_plain_rows(spark: SparkSession, tmp_path: Path, query: ew.Stream, block: int, remember: int) -> None:
    rng = random.Random(block)
    place, expected, top = tmp_path / "S", [], 0
    place.mkdir()
    level = ew.consistency(block, remember)
    runtime = LocalRuntime(query, consistency=level)
    for epoch in range(4):
        times = sorted(max(5 * epoch + rng.randrange(-5, 5), 0) for _ in range(8))
        rows: list[Element] = [Insert(t, t + 1, {"k": rng.choice("ab"), "x": rng.randrange(9)}) for t in times]
        top = max(top, times[-1])
        expected += runtime.push({"S": batch_of([*rows, Cti(top - BOUND)], SCHEMA)})["out"].elements()
        shuffled = rng.sample(rows, len(rows))
        columns = {name: [e.row[name] for e in shuffled] for name in "kx"}
        table = pa.table({"t": pa.array([e.vs for e in shuffled], pa.int64()), **columns})
        pq.write_table(table, place / f"{epoch}.parquet")
        os.utime(place / f"{epoch}.parquet", (1_700_000_000 + epoch,) * 2)  # Spark takes the oldest file first
    frame = spark.readStream.schema("t bigint, k string, x bigint").option("maxFilesPerTrigger", 1).parquet(str(place))
    sink = MemorySink()
    handle = start(
        query, {"S": frame}, sink=sink, checkpoint=tmp_path / "checkpoint", trigger="available", consistency=level,
        buckets=2, sources={"S": SparkSource("t", progress=Disorder(BOUND))},
    )  # fmt: skip
    handle.await_termination(120)
    said = [e for batch in sink.epochs.values() for e in batch.elements()]
    assert_valid(said)
    last = [max((e.t for e in each if isinstance(e, Cti)), default=None) for each in (said, expected)]
    assert last[0] == last[1]
    assert_same_history(said, expected)
