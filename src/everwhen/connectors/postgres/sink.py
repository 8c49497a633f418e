"""Rows in a table of PostgreSQL, moved forward by one transaction per epoch.

The number of the epoch stands in the table `everwhen_epochs`, and is changed in the same transaction as the rows: so
an epoch is in once, whoever looks and whenever a job was ended.  A table that is not there is made; one that is there
must have the columns of the answer, and, for upserts, a unique index on the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from everwhen.connectors.postgres.database import Database
from everwhen.core.schema import Schema
from everwhen.errors import SinkError
from everwhen.sinks.postgres import EPOCHS, csv_of
from everwhen.sinks.postgres_types import sql_type, text_column
from everwhen.sinks.rows import DELETE, RowChanges, RowSink

_GONE: Final = "everwhen_gone"
_COLUMNS: Final = """
SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""


class PostgresRows(RowSink):
    """A table of rows: appended, or one per key."""

    def __init__(self, database: Database, form: str, key: tuple[str, ...]) -> None:
        self.database, self.form, self.key = database, form, key
        self._schema: Schema | None = None
        self._connection: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def prepare(self, schema: Schema) -> None:
        self.close()
        for name in self.key:
            schema.index(name, "the key of the sink")
        if _GONE in schema:
            raise SinkError(f"{self.database.shown}: a column named {_GONE!r} has no place here (rename it)")
        self._schema = schema
        try:
            self._prepare([(field.name, sql_type(field)) for field in schema])
        except BaseException:
            self.close()
            raise

    def _prepare(self, wanted: list[tuple[str, str]]) -> None:
        with self._transaction("prepare it") as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('everwhen'))")
            create = "CREATE TABLE IF NOT EXISTS {epochs} (table_name text PRIMARY KEY, epoch bigint NOT NULL)"
            cursor.execute(self._sql(create))
            cursor.execute(self._sql("CREATE TABLE IF NOT EXISTS {table} ({typed}{primary})"))
            found = [tuple(row) for row in cursor.execute(_COLUMNS, [self.database.quoted]).fetchall()]
            if sorted(found) != sorted(wanted):
                raise SinkError(
                    f"{self.database.shown}: the columns are others: expected {_shown(wanted)}, found {_shown(found)} "
                    "(choose another table, or drop it)"
                )
            if self.form == "upsert":
                self._require_index(cursor)
            cursor.execute(self._sql("INSERT INTO {epochs} VALUES ({id}, -1) ON CONFLICT DO NOTHING"))

    def committed(self) -> int:
        with self._transaction("read the last epoch") as cursor:
            found = cursor.execute(self._sql("SELECT epoch FROM {epochs} WHERE table_name = {id}")).fetchone()
        return -1 if found is None else int(found[0])

    def commit(self, epoch: int, changes: RowChanges) -> None:
        with self._transaction(f"commit epoch {epoch}") as cursor:
            lock = "SELECT epoch FROM {epochs} WHERE table_name = {id} FOR UPDATE"
            found = cursor.execute(self._sql(lock)).fetchone()
            if found is None:
                raise SinkError(f"{self.database.shown}: its row in {EPOCHS} is gone (empty the table, and start anew)")
            if epoch <= found[0]:
                return
            if len(changes):
                self._apply(cursor, changes)
            cursor.execute(self._sql("UPDATE {epochs} SET epoch = {epoch} WHERE table_name = {id}", epoch))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _apply(self, cursor: Any, changes: RowChanges) -> None:
        columns = {name: text_column(changes.rows.column(name)) for name in changes.rows.schema.names}
        if self.form == "append":
            target = self._sql("COPY {table} ({names}) FROM STDIN (FORMAT csv)")
        else:
            columns[_GONE] = pa.array(changes.op == DELETE).cast(pa.string())
            cursor.execute(self._sql("CREATE TEMP TABLE everwhen_stage ({typed}, {gone} boolean) ON COMMIT DROP"))
            target = self._sql("COPY everwhen_stage ({names}, {gone}) FROM STDIN (FORMAT csv)")
        with cursor.copy(target) as copy:
            for piece in csv_of(pa.table(columns)):
                copy.write(piece)
        if self.form == "upsert":
            cursor.execute(self._sql("DELETE FROM {table} t USING everwhen_stage s WHERE s.{gone} AND {same}"))
            cursor.execute(
                self._sql(
                    "INSERT INTO {table} ({names}) SELECT {names} FROM everwhen_stage WHERE NOT {gone} "
                    "ON CONFLICT ({key}) DO {update}"
                )
            )

    def _require_index(self, cursor: Any) -> None:
        """Whether there is a unique index on the key: without it rows cannot replace each other."""
        import psycopg

        try:
            with cursor.connection.transaction():
                none = (
                    "INSERT INTO {table} ({names}) SELECT {names} FROM {table} LIMIT 0 ON CONFLICT ({key}) DO NOTHING"
                )
                cursor.execute(self._sql(none))
        except psycopg.errors.InvalidColumnReference:
            names = ", ".join(self.key)
            raise SinkError(
                f"{self.database.shown}: there is no unique index on ({names}), so rows cannot replace each other "
                f"(CREATE UNIQUE INDEX ON {self.database.table} ({names}))"
            ) from None

    def _sql(self, text: Any, epoch: int = -1) -> Any:
        from psycopg import sql

        schema = self._schema or Schema(())
        names = [sql.Identifier(name) for name in schema.names]
        typed = [sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(sql_type(f))) for f in schema]
        key = [sql.Identifier(name) for name in self.key]
        rest = [sql.Identifier(name) for name in schema.names if name not in self.key]
        sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in rest)
        return self.database.sql(
            text,
            epochs=sql.Identifier(self.database.schema, EPOCHS),
            id=sql.Literal(f"{self.database.table} ({self.form})"),
            epoch=sql.Literal(epoch),
            names=sql.SQL(", ").join(names),
            typed=sql.SQL(", ").join(typed),
            gone=_GONE,
            key=sql.SQL(", ").join(key),
            primary=sql.SQL(", PRIMARY KEY ({})").format(sql.SQL(", ").join(key)) if key else sql.SQL(""),
            same=sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(name) for name in key),
            update=sql.SQL("UPDATE SET {}").format(sets) if rest else sql.SQL("NOTHING"),
        )

    @contextmanager
    def _transaction(self, wanted: str) -> Iterator[Any]:
        with self.database.explained(SinkError, wanted):
            if self._connection is None or self._connection.closed:
                self._connection = self.database.connect()
            with self._connection.transaction(), self._connection.cursor() as cursor:
                yield cursor


def _shown(columns: list[Any]) -> str:
    return "(" + ", ".join(" ".join(column) for column in columns) + ")"
