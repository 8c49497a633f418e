"""State that moves to another number of partitions: the answer goes on as if it had always been there."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.physical_copies import copy_of, history, snapshots
from everwhen.algebra.nodes import Source, walk
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.split_state import moved_state
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import batch_of
from everwhen.testing import assert_valid
from parity.stage_runner import Partitions
from state_files import through_file

S, R = (ew.source(name, {"k": "int64", "v": "int64"}) for name in "SR")
K, V = ew.col("k"), ew.col("v")


def plans() -> dict[str, ew.Stream]:
    """Plans whose state is by the key of their rows; of most nobody could tell the past."""
    return {
        "rows": S.rows(2, partition_by=["k"]),
        "rows of all": S.rows(2),
        "rows without their key": S.rows(2, partition_by=["k"]).select("v"),
        "sums over rows": S.rows(3, partition_by=["k"]).group_by("k").agg(n=ew.count(), t=ew.sum("v")),
        "unbounded": S.unbounded().group_by("k").agg(n=ew.count(), t=ew.sum("v")),
        "unbounded extremes": S.unbounded().group_by("k").agg(lo=ew.min("v"), hi=ew.max("v")),
        "unbounded median": S.unbounded().group_by("k").agg(m=ew.median("v"), d=ew.count_distinct("v")),
        "two stages": S.unbounded().group_by("k", "v").agg(n=ew.count()).group_by("v").agg(m=ew.sum("n")),
        "windowed": S.range(6).group_by("k").agg(v=ew.sum("v"), a=ew.avg("v")),
        "filtered": S.where(V > 1).unbounded().group_by("k").agg(t=ew.max("v")).where(ew.col("t") > 2),
        "pattern": S.match_recognize("A B", "v", "k", measures={"d": ew.patterns.last("B.v")}),
        "distinct": S.unbounded().distinct(),
        "difference": S.difference(R),
        "join": S.unbounded().join(R, on="k").select(k=K, v=V),
        "join by different names": S.unbounded().join(R, on={"k": "v"}).select(k=K, v=V),
        "sums over such a join": S.unbounded().join(R, on={"v": "k"}).group_by("v").agg(n=ew.count()),
    }


def where(count: int):  # type: ignore[no-untyped-def]
    """As the exchange of `Partitions` places rows."""

    def placed(schema: Schema, columns: Sequence[pa.Array]) -> np.ndarray:
        keys = zip(*(column.to_pylist() for column in columns), strict=True)
        return np.array([hash(repr(key)) % count for key in keys], np.int64)

    return placed


def move(run: Partitions, count: int) -> None:
    """To another number of partitions, through files; nothing is changed if a stage cannot."""
    found = []
    for stage, kernels in zip(run.plan.stages, run.kernels, strict=True):
        moved = moved_state(
            stage, kernels, lambda at, stage=stage: StagePartition(stage, run.first, at=at), count, where(count)
        )
        again = [StagePartition(stage, run.first) for _ in moved]
        for new, each in zip(again, moved, strict=True):
            new.restore(through_file(each.snapshot()))
        found.append(again)
    run.kernels, run.n = found, count


def check(query: ew.Stream, seed: int, emit: str) -> int:
    rng = random.Random(seed)
    names = {node.name for node in walk(query.node) if isinstance(node, Source)}
    inputs = {each: copy_of(history(rng), rng) for each in sorted(names)}
    rest = {each: list(elements) for each, elements in inputs.items()}
    run = Partitions(query.node, rng.choice([1, 2, 3]), emit, rng.randrange(99))
    said: list[Element] = []
    moves = 0
    while any(rest.values()):
        batches = {}
        for each, part in rest.items():
            count = rng.randint(0, 5)
            batches[each] = batch_of(part[:count], S.schema, each)
            del part[:count]
        said += run.push(batches)
        if rng.random() < 0.4:
            move(run, rng.choice([1, 2, 3, 8]))
            moves += 1
        if rng.random() < 0.2:
            run.restart()
    said += run.push({each: batch_of([Cti(INF)], S.schema, each) for each in inputs})
    assert_valid(said)
    assert said[-1] == Cti(INF)
    assert snapshots(said) == snapshots(list(ew.run(query, inputs, emit="final")))
    return moves


@pytest.mark.parametrize("name", plans())
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32), emit=st.sampled_from(["final", "ended", "current", "all"]))
def test_state_moves_and_the_answer_goes_on(name: str, seed: int, emit: str) -> None:
    check(plans()[name], seed, emit)


@pytest.mark.parametrize("query", [S.coalesce(), S.coalesce(4).lifetime(length=3)])
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32), emit=st.sampled_from(["current", "all"]))
def test_intervals_that_are_not_held_back_move(query: ew.Stream, seed: int, emit: str) -> None:
    check(query, seed, emit)


@pytest.mark.slow
@pytest.mark.parametrize("name", plans())
@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), emit=st.sampled_from(["final", "ended", "current", "all"]))
def test_state_moves_often(name: str, seed: int, emit: str) -> None:
    check(plans()[name], seed, emit)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (S.coalesce(), "the state of the operator 'coalesce' is not alike in all partitions"),
        (
            S.join(R, on={"k": "v"}).select(a=V),
            "answer of 'out' does not carry the columns that its rows are placed by",
        ),
        (S.join(R, where=ew.col("v_right") > K), "stream .* is copied to every partition"),
        (S.unbounded().aggregate(n=ew.count()), "operator 'aggregate' does not keep the column"),
    ],
)
def test_what_cannot_move_is_named(query: ew.Stream, why: str) -> None:
    run = Partitions(query.node, 2, "final")
    names = {source.name for source in run.plan.sources}
    rows = [ew.Insert(t, t + 3, {"k": t % 3, "v": t}) for t in range(8)]
    run.push({name: batch_of([*rows, Cti(4)], S.schema, name) for name in names})
    before = [kernel.snapshot() for kernel in run.kernels[-1]]
    with pytest.raises(QueryError, match=why):
        move(run, 3)
    assert len(run.kernels[-1]) == 2 == len(before)
