"""Connectors on Spark: the same input as in process, exactly once through a restart; sinks take what comes."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import everwhen as ew
from connectors.kafka_cluster import Cluster, mock_cluster
from everwhen.connectors.registry import (
    SourcePlace,
    source_connector,
    source_options,
)
from everwhen.core.schema import Schema
from everwhen.jobs.plan import job_plan
from everwhen.jobs.spark_job import SparkJob
from everwhen.spark.sources.live_stream import LiveSource, LiveStreamReader

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])
BIDS = ew.source("Bid", {"item": "int64", "name": "string"})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with mock_cluster() as found:
        yield found


def opened(spark: SparkSession, name: str, *arguments: Any, time: str | None = None, **named: Any) -> Any:
    connector = source_connector(name)
    options = source_options(connector, arguments, named)
    return connector.on_spark(options, SourcePlace("Bid", SCHEMA, time=time), spark)


def put(cluster: Cluster, first: int, count: int) -> None:
    for part in range(4):
        rows = [{"item": i, "name": str(part), "ts": i} for i in range(first, first + count)]
        cluster.put("spark-bids", rows, part)


@pytest.mark.slow
def test_a_job_from_kafka_to_delta_goes_on_where_it_was(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "items"), pa.table({"id": pa.array([1, 2, 3]), "kind": ["a", "b", "a"]}))
    text = f"""
        CREATE STREAM Bid (item BIGINT, name TEXT, ts BIGINT) ORDERED BY ts
            SOURCE kafka('{cluster.servers}', 'spark-bids', disorder = '5 ms');
        CREATE CONSTANT RELATION Item (id BIGINT, kind TEXT) SOURCE delta('{tmp_path}/items');
        CREATE SINK rows INTO delta('{tmp_path}/out', form = 'elements')
            AS SELECT b.item, b.name FROM Bid b, Item i WHERE i.id = b.item % 4"""
    for turn in range(2):
        put(cluster, 10 * turn, 10)
        job = SparkJob(job_plan(text, unbounded=True), tmp_path / "state", trigger="available", buckets=1)
        assert job.run() == "done"
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    items = Counter((row["item"], row["name"]) for row in rows if row["op"] == "insert")
    assert items == Counter((i, str(part)) for i in range(20) if i % 4 for part in range(4))
    assert max(row["vs"] for row in rows if row["op"] == "cti") == 14


def test_the_feed_of_a_table_brings_its_adjusts(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "prices")
    table = pa.table({"item": pa.array([1, 2]), "name": ["a", "b"]})
    write_deltalake(path, table, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(path).update(updates={"name": "'c'"}, predicate="item = 1")
    sink = ew.spark.MemorySink()
    found = opened(spark, "delta", path, key="item")
    handle = ew.spark.start(
        BIDS, {"Bid": found.frame}, sources={"Bid": found.source}, sink=sink,
        checkpoint=tmp_path / "state", trigger="available", buckets=1,
    )  # fmt: skip
    assert handle.await_termination()
    living = Counter(row for _, ve, row in sink.history().multiset if ve == 2**63 - 1)
    assert living == Counter([(1, "c"), (2, "b")]) and len(sink.history().multiset) == 3


def reader_of(place: SourcePlace, name: str, *arguments: Any, most: int = 100) -> LiveStreamReader:
    connector = source_connector(name)
    opener = partial(connector.open, source_options(connector, arguments, {}), place)
    text = base64.b64encode(cloudpickle.dumps(opener)).decode()
    source = LiveSource({"input": text, "most": str(most), "reader": "test"})
    reader = source.simpleStreamReader(source.schema())
    assert isinstance(reader, LiveStreamReader)
    return reader


def test_an_epoch_takes_what_is_there_up_to_its_limit_and_any_column_has_a_name(tmp_path: Path) -> None:
    """A file is read in pieces of a megabyte; and columns may be called as those of elements are."""
    rows = [json.dumps({"vs": i, "row": {"op": i, "vs": "x" * 100}}) for i in range(30_000)]
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(rows) + "\n")
    place = SourcePlace("Bid", Schema.of([("op", pa.int64()), ("vs", pa.string())]))
    reader = reader_of(place, "file", str(file), most=25_000)
    reader.prepareForTriggerAvailableNow()
    end, found = reader.initialOffset(), []
    sizes = []
    while True:
        batches, after = reader.read(end)
        taken = [row["c0"] for batch in batches for row in batch.to_pylist()]
        if after == end:
            break
        found, end = found + taken, after
        sizes.append(len(taken))
    assert found == list(range(30_000)) and sizes[0] == 25_000
    with file.open("a") as more:
        more.write(rows[0] + "\n")
    assert reader.read(end)[1] == end  # only what was there was asked for
    reader._close()


def test_offsets_are_positions_and_a_batch_is_read_again(cluster: Cluster) -> None:
    cluster.put("spark-again", [{"item": i, "name": "x", "ts": i} for i in range(5)])
    reader = reader_of(SourcePlace("Bid", SCHEMA, time="ts"), "kafka", cluster.servers, "spark-again")
    start = reader.initialOffset()
    rows: list[Any] = []
    end = start
    while len(rows) < 5:
        batches, end = reader.read(end)
        rows += [row for batch in batches for row in batch.to_pylist()]
    again = [row for batch in reader.readBetweenOffsets(start, end) for row in batch.to_pylist()]
    assert again == rows and [row["vs"] for row in rows] == list(range(5))
    assert json.loads(end["position"])["offsets"]["0"] == 5
    reader.commit(end)
    reader._close()
