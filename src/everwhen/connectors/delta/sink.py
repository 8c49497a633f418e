"""A Delta table as a sink: one commit per epoch, which carries the epoch's number as an application transaction.

The number of an epoch is the version of the transaction `txn` with the sink's id, and stands in the same commit as the
rows.  Whoever starts again asks the table for it: an epoch that is in is not written a second time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.connectors.changed_rows import EPOCH, SEQUENCE, changed_rows, changed_schema
from everwhen.connectors.delta.table import Place, arrow_schema, library
from everwhen.core.schema import RESERVED, Schema
from everwhen.errors import SinkError
from everwhen.formats.parquet_writer import MATCH, columns_of_elements
from everwhen.sinks.base import EpochSink
from everwhen.sinks.rows import DELETE, RowChanges, RowSink
from everwhen.stream.element_batch import EXTERNAL_CTI, ElementBatch

_GONE: Final = "everwhen_gone"
_FEED: Final = {"delta.enableChangeDataFeed": "true"}


class Commits:
    """The writing side of a sink.  `id`: the application's id in the table's transactions."""

    def __init__(self, place: Place, id_: str) -> None:
        self.place, self.id = place, id_
        self._last: int | None = None
        self._columns: pa.Schema | None = None

    def open(self, columns: pa.Schema) -> None:
        """Makes the table, or checks that the one which is there has these columns."""
        delta = library()
        self._columns = columns
        with self.place.explained(SinkError, "prepare it"):
            if not self.place.is_there:
                storage = dict(self.place.storage) or None
                delta.DeltaTable.create(
                    self.place.path, columns, mode="ignore", configuration=_FEED, storage_options=storage
                )
            table = self.place.table()
            found, wanted = table.schema(), delta.Schema.from_arrow(columns)
            if [(f.name, f.type) for f in found.fields] != [(f.name, f.type) for f in wanted.fields]:
                raise SinkError(
                    f"{self.place.shown}: there is a table with other columns: expected {_shown(columns)}, found "
                    f"{_shown(pa.schema(found.to_arrow()))} (choose another path)"
                )
            self._last = self._found(table)

    def committed(self) -> int:
        if self._last is None:
            with self.place.explained(SinkError, "read its last epoch"):
                self._last = self._found(self.place.table())
        return self._last

    def _found(self, table: Any) -> int:
        version = table.transaction_version(self.id)
        return -1 if version is None else int(version)

    def append(self, epoch: int, rows: pa.Table) -> None:
        """Adds the rows of an epoch, unless it is in."""
        with self._write(epoch) as properties:
            library().write_deltalake(
                self.place.table(), _cast(rows, self._columns), mode="append", commit_properties=properties
            )

    def merge(self, epoch: int, rows: pa.Table, key: tuple[str, ...]) -> None:
        """Puts rows in the place of those with their keys, and removes those that are gone."""
        same = " AND ".join(f"target.{_quoted(name)} IS NOT DISTINCT FROM source.{_quoted(name)}" for name in key)
        names = [name for name in rows.schema.names if name != _GONE]
        values = {_quoted(name): f"source.{_quoted(name)}" for name in names}
        with self._write(epoch) as properties:
            merger = self.place.table().merge(
                rows, same, source_alias="source", target_alias="target", commit_properties=properties
            )
            merger = merger.when_matched_delete(f"source.{_GONE}").when_matched_update(values)
            merger.when_not_matched_insert(values, f"NOT source.{_GONE}").execute()

    def _write(self, epoch: int) -> _Writing:
        return _Writing(self, epoch)


class _Writing:
    """Around the writing of an epoch: errors are explained, and afterwards the epoch is known to be in or not."""

    def __init__(self, commits: Commits, epoch: int) -> None:
        self.commits, self.epoch = commits, epoch
        self._explained = commits.place.explained(SinkError, f"commit epoch {epoch}")

    def __enter__(self) -> Any:
        delta = library()
        self._explained.__enter__()
        return delta.CommitProperties(app_transactions=[delta.Transaction(self.commits.id, self.epoch)])

    def __exit__(self, *error: Any) -> None:
        self.commits._last = self.epoch if error[0] is None else None
        self._explained.__exit__(*error)


class DeltaElements(EpochSink):
    """Elements as rows: `_epoch` and `_sequence` are their order, then `op, vs, ve, vnew` and the payload."""

    lasting = True

    def __init__(self, commits: Commits) -> None:
        self.commits = commits

    def prepare(self, schema: Schema) -> None:
        taken = [name for name in schema.names if name in (*RESERVED, MATCH, EPOCH, SEQUENCE)]
        if taken:
            raise SinkError(f"{self.commits.place.shown}: a column named {taken[0]!r} has no place here (rename it)")
        special = [(EPOCH, pa.int64()), (SEQUENCE, pa.int64()), ("op", pa.string()), (MATCH, pa.string())]
        times = [(name, pa.int64()) for name in ("vs", "ve", "vnew")]
        self.commits.open(pa.schema([*special[:3], *times, special[3], *arrow_schema(schema, self.commits.place)]))

    def committed(self) -> int:
        return self.commits.committed()

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if epoch <= self.committed() or not len(batch):
            return
        if (batch.op == EXTERNAL_CTI).any():
            raise SinkError(
                f"{self.commits.place.shown}: epoch {epoch} has external CTIs, for which there is no column"
            )
        columns = columns_of_elements(batch)
        order = {EPOCH: np.full(len(batch), epoch), SEQUENCE: np.arange(len(batch))}
        names = [EPOCH, SEQUENCE, "op", "vs", "ve", "vnew", MATCH, *batch.schema.names]
        self.commits.append(epoch, pa.table({name: {**columns, **order}[name] for name in names}))


class DeltaRows(RowSink):
    """Rows: appended, one per key, or changes that are appended."""

    def __init__(self, commits: Commits, form: str, key: tuple[str, ...]) -> None:
        self.commits, self.form, self.key = commits, form, key

    def prepare(self, schema: Schema) -> None:
        for name in self.key:
            schema.index(name, "the key of the sink")
        if _GONE in schema:
            raise SinkError(f"{self.commits.place.shown}: a column named {_GONE!r} has no place here (rename it)")
        if self.form == "retract":
            schema = changed_schema(schema, self.commits.place.shown)
        self.commits.open(arrow_schema(schema, self.commits.place))

    def committed(self) -> int:
        return self.commits.committed()

    def commit(self, epoch: int, changes: RowChanges) -> None:
        if epoch <= self.committed() or not len(changes):
            return
        if self.form == "retract":
            self.commits.append(epoch, changed_rows(epoch, changes))
            return
        rows = pa.Table.from_batches([changes.rows])
        if self.form == "append":
            self.commits.append(epoch, rows)
            return
        rows = _cast(rows, self.commits._columns)
        self.commits.merge(epoch, rows.append_column(_GONE, pa.array(changes.op == DELETE)), self.key)


def _cast(rows: pa.Table, columns: pa.Schema | None) -> pa.Table:
    assert columns is not None, "prepare it first"
    return rows.cast(columns)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(columns: pa.Schema) -> str:
    return "(" + ", ".join(f"{each.name} {each.type}" for each in columns) + ")"
