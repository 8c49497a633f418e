"""A replication slot as a log: positions are places in the write-ahead log at which transactions end.

At first the table is read as of the moment at which the slot is made (its exported snapshot), and kept in the folder
`state`, so that these rows can be read again; then come the transactions since.  They are looked at (peek) and stay in
the slot; what a job has a checkpoint of is given up (`passed`), and only then does the server forget it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from everwhen.connectors.changes.live_rows import TableChanges
from everwhen.connectors.changes.log import Plain
from everwhen.connectors.postgres.database import Database, library
from everwhen.connectors.postgres.pgoutput import CLEAR, GONE, UNCHANGED, Decoder, Transaction
from everwhen.connectors.postgres.values import columns_of
from everwhen.core.schema import Schema
from everwhen.errors import SourceError, StateError
from everwhen.storage.atomic_file import whole_file

PART: Final = "0"
Taken: TypeAlias = Any
"""A `Transaction`, or the rows of the start as a table."""
_ABOUT: Final = b"everwhen"
_FIRST: Final = "initial.arrow"
_PEEK: Final = """
SELECT data
FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"""
_SLOT: Final = (
    "SELECT confirmed_flush_lsn - '0/0'::pg_lsn, active, plugin FROM pg_replication_slots WHERE slot_name = %s"
)


class Slot:
    """The changes of one table."""

    def __init__(self, database: Database, schema: Schema, key: tuple[str, ...], slot: str, state: str) -> None:
        self.database, self.schema, self.slot, self.state = database, schema, slot, Path(state)
        self._lsn, self._initial = 0, 0
        self._kept = 0
        self._connection: Any = None
        self._decoder = Decoder(database.schema, database.table, schema.names, key, database.shown)

    def __getstate__(self) -> dict[str, Any]:
        assert self._connection is None, "it is open"
        return self.__dict__

    @property
    def shown(self) -> str:
        return self.database.shown

    @property
    def is_there(self) -> bool:
        with self.database.explained(SourceError, "look for it"):
            return bool(self._connected().execute("SELECT to_regclass(%s)", [self._name]).fetchone()[0])

    @property
    def position(self) -> dict[str, Any]:
        return {"lsn": self._lsn, "initial": self._initial}

    @property
    def parts(self) -> tuple[str, ...]:
        return (PART,)

    def begin(self) -> None:
        """Makes the publication and the slot, and keeps the rows that the table has at that moment."""
        with self.database.explained(SourceError, f"make the slot {self.slot!r}"):
            connection = self._connected()
            self._require_columns(connection)
            found = connection.execute(_SLOT, [self.slot]).fetchone()
            if found is not None and not (self.state / _FIRST).exists():
                if found[1]:
                    raise SourceError(
                        f"{self.shown}: the slot {self.slot!r} is in use (give the option slot another name)"
                    )
                # a job was ended before it had kept the rows, and nobody has read anything
                connection.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
                found = None
            if found is None:
                self._make(connection)
        about = self._about()
        self._lsn, self._initial = about["lsn"], 0

    def seek(self, position: Plain) -> None:
        self._lsn, self._initial = position["lsn"], position["initial"]
        with self.database.explained(SourceError, f"read the slot {self.slot!r}"):
            self._require_unread()

    def take(self, most: int) -> list[Taken] | None:
        if not self._initial:
            self._initial = 1
            return [self._stored()]
        return self._reached(self._peek(None, self._kept + most))

    def take_to(self, position: Plain) -> list[Taken] | None:
        found: list[Taken] = []
        if position["initial"] and not self._initial:
            self._initial = 1
            found.append(self._stored())
        if position["lsn"] == self._lsn:
            return found or None
        since = self._peek(_lsn_text(position["lsn"]), None)
        if not since or since[-1].end != position["lsn"]:
            raise StateError(f"{self.shown}: transactions that were read are not in the slot {self.slot!r} {_ANEW}")
        return [*found, *(self._reached(since) or ())]

    def passed(self, position: Plain) -> None:
        if not position["initial"]:
            return
        with self.database.explained(SourceError, f"move the slot {self.slot!r} on"):
            connection = self._connected()
            there = connection.execute(_SLOT, [self.slot]).fetchone()
            if there is not None and int(there[0]) < position["lsn"]:
                connection.execute(
                    "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.slot, _lsn_text(position["lsn"])]
                )
                self._kept = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        quoted = (part.replace('"', '""') for part in (self.database.schema, self.database.table))
        return ".".join(f'"{part}"' for part in quoted)

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self.database.connect()
        return self._connection

    def _require_columns(self, connection: Any) -> None:
        cursor = connection.execute(self.database.sql("SELECT * FROM {table} LIMIT 0"))
        names = [column.name for column in cursor.description or ()]
        for name in self.schema.names:
            if name not in names:
                raise SourceError(f"{self.shown}: there is no column {name!r} (it has {', '.join(names)})")

    def _make(self, connection: Any) -> None:
        """A slot, and the rows of the snapshot that begins with it, on disk."""
        known = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.slot]).fetchone()
        if known is None:
            connection.execute(self.database.sql("CREATE PUBLICATION {name} FOR TABLE {table}", name=self.slot))
        replica = _Replica(self.database, self.slot)
        try:
            lsn, snapshot = replica.make_slot()
            with self.database.connect() as reader:
                reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                reader.execute(self.database.sql("SET TRANSACTION SNAPSHOT {snapshot}", snapshot=_literal(snapshot)))
                rows = reader.execute(texts_of(self.database, self.schema.names)).fetchall()
        finally:
            replica.close()
        table = pa.table(dict(zip(self.schema.names, columns_of(rows, self.schema, self.shown), strict=True)))
        about = json.dumps({"lsn": lsn, "when": time.time_ns() // 1000, "slot": self.slot}).encode()
        table = table.replace_schema_metadata({_ABOUT: about})
        self.state.mkdir(parents=True, exist_ok=True)
        with (
            whole_file(self.state / _FIRST) as part,
            pa.OSFile(os.fspath(part), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)

    def _stored(self) -> pa.Table:
        try:
            with pa.OSFile(os.fspath(self.state / _FIRST)) as file:
                return pa.ipc.open_file(file).read_all()
        except (OSError, pa.ArrowException) as bad:
            raise StateError(f"{self.shown}: {self.state / _FIRST} cannot be read: {bad} {_ANEW}") from None

    def _about(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._stored().schema.metadata[_ABOUT])
        return found

    def _peek(self, upto: str | None, most: int | None) -> list[Transaction]:
        with self.database.explained(SourceError, f"read the slot {self.slot!r}"):
            self._require_unread()
            rows = self._connected().execute(_PEEK, [self.slot, upto, most, self.slot]).fetchall()
        self._kept = len(rows)
        return self._decoder.transactions((bytes(row[0]) for row in rows), self._lsn)

    def _require_unread(self) -> None:
        """The slot must still have what comes after the present position."""
        found = self._connected().execute(_SLOT, [self.slot]).fetchone()
        if found is None:
            raise StateError(f"{self.shown}: the slot {self.slot!r} is gone, and what came since with it {_ANEW}")
        if int(found[0]) > self._lsn:
            raise StateError(f"{self.shown}: somebody else has read on in the slot {self.slot!r} {_ANEW}")

    def _reached(self, found: list[Transaction]) -> list[Taken] | None:
        if not found:
            return None
        self._lsn = found[-1].end
        return list(found)

    def decode(self, found: list[Taken], tick: int) -> list[tuple[str, TableChanges]]:
        """What was taken, as changes."""
        pieces: list[tuple[str, TableChanges]] = []
        times: list[int] = []
        kinds: list[int] = []
        rows: list[Any] = []
        for each in found:
            if isinstance(each, pa.Table):
                pieces.append((PART, _first_rows(each, tick)))
            else:
                times += [each.when * 1000 // tick] * len(each.kinds)
                kinds += each.kinds
                rows += each.rows
        at = 0
        for i in [*(i for i, kind in enumerate(kinds) if kind == CLEAR), len(kinds)]:
            if i > at:
                pieces.append((PART, self._changes(times[at:i], kinds[at:i], rows[at:i])))
            if i < len(kinds):
                none = tuple(pa.nulls(1, type_) for type_ in self.schema.types)
                pieces.append((PART, TableChanges(np.array(times[i : i + 1]), np.ones(1, np.bool_), none, clears=True)))
            at = i + 1
        return pieces

    def _changes(self, times: list[int], kinds: list[int], rows: list[Any]) -> TableChanges:
        left_out = np.array([[value is UNCHANGED for value in row] for row in rows], np.bool_)
        some = bool(left_out.any())
        if some:
            rows = [[None if value is UNCHANGED else value for value in row] for row in rows]
        columns = columns_of(rows, self.schema, self.shown)
        gone = np.array(kinds) == GONE
        return TableChanges(np.array(times, np.int64), gone, columns, left_out if some else None)


_ANEW: Final = "(take a new checkpoint, a new state folder and a new output)"


def _first_rows(table: pa.Table, tick: int) -> TableChanges:
    when = json.loads(table.schema.metadata[_ABOUT])["when"] * 1000 // tick
    columns = tuple(
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table.columns
    )
    return TableChanges(np.full(table.num_rows, when), np.zeros(table.num_rows, np.bool_), columns)


class _Replica:
    """A replication connection, on which alone a slot can be made together with a snapshot."""

    def __init__(self, database: Database, slot: str) -> None:
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        library()
        self._slot = slot
        self._raw = pq.PGconn.connect(make_conninfo(database.connection, replication="database").encode())
        if self._raw.status != pq.ConnStatus.OK:
            raise library().OperationalError(self._raw.error_message.decode(errors="replace"))

    def make_slot(self) -> tuple[int, str]:
        from psycopg import pq

        text = f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput EXPORT_SNAPSHOT'
        result = self._raw.exec_(text.encode())
        if result.status != pq.ExecStatus.TUPLES_OK:
            message = result.error_message.decode(errors="replace")
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            raise library().errors.lookup(state)(message) if state else library().OperationalError(message)
        point, snapshot = (result.get_value(0, i) for i in (1, 2))
        assert point is not None and snapshot is not None
        high, low = point.decode().split("/")
        return (int(high, 16) << 32) + int(low, 16), snapshot.decode()

    def close(self) -> None:
        self._raw.finish()


def _literal(text: str) -> Any:
    from psycopg import sql

    return sql.Literal(text)


def texts_of(database: Database, names: tuple[str, ...]) -> Any:
    """A query for columns as text."""
    from psycopg import sql

    wanted = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    return sql.SQL("SELECT {} FROM {}").format(wanted, sql.Identifier(database.schema, database.table))


def _lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
