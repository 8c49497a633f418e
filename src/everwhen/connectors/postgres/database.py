"""A table of a database: connections, statements with its names in them, and what errors mean to a user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from everwhen.connectors.registry import needs
from everwhen.errors import EverwhenError

_FORMS: Final = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET bytea_output = 'hex'; SET extra_float_digits = 1"


@dataclass(frozen=True)
class Database:
    """Where a table is.  `connection`: as libpq writes it, as 'host=db dbname=shop'."""

    connection: str
    table: str
    schema: str = "public"
    patience: float = 10.0
    """Seconds that a lock of somebody else is waited for."""

    @property
    def shown(self) -> str:
        return f"PostgreSQL table {self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """The table's name as a text of the server's."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.table))

    def connect(self) -> Any:
        """A connection on which texts of values do not depend on anybody's settings."""
        psycopg = library()
        found = psycopg.connect(self.connection, autocommit=True)
        try:
            found.execute(f"{_FORMS}; SET lock_timeout = {int(self.patience * 1000)}")
        except BaseException:
            found.close()
            raise
        return found

    def sql(self, text: LiteralString, **names: Any) -> Any:
        """A statement; {table} is the table, other names are identifiers if they are texts."""
        from psycopg import sql

        parts = {name: sql.Identifier(value) if isinstance(value, str) else value for name, value in names.items()}
        return sql.SQL(text).format(table=sql.Identifier(self.schema, self.table), **parts)

    @contextmanager
    def explained(self, error: type[EverwhenError], wanted: str) -> Iterator[None]:
        """Errors of the library as ours."""
        psycopg = library()
        try:
            yield
        except psycopg.Error as bad:
            errors = psycopg.errors
            remedy = "see the message of the server"
            if isinstance(bad, errors.InsufficientPrivilege):
                remedy = "give the user of the connection the rights for it"
            elif isinstance(bad, errors.UndefinedTable):
                remedy = "create the table, or check the options table and schema"
            elif isinstance(bad, errors.LockNotAvailable | errors.ObjectInUse):
                remedy = "another job or session uses it; end that, and start again, or wait longer: option timeout"
            elif isinstance(bad, errors.UndefinedColumn | errors.DatatypeMismatch):
                remedy = "the table's columns have changed; put them back and start again, or write to another table"
            elif isinstance(bad, errors.DiskFull):
                remedy = "the server has no space left; nothing of it is in: make room there, and start again"
            elif isinstance(bad, errors.NotNullViolation):
                remedy = "a key has no null; leave such rows out, or choose another key"
            elif isinstance(bad, errors.ObjectNotInPrerequisiteState) and "wal_level" in str(bad):
                remedy = "set wal_level = logical at the server, and restart it"
            elif isinstance(bad, psycopg.OperationalError):
                remedy = "is the server running, and is the option connection right? Nothing is lost: start again"
            elif isinstance(bad, psycopg.DataError):
                remedy = "PostgreSQL cannot hold such a value; cast the column to another type"
            raise error(f"{self.shown}: cannot {wanted}: {' '.join(str(bad).split())} ({remedy})") from bad


def library() -> Any:
    """The package, which is not always there."""
    return needs("psycopg", "psycopg", "postgres", "postgres")
