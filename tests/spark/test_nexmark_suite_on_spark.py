"""A sample of NEXMark q0 to q23 on Spark, as one job over dirty streams, judged by DuckDB."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import everwhen as ew
from demo.nexmark_oracle import EVENTS, Oracle, plain
from demo.test_nexmark_suite import DIRTY, snapshot
from everwhen.algebra import nodes as n
from everwhen.demo.nexmark.suite.streams import SCHEMAS, SuiteConfig, SuiteStreams
from everwhen.demo.nexmark.suite.texts import text
from everwhen.sinks.memory import MemorySink
from everwhen.stream.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ("q1", "q5", "q7", "q8", "q11", "q13", "q15", "q18", "q23")


@pytest.mark.slow
def test_a_sample_on_spark_is_duckdb_s(spark: SparkSession, tmp_path: Path) -> None:
    from everwhen.spark.api.start import start
    from spark.spark_epochs import read_epochs, write_epochs

    streams = SuiteStreams(SuiteConfig(bids=160, step=290, lateness=12, **DIRTY))
    judge = Oracle(streams)
    queries = {name: ew.sql(text(name)) for name in SAMPLE}
    epochs = list(streams.epochs(90))
    reads = {node.name for query in queries.values() for node in n.walk(query.node) if isinstance(node, n.Source)}
    frames = {}
    for name in sorted(reads):
        write_epochs(tmp_path / name, [epoch[name] for epoch in epochs if name in epoch])
        frames[name] = read_epochs(spark, tmp_path / name, SCHEMAS[name])
    sinks = {name: MemorySink() for name in queries}
    handle = start(
        queries, frames, sink=sinks, checkpoint=tmp_path / "checkpoint", trigger="available", emit="all", buckets=2
    )
    handle.await_termination(600)
    assert handle.status == "stopped"
    bids = streams.tables()["Bid"].column("vs").to_pylist()
    for name, query in queries.items():
        history = History.of(sinks[name].elements(), query.schema)
        if name in EVENTS:
            counted = Counter(history.coalesced().events())
            found = Counter({(vs, ve, *plain(row)): times for (vs, ve, row), times in counted.items()})
            assert found == judge.events(name), name
            continue
        for t in (*bids[::40], bids[-1]):
            assert snapshot(history, t) == judge.at(name, t), name
