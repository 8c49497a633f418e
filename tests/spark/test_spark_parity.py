"""oracle = local = Spark: every operator, streams with disorder and corrections, several epochs and one."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.core.schema import Schema
from everwhen.reference.evaluation import evaluate
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.start import start
from everwhen.spark.sources.source import Disorder, SparkSource
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, reorder
from example_counts import sampled_pairs
from plans import STAGED
from spark.spark_epochs import read_epochs, write_epochs

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
LASTING = [name for name, plan in STAGED.items() if plan.infinite]
GROUPS = [[name for name in STAGED if name not in LASTING], *(LASTING[at::8] for at in range(8))]
"""Plans that need an end of all rows, then plans of all kinds in each group."""
OFTEN = (0, 2)
"""The other groups are slow: what Spark does to a plan depends on its kind, and `parity/test_stages_parity.py` runs all
plans through the same stages."""


def random_elements(rng: random.Random, events: int, finite: bool) -> tuple[History, list[ew.Insert]]:
    found = []
    for _ in range(events):
        vs = rng.randrange(-3, 24)
        ve = ew.INF if not finite and rng.random() < 0.05 else vs + rng.choice([1, 1, 1, 2, 3, 5, 8])
        found.append(ew.Insert(vs, ve, {"k": rng.choice(["a", "b", "c", None]), "x": rng.choice([0, 1, 2, 3, None])}))
    history = History.of(found, SCHEMA)
    return history, reorder(history, rng, close=True, disorder=8, infinite=not finite)


def cut_into(elements: list, epochs: int) -> list[ElementBatch]:
    bounds = [len(elements) * at // epochs for at in range(epochs + 1)]
    return [batch_of(elements[a:b], SCHEMA, "S") for a, b in itertools.pairwise(bounds)]


def rounded(snapshot: dict) -> list:
    return sorted((repr([round(v, 9) if isinstance(v, float) else v for v in row]), n) for row, n in snapshot.items())


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[] if at in OFTEN else [pytest.mark.slow]) for at in range(len(GROUPS))]
)
def test_spark_answers_as_the_oracle_does(spark: SparkSession, tmp_path: Path, at: int) -> None:
    rng = random.Random(at)
    names = GROUPS[at]
    finite = not all(STAGED[name].infinite for name in names)
    histories, frames = {}, {}
    for s in "ST":
        histories[s], elements = random_elements(rng, 40, finite)
        write_epochs(tmp_path / s, cut_into(elements, (3, 1)[at % 2]))
        frames[s] = read_epochs(spark, tmp_path / s, SCHEMA)
    queries = {name: STAGED[name].build() for name in names}
    read = {node.name for q in queries.values() for node in walk(q.node) if isinstance(node, Source)}
    sinks = {name: MemorySink() for name in names}
    handle = start(
        queries,
        {s: frames[s] for s in read},
        sink=sinks,
        checkpoint=tmp_path / "checkpoint",
        trigger="available",
        emit=("current", "ended", "final")[at % 3],
        buckets=(2, 5, 1)[at % 3],
    )
    handle.await_termination(300)
    assert handle.status == "stopped"
    for name, query in queries.items():
        out = list(sinks[name].elements())
        assert_valid(out)
        assert out[-1] == ew.Cti(ew.INF), name
        oracle = evaluate(query.node, histories)
        found = History.of(out, query.schema)
        for t in range(-6, 45):
            assert rounded(found.snapshot(t)) == rounded(oracle.at(t)), (name, t)


MERGED = {
    "tumbling": lambda s: s.range(6, slide=6).group_by("k").agg(t=ew.sum("x"), a=ew.avg("x"), n=ew.count()),
    "sliding": lambda s: s.range(9, slide=2).group_by("k").agg(lo=ew.min("x"), hi=ew.max("x"), c=ew.count("x")),
    "unkeyed": lambda s: s.where(ew.col("x") != 2).range(5).aggregate(t=ew.sum("x"), n=ew.count()),
}


@pytest.mark.parametrize(("name", "late"), sampled_pairs(MERGED, ["error", "drop"]))
def test_rows_that_are_merged_early_give_the_same_answer(
    spark: SparkSession, tmp_path: Path, name: str, late: str
) -> None:
    """Inserts of one tick: rows of one group and lifetime cross as one, and progress comes from the same pass."""
    rng = random.Random(name)
    rows = [(vs, rng.choice(["a", "b", None]), rng.choice([0, 1, 2, 3, None])) for vs in range(40) for _ in range(3)]
    rows.sort(key=lambda row: row[0] + rng.randrange(0, 7))
    bounds = [0, 40, 80, 120]
    folder = tmp_path / "in"
    folder.mkdir()
    for at, (a, b) in enumerate(itertools.pairwise(bounds)):
        chunk = rows[a:b] + ([(1, "a", 1)] if late == "drop" and at == 2 else [])
        table = pa.table({n: [row[i] for row in chunk] for i, n in enumerate(("vs", "k", "x"))})
        pq.write_table(table, folder / f"{at}.parquet")
        os.utime(folder / f"{at}.parquet", (1_700_000_000 + at,) * 2)
    frame = (
        spark.readStream.schema("vs bigint, k string, x bigint").option("maxFilesPerTrigger", 1).parquet(str(folder))
    )
    query = MERGED[name](ew.source("S", SCHEMA))
    sink = MemorySink()
    handle = start(
        query,
        {"S": frame},
        sink=sink,
        checkpoint=tmp_path / "checkpoint",
        sources={"S": SparkSource("vs", progress=Disorder(7), late=late)},
        trigger="available",
        buckets=2,
    )
    assert "merged" in handle.explain()
    handle.await_termination(300)
    history = History.of([ew.Insert(vs, vs + 1, {"k": k, "x": x}) for vs, k, x in rows], SCHEMA)
    oracle = evaluate(query.node, {"S": history})
    out = list(sink.elements())
    assert_valid(out)
    found = History.of(out, query.schema)
    final = handle.progress.answered["out"]
    assert final >= 30
    for t in range(-3, final):
        assert rounded(found.snapshot(t)) == rounded(oracle.at(t)), t
    if late == "drop":
        assert sum(report.late.get("S", 0) for report in handle.recent) == 1
        kept = spark.read.parquet(handle.late_rows("S")).collect()
        assert [row["vs"] for row in kept] == [1]
