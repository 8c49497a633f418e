"""The rows that a table has when its slot is made, in a folder of the job.

A slot is made together with a snapshot of the database, on a replication connection; the table is read in that snapshot
and stored whole.  A note says beforehand that the slot is made by this job: if it is killed in between, the slot is its
own and is made anew; any other slot of the name belongs to somebody else, and is left alone.

    <state>/slot             the name of the slot that this job makes
    <state>/initial.arrow    the rows of the start, where the log goes on, and the time of the server
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from everwhen.connectors.changes.table_copies import store_table, stored_table
from everwhen.connectors.postgres.database import Database, library
from everwhen.connectors.postgres.values import columns_of
from everwhen.core.schema import Schema
from everwhen.errors import StateError
from everwhen.storage.atomic_file import whole_file

ANEW: Final = "(take a new checkpoint and a new output)"
CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The time of the server in microseconds."""


class FirstRows:
    """The rows of the start of a slot."""

    def __init__(self, database: Database, schema: Schema, slot: str, state: str) -> None:
        self.database, self.schema, self.slot = database, schema, slot
        self._folder = Path(state)

    @property
    def are_there(self) -> bool:
        return self._file.exists()

    @property
    def are_begun(self) -> bool:
        """Whether this job was about to make the slot."""
        note = self._folder / "slot"
        return note.exists() and note.read_text(encoding="utf-8") == self.slot

    def read(self) -> tuple[pa.Table, dict[str, Any]]:
        """The rows, and {"lsn": where the log goes on, "when": at which time, in microseconds}."""
        try:
            return stored_table(self._file)
        except (OSError, pa.ArrowException) as bad:
            raise StateError(f"{self.database.shown}: {self._file} cannot be read: {bad} {ANEW}") from None

    def make(self, connection: Any) -> None:
        """Make the publication and the slot, and store the rows of the snapshot that begins with it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self._folder / "slot") as aside:
            aside.write_text(self.slot, encoding="utf-8")
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
                (when,) = reader.execute(f"SELECT {CLOCK}").fetchone()
        finally:
            replica.close()
        columns = columns_of(rows, self.schema, self.database.shown)
        table = pa.table(dict(zip(self.schema.names, columns, strict=True)))
        store_table(self._file, table, json.dumps({"lsn": lsn, "when": int(when), "slot": self.slot}).encode())

    @property
    def _file(self) -> Path:
        return self._folder / "initial.arrow"


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
