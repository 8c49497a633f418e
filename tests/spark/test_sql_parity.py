"""Queries as text on Spark: at every instant what DuckDB answers on the windowed snapshots of the inputs."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.start import start
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from language.duckdb_snapshots import CATALOG, SOURCES, Judge, histories, ours, physical, rounded
from spark.spark_epochs import read_epochs, write_epochs

SAMPLES = {
    "middle": (
        "functions",
        "three-valued logic",
        "group by an expression",
        "count distinct",
        "filter clause",
        "left join, more conditions",
        "full join using",
        "relation, left",
        "precedence of sets",
        "hot items",
        "values joined",
        "values in a union",
        "unnest, grouped",
        "asof",
    ),
    "strong": (
        "partitioned rows",
        "slide",
        "granularity",
        "three streams",
        "correlated by inequality",
        "not in",
        "all as a value",
        "subquery in a subquery",
        "with twice",
        "dstream",
    ),
}


@pytest.mark.parametrize("level", [pytest.param("middle"), pytest.param("strong", marks=pytest.mark.slow)])
def test_spark_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path, level: str) -> None:
    seed = 1 if level == "middle" else 2
    given = histories(seed, chronons=False)
    frames = {}
    for stream in SOURCES:
        name = stream.node.name  # type: ignore[attr-defined]
        elements = physical(given, seed)[name]
        cuts = [len(elements) * at // 2 for at in range(3)]
        batches = [batch_of(elements[a:b], stream.schema, name) for a, b in itertools.pairwise(cuts)]
        write_epochs(tmp_path / name, batches)
        frames[name] = read_epochs(spark, tmp_path / name, stream.schema)
    queries = {name: ew.sql(ours(name), CATALOG) for name in SAMPLES[level]}
    sinks = {name: MemorySink() for name in queries}
    consistency = ew.STRONG if level == "strong" else ew.MIDDLE
    handle = start(
        queries,
        frames if level == "middle" else {name: frames[name] for name in ("A", "B")},
        sink=sinks,
        checkpoint=tmp_path / "checkpoint",
        trigger="available",
        consistency=consistency,
        buckets=2,
    )
    handle.await_termination(300)
    assert handle.status == "stopped"
    judge = Judge(given)
    for name, query in queries.items():
        out = list(sinks[name].elements())
        assert_valid(out)
        answer = History.of(out, query.schema)
        for t, expected in judge.answers(name):
            got = Counter({tuple(map(rounded, row)): n for row, n in answer.snapshot(t).items()})
            assert got == expected, f"{ours(name)}\nat {t}"
