"""The rows of a table as its changes leave them, and what each change says as elements.

A row of a key lives from the change that made it until the next one of that key.  So a change ends the row that is
there (an adjust of its end to the change's time) and begins another (an insert without an end).  A row that is changed
at its own start was never there: its adjust removes it.  A change that changes nothing says nothing.

The row that is there is remembered here, so the log needs to give the key of an old row only.  The time of a change is
never before the start of the row that it ends.  What is remembered is the table as it is, coded; `table` and `restore`
carry it to another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.connectors.changes.loops import follow_changes
from everwhen.containers.key_table import KeyTable
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element_batch import ElementBatch

START: Final = "_start"
_FRESH: Final = 1 << 20
"""After so many changes values that no row has any more are forgotten."""


@dataclass(frozen=True, eq=False)
class TableChanges:
    """Changes in the order of the log: rows that are there from `times` on, or (`gone`) no longer.

    Of a row that is gone the key columns count.  `kept` marks values that the log leaves out because they did not
    change.  `until`: nothing else changes before that instant.
    """

    times: np.ndarray  # int64
    gone: np.ndarray  # bool
    columns: tuple[pa.Array, ...]
    kept: np.ndarray | None = None  # bool, a column each
    clears: bool = False  # one change: all rows of the table are gone
    until: int | None = None

    def __len__(self) -> int:
        return len(self.times)


class LiveRows:
    """The rows of a table by key.

    >>> schema = Schema.of([("id", pa.int64()), ("name", pa.string())])
    >>> table = LiveRows(schema, ["id"])
    >>> columns = (pa.array([1, 1, 1]), pa.array(["a", "b", None]))
    >>> changes = TableChanges(np.array([10, 20, 30]), np.array([False, False, True]), columns)
    >>> print(*table.take(changes).elements(), sep="; ")
    insert [10, ∞) id=1 name='a'; adjust [10, ∞ -> 20) id=1 name='a'; insert [20, ∞) id=1 name='b'; adjust ...
    """

    def __init__(self, schema: Schema, key: Sequence[str]) -> None:
        self.schema, self.key = schema, tuple(key)
        self._begin()

    def _begin(self) -> None:
        schema, key = self.schema, self.key
        self._taken = 0
        self._pool = Interner()
        self._codec = RowCodec(schema, self._pool)
        self._places = [schema.index(name, "the key") for name in key]
        self._keys = RowCodec(schema.select(key), self._pool)
        self._table = KeyTable(self._keys.width)
        self._starts = np.zeros(64, np.int64)
        self._known = np.zeros((64, self._codec.width + 1), np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        assert not len(self), "it is in use"
        return LiveRows, (self.schema, self.key)

    def __len__(self) -> int:
        return int(self._known[:, -1].sum())

    def take(self, changes: TableChanges, source: str | None = None) -> ElementBatch:
        """What changes say, as elements; they are remembered."""
        n, width = len(changes), self._codec.width
        rows = self._codec.encode(changes.columns, n)
        ids = self._table.intern(self._codec.select(rows, self._places, self._keys))
        self._grow()
        kept = np.zeros((n, 0), np.bool_) if changes.kept is None else changes.kept
        op, out = np.empty(2 * n, np.uint8), np.empty((2 * n, width), np.int64)
        vs, vnew = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        gone, times = changes.gone.astype(np.bool_), changes.times.astype(np.int64)
        count = follow_changes(
            ids, gone, times, rows, kept, self._codec.words, self._starts, self._known, op, vs, vnew, out
        )
        ended = np.unique(ids)
        self._table.remove(ended[self._known[ended, -1] == 0])
        said = ElementBatch(
            self.schema,
            op[:count],
            vs[:count],
            np.full(count, INF),
            vnew[:count],
            self._codec.decode(np.ascontiguousarray(out[:count])),
            source=source,
        )
        self._taken += n
        if self._taken > max(_FRESH, 4 * len(self._table)) and self._codec.pooled:
            self.restore(self.table())
            self._taken = 0
        return said

    def clear(self, t: int, source: str | None = None) -> ElementBatch:
        """All rows are gone from an instant on."""
        columns = tuple(_array(column) for column in self.table().columns[1:])
        count = len(self)
        return self.take(TableChanges(np.full(count, t), np.ones(count, np.bool_), columns), source)

    def table(self) -> pa.Table:
        """The rows that live, with their starts."""
        living = np.flatnonzero(self._known[:, -1])
        columns = self._codec.decode(np.ascontiguousarray(self._known[living, :-1]))
        return pa.table([pa.array(self._starts[living]), *columns], names=[START, *self.schema.names])

    def restore(self, table: pa.Table) -> None:
        """Begin with rows that lived."""
        self._begin()
        whole = table.combine_chunks()
        columns = tuple(_array(whole.column(name)) for name in self.schema.names)
        starts = _array(whole.column(START)).to_numpy()
        self.take(TableChanges(starts, np.zeros(len(starts), np.bool_), columns))

    def _grow(self) -> None:
        if self._table.capacity > len(self._starts):
            more = self._table.capacity - len(self._starts)
            self._starts = np.concatenate((self._starts, np.zeros(more, np.int64)))
            self._known = np.concatenate((self._known, np.zeros((more, self._known.shape[1]), np.int64)))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
