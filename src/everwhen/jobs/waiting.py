"""Rows that wait for an instant: kept by the instant, given out when it has come.

What is kept is a bag of entries `(row, start, end)` with weights; an entry taken back has a negative weight.  Entries
are kept in runs, each sorted by its end, so that what is due is a slice of each; runs of like size are merged, and then
equal entries are summed.  So an entry is touched as often as the logarithm of their number, and at most half of what is
kept stands for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner


@dataclass(frozen=True, eq=False)
class Entries:
    """Rows with a start, an end and a weight."""

    columns: tuple[pa.Array, ...]
    vs: np.ndarray
    ve: np.ndarray
    weight: np.ndarray

    def __len__(self) -> int:
        return len(self.ve)

    def slice(self, begin: int, end: int) -> Entries:
        columns = tuple(column.slice(begin, end - begin) for column in self.columns)
        return Entries(columns, self.vs[begin:end], self.ve[begin:end], self.weight[begin:end])

    def take(self, at: np.ndarray, weight: np.ndarray | None = None) -> Entries:
        """The entries at some places, with other weights if they are given."""
        places = pa.array(at)
        columns = tuple(column.take(places) for column in self.columns)
        return Entries(columns, self.vs[at], self.ve[at], self.weight[at] if weight is None else weight)


def no_entries(schema: Schema) -> Entries:
    none = np.empty(0, np.int64)
    return Entries(tuple(pa.array([], type_) for type_ in schema.types), none, none, none)


def together(schema: Schema, parts: Sequence[Entries]) -> Entries:
    """All parts as one."""
    some = [part for part in parts if len(part)]
    if not some:
        return no_entries(schema)
    if len(some) == 1:
        return some[0]
    columns = tuple(pa.concat_arrays(list(each)) for each in zip(*(part.columns for part in some), strict=True))
    times = (np.concatenate([getattr(part, name) for part in some]) for name in ("vs", "ve", "weight"))
    return Entries(columns, *times)


def coded(schema: Schema, columns: Sequence[pa.Array], length: int) -> np.ndarray:
    """Rows as integers: two rows are equal exactly if theirs are.  Good for one comparison, not to be kept."""
    return RowCodec(schema, Interner()).encode(columns, length)


def groups(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal rows of integers together: an order of the rows, stable, and where in it each group begins."""
    order = np.lexsort(codes.T[::-1]) if len(codes) else np.empty(0, np.int64)
    in_order = codes[order]
    begins = np.flatnonzero(np.append(True, (in_order[1:] != in_order[:-1]).any(axis=1))[: len(codes)])
    return order, begins


def netted(schema: Schema, entries: Entries, times: bool) -> Entries:
    """Equal entries summed, those of weight 0 left out.  `times`: entries differ also by start and end."""
    if not len(entries):
        return entries
    codes = coded(schema, entries.columns, len(entries))
    if times:
        codes = np.column_stack([entries.vs, entries.ve, codes])
    order, begins = groups(codes)
    sums = np.add.reduceat(entries.weight[order], begins)
    left = np.flatnonzero(sums)
    return entries.take(order[begins[left]], sums[left])


class Waiting:
    """Entries by their end."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._runs: list[Entries] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def first(self) -> int | None:
        """The first start of all; None if nothing waits."""
        return min((int(run.vs.min()) for run in self._runs if len(run)), default=None)

    def add(self, entries: Entries) -> None:
        """Keep more entries."""
        if not len(entries):
            return
        self._runs.append(self._sorted(entries))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            last, before = self._runs.pop(), self._runs.pop()
            merged = self._sorted(netted(self.schema, together(self.schema, [before, last]), times=True))
            if len(merged):
                self._runs.append(merged)

    def due(self, t: int) -> Entries:
        """Give out the entries that end by `t`, each sum of equal ones once."""
        found: list[Entries] = []
        rest: list[Entries] = []
        for run in self._runs:
            count = int(np.searchsorted(run.ve, t, side="right"))
            if count:
                found.append(run.slice(0, count))
            if count < len(run):
                rest.append(run.slice(count, len(run)) if count else run)
        self._runs = rest
        return netted(self.schema, together(self.schema, found), times=True)

    def _sorted(self, entries: Entries) -> Entries:
        return entries.take(np.argsort(entries.ve, kind="stable"))

    def snapshot(self) -> dict[str, Any]:
        """What is kept, as plain data."""
        whole = netted(self.schema, together(self.schema, self._runs), times=True)
        rows = pa.table(list(whole.columns), names=list(self.schema.names))
        return {"rows": rows, "vs": whole.vs, "ve": whole.ve, "weight": whole.weight}

    def restore(self, state: dict[str, Any]) -> None:
        rows: pa.Table = state["rows"]
        columns = tuple(_one(column) for column in rows.columns)
        self._runs = []
        self.add(Entries(columns, np.array(state["vs"]), np.array(state["ve"]), np.array(state["weight"])))


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks or [pa.array([], column.type)])
