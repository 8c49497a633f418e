"""Delta in and out: a commit per epoch, once; the change feed as rows that live from change to change."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from everwhen.connectors.registry import (
    SinkPlace,
    SourcePlace,
    sink_connector,
    sink_options,
    source_connector,
    source_options,
)
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import InputError, QueryError, SinkError, SourceError, StateError
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}


def source(path: Path, place: SourcePlace | None = None, **options: Any) -> Any:
    connector = source_connector("delta")
    return connector.open(source_options(connector, (str(path),), options), place or SourcePlace("Price", SCHEMA))


def sink(path: Path, form: str, key: tuple[str, ...] = (), schema: Schema = SCHEMA, **options: Any) -> Any:
    connector = sink_connector("delta")
    opened = connector.elements if form == "elements" else connector.rows
    assert opened is not None
    return opened(sink_options(connector, (str(path),), options), SinkPlace("best", schema, form, key))


def changes(form: str, *listed: tuple[int, Any, Any]) -> RowChanges:
    rows = pa.record_batch(
        [pa.array([i for _, i, _ in listed], pa.int64()), pa.array([n for _, _, n in listed], pa.string())],
        names=["item", "name"],
    )
    return RowChanges(form, np.array([op for op, _, _ in listed], np.uint8), rows, 0)


def rows(path: Path) -> list[tuple[Any, ...]]:
    """What DuckDB sees of the files that the table's log names."""
    files = DeltaTable(str(path)).file_uris()
    if not files:
        return []
    listed = ", ".join(f"'{file}'" for file in files)
    return sorted(duckdb.sql(f"SELECT item, name FROM read_parquet([{listed}])").fetchall(), key=str)


def table(*listed: tuple[Any, Any]) -> pa.Table:
    return pa.table({"item": pa.array([i for i, _ in listed], pa.int64()), "name": [n for _, n in listed]})


def history(batches: list[ElementBatch]) -> Mapping[Any, int]:
    return History.of(batches, SCHEMA).multiset


# -- sinks ---------------------------------------------------------------------------------------------------------


def test_appended_rows_are_in_once(tmp_path: Path) -> None:
    first = pickle.loads(pickle.dumps(sink(tmp_path / "t", "append")))
    first.prepare(SCHEMA)
    assert first.committed() == -1
    for epoch in (0, 0, 2, 1):
        first.commit(epoch, changes("append", (PUT, epoch, "a"), (PUT, epoch, "a")))
    again = sink(tmp_path / "t", "append")
    again.prepare(SCHEMA)
    assert again.committed() == 2
    again.commit(2, changes("append", (PUT, 9, "z")))
    again.commit(3, changes("append"))
    assert rows(tmp_path / "t") == [(0, "a"), (0, "a"), (2, "a"), (2, "a")]
    assert DeltaTable(str(tmp_path / "t")).transaction_version("everwhen-best") == 2


def test_upserts_are_one_row_per_key(tmp_path: Path) -> None:
    out = sink(tmp_path / "t", "upsert", ("item",))
    out.prepare(SCHEMA)
    out.commit(0, changes("upsert", (PUT, 1, "a"), (PUT, 2, "b"), (PUT, None, "n")))
    out.commit(1, changes("upsert", (DELETE, 1, None), (PUT, 2, "c"), (DELETE, 7, None), (PUT, None, "m")))
    out.commit(1, changes("upsert", (PUT, 5, "twice")))
    assert rows(tmp_path / "t") == [(2, "c"), (None, "m")]


def test_changes_are_appended_in_their_order(tmp_path: Path) -> None:
    """What came less what went is the answer, whoever reads it, and an epoch is in once."""
    out, rng = sink(tmp_path / "t", "retract", ("item",)), random.Random(5)
    out.prepare(SCHEMA)
    now: dict[int, str] = {}
    for epoch in range(12):
        listed: list[tuple[int, Any, Any]] = []
        for item in rng.sample(range(8), 4):
            name = rng.choice([None, *"abc"])
            before = now.pop(item, None)
            if name is not None:
                now[item] = name
            if name is not None and before is not None:
                listed += [(BEFORE, item, before), (AFTER, item, name)]
            elif name is not None or before is not None:
                listed.append((PUT, item, name) if before is None else (DELETE, item, before))
        for _ in range(2):
            out.commit(epoch, changes("retract", *listed))
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    net = duckdb.sql(
        "SELECT item, name FROM found GROUP BY ALL "
        "HAVING sum(CASE WHEN op IN ('insert', 'update_postimage') THEN 1 ELSE -1 END) <> 0 ORDER BY item"
    ).fetchall()
    assert net == sorted(now.items()) and net
    ordered = found.sort_by([("_epoch", "ascending"), ("_sequence", "ascending")]).to_pylist()
    for before, after in pairwise(ordered):
        assert (before["op"] == "update_preimage") == (after["op"] == "update_postimage")
    odd = Schema.of([("_epoch", pa.int64())])
    with pytest.raises(SinkError, match=r"form retract adds a column '_epoch'.*rename it"):
        sink(tmp_path / "odd", "retract", schema=odd).prepare(odd)


def test_elements_can_be_read_back_in_their_order(tmp_path: Path) -> None:
    out = sink(tmp_path / "t", "elements")
    out.prepare(SCHEMA)
    row = {"item": 1, "name": "a"}
    out.commit(0, batch_of([Insert(0, INF, row), Cti(3)], SCHEMA))
    out.commit(4, batch_of([Adjust(0, INF, 4, row), Cti(INF)], SCHEMA))
    found = (
        DeltaTable(str(tmp_path / "t"))
        .to_pyarrow_table()
        .sort_by([("_epoch", "ascending"), ("_sequence", "ascending")])
    )
    assert found.select(["_epoch", "op", "vs", "ve", "vnew", "item"]).to_pylist() == [
        {"_epoch": 0, "op": "insert", "vs": 0, "ve": None, "vnew": None, "item": 1},
        {"_epoch": 0, "op": "cti", "vs": 3, "ve": None, "vnew": None, "item": None},
        {"_epoch": 4, "op": "adjust", "vs": 0, "ve": None, "vnew": 4, "item": 1},
        {"_epoch": 4, "op": "cti", "vs": None, "ve": None, "vnew": None, "item": None},
    ]


def test_two_sinks_in_one_table_have_epochs_of_their_own(tmp_path: Path) -> None:
    one, two = sink(tmp_path / "t", "append", id="one"), sink(tmp_path / "t", "append", id="two")
    for each, epoch in ((one, 3), (two, 1)):
        each.prepare(SCHEMA)
        each.commit(epoch, changes("append", (PUT, epoch, "x")))
    assert (sink(tmp_path / "t", "append", id="one").committed(), two.committed()) == (3, 1)
    assert rows(tmp_path / "t") == [(1, "x"), (3, "x")]


def test_other_columns_and_types_are_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"item": ["text"], "name": ["x"]}))
    with pytest.raises(SinkError, match=r"other columns: expected \(item int64, name string\), found \(item string"):
        sink(tmp_path / "t", "append").prepare(SCHEMA)
    odd = Schema.of([("x", pa.uint32())])
    with pytest.raises(SinkError, match="'x' is uint32, which Delta has not"):
        sink(tmp_path / "u", "append", schema=odd).prepare(odd)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SinkError, match=r"Delta table .*file: cannot prepare it"):
        sink(tmp_path / "file", "append").prepare(SCHEMA)
    with pytest.raises(QueryError, match="did you mean 'path'"):
        source_options(source_connector("delta"), (), {"pth": "x"})


def test_times_keep_their_microseconds(tmp_path: Path) -> None:
    schema = Schema.of([("at", pa.timestamp("ms")), ("price", pa.decimal128(6, 2)), ("tags", pa.list_(pa.string()))])
    out = sink(tmp_path / "t", "append", schema=schema)
    out.prepare(schema)
    batch = pa.record_batch(
        [pa.array([5], pa.timestamp("ms")), pa.array(["2.50"]).cast(pa.decimal128(6, 2)), [["a", None]]],
        names=["at", "price", "tags"],
    )
    out.commit(0, RowChanges("append", np.zeros(1, np.uint8), batch, 0))
    out.prepare(schema)
    (row,) = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert (row["at"].microsecond, str(row["price"]), row["tags"]) == (5000, "2.50", ["a", None])


# -- sources -------------------------------------------------------------------------------------------------------


def test_the_feed_of_a_table_with_a_key(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table((1, "a"), (2, "b")), configuration=FEED)
    feed = source(path, key="item")
    said = [feed.take(100)]
    assert said[0].op.tolist() == [0, 0, 2]
    DeltaTable(str(path)).update(updates={"name": "'c'"}, predicate="item = 2")
    DeltaTable(str(path)).delete("item = 1")
    said.append(feed.take(100))
    assert feed.take(100) is None
    found = history(said)
    (b,) = [(vs, ve) for vs, ve, row in found if row == (2, "b")]
    (c,) = [(vs, ve) for vs, ve, row in found if row == (2, "c")]
    (a,) = [(vs, ve) for vs, ve, row in found if row == (1, "a")]
    assert b[1] == c[0] and c[1] == INF and a[1] >= b[1] > b[0] and len(found) == 3
    times = [entry["timestamp"] for entry in DeltaTable(str(path)).history()]
    assert sorted([b[0], c[0], a[1]]) == sorted(times)


def test_appended_rows_by_a_column_of_time_and_by_commit(tmp_path: Path) -> None:
    path = tmp_path / "t"
    more = table((1, "a"), (1, "a")).append_column("ts", pa.array([50, 40]))
    write_deltalake(path, more, configuration=FEED)
    feed = source(path, SourcePlace("Sale", SCHEMA, time="ts"), disorder="10 ms")
    assert [str(each) for each in feed.take(10).elements()] == [
        "insert [40, 41) item=1 name='a'",
        "insert [50, 51) item=1 name='a'",
        "cti 40",
    ]
    (first, *_), stamp = source(path).take(10).elements(), DeltaTable(str(path)).history()[0]["timestamp"]
    assert str(first).startswith(f"insert [{stamp}, {stamp + 1})")
    DeltaTable(str(path)).delete("ts = 40")
    with pytest.raises(InputError, match=r"version 1 has a change 'delete'.*key = 'id'"):
        feed.take(10)
    assert feed.position["log"]["version"] == 0


@pytest.mark.parametrize("key", [True, False])
def test_the_same_again_from_any_version(tmp_path: Path, key: bool) -> None:
    path, rng = tmp_path / "t", random.Random(2)
    options = {"key": "item", "state": str(tmp_path / "state")} if key else {}
    write_deltalake(path, table(*((i, "x") for i in range(20))), configuration=FEED)
    feed, told = source(path, **options), []
    for i in range(6):
        before = json.loads(json.dumps(feed.position))
        batch = feed.take(1000)
        told.append((before, [str(each) for each in batch.elements()], feed.position))
        if i == 2:
            feed.leave_word("job", feed.position, 0)
        if key and i % 2:
            DeltaTable(str(path)).delete(f"item < {i * 3}")
        write_deltalake(path, table(*((rng.randrange(100, 200), str(i)) for _ in range(5))), mode="append")
    for first in (3, 5) if key else (0, 4):
        other = pickle.loads(pickle.dumps(source(path, **options)))
        other.seek(told[first][0])
        for _, expected, position in told[first:]:
            assert [str(each) for each in other.take_to(position).elements()] == expected
            assert other.position == position


@pytest.mark.parametrize("key", [True, False])
def test_a_table_at_rest_promises_and_later_commits_count_from_there(
    tmp_path: Path, key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ahead, hour = tmp_path / "t", [0], 3_600_000
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + ahead[0] * 10**6)
    write_deltalake(path, table((1, "a")), configuration=FEED)
    options = {"heartbeat": "1 ms", "disorder": "0 s", **({"key": "item"} if key else {})}
    feed, told = source(path, **options), []

    def take() -> list[Any]:
        time.sleep(0.003)
        before = json.loads(json.dumps(feed.position))
        batch = feed.take(100)
        found = [] if batch is None else list(batch.elements())
        told.append((before, [str(each) for each in found], json.loads(json.dumps(feed.position))))
        return found

    assert isinstance(take()[0], Insert)
    assert not take()  # the time is noted
    (rests,) = take()
    assert isinstance(rests, Cti)
    ahead[0] = hour
    take()
    (later,) = take()  # the clock of this machine is ahead of the writer's
    assert isinstance(later, Cti) and later.t >= rests.t + hour // 2
    write_deltalake(path, table((2, "b")), mode="append")
    inserted = take()[0]
    assert isinstance(inserted, Insert) and inserted.vs >= later.t
    for first in range(len(told)):
        other = source(path, **options)
        other.seek(told[first][0])
        again = other.take_to(told[-1][2])
        expected = [line for _, lines, _ in told[first:] for line in lines if not line.startswith("cti")]
        assert [str(each) for each in again.elements() if not isinstance(each, Cti)] == expected
        assert other.position == told[-1][2]


def test_a_table_as_a_relation_is_read_at_one_version(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table((2, "b"), (1, "a")))
    place = SourcePlace("Item", SCHEMA, "constant")
    relation = source(path, place)
    found = [str(each) for each in relation.take(1).elements()]
    assert found == ["insert [0, ∞) item=1 name='a'", "insert [0, ∞) item=2 name='b'"] and relation.ended
    write_deltalake(path, table((3, "c")), mode="append")
    again = source(path, place)
    assert [str(each) for each in again.take_to(relation.position).elements()] == found
    assert len(source(path, place).take(1)) == 3


def test_a_table_that_is_away_has_no_feed_or_was_made_anew(tmp_path: Path) -> None:
    missing = source(tmp_path / "none", key="item")
    assert not missing.is_there
    with pytest.raises(SourceError, match=r"none: cannot read its change feed: .*check the path"):
        missing.take(1)
    write_deltalake(tmp_path / "plain", table((1, "a")))
    with pytest.raises(
        StateError, match=r"plain: cannot read the versions 0 to 0: .*delta.enableChangeDataFeed = true"
    ):
        source(tmp_path / "plain", key="item").take(1)
    with pytest.raises(SourceError, match="there is no column 'price'"):
        wide = Schema.of([("item", pa.int64()), ("price", pa.float64())])
        source(tmp_path / "plain", SourcePlace("P", wide)).take(1)
    write_deltalake(tmp_path / "new", table((1, "a")), configuration=FEED)
    feed = source(tmp_path / "new", key="item")
    feed.take(1)
    with pytest.raises(StateError, match="version 7 was read before"):
        feed.take_to({**feed.position, "log": {"version": 7}})
    for wrong, what in (
        ({"start": "soon"}, "start is 'earliest'"),
        ({"state": "x"}, "state is for a table with a key"),
    ):
        with pytest.raises(QueryError, match=what):
            source(tmp_path / "new", **wrong)


def test_from_a_version_on_and_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table((1, "a")), configuration=FEED)
    write_deltalake(path, table((2, "b")), mode="append")
    later, latest = source(path, start="1"), source(path, start="latest")
    assert latest.take(1) is None
    assert [element.row["item"] for element in later.take(10).elements()] == [2]
    write_deltalake(path, table((3, "c")), mode="append")
    assert [element.row["item"] for element in latest.take(10).elements()] == [3]


def test_a_commit_of_another_application_is_no_epoch_of_ours(tmp_path: Path) -> None:
    out = sink(tmp_path / "t", "append")
    out.prepare(SCHEMA)
    other = CommitProperties(app_transactions=[Transaction("someone", 99)])
    write_deltalake(tmp_path / "t", table((1, "a")), mode="append", commit_properties=other)
    assert sink(tmp_path / "t", "append").committed() == -1
