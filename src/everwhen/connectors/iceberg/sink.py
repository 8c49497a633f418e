"""An Iceberg table as a sink: one commit per epoch, which sets the epoch's number as a property of the table.

Rows and the property `everwhen.epoch.<id>` are in one transaction of the table, so they appear together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from everwhen.connectors.changed_rows import changed_rows, changed_schema
from everwhen.connectors.registry import needs
from everwhen.core.schema import Schema
from everwhen.errors import SinkError
from everwhen.sinks.rows import PUT, RowChanges, RowSink

_PROPERTY: Final = "everwhen.epoch."


@dataclass(frozen=True)
class Catalog:
    """Where the table is known: a catalogue in a database, or at an address."""

    table: str
    uri: str
    warehouse: str | None = None

    @property
    def shown(self) -> str:
        return f"Iceberg table {self.table}"

    def open(self) -> Any:
        found = needs("pyiceberg.catalog", "pyiceberg", "iceberg", "iceberg")
        kind = "rest" if self.uri.startswith("http") else "sql"
        settings = {"type": kind, "uri": self.uri}
        if self.warehouse is not None:
            settings["warehouse"] = self.warehouse
        return found.load_catalog("everwhen", **settings)


class IcebergRows(RowSink):
    """Rows: appended, one per key, or changes that are appended."""

    def __init__(self, catalog: Catalog, form: str, key: tuple[str, ...], id_: str) -> None:
        self.catalog, self.form, self.key, self.id = catalog, form, key, id_
        self._columns: pa.Schema | None = None
        self._catalog: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_catalog": None}

    def prepare(self, schema: Schema) -> None:
        for name in self.key:
            schema.index(name, "the key of the sink")
        if self.form == "retract":
            schema = changed_schema(schema, self.catalog.shown)
        self._columns = self._arrow(schema)
        with self._explained("prepare it"):
            self._catalog = self.catalog.open()
            self._catalog.create_namespace_if_not_exists(self.catalog.table.rpartition(".")[0])
            table = self._catalog.create_table_if_not_exists(self.catalog.table, schema=self._columns)
            found = [(field.name, str(field.field_type)) for field in table.schema().fields]
            aside = self._catalog._convert_schema_if_needed(self._columns)
            wanted = [(field.name, str(field.field_type)) for field in aside.fields]
            if found != wanted:
                raise SinkError(
                    f"{self.catalog.shown}: there is a table with other columns: expected {_shown(wanted)}, found "
                    f"{_shown(found)} (choose another table)"
                )

    def committed(self) -> int:
        with self._explained("read its last epoch"):
            return int(self._table().properties.get(_PROPERTY + self.id, -1))

    def commit(self, epoch: int, changes: RowChanges) -> None:
        if not len(changes) or epoch <= self.committed():
            return
        retract = self.form == "retract"
        rows = changed_rows(epoch, changes) if retract else pa.Table.from_batches([changes.rows])
        assert self._columns is not None, "prepare it first"
        with self._explained(f"commit epoch {epoch}"), self._table().transaction() as transaction:
            if self.form == "upsert" and self._has_rows():
                transaction.delete(self._same(rows))
            put = (rows if retract else rows.filter(pa.array(changes.op == PUT))).cast(self._columns)
            if put.num_rows:
                transaction.append(put)
            transaction.set_properties({_PROPERTY + self.id: str(epoch)})

    def close(self) -> None:
        self._catalog = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _has_rows(self) -> bool:
        return self._table().current_snapshot() is not None

    def _table(self) -> Any:
        if self._catalog is None:
            self._catalog = self.catalog.open()
        return self._catalog.load_table(self.catalog.table)

    def _same(self, rows: pa.Table) -> Any:
        """Whether a row has one of these keys."""
        from pyiceberg.expressions import And, EqualTo, In, IsNull, Or

        if len(self.key) == 1:
            values = rows.column(self.key[0]).to_pylist()
            some = {value for value in values if value is not None}
            found: Any = In(self.key[0], some) if some else None
            if None in values:
                found = IsNull(self.key[0]) if found is None else Or(found, IsNull(self.key[0]))
            return found
        each = []
        for row in rows.select(self.key).to_pylist():
            parts = [IsNull(name) if value is None else EqualTo(name, value) for name, value in row.items()]
            each.append(reduce(And, parts))
        return reduce(Or, each)

    def _arrow(self, schema: Schema) -> pa.Schema:
        fields = []
        for each in schema:
            type_ = each.type
            if pa.types.is_timestamp(type_):
                type_ = pa.timestamp("us", type_.tz and "UTC")
            elif pa.types.is_unsigned_integer(type_) or pa.types.is_duration(type_) or pa.types.is_float16(type_):
                raise SinkError(
                    f"{self.catalog.shown}: the column {each.name!r} is {type_}: Iceberg has none (cast it)"
                )
            elif pa.types.is_integer(type_):
                type_ = pa.int64() if type_.bit_width == 64 else pa.int32()
            fields.append(pa.field(each.name, type_))
        return pa.schema(fields)

    @contextmanager
    def _explained(self, wanted: str) -> Iterator[None]:
        try:
            yield
        except SinkError:
            raise
        except Exception as bad:  # the library has no base of its own for errors of catalogues and stores
            text = " ".join(str(bad).split())[:300] or type(bad).__name__
            remedy = "check the options catalog and warehouse; nothing of it is in: start again when it is mended"
            raise SinkError(f"{self.catalog.shown}: cannot {wanted}: {text} ({remedy})") from bad


def _shown(columns: list[tuple[str, str]]) -> str:
    return "(" + ", ".join(" ".join(column) for column in columns) + ")"
