"""The current output of a query as a relation in PostgreSQL, moved forward by one transaction per epoch.

For `PostgresSink(conninfo, "prices", key=["item"])` there are, in the database schema given:

    prices_history     a table: every event of the output's history so far, once, with its multiplicity
    prices             a view of it: without `key` all of it; with `key` the newest event per key (largest valid_from)
    everwhen_epochs    a table: for every sink table the last epoch that is in

Both have the payload columns and then `valid_from`, `valid_to` (ticks; a null end is infinity) and `multiplicity`.
Guarantee: whenever a transaction looks, `prices_history` is the history of all elements of the epochs up to the one in
`everwhen_epochs`, and of no others; an event that is taken back is gone, and with `key` the one before it shows again.

An epoch is netted in the database: its elements are copied to a temporary table as changes `(event, ±1)`, summed, and
added to the history.  Changes commute, so their order within an epoch does not matter.  An event is found by the
SHA-256 digest of its text (column `event`), because columns may be null and long.  An adjust of an event that is not
there fails the whole epoch.

Needs `psycopg` 3 and PostgreSQL 12 or newer.  How payload values look there: `postgres_types`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, LiteralString

import numpy as np
import pyarrow as pa
from pyarrow import csv

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError, SinkError
from everwhen.sinks.base import EpochSink
from everwhen.sinks.postgres_types import sql_type, text_column
from everwhen.stream.element_batch import ADJUST, INSERT, ElementBatch

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

EPOCHS: Final = "everwhen_epochs"
_EVENT: Final = "event"
_INSIDE: Final = ("everwhen_change", "everwhen_before")
_LIFETIME: Final = ("valid_from", "valid_to", "multiplicity")
_LONGEST: Final = 63
"""Bytes of a name; PostgreSQL cuts longer ones off without a word."""
_PIECE: Final = 50_000

# A digest of an event's text is taken, so the text must not depend on the settings of a user, database or server.
_TEXT_FORMS: Final = """
SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1"""

_STAGE: Final = """
CREATE TEMP TABLE everwhen_stage (valid_from bigint, valid_to bigint, everwhen_change bigint{typed}) ON COMMIT DROP"""
_NET: Final = """
CREATE TEMP TABLE everwhen_net ON COMMIT DROP AS
SELECT net.*, coalesce(history.multiplicity, 0) AS everwhen_before
FROM (
    SELECT sha256(convert_to(ROW(valid_from, valid_to{columns})::text, 'UTF8')) AS event,
           valid_from, valid_to{columns}, sum(everwhen_change)::bigint AS everwhen_change
    FROM everwhen_stage GROUP BY valid_from, valid_to{columns} HAVING sum(everwhen_change) <> 0
) net LEFT JOIN {history} history ON history.event = net.event"""
_MISSING: Final = "SELECT * FROM everwhen_net WHERE everwhen_before + everwhen_change < 0 LIMIT 1"
_ADD: Final = """
INSERT INTO {history} (event, valid_from, valid_to, multiplicity{columns})
SELECT event, valid_from, valid_to, everwhen_change{columns} FROM everwhen_net WHERE everwhen_before = 0"""
_CHANGE: Final = """
UPDATE {history} history SET multiplicity = everwhen_before + everwhen_change
FROM everwhen_net net
WHERE history.event = net.event AND everwhen_before > 0 AND everwhen_before + everwhen_change > 0"""
_REMOVE: Final = """
DELETE FROM {history} history
USING everwhen_net net
WHERE history.event = net.event AND everwhen_before > 0 AND everwhen_before + everwhen_change = 0"""

_HISTORY: Final = """
CREATE TABLE {history} (event bytea PRIMARY KEY{typed},
    valid_from bigint NOT NULL, valid_to bigint, multiplicity bigint NOT NULL CHECK (multiplicity > 0))"""
_ALL: Final = "CREATE OR REPLACE VIEW {view} AS SELECT {shown} FROM {history}"
_NEWEST: Final = """
CREATE OR REPLACE VIEW {view} AS SELECT DISTINCT ON ({key}) {shown} FROM {history}
ORDER BY {key}, valid_from DESC, valid_to DESC NULLS FIRST, event"""
_RELATIONS: Final = """
SELECT relname, relkind::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = {space} AND relname IN ({name}, {history_name})"""
_COLUMNS: Final = """
SELECT attname::text, format_type(atttypid, atttypmod)
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = {space} AND relname = {history_name} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""


class PostgresSink(EpochSink):
    """Keeps `<table>` and `<table>_history` up to date; `schema` is the database schema that they live in.

    Every epoch costs a COPY and five statements, whatever its size; a lost connection is opened anew at the next call.

    >>> import everwhen as ew
    >>> sink = ew.spark.PostgresSink("host=db dbname=auction", "best_bids", key=["item"])
    >>> sink.table, sink.key
    ('best_bids', ('item',))
    """

    lasting = True

    def __init__(self, conninfo: str, table: str, key: Sequence[str] = (), schema: str = "public") -> None:
        if isinstance(key, str):
            raise QueryError(f"the key of a sink is a list of columns; write key=[{key!r}]")
        for name in (schema, table, f"{table}_history"):
            if not _is_name(name) or not table:
                raise QueryError(f"{name!r} is no name for PostgreSQL: it has 1 to {_LONGEST} bytes, and no zero byte")
        self.conninfo = conninfo
        self.table = table
        self.key = tuple(key)
        self.space = schema
        self._schema: Schema | None = None
        self._connection: psycopg.Connection[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}

    # --- the sink -----------------------------------------------------------------------------------------------

    def prepare(self, schema: Schema) -> None:
        for name in self.key:
            schema.index(name, f"the key of the sink {self.table!r}")
        for name in schema.names:
            taken = (_EVENT, *_LIFETIME, *_INSIDE)
            if name in taken or not _is_name(name):
                remedy = f"rename it: 1 to {_LONGEST} bytes, and not {', '.join(taken)}"
                raise SinkError(f"{self}: a column named {name!r} has no place here ({remedy})")
        expected = [(_EVENT, "bytea"), *((field.name, sql_type(field)) for field in schema)]
        expected += [(name, "bigint") for name in _LIFETIME]
        self._schema = schema
        self.close()
        try:
            self._prepare(expected)
        except BaseException:
            self.close()
            raise

    def _prepare(self, expected: list[tuple[str, str]]) -> None:
        with self._explained("prepare the table"), self._connected() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('everwhen'))")  # two sinks prepared at once
            create = "CREATE TABLE IF NOT EXISTS {epochs} (table_name text PRIMARY KEY, epoch bigint NOT NULL)"
            connection.execute(self._sql(create))
            self._settle(connection, expected)

    def committed(self) -> int:
        with self._explained("read the last epoch"), self._connected() as connection:
            found = self._row(connection)
        return -1 if found is None else int(found[0])

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if batch.schema != self._schema:
            there = "no columns: it was not prepared" if self._schema is None else str(self._schema)
            raise SinkError(f"{self}: epoch {epoch} has the columns {batch.schema}, the sink has {there}")
        with (
            self._explained(f"commit epoch {epoch}"),
            self._connected() as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            # The row is locked until the end, so that of two drivers one waits and then finds the epoch in.
            lock = "SELECT epoch FROM {epochs} WHERE table_name = {name} FOR UPDATE"
            found = cursor.execute(self._sql(lock)).fetchone()
            if found is None:
                raise SinkError(f"{self}: its row in {EPOCHS} is gone (drop {self.table}_history, and start anew)")
            if epoch <= found[0]:
                return
            if (batch.op <= ADJUST).any():
                self._apply(cursor, batch)
            cursor.execute(self._sql("UPDATE {epochs} SET epoch = {epoch} WHERE table_name = {name}", epoch))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __str__(self) -> str:
        return f"PostgreSQL table {self.space}.{self.table}"

    # --- inside -------------------------------------------------------------------------------------------------

    def _apply(self, cursor: psycopg.Cursor[Any], batch: ElementBatch) -> None:
        cursor.execute(_TEXT_FORMS)
        cursor.execute(self._sql(_STAGE))
        with cursor.copy("COPY everwhen_stage FROM STDIN (FORMAT csv)") as copy:
            for piece in csv_of(_changes(batch)):
                copy.write(piece)
        cursor.execute(self._sql(_NET))
        if (missing := cursor.execute(_MISSING).fetchone()) is not None:
            raise SinkError(
                f"{self}: an adjust names an event that is not there: {missing[3:-2]} during [{missing[1]}, "
                f"{missing[2]}) (did someone else change {self.table}_history?)"
            )
        for statement in (_ADD, _CHANGE, _REMOVE):
            cursor.execute(self._sql(statement))

    def _row(self, connection: psycopg.Connection[Any]) -> Any:
        """The epoch of this sink as the database has it; None if it does not know the sink."""
        return connection.execute(self._sql("SELECT epoch FROM {epochs} WHERE table_name = {name}")).fetchone()

    def _settle(self, connection: psycopg.Connection[Any], expected: list[tuple[str, str]]) -> None:
        """Creates the table and the view, or checks that those which are there are ours."""
        kinds = dict(connection.execute(self._sql(_RELATIONS)).fetchall())
        history = f"{self.table}_history"
        if self._row(connection) is None:
            if kinds:
                raise SinkError(
                    f"{self}: there is {' and '.join(sorted(kinds))} already, which no Everwhen sink has made "
                    "(choose another name, or drop it)"
                )
            connection.execute(self._sql(_HISTORY))
            if self.key:
                connection.execute(self._sql("CREATE INDEX ON {history} ({key}, valid_from)"))
            connection.execute(self._sql("INSERT INTO {epochs} VALUES ({name}, -1)"))
        elif kinds.get(history) != "r":
            raise SinkError(f"{self}: {history} is gone (delete the row of {self.table!r} from {EPOCHS} to start anew)")
        found = [tuple(row) for row in connection.execute(self._sql(_COLUMNS)).fetchall()]
        if found != expected:
            raise SinkError(
                f"{self}: the columns are others: expected {_show(expected[1:])}, found {_show(found[1:])} "
                "(choose another name, or drop it)"
            )
        if kinds.get(self.table, "v") != "v":
            raise SinkError(f"{self}: there is something else of that name (choose another name, or drop it)")
        connection.execute(self._sql(_NEWEST if self.key else _ALL))

    def _sql(self, text: LiteralString, epoch: int = -1) -> sql.Composed:
        """A statement with the names of this sink in it, quoted."""
        from psycopg import sql

        fields = (self._schema or Schema(())).fields
        names = [sql.Identifier(field.name) for field in fields]
        typed = [sql.SQL(", {} {}").format(sql.Identifier(f.name), sql.SQL(sql_type(f))) for f in fields]
        return sql.SQL(text).format(
            epochs=sql.Identifier(self.space, EPOCHS),
            history=sql.Identifier(self.space, f"{self.table}_history"),
            view=sql.Identifier(self.space, self.table),
            space=sql.Literal(self.space),
            name=sql.Literal(self.table),
            epoch=sql.Literal(epoch),
            history_name=sql.Literal(f"{self.table}_history"),
            key=sql.SQL(", ").join(sql.Identifier(name) for name in self.key),
            columns=sql.Composed([sql.SQL(", {}").format(name) for name in names]),
            shown=sql.SQL(", ").join([*names, *(sql.Identifier(name) for name in _LIFETIME)]),
            typed=sql.Composed(typed),
        )

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.conninfo, autocommit=True)
        yield self._connection

    @contextmanager
    def _explained(self, wanted: str) -> Iterator[None]:
        try:
            import psycopg
        except ImportError as bad:
            raise SinkError(f"{self}: psycopg 3 is not installed here (pip install 'psycopg[binary]')") from bad
        try:
            yield
        except psycopg.Error as bad:
            remedy = "see the message of the server"
            if isinstance(bad, psycopg.errors.InsufficientPrivilege):
                remedy = "grant the user of the connection the right to create and to write tables there"
            elif isinstance(bad, psycopg.OperationalError):
                remedy = "is the server running, and is the connection string right?"
            elif isinstance(bad, psycopg.DataError):
                remedy = "PostgreSQL cannot hold such a value; cast the column to another type"
            raise SinkError(f"{self}: cannot {wanted}: {' '.join(str(bad).split())} ({remedy})") from bad


def _is_name(name: str) -> bool:
    return 0 < len(name.encode()) <= _LONGEST and "\0" not in name


def _show(columns: Iterable[tuple[str, ...]]) -> str:
    return "(" + ", ".join(" ".join(column) for column in columns) + ")"


def _changes(batch: ElementBatch) -> pa.Table:
    """The elements as changes of the history: start, end, by how many, and the payload."""
    inserts, adjusts = np.flatnonzero(batch.op == INSERT), np.flatnonzero(batch.op == ADJUST)
    moved = adjusts[batch.vnew[adjusts] > batch.vs[adjusts]]
    rows = np.concatenate((inserts, adjusts, moved))
    ends = np.concatenate((batch.ve[inserts], batch.ve[adjusts], batch.vnew[moved]))
    change = np.ones(len(rows), np.int64)
    change[len(inserts) : len(inserts) + len(adjusts)] = -1
    index = pa.array(rows)
    columns = [pa.array(batch.vs[rows]), pa.array(ends, mask=ends == INF), pa.array(change)]
    columns += [text_column(column.take(index)) for column in batch.columns]
    return pa.table(columns, names=[str(i) for i in range(len(columns))])


def csv_of(table: pa.Table) -> Iterator[bytes]:
    """Null is nothing, text stands in quotes: so PostgreSQL tells null from empty text."""
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    for at in range(0, table.num_rows, _PIECE):
        piece = io.BytesIO()
        csv.write_csv(table.slice(at, _PIECE), piece, options)
        yield piece.getvalue()
