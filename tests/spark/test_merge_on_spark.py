"""Copies of a stream merged on Spark: what one process says, for any number of partitions."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.engine.files.run import run_files
from everwhen.formats.parquet import read_elements, write_elements
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.run_files import run_files_on_spark
from everwhen.spark.api.start import start
from everwhen.spark.sources.source import Disorder, SparkSource
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History, first_difference
from everwhen.stream.validity import check
from everwhen.testing import assert_valid, reorder
from spark.spark_epochs import read_epochs, write_epochs

COLUMNS = {"k": "string", "x": "int64"}
COPIES = {name: ew.source(name, COLUMNS) for name in "abc"}
SCHEMA = COPIES["a"].schema


def copies(rng: random.Random, gaps: bool = True) -> dict[str, list[ew.Element]]:
    """Three copies of a history: another order, other cuts; with gaps some lack events, and end early."""
    found = []
    for _ in range(40):
        vs = rng.randrange(40)
        ve = ew.INF if rng.random() < 0.05 else vs + rng.choice([1, 2, 3, 5, 8])
        found.append(ew.Insert(vs, ve, {"k": rng.choice("pqrs"), "x": rng.randrange(4)}))
    streams = {}
    for name in COPIES:
        held = [event for event in found if not gaps or rng.random() < 0.9]
        stream = reorder(History.of(held, SCHEMA), rng, disorder=8, infinite=True)
        streams[name] = stream[: rng.choice([len(stream), len(stream) // 2])] if gaps and name != "c" else stream
    return streams


def queries(since: dict[int, int]) -> dict[str, ew.Stream]:
    """Merges of events, of answers of a stage and of two, and answers over a merge."""
    merged = ew.lmerge(*COPIES.values(), since=since)
    counts = [each.group_by("k").agg(n=ew.count(), t=ew.sum("x")) for each in COPIES.values()]
    leader = ew.lmerge(*counts, since=since, policy=ew.MergePolicy(leader=True))
    far = [
        each.distinct().where(ew.col("x") > 0).group_by("x").agg(n=ew.count()).select("n") for each in COPIES.values()
    ]
    return {
        "events": merged,
        "groups": leader,
        "two stages": ew.lmerge(*far, since=since),
        "read": merged.where(ew.col("x") > 0).group_by("k").agg(n=ew.count(), hi=ew.max("x")),
    }


def epochs(elements: list[ew.Element], count: int) -> list[ElementBatch]:
    bounds = [len(elements) * at // count for at in range(count + 1)]
    return [batch_of(elements[a:b], SCHEMA) for a, b in pairwise(bounds)]


def streamed(
    spark: SparkSession, place: Path, seed: int, buckets: int, emit: str, count: int = 4, names: str = ""
) -> None:
    """Streams of copies with gaps, one of which joins late: after all epochs what one process says."""
    rng = random.Random(seed)
    cut = {name: epochs(stream, count) for name, stream in copies(rng).items()}
    plans = {name: plan for name, plan in queries({1: rng.randrange(5, 20)}).items() if name in (names or name)}
    for name, batches in cut.items():
        write_epochs(place / name, batches)
    frames = {name: read_epochs(spark, place / name, SCHEMA) for name in COPIES}
    sinks = {name: MemorySink() for name in plans}
    handle = start(
        plans, frames, sink=sinks, checkpoint=place / "state", trigger="available", emit=emit, buckets=buckets
    )
    assert handle.await_termination(300)
    local = ew.LocalRuntime(plans, emit)
    said: dict[str, list[ew.Element]] = {name: [] for name in plans}
    for at in range(count):
        for name, batch in local.push({each: cut[each][at] for each in COPIES}).items():
            said[name] += batch.elements()
    for name, sink in sinks.items():
        found = list(sink.elements())
        assert_valid(found)
        ours, theirs = History.of(said[name], plans[name].schema), History.of(found, plans[name].schema)
        assert first_difference(ours, theirs) is None, (name, seed)
        ends = [max(e.t for e in each if isinstance(e, ew.Cti)) for each in (said[name], found)]
        assert ends[0] == ends[1] > 10, name
    assert "LMerge" in handle.explain()


def test_streams_of_copies_are_merged_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    streamed(spark, tmp_path, 2, 2, "current", 2, "groups, read")


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["current", "ended", "final"])
@pytest.mark.parametrize("seed", range(4))
def test_many_streams_of_copies(spark: SparkSession, tmp_path: Path, seed: int, emit: str) -> None:
    streamed(spark, tmp_path, 100 + seed, (1, 2, 8, 5)[seed], emit)


def over_files(place: Path, seed: int, buckets: int, name: str, **options: Any) -> None:
    """Files of copies, some of which end early: the end of one is a leave."""
    rng = random.Random(seed)
    given = {}
    for each, elements in copies(rng).items():
        given[each] = str(place / f"{each}.parquet")
        write_elements([batch_of(elements, SCHEMA)], Path(given[each]), SCHEMA)
    query = queries({2: rng.randrange(3, 12)})[name]
    a, b = place / "local.parquet", place / "spark.parquet"
    run_files(query, given, str(a), **options)
    run_files_on_spark(query, given, str(b), buckets=buckets, **options)
    ours, theirs = (History.of(read_elements(path)) for path in (a, b))
    assert first_difference(ours, theirs) is None and len(ours)
    reports = [check(read_elements(path)) for path in (a, b)]
    assert reports[1].valid and reports[0].closed_up_to == reports[1].closed_up_to


def test_the_end_of_a_file_is_a_leave(spark: SparkSession, tmp_path: Path) -> None:
    over_files(tmp_path, 7, 2, "groups", batch=30)


@pytest.mark.slow
@pytest.mark.parametrize("name", queries({}))
@pytest.mark.parametrize("seed", range(3))
def test_many_files_of_copies(spark: SparkSession, tmp_path: Path, seed: int, name: str) -> None:
    over_files(tmp_path, seed, (1, 3, 8)[seed], name, emit=("final", "current", "ended")[seed], open=seed == 2, batch=9)


def test_a_silent_copy_is_never_forced(spark: SparkSession, tmp_path: Path) -> None:
    """`idle` of a copy means nothing: what would be believed of it would be followed."""
    write_epochs(tmp_path / "a", [batch_of([ew.Insert(t, t + 9, {"k": "p", "x": 1})], SCHEMA) for t in (1, 30)])
    write_epochs(tmp_path / "b", [batch_of([], SCHEMA)])
    frames = {name: read_epochs(spark, tmp_path / name, SCHEMA) for name in "ab"}
    ticking = iter(range(0, 10_000, 100))
    described = {"a": SparkSource("vs", end="ve", progress=Disorder(5), columns=("k", "x")), "b": SparkSource(
        "vs", end="ve", op="op", vnew="vnew", idle=1.0
    )}  # fmt: skip
    sink = MemorySink()
    handle = start(
        ew.lmerge(COPIES["a"], COPIES["b"]), frames, sources=described, sink=sink, checkpoint=tmp_path / "state",
        trigger="available", buckets=2,
    )  # fmt: skip
    handle._runner.clock = lambda: float(next(ticking))
    assert handle.await_termination(300)
    assert [report.idle for report in handle.recent] == [frozenset()] * 2
    assert handle.progress.progress == {"a": 25, "b": NEVER} and handle.progress.answered["out"] == 25
    assert handle.progress.holding == ("a", "b"), "any one of them would do"


def test_bounded_frames_are_not_merged(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "p", 1)], "vs bigint, k string, x bigint")
    with pytest.raises(ew.QueryError, match="a merge follows promises as they come"):
        ew.spark.run(ew.lmerge(COPIES["a"], COPIES["b"]), {"a": frame, "b": frame})
