"""NEXMark q0 to q23 on Spark over dirty streams, judged by DuckDB over what happened, at every instant.

All 24 at 100,000 bids are the slow test: `pytest -m slow tests/spark/test_nexmark_suite_on_spark.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import everwhen as ew
from demo.nexmark_oracle import Oracle, edges
from demo.test_nexmark_suite import DIRTY
from everwhen.algebra import nodes as n
from everwhen.demo.nexmark.suite.streams import SCHEMAS, SuiteConfig, SuiteStreams
from everwhen.demo.nexmark.suite.texts import TEXTS, text
from everwhen.sinks.memory import MemorySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ("q1", "q5", "q7", "q8", "q11", "q13", "q15", "q18", "q19", "q23")
LARGE = SuiteConfig(bids=100_000, **DIRTY)


def written(place: Path, streams: SuiteStreams, epoch: int) -> None:
    """The streams as folders of files, one for each epoch."""
    from spark.spark_epochs import write_epochs

    epochs = list(streams.epochs(epoch))
    for name in SCHEMAS:
        write_epochs(place / name, [each[name] for each in epochs if name in each])


def answered(spark: SparkSession, inputs: Path, checkpoint: Path, names: Sequence[str]) -> Mapping[str, MemorySink]:
    """What queries that run as one job say."""
    from everwhen.spark.api.start import start
    from spark.spark_epochs import read_epochs

    queries = {name: ew.sql(text(name)) for name in names}
    reads = {node.name for query in queries.values() for node in n.walk(query.node) if isinstance(node, n.Source)}
    frames = {name: read_epochs(spark, inputs / name, SCHEMAS[name]) for name in sorted(reads)}
    sinks = {name: MemorySink() for name in queries}
    handle = start(queries, frames, sink=sinks, checkpoint=checkpoint, trigger="available", emit="all", buckets=2)
    assert handle.await_termination(1200)
    assert handle.status == "stopped"
    return sinks


@pytest.mark.slow
def test_a_sample_in_one_job_is_duckdb_s(spark: SparkSession, tmp_path: Path) -> None:
    streams = SuiteStreams(SuiteConfig(bids=160, step=290, lateness=12, **DIRTY))
    written(tmp_path / "inputs", streams, 90)
    judge = Oracle(streams)
    for name, sink in answered(spark, tmp_path / "inputs", tmp_path / "checkpoint", SAMPLE).items():
        assert edges(sink.batches()) == judge.edges(name), name


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("nexmark")
    written(place, SuiteStreams(LARGE), 10_000)
    return place


@pytest.fixture(scope="module")
def judge() -> Oracle:
    return Oracle(SuiteStreams(LARGE))


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_hundred_thousand_bids_on_spark_are_duckdb_s(
    spark: SparkSession, tmp_path: Path, large: Path, judge: Oracle, name: str
) -> None:
    sinks = answered(spark, large, tmp_path / "checkpoint", [name])
    found = edges(sinks[name].batches())
    assert found and found == judge.edges(name)
