"""Recursion on Spark, in all three ways: hashed by a kept column, in one partition, across exchanges."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.plan.stages.stages import cut
from everwhen.reference.evaluation import evaluate
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.start import start
from everwhen.spark.driver.cutover import check_replaceable
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from plans import STAGED, across
from spark.spark_epochs import read_epochs, write_epochs
from spark.test_spark_parity import SCHEMA, cut_into, random_elements, rounded

LOOPS = ("recursion with copied links", "recursion that counts derivations", "recursion joined with itself")
"""The first two keep a column, the last one does not."""


def check(
    spark: SparkSession, place: Path, queries: dict[str, ew.Stream], buckets: int, emit: str, epochs: int
) -> None:
    """Run queries over a stream with corrections; their histories are those of the definition."""
    rng = random.Random(buckets)
    histories, frames = {}, {}
    for s in "ST":
        histories[s], elements = random_elements(rng, 25, finite=False)
        write_epochs(place / s, cut_into(elements, epochs))
        frames[s] = read_epochs(spark, place / s, SCHEMA)
    sinks = {name: MemorySink() for name in queries}
    read = {node.name for query in queries.values() for node in walk(query.node) if isinstance(node, Source)}
    handle = start(
        queries,
        {s: frames[s] for s in read},
        sink=sinks,
        checkpoint=place / "checkpoint",
        trigger="available",
        emit=emit,
        buckets=buckets,
        snapshot_every=3,
    )
    handle.await_termination(600)
    assert handle.status == "stopped"
    for name, query in queries.items():
        out = list(sinks[name].elements())
        assert_valid(out)
        assert out[-1] == ew.Cti(ew.INF), name
        oracle = evaluate(query.node, histories)
        found = History.of(out, query.schema)
        for t in range(-6, 45):
            assert rounded(found.snapshot(t)) == rounded(oracle.at(t)), (name, t)


@pytest.mark.parametrize(
    ("buckets", "emit", "spread"),
    [
        (2, "current", LOOPS[:1]),  # the last one across: in the next test
        pytest.param(2, "current", LOOPS, marks=pytest.mark.slow),
        pytest.param(8, "final", LOOPS, marks=pytest.mark.slow),
        pytest.param(1, "all", LOOPS, marks=pytest.mark.slow),
    ],
)
def test_all_ways_say_the_same(
    spark: SparkSession, tmp_path: Path, buckets: int, emit: str, spread: tuple[str, ...]
) -> None:
    queries = {name: STAGED[name].build() for name in LOOPS}
    queries |= {f"{name}, across": across(queries[name]) for name in spread}
    check(spark, tmp_path, queries, buckets, emit, 2)


def test_a_loop_that_is_alone_at_its_first_level(spark: SparkSession, tmp_path: Path) -> None:
    """In the first round nothing comes to that level, and every partition has its turn all the same."""
    check(spark, tmp_path, {"out": across(STAGED["recursion joined with itself"].build())}, 2, "current", 2)


def test_a_loop_that_does_not_end_is_named(spark: SparkSession, tmp_path: Path) -> None:
    col = ew.col
    source = ew.source("S", {"k": "string", "x": "int64"})
    endless = ew.fixpoint(source, lambda r: r.select("k", x=col("x") + 1), name="up", max_level=3, across=True)
    write_epochs(tmp_path / "S", cut_into([ew.Insert(4, 9, {"k": "a", "x": 1})], 1))
    frames = {"S": read_epochs(spark, tmp_path / "S", SCHEMA)}
    handle = start(
        endless, frames, sink=MemorySink(), checkpoint=tmp_path / "checkpoint", trigger="available", buckets=2
    )
    with pytest.raises(
        ew.EvaluationError, match=r"'up' has not ended after 3 rounds .* at instant 4 the row \(k='a', x="
    ):
        handle.await_termination(300)


def test_a_query_across_partitions_is_not_replaced() -> None:
    run = PlanRun(cut({"out": across(STAGED["recursion"].build()).node}, {}, lambda expr, schema: True), {})
    with pytest.raises(ew.QueryError, match=r"a recursion ACROSS PARTITIONS \('r'\) cannot be replaced, nor take"):
        check_replaceable(run, run)


def test_explain_says_how_a_loop_runs_and_why(spark: SparkSession, tmp_path: Path) -> None:
    write_epochs(tmp_path / "S", cut_into([ew.Cti(ew.INF)], 1))
    write_epochs(tmp_path / "T", cut_into([ew.Cti(ew.INF)], 1))
    frames = {s: read_epochs(spark, tmp_path / s, SCHEMA) for s in "ST"}
    query = across(STAGED["recursion with copied links"].build())
    handle = start(query, frames, sink=MemorySink(), checkpoint=tmp_path / "c", trigger="available", buckets=2)
    handle.await_termination(300)
    assert "loop r across exchanges, as asked for: a round is a job over stages 1 to 2" in handle.explain()
