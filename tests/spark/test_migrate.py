"""A query that moves to another plan, another text and another number of partitions: exact throughout."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.start import start
from everwhen.spark.driver.plan_log import read_record
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.spark_epochs import read_epochs, write_epochs
from spark.test_replace import BIDS, SCHEMA, begun, epochs, events, spliced

TEXT = (
    "SELECT item, COUNT(*) AS n, MAX(price) AS v FROM (SELECT item, price FROM Bid WINDOW(RANGE 10 MILLISECONDS)) AS b "
    "WHERE item <> 'r' AND price + 1 > 1 GROUP BY item"
)
REWRITTEN, WRITTEN = (ew.sql(TEXT, BIDS, optimize=optimize) for optimize in (True, False))
OTHER = ew.sql(
    "SELECT item, COUNT(*) AS n, MIN(price) AS v FROM Bid WHERE item <> 'r' AND price + 1 > 1 GROUP BY item", BIDS
)
ROWS = (
    BIDS.where((ew.col("item") != "r") & (ew.col("price") + 1 > 1)).rows(2).group_by("item")
    .agg(n=ew.count(), v=ew.min("price"))
)  # fmt: skip


def finish(spark: SparkSession, place: Path, handle: Handle, cut: list, at: int) -> int:
    """Push epochs until the plan that takes over has done so: the next epoch."""
    while handle.replaced_at is not None:
        write_epochs(place / "Bid", cut[at : at + 1], first=at)
        handle.process_available()
        at += 1
    return at


def test_plans_texts_and_partitions_change_and_the_answer_does_not(spark: SparkSession, tmp_path: Path) -> None:
    emit, sink, given = "current", MemorySink(), events(3, 80)
    cut = epochs(given, 4, 24)
    write_epochs(tmp_path / "Bid", cut[:2])
    handle = begun(spark, tmp_path, sink, WRITTEN, emit=emit)
    handle.process_available()
    plan = handle.explain()
    # another plan of the same query, while it runs
    t = handle.migrate(REWRITTEN)
    assert t == handle.replaced_at >= handle.progress.answered["out"]
    with pytest.raises(ew.QueryError, match="being replaced already"):
        handle.migrate(WRITTEN)
    at = finish(spark, tmp_path, handle, cut, 2)
    write_epochs(tmp_path / "Bid", cut[at : at + 1], first=at)
    handle.process_available()
    assert handle.explain() != plan, "the old plan is gone"
    moved = handle.explain()
    handle.stop()
    # the query as it was asked goes on with the plan that runs; the number of partitions is that of the checkpoint
    handle = begun(spark, tmp_path, sink, WRITTEN, emit=emit, buckets=None)
    assert (handle.explain(), handle.replaced_at, {each.bucket for each in handle.state()}) == (moved, None, {0, 1})
    handle.stop()
    # another number of partitions
    handle = begun(spark, tmp_path, sink, WRITTEN, emit=emit, buckets=3)
    assert handle.explain() == moved and handle.replaced_at is not None
    handle.stop()
    with pytest.raises(ew.QueryError, match=r"taking over, from \d+ on; .* buckets=3, then change it again"):
        begun(spark, tmp_path, sink, WRITTEN, emit=emit, buckets=1)
    handle = begun(spark, tmp_path, sink, WRITTEN, emit=emit, buckets=None)
    assert handle.replaced_at is not None
    at = finish(spark, tmp_path, handle, cut, at + 1)
    handle.stop()
    # another text: refused without a word for it
    with pytest.raises(ew.QueryError, match=r"(?s)holds the state of another query.*now.*min.*migrate=True"):
        begun(spark, tmp_path, sink, OTHER, emit=emit, buckets=3)
    with pytest.raises(ew.QueryError, match=r"no instant is known.*all of the past"):
        begun(spark, tmp_path, sink, ROWS, emit=emit, buckets=3, migrate=True)
    handle = begun(spark, tmp_path, sink, OTHER, emit=emit, buckets=1, migrate=True)
    changed = handle.replaced_at
    assert changed is not None
    at = finish(spark, tmp_path, handle, cut, at)
    write_epochs(tmp_path / "Bid", cut[at:], first=at)
    handle.process_available()
    handle.stop()
    assert {each.bucket for each in handle.state()} == {0}
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    assert_same_history(History.of(found, OTHER.schema), spliced([(NEVER, WRITTEN), (changed, OTHER)], given))


ASKS = ew.source("Ask", {"item": "string", "price": "int64"})
JOINED = (
    "SELECT b.item AS item, a.price + 1 AS n, b.price AS v FROM Bid AS b WINDOW(RANGE 2 MILLISECONDS) "
    "JOIN Ask AS a WINDOW(RANGE 2 MILLISECONDS) ON a.item = b.item WHERE b.price > 1 AND a.price < 7"
)


@pytest.mark.slow
def test_a_join_changes_its_plan_every_other_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """As written and as rewritten by turns, in two partitions, then in one; of both sources the past is told."""
    sink, given = MemorySink(), {"Bid": events(5, 60), "Ask": events(6, 60)}
    cut = {name: epochs(rows, 7, 16) for name, rows in given.items()}
    query = ew.sql(JOINED, BIDS, ASKS)

    def pushed(first: int, last: int) -> None:
        for name, batches in cut.items():
            write_epochs(tmp_path / name, batches[first:last], first=first)

    def joined(**more: int) -> Handle:
        frames = {name: read_epochs(spark, tmp_path / name, SCHEMA) for name in given}
        handle = start(query, frames, sink=sink, checkpoint=tmp_path / "state", snapshot_every=3, emit="final", **more)  # type: ignore[arg-type]
        handle.process_available()
        return handle

    pushed(0, 8)
    joined(buckets=2, replan_every=2).stop()
    handle, at = joined(), 8
    while handle.replaced_at is not None:
        pushed(at, at + 1)
        handle.process_available()
        at += 1
    handle.stop()
    record = read_record(str(tmp_path / "state"))
    assert record is not None and record.number >= 1 and record.buckets == 2 and at < 14
    pushed(at, 16)
    joined(buckets=1).stop()
    last = read_record(str(tmp_path / "state"))
    assert last is not None and last.number == record.number + 1 and last.buckets == 1
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    assert not any(isinstance(each, ew.Adjust) for each in found), "nothing is taken back"
    inputs = {name: History.of(rows, SCHEMA) for name, rows in given.items()}
    assert_same_history(History.of(found, query.schema), ew.reference.history(query.node, inputs))


def test_state_moves_where_nobody_can_tell_the_past(spark: SparkSession, tmp_path: Path) -> None:
    """A window of rows in two stages: at a restart its state is split by key, and nothing is said because of it."""
    sink, given = MemorySink(), events(3, 30)
    cut = epochs(given, 4, 9)
    for first, buckets in ((0, 2), (3, 3), (6, 1)):
        write_epochs(tmp_path / "Bid", cut[first : first + 3], first=first)
        handle = begun(spark, tmp_path, sink, ROWS, buckets=buckets)
        assert handle.replaced_at is None
        handle.process_available()
        handle.stop()
        assert {each.bucket for each in handle.state()} == set(range(buckets))
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    assert_same_history(History.of(found, ROWS.schema), spliced([(NEVER, ROWS)], given))


def test_what_cannot_move_is_named(spark: SparkSession, tmp_path: Path) -> None:
    sink, cut, query = MemorySink(), epochs(events(3), 4, 6), BIDS.rows(2).coalesce()
    write_epochs(tmp_path / "Bid", cut[:1])
    handle = begun(spark, tmp_path, sink, query, emit="final")
    handle.process_available()
    handle.stop()
    why = r"from 2 to 3 partitions: the state of the operator 'coalesce' .*all of the past.*go on with buckets=2"
    with pytest.raises(ew.QueryError, match=why):
        begun(spark, tmp_path, sink, query, buckets=3, emit="final")
    with pytest.raises(TypeError, match="unexpected keyword argument 'bucket'"):
        begun(spark, tmp_path, sink, ROWS, bucket=3)
    with pytest.raises(ew.QueryError, match="replanned every epoch at the most, not every 0"):
        begun(spark, tmp_path, sink, ROWS, replan_every=0)
