"""Metadata, ANALYZE and WAITING of a query on Spark: per partition and in sum, with the law of WAITING."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.observe.observer import Published
from everwhen.errors import QueryError
from everwhen.sinks import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.sources.source import SparkSource
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import batch_of
from plans import across
from spark.test_bad_input import PATIENCE, S, T, begin, read, write

QUERY = S.range(20).join(T.range(20).select("k", y=ew.col("x")), on="k").group_by("y").agg(n=ew.count())
"""Two stages: by k, then by y."""
KEYS = "abcdefgh"


class Live:
    """A running query whose sources are written to, one file after the other."""

    def __init__(self, spark: SparkSession, place: Path, query: Any, sink: Any = None, **options: Any) -> None:
        self.place, self.sink, self.files = place, sink or MemorySink(), 0
        inputs = {name: read(spark, place / name) for name in "ST"}
        sources = {name: SparkSource("vs", end="ve", op="op", vnew="vnew") for name in "ST"}
        self.handle: Handle = begin(
            spark, place, self.sink, query, inputs=inputs, sources=sources, trigger="20 milliseconds", **options
        )

    def write(self, name: str, *rows: tuple[Any, ...]) -> None:
        """A file, and wait until it has been read."""
        before = len(self.handle.recent)
        write(self.place / name, self.files, rows)
        self.files += 1
        self.until(lambda: len(self.handle.recent) > before)

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end and self.handle.last_error is None, self.handle.status
            time.sleep(0.02)

    def said(self) -> int:
        return sum(isinstance(each, Insert | ew.Adjust) for each in self.sink.elements())


def row(t: int, k: str, x: int) -> tuple[Any, ...]:
    return ("insert", t, t + 1, None, k, x)


def cti(t: int) -> tuple[Any, ...]:
    return ("cti", t, None, None, None, None)


@pytest.fixture(scope="module")
def live(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    found = Live(spark, tmp_path_factory.mktemp("observed"), QUERY, emit="final")
    yield found
    found.handle.stop()


def test_before_the_first_epoch(live: Live) -> None:
    found = live.handle.waiting()
    assert found.reason == "nothing came" and [each.promised for each in found.sources] == [NEVER, NEVER]
    assert live.handle.waits_for().startswith("no epoch has been run yet")
    assert "ask again" in live.handle.analyze().lines()[-1]
    assert live.handle.metadata().names[:2] == ("S", "T")
    with pytest.raises(QueryError, match="there is no operator or input 'filter'; there is S, T, exchange"):
        live.handle.metadata().subscribe(of="filter")


def test_partitions_are_measured_each_and_in_sum(live: Live) -> None:
    told: list[Published] = []
    with live.handle.metadata().subscribe(every=0, then=told.append) as wanted:
        live.write("S", *(row(t, KEYS[t % 8], t % 3) for t in range(16)), cti(12))
        live.write("T", *(row(t, KEYS[t % 8], t % 2) for t in range(0, 16, 2)), cti(10))
        live.until(lambda: any("join" in name for name in wanted.read()))  # an epoch may have one input's rows only
        whole, parts = wanted.read(), wanted.partitions()
        join = next(name for name in whole if "join" in name)
        assert set(parts[join][0]) == set(live.handle.metadata().items) and len(parts[join]) == 2
        assert sum(each["state_rows"] or 0 for each in parts[join]) == whole[join]["state_rows"] > 0  # type: ignore[operator]
        assert whole[join]["keys"] == sum(each["keys"] or 0 for each in parts[join]) == 8
        samples = wanted.samples()[join]
        assert sum(each.rows_in for each in samples) == 24
        largest = max(each.rows_in for each in samples)
        assert wanted.skew()[join] == pytest.approx(largest / 12)
        assert whole["S"]["distance"] == pytest.approx(1.0) and whole["S"]["lag"] == 3
        assert told and set(told[-1].values) == set(whole)
    analysis = live.handle.analyze()
    assert analysis.elements == 24 and analysis.costliest is not None and analysis.largest is not None
    assert any(line.startswith("Most uneven: ") for line in analysis.lines())


def test_the_named_promise_brings_something_and_one_tick_less_does_not(live: Live) -> None:
    """The same as in process, where the same elements came."""
    found, before = live.handle.waiting(), live.said()
    assert found.reason == "promise"
    runtime = LocalRuntime(QUERY, emit="final")
    for name, step, high, promise in (("S", 1, 3, 12), ("T", 2, 2, 10)):
        rows = [Insert(t, t + 1, {"k": KEYS[t % 8], "x": t % high}) for t in range(0, 16, step)]
        runtime.push({name: batch_of([*rows, Cti(promise)], runtime.schema_of(name), name)})
    local = runtime.waiting()
    assert [(each.source.name, each.t) for each in found.needs] == [(n.source.name, n.t) for n in local.needs]
    assert (found.rows, found.first) == (local.rows, local.first) and found.needs
    for need in found.needs[:-1]:
        live.write(need.source.name, cti(need.t))
        assert live.said() == before
    last = found.needs[-1]
    live.write(last.source.name, cti(last.t - 1))
    assert live.said() == before, "one tick less"
    live.write(last.source.name, cti(last.t))
    live.until(lambda: live.said() > before)
    assert live.said() - before == found.rows + found.corrections


class Fails(MemorySink):
    """A sink that takes nothing for a while."""

    broken = True

    def commit(self, epoch: int, batch: ew.ElementBatch) -> None:
        if self.broken:
            raise OSError("no space left")
        super().commit(epoch, batch)


def test_a_sink_that_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    sink = Fails()
    live = Live(spark, tmp_path, S.union(T), sink)
    write(tmp_path / "S", 0, [row(1, "a", 1)])
    live.until(lambda: bool(live.handle._runner.retrying))
    found = live.handle.waiting()
    assert found.reason == "sink" and "no space left; it is tried again" in str(found)
    sink.broken = False
    live.until(lambda: not live.handle._runner.retrying and live.said() == 1)
    assert live.handle.waiting().reason == "all is said"
    live.handle.stop()


def test_a_level_that_waits_is_not_tried(spark: SparkSession, tmp_path: Path) -> None:
    """The promises that bring the answer further are told all the same, through the windows and stages of the plan."""
    query = S.range(4, slide=4).union(T.granularity(10)).select("k").distinct()
    live = Live(spark, tmp_path, query, consistency=ew.consistency(5, 50))
    live.write("S", row(1, "a", 1))
    found = live.handle.waiting()
    assert found.reason == "not tried" and "rows wait before the stages" in str(found)
    assert {each.name for each in found.sources} == {"S", "T"} and "nothing has come" not in str(found)
    live.write("S", cti(8))
    live.write("T", cti(11))
    found, before = live.handle.waiting(), live.handle.recent[-1].answered["out"]
    assert (before, found.first) == (11, 11), "window by 4: 11, granule of 10: 20"
    assert [(need.source.name, need.t) for need in found.needs] == [("S", 12)]
    assert "the answer is final before 11, and goes on with a promise of 12 of S; what waits was not tried" in str(
        found
    )
    live.write("S", cti(11))
    assert live.handle.recent[-1].answered["out"] == before, "one tick less"
    live.write("S", cti(12))
    assert live.handle.recent[-1].answered["out"] == 15
    live.handle.stop()


def test_a_recursion_across_partitions_is_not_tried(spark: SparkSession, tmp_path: Path) -> None:
    query = ew.fixpoint(S.select("k", "x"), lambda r: r.join(T, on="x").select("k", x=ew.col("x") + 1))
    live = Live(spark, tmp_path, across(query), emit="final")
    live.write("S", row(1, "a", 1), cti(4))
    live.write("T", row(1, "a", 1), cti(6))
    found = live.handle.waiting()
    assert found.reason == "not tried" and "the rounds of a recursion cross exchanges" in str(found)
    assert found.first == 4 and [(need.source.name, need.t) for need in found.needs] == [("S", 5)]
    live.write("S", cti(5))
    assert live.handle.recent[-1].answered["out"] == 5
    live.handle.stop()
