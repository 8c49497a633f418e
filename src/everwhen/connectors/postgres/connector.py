"""PostgreSQL's options in SQL, and how its sources and sinks are opened.

CREATE STREAM Price (item BIGINT, price DOUBLE)
    SOURCE postgres('host=db dbname=shop', 'prices', key = 'item');
CREATE SINK best INTO postgres('host=db dbname=shop', 'best', form = 'upsert', key = 'item') AS SELECT …
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import pyarrow as pa

from everwhen.connectors.changes.change_input import ChangeInput
from everwhen.connectors.changes.relation import RelationInput
from everwhen.connectors.options import Option, OptionError, Options
from everwhen.connectors.postgres.database import Database, library
from everwhen.connectors.postgres.first_rows import texts_of
from everwhen.connectors.postgres.sink import PostgresRows
from everwhen.connectors.postgres.slot import Slot
from everwhen.connectors.postgres.values import columns_of
from everwhen.connectors.registry import STATE, SinkConnector, SinkPlace, SourceConnector, SourcePlace, state_of
from everwhen.core.schema import Schema
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.errors import SourceError
from everwhen.formats.input_file import InputFile
from everwhen.sinks.base import EpochSink
from everwhen.sinks.postgres import PostgresSink
from everwhen.sinks.rows import RowSink

_WHERE: Final = (
    Option("connection", "text", "as libpq writes it: 'host=db dbname=shop'", required=True, secret=True),
    Option("table", "text", "the table", required=True),
    Option("schema", "text", "the schema of the database", default="public"),
    Option("timeout", "duration", "how long a lock of somebody else is waited for", default="10 s", free=True),
)
_READ: Final = (
    *_WHERE,
    Option("key", "names", "the columns that tell rows apart: the primary key"),
    STATE,
    Option("heartbeat", "duration", "how often a table at rest is said to be at rest", default="1 s", free=True),
    Option("slot", "text", "the name of the replication slot and publication (default: everwhen_ and the stream)"),
)


def _database(options: Options) -> Database:
    library()
    where = options.text("connection"), options.text("table"), options.text("schema")
    return Database(*where, options.seconds("timeout"))


def open_source(options: Options, place: SourcePlace) -> LiveInput:
    """A table as an input: its changes, or, of a relation, the table as it is."""
    database = _database(options)
    given = place.file(f"postgres://{database.schema}/{database.table}", database.shown)
    if given.known_whole:
        return RelationInput(place.name, given, database.shown, partial(_relation, database, given, place))
    if place.time is not None:
        raise OptionError(f"postgres: rows of {place.name} live from change to change; leave ORDERED BY out", "table")
    key = options.names("key")
    if not key:
        raise OptionError("postgres: which rows replace each other? Write key = 'id'", "table")
    for name in key:
        place.schema.index(name, "the key")
    state = state_of(options, place)
    if state is None:
        problem = "postgres: where are the rows of the start kept? Write state = '/a/folder'"
        raise OptionError(problem, "table")
    slot = options.maybe("slot") or "everwhen_" + re.sub(r"\W", "_", place.name.lower())
    slot += f"_{place.reader}" if place.reader else ""
    if not re.fullmatch(r"[a-z0-9_]{1,63}", slot):
        raise OptionError(f"postgres: a slot is named with a-z, 0-9 and _, not {slot!r}", "slot")
    log = Slot(database, place.schema, key, slot, state, options.seconds("heartbeat"))
    return ChangeInput(place.name, given, log, partial(log.decode, tick=given.tick_length), key, 0, state)


def _relation(
    database: Database, given: InputFile, place: SourcePlace, version: int | None
) -> tuple[pa.Table, int | None]:
    types = [(name, type_) for name, type_ in place.types.items() if name not in given.schema]
    rest = [(name, pa.int64()) for name in given.times if name not in given.schema and name not in place.types]
    schema = Schema.of([*((field.name, field.type) for field in given.schema), *types, *rest])
    with database.explained(SourceError, "read it"), database.connect() as connection:
        rows = connection.execute(texts_of(database, schema.names)).fetchall()
    return pa.table(dict(zip(schema.names, columns_of(rows, schema, database.shown), strict=True))), None


def open_elements(options: Options, place: SinkPlace) -> EpochSink:
    """The history of the answer in a table, and the answer in a view."""
    library()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    connection = options.text("connection")
    if "options" not in conninfo_to_dict(connection):
        connection = make_conninfo(connection, options=f"-c lock_timeout={int(options.seconds('timeout') * 1000)}")
    return PostgresSink(connection, options.text("table"), schema=options.text("schema"))


def open_rows(options: Options, place: SinkPlace) -> RowSink:
    """A table as a sink of rows."""
    return PostgresRows(_database(options), place.form, place.key)


SOURCES: Final = (
    SourceConnector(
        "postgres",
        "a table's changes by logical decoding, or the table as it is",
        _READ,
        open_source,
        promise="every transaction once: the slot keeps what no checkpoint has",
        aliases=("postgresql",),
    ),
)
SINKS: Final = (
    SinkConnector(
        "postgres",
        "a table, one transaction per epoch",
        _WHERE,
        ("upsert", "append", "elements"),
        open_elements,
        open_rows,
        promise="exactly once: the epoch's number is changed in the same transaction as the rows",
        aliases=("postgresql",),
    ),
)
