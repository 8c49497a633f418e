"""The language against DuckDB: at every instant, every shape of query answers what DuckDB answers on the windowed
snapshots of its inputs; whatever the disorder, the corrections, the nulls, the batches and the level of consistency;
as written and rewritten."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.core.time import INF
from everwhen.testing import assert_valid, history_of
from language.duckdb_snapshots import CATALOG, Judge, histories, ours, physical, rounded, written
from language.query_shapes import SHAPES

LEVELS = {"strong": ew.STRONG, "middle": ew.MIDDLE}


@cache
def judge(seed: int) -> Judge:
    return Judge(histories(seed, chronons=seed % 2 == 0))


def check(name: str, query: ew.Stream, seed: int, level: str, batch: int) -> None:
    given = histories(seed, chronons=seed % 2 == 0)
    reads = {node.name for node in walk(query.node) if isinstance(node, Source)}
    inputs = {stream: elements for stream, elements in physical(given, seed + batch).items() if stream in reads}
    said = list(ew.run(query, inputs, consistency=LEVELS[level], batch=batch))
    report = assert_valid(said)
    assert report.closed_up_to == INF
    answer = history_of(said)
    for t, expected in judge(seed).answers(name):
        got = Counter({tuple(map(rounded, row)): n for row, n in answer.snapshot(t).items()})
        assert got == expected, f"{ours(name)}\nat {t}, {level}, batches of {batch}, seed {seed}"


@pytest.mark.parametrize("name", SHAPES)
def test_as_written(name: str) -> None:
    check(name, written(ours(name)), 1, "strong", 1000)
    check(name, written(ours(name)), 2, "middle", 3)


@pytest.mark.property
@pytest.mark.parametrize("name", SHAPES)
def test_rewritten(name: str) -> None:
    query = ew.sql(ours(name), CATALOG)
    assert query.schema == written(ours(name)).schema
    for level in LEVELS:
        for batch in (1, 3, 1000):
            check(name, query, 1, level, batch)
    check(name, query, 2, "middle", 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_rewritten_on_more_streams(name: str) -> None:
    query = ew.sql(ours(name), CATALOG)
    for seed in range(3, 9):
        for level in LEVELS:
            for batch in (1, 3, 1000):
                check(name, query, seed, level, batch)


def test_there_are_enough() -> None:
    assert len(SHAPES) >= 60
