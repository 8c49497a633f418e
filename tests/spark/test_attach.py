"""Inputs of a merge that come and go on Spark: no instant is missing or doubled, also over restarts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.sinks import ChangelogSink
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.start import start
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder

COPIES = [ew.source(name, {"k": "string", "x": "int64"}) for name in "ab"]
SCHEMA = COPIES[0].schema
QUERY = ew.lmerge(*COPIES).where(ew.col("x") > 0)


class Copy:
    """A copy of a history in a folder, which grows piece by piece; right from `since` on."""

    def __init__(self, place: Path, events: list[ew.Insert], seed: int, since: int | None = None) -> None:
        known = [ew.Insert(max(e.vs, since), e.ve, e.row) for e in events if e.ve > since] if since else events
        self.left = reorder(History.of(known, SCHEMA), random.Random(seed), infinite=False, close=True)
        self.sink = ChangelogSink(place)
        self.sink.prepare(SCHEMA)

    def grow(self, until: int) -> None:
        """Everything up to the first promise of a time, or of a later one."""
        stop = next(at for at, e in enumerate(self.left, 1) if isinstance(e, ew.Cti) and e.t >= until)
        self.sink.commit(self.sink.committed() + 1, batch_of(self.left[:stop], SCHEMA))
        self.left = self.left[stop:]


@pytest.fixture
def events() -> list[ew.Insert]:
    rng = random.Random(5)
    return [
        ew.Insert(vs, vs + rng.choice([1, 3, 30]), {"k": rng.choice("pqr"), "x": rng.randrange(3)}) for vs in range(50)
    ]


def begun(spark: SparkSession, place: Path, sink: MemorySink, a: Copy, b: Copy) -> Handle:
    frames = {name: ew.spark.read_changelog_stream(spark, copy.sink.path) for name, copy in (("a", a), ("b", b))}
    return start(QUERY, frames, sink=sink, checkpoint=place / "state", buckets=2, snapshot_every=2)


def check(sink: MemorySink, events: list[ew.Insert]) -> None:
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    wanted = [event for event in events if event.row["x"] > 0]
    assert_same_history(History.of(found, SCHEMA), History.of(wanted, SCHEMA))


def test_a_copy_leaves_and_another_one_takes_its_place(
    spark: SparkSession, tmp_path: Path, events: list[ew.Insert]
) -> None:
    sink = MemorySink()
    a, b = (Copy(tmp_path / name, events, seed) for seed, name in enumerate("ab"))
    c = Copy(tmp_path / "c", events, 7)
    a.grow(8)
    b.grow(12)
    handle = begun(spark, tmp_path, sink, a, b)
    handle.process_available()
    assert handle.progress.answered["out"] >= 12, "the second copy leads"
    handle.detach("b")
    with pytest.raises(ew.QueryError, match="last input of its merge"):
        handle.detach("a")
    a.grow(20)
    b.grow(40)
    handle.process_available()
    assert 20 <= handle.progress.answered["out"] < 40, "what b promises counts no more"
    with pytest.raises(ew.QueryError, match="unknown column 'x' in the frame of 'b'"):
        handle.attach("b", ew.spark.read_changelog_stream(spark, c.sink.path).withColumnRenamed("x", "y"))
    c.grow(ew.INF)
    handle.attach("b", ew.spark.read_changelog_stream(spark, c.sink.path))
    handle.process_available()
    assert handle.is_active and handle.progress.progress["b"] == ew.INF
    handle.stop()
    with pytest.raises(ew.QueryError, match="been stopped: start it again"):
        handle.attach("b", ew.spark.read_changelog_stream(spark, b.sink.path))
    check(sink, events)


@pytest.mark.slow
def test_what_was_asked_for_outlives_the_query(spark: SparkSession, tmp_path: Path, events: list[ew.Insert]) -> None:
    sink = MemorySink()
    a, b = (Copy(tmp_path / name, events, seed) for seed, name in enumerate("ab"))
    c, d = Copy(tmp_path / "c", events, 7), Copy(tmp_path / "d", events, 8, since=25)
    a.grow(20)
    b.grow(12)
    handle = begun(spark, tmp_path, sink, a, b)
    handle.process_available()
    handle.detach("b")
    handle.stop()
    handle = begun(spark, tmp_path, sink, a, b)
    b.grow(40)
    handle.process_available()
    assert 20 <= handle.progress.answered["out"] < 40, "it is detached still"
    c.grow(30)
    handle.attach("b", ew.spark.read_changelog_stream(spark, c.sink.path))
    handle.process_available()
    assert handle.progress.answered["out"] >= 30
    handle.attach("b", ew.spark.read_changelog_stream(spark, d.sink.path), since=25)  # no epoch comes before it stops
    handle.stop()
    d.grow(40)
    handle = begun(spark, tmp_path, sink, a, d)
    handle.process_available()
    assert 40 <= handle.progress.answered["out"] < ew.INF, "what was asked for is carried out"
    d.grow(ew.INF)
    handle.process_available()
    handle.stop()
    check(sink, events)


@pytest.mark.slow
def test_versions_take_over_from_one_another(spark: SparkSession, tmp_path: Path) -> None:
    """Old before, new from there, several times during one run; versions differ in what they say."""
    sink, sides = MemorySink(), ("a", "b")
    events = [
        [ew.Insert(vs, vs + 1 + vs % 7, {"k": "pqr"[vs % 3], "x": 1 + number}) for vs in range(40)]
        for number in range(4)
    ]
    versions = [Copy(tmp_path / str(number), each, number) for number, each in enumerate(events)]
    for copy, each in zip(versions, events, strict=True):
        copy.left = [*(element for event in each for element in (event, ew.Cti(event.vs))), ew.Cti(ew.INF)]
    versions[0].grow(5)
    spare = Copy(tmp_path / "spare", [], 0)
    handle = begun(spark, tmp_path, sink, versions[0], spare)
    handle.process_available()
    borders = [12, 20, 30]
    for number, at in enumerate(borders, 1):
        old, new = sides[(number - 1) % 2], sides[number % 2]
        with pytest.raises(ew.QueryError, match="are final"):
            handle.hand_over(old, new, at=1)
        frame = ew.spark.read_changelog_stream(spark, versions[number].sink.path)
        handle.hand_over(old, new, frame, at=at)
        versions[number - 1].grow(at + 5)  # it runs on, and is not believed
        handle.process_available()
        assert handle.progress.answered["out"] == at
        versions[number].grow(at + 3)
        handle.process_available()
        assert handle.progress.answered["out"] >= at + 3
    versions[-1].grow(ew.INF)
    handle.process_available()
    handle.stop()
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    ours, right = History.of(found, SCHEMA), [History.of(each, SCHEMA) for each in events]
    for t in range(-2, 60):
        assert ours.snapshot(t) == right[sum(t >= border for border in borders)].snapshot(t), t


@pytest.mark.slow
def test_nobody_comes_and_goes_at_a_level_that_waits(
    spark: SparkSession, tmp_path: Path, events: list[ew.Insert]
) -> None:
    a = Copy(tmp_path / "a", events, 1)
    frames = {name: ew.spark.read_changelog_stream(spark, a.sink.path) for name in "ab"}
    weak = start(QUERY, frames, sink=MemorySink(), checkpoint=tmp_path / "state", buckets=1, consistency=ew.WEAK)
    with pytest.raises(ew.QueryError, match="level that waits or forgets"):
        weak.detach("a")
    weak.stop()


@pytest.mark.slow
def test_a_writer_that_begins_anew_is_noticed(spark: SparkSession, tmp_path: Path, events: list[ew.Insert]) -> None:
    """Its folder's next start is another stream: the query does not go over to it unless it is attached."""
    sink = MemorySink()
    a, b = (Copy(tmp_path / name, events, seed) for seed, name in enumerate("ab"))
    for copy in (a, b):
        copy.grow(20)
    handle = begun(spark, tmp_path, sink, a, b)
    handle.process_available()
    handle.stop()
    b = Copy(tmp_path / "b2", events, 9)
    b.grow(30)
    handle = begun(spark, tmp_path, sink, a, b)
    with pytest.raises(ew.StateError, match="has begun anew"):
        handle.process_available()
    assert handle.status.startswith("failed")
    handle.attach("b")  # what comes next of it is another stream
    handle = begun(spark, tmp_path, sink, a, b)
    b.grow(ew.INF)
    handle.process_available()
    handle.stop()
    check(sink, events)
