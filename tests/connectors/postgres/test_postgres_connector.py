"""PostgreSQL in and out, against a real server: logical decoding, relations, tables moved by epochs."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from everwhen.connectors.options import OptionError
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
from everwhen.errors import SinkError, SourceError, StateError
from everwhen.sinks.rows import DELETE, PUT, RowChanges
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])
Client = psycopg.Connection[Any]


def source(server: str, place: SourcePlace | None = None, table: str = "prices", **options: Any) -> Any:
    connector = source_connector("postgres")
    return connector.open(source_options(connector, (server, table), options), place or SourcePlace("Price", SCHEMA))


def sink(server: str, form: str, key: tuple[str, ...] = (), schema: Schema = SCHEMA, table: str = "best") -> Any:
    connector = sink_connector("postgresql")
    opened = connector.elements if form == "elements" else connector.rows
    assert opened is not None
    return opened(sink_options(connector, (server, table), {}), SinkPlace("best", schema, form, key))


def changes(form: str, *listed: tuple[int, Any, Any]) -> RowChanges:
    rows = pa.record_batch(
        [pa.array([i for _, i, _ in listed], pa.int64()), pa.array([n for _, _, n in listed], pa.string())],
        names=["item", "name"],
    )
    return RowChanges(form, np.array([op for op, _, _ in listed], np.uint8), rows, 0)


def taken(feed: Any) -> list[ElementBatch]:
    found = []
    while (batch := feed.take(1000)) is not None:
        found.append(batch)
    return found


def lives(batches: list[ElementBatch]) -> list[tuple[Any, bool]]:
    """Rows and whether they still live, in the order of their starts."""
    found = sorted(
        Counter(History.of(batches, SCHEMA).multiset).elements(), key=lambda event: (event[0], event[1], str(event[2]))
    )
    return [(row, ve == INF) for _, ve, row in found]


# -- changes of a table --------------------------------------------------------------------------------------------


def test_rows_of_the_start_and_then_what_changes(server: str, client: Client, tmp_path: Path) -> None:
    client.execute("INSERT INTO prices VALUES (0, 1, 'old'), (0, 2, NULL)")
    feed = pickle.loads(pickle.dumps(source(server, key="item", state=str(tmp_path))))
    assert feed.is_there is True
    feed.close()
    said = taken(feed)
    client.execute("UPDATE prices SET name = 'new' WHERE item = 1")
    client.execute("UPDATE prices SET other = 7 WHERE item = 2")
    time.sleep(0.005)  # a row that lives for less than a tick is not said
    with client.transaction():
        client.execute("INSERT INTO prices VALUES (0, 3, 'c')")
        client.execute("UPDATE prices SET item = 4 WHERE item = 3")
        client.execute("DELETE FROM prices WHERE item = 1")
    said += taken(feed)
    assert lives(said) == [((1, "old"), False), ((2, None), True), ((1, "new"), False), ((4, "c"), True)]
    assert said[-1].op[-1] == ElementBatch.CTI
    client.execute("TRUNCATE prices")
    said += taken(feed)
    assert not any(living for _, living in lives(said))
    client.execute("INSERT INTO prices VALUES (0, 9, 'after')")
    assert [row for row, living in lives(said + taken(feed)) if living] == [(9, "after")]
    feed.close()


def test_long_values_that_are_left_out_of_the_log(server: str, client: Client, tmp_path: Path) -> None:
    client.execute("ALTER TABLE prices ALTER name SET STORAGE EXTERNAL, ADD note text")
    schema = Schema.of([*((field.name, field.type) for field in SCHEMA), ("note", pa.string())])
    feed = source(server, SourcePlace("Price", schema), key="item", state=str(tmp_path))
    taken(feed)
    long = "x" * 10_000
    client.execute("INSERT INTO prices VALUES (0, 1, %s, 'a')", [long])
    client.execute("UPDATE prices SET note = 'b'")
    said = taken(feed)
    rows = [row for batch in said for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    assert rows[-2] == (1, long, "b") or rows[-1] == (1, long, "b")
    feed.close()


def test_types(server: str, client: Client, tmp_path: Path) -> None:
    client.execute(
        "CREATE TABLE all_types (id int PRIMARY KEY, b boolean, f double precision, n numeric(8,2), t timestamp, "
        "z timestamptz, u timestamptz, d date, y bytea, j jsonb)"
    )
    schema = Schema.of(
        [
            ("id", pa.int64()), ("b", pa.bool_()), ("f", pa.float64()), ("n", pa.decimal128(8, 2)),
            ("t", pa.timestamp("us")), ("z", pa.timestamp("us", "UTC")), ("u", pa.timestamp("us")), ("d", pa.date32()),
            ("y", pa.binary()), ("j", pa.list_(pa.string())),
        ]
    )  # fmt: skip
    times = "'2024-05-01 12:00:00.123456', '2024-05-01 12:00+02', '2024-05-01 12:00+02', '2024-05-01'"
    row = f"(%s, true, 'NaN', 1.50, {times}, '\\x00ff', '[\"a\"]')"
    client.execute(f"INSERT INTO all_types VALUES {row}", [1])
    feed = source(server, SourcePlace("T", schema), "all_types", key="id", state=str(tmp_path))
    said = taken(feed)
    client.execute(f"INSERT INTO all_types VALUES {row}", [2])
    client.execute("INSERT INTO all_types VALUES (3)")
    said += taken(feed)
    rows = [str(each).partition(" id=")[2] for batch in said for each in batch.elements() if "id=" in str(each)]
    assert rows[0][1:] == rows[1][1:] and "n=1.50" in rows[0] and "b=null" in rows[2]
    assert "u='2024-05-01T10:00:00' " in rows[0]  # what SQL declares as TIMESTAMPTZ
    feed.close()


def test_the_same_again_after_any_end(
    server: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everwhen.connectors.changes.change_input._EFFORT", 0)
    rng, state = random.Random(3), str(tmp_path / "state")
    client.execute("INSERT INTO prices SELECT 0, i, 'start' FROM generate_series(1, 20) i")
    feed, told = source(server, key="item", state=state), []
    for i in range(12):
        before = json.loads(json.dumps(feed.position))
        batch = feed.take(5)
        told.append((before, [] if batch is None else [str(each) for each in batch.elements()], feed.position))
        if i in (4, 8):
            feed.leave_word("job", feed.position, 0)
        for _ in range(rng.randrange(4)):
            with client.transaction():
                for _ in range(rng.randrange(1, 4)):
                    client.execute("DELETE FROM prices WHERE item = %s", [rng.randrange(20)])
                    client.execute(
                        "INSERT INTO prices VALUES (0, %s, %s) ON CONFLICT (item) DO UPDATE SET name = excluded.name",
                        [rng.randrange(30), str(rng.random())],
                    )
    feed.close()
    (confirmed,) = client.execute("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots").fetchone() or (0,)
    assert int(confirmed) == told[8][2]["log"]["lsn"]
    for first in (9, 11):
        other = source(server, key="item", state=state)
        other.seek(told[first][0])
        for _, expected, position in told[first:]:
            batch = other.take_to(position)
            assert ([] if batch is None else [str(each) for each in batch.elements()]) == expected
            assert other.position == position
        rest = taken(other)
        now = {row for row, living in lives_now(other) if living}
        assert now == set(client.execute("SELECT item, name FROM prices").fetchall()), rest
        other.close()


def lives_now(feed: Any) -> list[tuple[Any, bool]]:
    table = feed._rows.table()
    return [(tuple(row[name] for name in SCHEMA.names), True) for row in table.to_pylist()]


def test_a_slot_without_copies_is_read_from_the_start(server: str, client: Client, tmp_path: Path) -> None:
    client.execute("INSERT INTO prices VALUES (0, 1, 'a')")
    feed = source(server, key="item", state=str(tmp_path))
    feed.take(10)
    client.execute("UPDATE prices SET name = 'b'")
    feed.take(10)
    position = feed.position
    feed.close()
    other = source(server, key="item", state=str(tmp_path))
    other.seek(position)
    assert lives_now(other) == [((1, "b"), True)] and other.take(10) is None
    other.close()


def test_slots_that_are_gone_tables_that_are_missing_and_options(server: str, client: Client, tmp_path: Path) -> None:
    feed = source(server, key="item", state=str(tmp_path))
    feed.take(1)
    position = feed.position
    feed.close()
    client.execute("SELECT pg_drop_replication_slot('everwhen_price')")
    gone = source(server, key="item", state=str(tmp_path))
    with pytest.raises(StateError, match="the slot 'everwhen_price' is gone"):
        gone.seek(position)
    gone.close()
    missing = source(server, table="nowhere", key="item", state=str(tmp_path / "other"))
    assert not missing.is_there
    with pytest.raises(SourceError, match=r"public.nowhere: cannot make the slot .*check the options table and schema"):
        missing.take(1)
    missing.close()
    with pytest.raises(SourceError, match=r"is the server running, and is the option connection right"):
        source("host=127.0.0.1 port=9 connect_timeout=2", key="item", state=str(tmp_path / "x")).take(1)
    odd = Schema.of([("item", pa.int64()), ("colour", pa.string())])
    wrong = source(server, SourcePlace("P", odd), key="item", state=str(tmp_path / "y"))
    with pytest.raises(SourceError, match="there is no column 'colour'"):
        wrong.take(1)
    wrong.close()
    for options, what in (
        ({"state": "x"}, "which rows replace each other"),
        ({"key": "item"}, "state = "),
        ({"key": "item", "state": "x", "slot": "No Name"}, "a slot is named with"),
    ):
        with pytest.raises(OptionError, match=what):
            source(server, **options)


def test_a_slot_that_somebody_else_reads_is_no_gap(server: str, client: Client, tmp_path: Path) -> None:
    feed = source(server, key="item", state=str(tmp_path))
    taken(feed)
    client.execute("INSERT INTO prices VALUES (0, 1, 'a')")
    client.execute("SELECT pg_replication_slot_advance('everwhen_price', pg_current_wal_lsn())")
    with pytest.raises(StateError, match="somebody else has read on in the slot 'everwhen_price'"):
        feed.take(10)
    feed.close()


def test_a_column_that_is_dropped_under_way_is_named(server: str, client: Client, tmp_path: Path) -> None:
    feed = source(server, key="item", state=str(tmp_path))
    taken(feed)
    client.execute("ALTER TABLE prices DROP name")
    client.execute("INSERT INTO prices VALUES (0, 5)")
    with pytest.raises(SourceError, match="the column 'name' is gone"):
        feed.take(10)
    feed.close()


# -- a relation ----------------------------------------------------------------------------------------------------


def test_a_table_as_a_relation(server: str, client: Client) -> None:
    client.execute("INSERT INTO prices VALUES (0, 2, 'b'), (0, 1, 'a')")
    place = SourcePlace("Item", SCHEMA, "constant")
    relation = source(server, place)
    found = [str(each) for each in relation.take(1).elements()]
    assert found == ["insert [0, ∞) item=1 name='a'", "insert [0, ∞) item=2 name='b'"] and relation.ended
    assert [str(each) for each in source(server, place).take_to(relation.position).elements()] == found
    client.execute("DELETE FROM prices WHERE item = 1")
    with pytest.raises(StateError, match="has other rows than when it was read"):
        source(server, place).take_to(relation.position)


# -- sinks ---------------------------------------------------------------------------------------------------------


def test_upserts_and_appends_are_in_once(server: str, client: Client) -> None:
    out = pickle.loads(pickle.dumps(sink(server, "upsert", ("item",))))
    out.prepare(SCHEMA)
    assert out.committed() == -1
    out.commit(0, changes("upsert", (PUT, 1, "a"), (PUT, 2, 'b,"x'), (PUT, 3, "")))
    out.commit(2, changes("upsert", (DELETE, 1, None), (PUT, 2, None), (DELETE, 8, None)))
    out.commit(2, changes("upsert", (PUT, 5, "twice")))
    out.commit(3, changes("upsert"))
    assert out.committed() == 3
    out.close()
    again = sink(server, "upsert", ("item",))
    again.prepare(SCHEMA)
    assert again.committed() == 3
    again.close()
    assert client.execute("SELECT item, name FROM best ORDER BY item").fetchall() == [(2, None), (3, "")]
    rows = sink(server, "append", table="log")
    rows.prepare(SCHEMA)
    for epoch in (0, 0, 1):
        rows.commit(epoch, changes("append", (PUT, epoch, "x"), (PUT, epoch, "x")))
    rows.close()
    assert client.execute("SELECT item FROM log ORDER BY 1").fetchall() == [(0,), (0,), (1,), (1,)]


def test_a_key_alone_and_tables_that_are_there(server: str, client: Client) -> None:
    only = Schema.of([("item", pa.int64())])
    out = sink(server, "upsert", ("item",), only, "keys")
    out.prepare(only)
    batch = pa.record_batch([pa.array([1, 2])], names=["item"])
    for epoch in range(2):
        out.commit(epoch, RowChanges("upsert", np.zeros(2, np.uint8), batch, 0))
    out.close()
    assert client.execute("SELECT count(*) FROM keys").fetchone() == (2,)
    client.execute("CREATE TABLE mine (name text, item bigint)")
    with pytest.raises(SinkError, match=r"there is no unique index on \(item\).*CREATE UNIQUE INDEX"):
        sink(server, "upsert", ("item",), table="mine").prepare(SCHEMA)
    client.execute("CREATE UNIQUE INDEX ON mine (item)")
    mine = sink(server, "upsert", ("item",), table="mine")
    mine.prepare(SCHEMA)
    mine.commit(0, changes("upsert", (PUT, 1, "a")))
    mine.close()
    assert client.execute("SELECT item, name FROM mine").fetchall() == [(1, "a")]
    client.execute("CREATE TABLE others (item text)")
    with pytest.raises(SinkError, match=r"expected \(item bigint, name text\), found \(item text\)"):
        sink(server, "append", table="others").prepare(SCHEMA)


def test_an_epoch_that_fails_is_not_in(server: str, client: Client) -> None:
    out = sink(server, "upsert", ("item",))
    out.prepare(SCHEMA)
    with pytest.raises(SinkError, match="a key has no null"):
        out.commit(0, changes("upsert", (PUT, 1, "a"), (PUT, None, "b")))
    assert out.committed() == -1 and client.execute("SELECT count(*) FROM best").fetchone() == (0,)
    client.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(SinkError, match="Nothing is lost"):
        out.commit(0, changes("upsert", (PUT, 1, "a")))
    out.commit(0, changes("upsert", (PUT, 1, "a")))
    assert out.committed() == 0
    out.close()
    with pytest.raises(SinkError, match="is the server running"):
        sink("host=127.0.0.1 port=9 connect_timeout=2", "append").prepare(SCHEMA)


def test_elements_are_the_history(server: str, client: Client) -> None:
    from everwhen.stream.element import Insert
    from everwhen.stream.element_batch import batch_of

    out = sink(server, "elements")
    out.prepare(SCHEMA)
    out.commit(0, batch_of([Insert(1, 5, {"item": 1, "name": "a"})], SCHEMA))
    out.close()
    assert client.execute("SELECT item, valid_from, valid_to FROM best").fetchall() == [(1, 1, 5)]
