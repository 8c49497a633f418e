"""A query that is replaced while it runs on Spark: the old answer before T, the new one from T on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.sinks.base import EpochSink
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.replacing import Replacement
from everwhen.spark.api.start import start
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from spark.spark_epochs import read_epochs, write_epochs

BIDS = ew.source("Bid", {"item": "string", "price": "int64"})
SCHEMA = BIDS.schema
OLD = BIDS.range(10).group_by("item").agg(n=ew.count(), v=ew.max("price"))
NEW = BIDS.where(ew.col("price") > 3).range(5).group_by("item").agg(n=ew.count(), v=ew.min("price"))


def events(seed: int, count: int = 60) -> list[ew.Insert]:
    rng = random.Random(seed)
    return [
        ew.Insert(vs, vs + rng.choice([1, 3, 20]), {"item": rng.choice("pqr"), "price": rng.randrange(9)})
        for vs in range(count)
    ]


def epochs(given: list[ew.Insert], seed: int, count: int) -> list[ElementBatch]:
    """A stream of these events with disorder and corrections, in so many pieces."""
    elements = reorder(History.of(given, SCHEMA), random.Random(seed), disorder=6, close=True, infinite=False)
    bounds = [len(elements) * at // count for at in range(count + 1)]
    return [batch_of(elements[a:b], SCHEMA) for a, b in pairwise(bounds)]


def spliced(parts: Sequence[tuple[int, ew.Stream]], given: list[ew.Insert]) -> History:
    """The answers of queries, each from an instant on, up to the next one."""
    ends = [since for since, _ in parts[1:]] + [ew.INF]
    found = []
    for (since, query), until in zip(parts, ends, strict=True):
        history = ew.reference.history(query.node, {"Bid": History.of(given, SCHEMA)})
        for row, levels in history.level_form.items():
            named = dict(zip(query.schema.names, row, strict=True))
            for _, lo, hi in levels:
                if max(lo, since) < min(hi, until):
                    found.append(ew.Insert(max(lo, since), min(hi, until), named))
    return History.of(found, parts[0][1].schema)


def begun(
    spark: SparkSession, place: Path, sink: EpochSink, query: ew.Stream | Replacement = OLD, **more: object
) -> Handle:
    given = {"buckets": 2, "snapshot_every": 2, **more}
    return start(
        query, {"Bid": read_epochs(spark, place / "Bid", SCHEMA)}, sink=sink, checkpoint=place / "state", **given
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("emit", ["final", pytest.param("current", marks=pytest.mark.slow)])
def test_the_old_answer_before_and_the_new_one_from_there(spark: SparkSession, tmp_path: Path, emit: str) -> None:
    sink, given = MemorySink(), events(3)
    cut = epochs(given, 4, 6)
    write_epochs(tmp_path / "Bid", cut[:2])
    handle = begun(spark, tmp_path, sink, emit=emit)
    handle.process_available()
    t = handle.replace(NEW)
    assert t >= handle.progress.answered["out"]
    write_epochs(tmp_path / "Bid", cut[2:], first=2)
    handle.process_available()
    assert handle.replaced_at is None
    handle.stop()
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    assert_same_history(History.of(found, OLD.schema), spliced([(NEVER, OLD), (t, NEW)], given))


def test_what_cannot_take_over_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    sink, given = MemorySink(), events(5)
    cut = epochs(given, 6, 5)
    write_epochs(tmp_path / "Bid", cut[:1])
    handle = begun(spark, tmp_path, sink)
    handle.process_available()
    item = BIDS.group_by("item")
    for query, why in (
        (item.agg(n=ew.count()), r"\(item string, n int64\) instead of \(item string, n int64, v int64\)"),
        (item.agg(n=ew.count(), v=ew.avg("price")), "v double.* instead of .*v int64"),
        (BIDS.rows(2).group_by("item").agg(n=ew.count(), v=ew.max("price")), "no instant is known.*all of the past"),
        (ew.source("Other", {"item": "string", "price": "int64"}).group_by("item").agg(n=ew.count(), v=ew.max("price")),
         "reads 'Other', and the running one reads Bid"),
    ):  # fmt: skip
        with pytest.raises(ew.QueryError, match=why):
            handle.replace(query)
    with pytest.raises(ew.QueryError, match=r"other columns|are called \['out'\]"):
        handle.replace({"answer": NEW})
    t = handle.replace(NEW, at=40)
    assert t == 40 == handle.replaced_at
    with pytest.raises(ew.QueryError, match="being replaced already, from 40 on"):
        handle.replace(OLD)
    write_epochs(tmp_path / "Bid", cut[1:2], first=1)
    handle.process_available()
    assert handle.status == "running: epoch 1 done; another query takes over at 40"
    assert len({each.bucket for each in handle.state()}) == 2 < len(handle.state()), "both plans have state"
    handle.stop()
    with pytest.raises(ew.QueryError, match=r"has stopped.*migrate=True"):
        handle.replace(OLD)
    # started again, the new one is given: the old one is in the checkpoint
    with pytest.raises(ew.QueryError, match=r"was replaced, from 40 on, and this is the one before"):
        begun(spark, tmp_path, sink)
    with pytest.raises(ew.QueryError, match=r"taking over, from 40 on; .* go on with that query and buckets=2"):
        begun(spark, tmp_path, sink, NEW, buckets=3)
    with pytest.raises(ew.QueryError, match="holds the state of another query"):
        begun(spark, tmp_path, sink, BIDS.group_by("item").agg(n=ew.count(), v=ew.sum("price")))
    with pytest.raises(ew.QueryError, match="holds the state of another query"):
        begun(spark, tmp_path, sink, Replacement(NEW, NEW))
    handle = begun(spark, tmp_path, sink, NEW)
    assert handle.replaced_at == 40
    write_epochs(tmp_path / "Bid", cut[2:], first=2)
    handle.process_available()
    with pytest.raises(ew.QueryError, match="come to its end"):
        handle.replace(OLD)
    handle.stop()
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    assert_same_history(History.of(found, OLD.schema), spliced([(NEVER, OLD), (t, NEW)], given))
    handle = begun(spark, tmp_path, sink, NEW)  # the old one is not needed any more
    handle.stop()
    assert not (tmp_path / "state" / "everwhen" / "state").exists() or handle.replaced_at is None


def test_the_past_that_nobody_keeps_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Of rows that the running query drops nothing is known; of rows of fixed length it is known when they end."""
    sink, given = MemorySink(), [ew.Insert(e.vs, e.vs + 1, e.row) for e in events(7)]
    cut = []
    for since, until in pairwise([0, 8, 20, 34, 50, ew.INF]):
        part = [e for e in given if since <= e.vs < until]
        cut.append(batch_of([*reversed(part), ew.Cti(until)], SCHEMA))
    write_epochs(tmp_path / "Bid", cut[:2])
    handle = begun(spark, tmp_path, sink, NEW, emit="final")
    handle.process_available()
    with pytest.raises(ew.QueryError, match="past of 'Bid': the running query keeps only rows with price > 3"):
        handle.replace(OLD)
    handle.stop()
    # the same stream, described as one that is never corrected
    told = ew.spark.SparkSource("vs", op="op", columns=["item", "price"])
    tick = ew.source("Bid", {"item": "string", "price": "int64"}, insert_only=True, chronons=True)
    first = tick.where(ew.col("price") > 3).range(5).group_by("item").agg(n=ew.count(), v=ew.min("price"))
    second = tick.range(10).group_by("item").agg(n=ew.count(), v=ew.max("price"))
    other = tmp_path / "other"
    write_epochs(other / "Bid", cut[:2])
    handle = start(
        first, {"Bid": read_epochs(spark, other / "Bid", SCHEMA)}, sources={"Bid": told}, sink=(again := MemorySink()),
        checkpoint=other / "state", buckets=2, emit="final",
    )  # fmt: skip
    handle.process_available()
    t = handle.replace(second)
    assert t >= handle.progress.tau + 10
    write_epochs(other / "Bid", cut[2:], first=2)
    handle.process_available()
    handle.stop()
    found = list(again.elements())
    assert_valid(found)
    assert_same_history(History.of(found, OLD.schema), spliced([(NEVER, NEW), (t, OLD)], given))
