"""A Delta table: where it is, and what the library's errors mean to a user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from everwhen.connectors.registry import needs
from everwhen.core.schema import Schema
from everwhen.errors import EverwhenError, SinkError


@dataclass(frozen=True)
class Place:
    """A table's path or address.  `storage`: options of the store, as the library names them."""

    path: str
    storage: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return f"Delta table {self.path}"

    @property
    def is_there(self) -> bool:
        return bool(library().DeltaTable.is_deltatable(self.path, dict(self.storage) or None))

    def table(self, version: int | None = None) -> Any:
        """The table as it is now, or was."""
        return library().DeltaTable(self.path, version=version, storage_options=dict(self.storage) or None)

    @contextmanager
    def explained(self, error: type[EverwhenError], wanted: str) -> Iterator[None]:
        """Errors of the library as ours."""
        from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError

        try:
            yield
        except EverwhenError:
            raise
        except (DeltaError, OSError, pa.ArrowException) as bad:
            text = str(bad).strip().splitlines()[0] if str(bad).strip() else type(bad).__name__
            remedy = "nothing of it is in; mend it and start again"
            if isinstance(bad, TableNotFoundError):
                remedy = "create the table, or check the path"
            elif "change data enabled" in str(bad):
                remedy = "set the table's property delta.enableChangeDataFeed = true; only later versions can be read"
            elif isinstance(bad, CommitFailedError):
                remedy = "another job changed the same rows at the same time; start again"
            elif isinstance(bad, SchemaMismatchError):
                remedy = "the table's columns have changed; write to another table"
            raise error(f"{self.shown}: cannot {wanted}: {text} ({remedy})") from bad


def library() -> Any:
    """The package, which is not always there."""
    return needs("deltalake", "deltalake", "delta", "delta")


def arrow_schema(schema: Schema, place: Place) -> pa.Schema:
    """The columns of a table that has room for such rows: timestamps in microseconds; no unsigned numbers, times of
    day or durations, which Delta has not."""
    fields = []
    for each in schema:
        type_ = each.type
        if pa.types.is_timestamp(type_):
            type_ = pa.timestamp("us", type_.tz and "UTC")
        elif pa.types.is_unsigned_integer(type_) or pa.types.is_time(type_) or pa.types.is_duration(type_):
            raise SinkError(f"{place.shown}: the column {each.name!r} is {type_}, which Delta has not (cast it)")
        fields.append(pa.field(each.name, type_))
    return pa.schema(fields)


def plain(found: Any) -> pa.Table:
    """What the library returns, with the types that we have: text and binaries as such, not as views."""
    table = pa.table(found)
    fields = []
    for each in table.schema:
        text, binary = pa.types.is_string_view(each.type), pa.types.is_binary_view(each.type)
        fields.append(each.with_type(pa.string() if text else pa.binary() if binary else each.type))
    return table.cast(pa.schema(fields))
