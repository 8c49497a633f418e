"""Frames of plain rows, as most are: a time, values and nulls, no op column, progress by a bound of the disorder.

Random epochs, empty ones too, in any order, some of their rows late: with every policy for late rows, in every
emission, at levels that wait or forget, in one to three partitions, the answer is that of the local runtime.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen import col
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.start import start
from everwhen.spark.internals.plan_cache import _Operator
from everwhen.spark.sources.source import Disorder, SparkSource
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.testing import assert_same_history, assert_valid

SCHEMA: Final = Schema.of([("k", pa.string()), ("x", pa.int64()), ("y", pa.float64())])
WINDOWS: Final = "FROM TABLE(TUMBLE(TABLE S, 10))"
QUERIES: Final[dict[str, Callable[[ew.Stream], ew.Stream]]] = {
    "tumbling": lambda s: s.range(10, slide=10).group_by("k").agg(t=ew.sum("x"), n=ew.count()),
    "sliding": lambda s: s.range(10, slide=3).group_by("k").agg(t=ew.sum("x"), a=ew.avg("y"), lo=ew.min("x")),
    "with gaps": lambda s: s.range(7, slide=10).group_by("k").agg(t=ew.sum("x"), n=ew.count("x")),
    "filtered": lambda s: s.where(col("x") > 3).range(6, slide=2).group_by("k").agg(t=ew.sum("x"), n=ew.count()),
    "of all": lambda s: s.range(10, slide=5).aggregate(t=ew.sum("y"), n=ew.count()),
    "computed": lambda s: s.select("k", z=col("x") * 2 + 1).range(8, slide=4).group_by("k").agg(s=ew.sum("z")),
    "not merged": lambda s: s.range(5).group_by("k").agg(d=ew.count_distinct("x")),
    "two stages": lambda s: s.range(9, slide=3).group_by("k", "x").agg(n=ew.count()).group_by("k").agg(m=ew.max("n")),
    "no window": lambda s: s.group_by("k").agg(t=ew.sum("x")),
    "nothing left": lambda s: s.where(col("k") == "zz").range(4, slide=4).group_by("k").agg(t=ew.sum("x")),
    "unbounded": lambda s: s.unbounded().group_by("k").agg(t=ew.sum("x")),
    "distinct": lambda s: s.range(4).distinct(),
    "tumble": lambda s: ew.sql(f"SELECT k, window_end, SUM(x) AS t, COUNT(*) AS n {WINDOWS} GROUP BY k, window_end", s),
    "tumble, then more": lambda s: (
        ew.sql(f"SELECT k, x, window_start, MIN(x) AS m {WINDOWS} WHERE x < 7 GROUP BY k, x, window_start", s)
        .group_by("k")
        .agg(n=ew.count(), last=ew.max("window_start"))
    ),
}
EPOCHS: Final = 4
OTHERS: Final = (0, 2, 3, 4, 6, 8, 10, 11)
"""Slow: what they try, the others try in other pairs, or `test_spark_parity` does (`tumbling`)."""


@dataclass(frozen=True)
class Case:
    """How a query is run, and how late its rows are."""

    query: str
    lifetime: int
    late: str
    bound: int
    buckets: int
    level: Consistency

    @staticmethod
    def of(seed: int, rng: random.Random) -> Case:
        late = rng.choice(["error", "drop", "adjust"])
        level = ew.MIDDLE
        if late != "adjust" and rng.random() < 0.4:
            level = ew.consistency(rng.choice([0, 3]), rng.choice([4, 6, INF]))
        level = level.changed(emit=rng.choice(["current", "ended", "final", "all"]))
        names = list(QUERIES)
        return Case(
            names[seed % len(names)], rng.choice([1, 1, 5]), late, rng.choice([0, 3, 8]), rng.choice([1, 2, 3]), level
        )


def rows_of(case: Case, epoch: int, promised: int, rng: random.Random) -> list[tuple[int, dict[str, Any]]]:
    """The rows of an epoch in no order; too late ones only where that is allowed."""
    found = []
    for _ in range(rng.choice([0, 1, 8, 30])):
        spread = case.bound + (0 if case.late == "error" else rng.choice([0, 0, 6]))
        t = max(6 * epoch + rng.randrange(-spread, 6), 0)
        row = {"k": rng.choice(["a", "b", None]), "x": rng.choice([None, 1, 2, 7]), "y": rng.choice([None, 0.5, -1.0])}
        found.append((max(t, promised) if case.late == "error" else t, row))
    return found


def admitted(case: Case, rows: list[tuple[int, dict[str, Any]]], promised: int) -> list[Element]:
    """The rows as elements, in order, as the policy for late ones has them."""
    found = []
    for start_, row in rows:
        vs, ve = start_, start_ + case.lifetime
        if vs < promised and case.late == "adjust":
            vs, ve = promised, promised + 1 if ve == vs + 1 else ve
        if promised <= vs < ve:
            found.append(Insert(vs, ve, row))
    return sorted(found, key=lambda e: e.vs)


def check(spark: SparkSession, place: Path, seed: int) -> None:
    rng = random.Random(seed)
    case = Case.of(seed, rng)
    query = QUERIES[case.query](ew.source("S", SCHEMA, insert_only=True, chronons=case.lifetime == 1))
    runtime, expected = LocalRuntime(query, consistency=case.level), list[Element]()
    folder, promised = place / "S", -INF
    folder.mkdir(parents=True)
    for epoch in range(EPOCHS):
        rows = rows_of(case, epoch, promised, rng)
        columns = {name: [row[name] for _, row in rows] for name in SCHEMA.names}
        types = [("t", pa.int64()), *((field.name, field.type) for field in SCHEMA.fields)]
        table = pa.table({"t": [t for t, _ in rows], **columns}, schema=pa.schema(types))
        pq.write_table(table, folder / f"{epoch}.parquet")
        os.utime(folder / f"{epoch}.parquet", (1_700_000_000 + epoch,) * 2)  # Spark takes the oldest file first
        elements = admitted(case, rows, promised)
        if rows:
            promised = max(promised, max(t for t, _ in rows) - case.bound)
            elements.append(Cti(promised))
        expected += runtime.push({"S": batch_of(elements, SCHEMA)})["out"].elements()
    types_ = "t bigint, k string, x bigint, y double"
    frame = spark.readStream.schema(types_).option("maxFilesPerTrigger", 1).parquet(str(folder))
    sink = MemorySink()
    source = SparkSource("t", lifetime=case.lifetime, progress=Disorder(case.bound), late=case.late)
    handle = start(
        query, {"S": frame}, sink=sink, checkpoint=place / "checkpoint", trigger="available", consistency=case.level,
        buckets=case.buckets, snapshot_every=2, sources={"S": source},
    )  # fmt: skip
    handle.await_termination(300)
    said = [e for batch in sink.epochs.values() for e in batch.elements()]
    assert_valid(said)
    assert_same_history(said, expected)
    progress = [max((e.t for e in each if isinstance(e, Cti)), default=None) for each in (said, expected)]
    assert progress[0] == progress[1], case


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.slow] if n in OTHERS else []) for n in range(len(QUERIES))]
)
def test_plain_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed)


def test_a_spark_whose_plans_cannot_be_taken_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its inner parts may have other names in another version; then every epoch is planned anew."""
    monkeypatch.setattr(_Operator, "upon", lambda self, below: self.plan.hasNoSuchMethod(below))
    check(spark, tmp_path, 1)
    assert "cannot be kept from epoch to epoch" in caplog.text


@pytest.mark.slow
def test_plain_rows_often(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(100, 200):
        check(spark, tmp_path / str(seed), seed)
