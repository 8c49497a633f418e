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


def begun(spark: SparkSession, place: Path, sink: EpochSink, query: ew.Stream | Replacement = OLD, **more: object) -> Handle:
    given = {"buckets": 2, "snapshot_every": 2, **more}
    return start(query, {"Bid": read_epochs(spark, place / "Bid", SCHEMA)}, sink=sink, checkpoint=place / "state", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("emit", ["final", "current", "all"])
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
