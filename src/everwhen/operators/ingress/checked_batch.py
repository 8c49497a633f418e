"""The data of a batch: its inserts and adjusts in arrival order, where promises stand between them, and what a guard
makes of it.

Nothing is copied until it must be: checks read the columns of the batch, in which the gaps are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.compiled.njit import loop
from everwhen.containers.gaps import only_gaps, spans_without, without
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.operators.ingress.event_log_loops import segments
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element import Adjust, Insert
from everwhen.stream.element_batch import ADJUST


@dataclass(frozen=True, slots=True)
class Arrived:
    """Elements up to the last one that is data; `gaps` are the places of the others among them."""

    op: np.ndarray
    vs: np.ndarray
    ve: np.ndarray
    vnew: np.ndarray
    columns: tuple[pa.Array, ...]
    adjusts: int
    gaps: np.ndarray

    def __len__(self) -> int:
        """The elements that are data."""
        return len(self.op) - len(self.gaps)

    @property
    def sync(self) -> np.ndarray:
        """The earliest instant that each changes."""
        return np.where(self.op == ADJUST, np.minimum(self.ve, self.vnew), self.vs) if self.adjusts else self.vs

    def element(self, place: int, schema: Schema) -> Insert | Adjust:
        """An element, for people."""
        payload = {name: column[place].as_py() for name, column in zip(schema.names, self.columns, strict=True)}
        vs, ve, vnew = int(self.vs[place]), int(self.ve[place]), int(self.vnew[place])
        return Adjust(vs, ve, vnew, payload) if self.op[place] == ADJUST else Insert(vs, ve, payload)

    def place(self, row: int) -> int:
        """Where a row of the data stands."""
        return int(np.searchsorted(self.gaps - np.arange(len(self.gaps)), row, side="right")) + row

    def head(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """op, vs, ve, vnew of the data, without the gaps."""
        vs, ve = np.empty(len(self), np.int64), np.empty(len(self), np.int64)
        spans_without(self.vs, self.ve, self.gaps, vs, ve)
        if self.adjusts:
            return without(self.op, self.gaps), vs, ve, without(self.vnew, self.gaps)
        return np.zeros(len(vs), np.uint8), vs, ve, self.vnew[: len(vs)]  # which says nothing without adjusts

    def complete(self, at: int) -> pa.Array:
        """A column with its gaps, which are no nulls, whatever they hold, where only they would be."""
        column = self.columns[at]
        if not column.null_count or pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
            return column
        if not only_gaps(column, self.gaps):
            return column
        return pa.Array.from_buffers(column.type, len(column), [None, *column.buffers()[1:]], 0, column.offset)

    def known(self, at: int) -> bool:
        """Whether a column has a value in every element."""
        column = self.columns[at]
        if not column.null_count:
            return True
        return not pa.types.is_dictionary(column.type) and only_gaps(column, self.gaps)

    def column(self, at: int) -> pa.Array:
        """A column of the data."""
        column = self.columns[at]
        return column.filter(pa.array(self.op <= ADJUST)) if len(self.gaps) else column

    def after(self, floor: int) -> np.ndarray:
        """The places of data that says something of instants from `floor` on."""
        if self.ve.max(initial=NEVER) <= floor and (not self.adjusts or self.vnew.max() <= floor):
            return np.empty(0, np.int64)
        places = np.empty(len(self.op), np.int64)
        return places[: over(self.op, self.ve, self.vnew, floor, places)]

    def taken(self, places: np.ndarray) -> Arrived:
        """Only the data at these places, without its columns."""
        op, vs, ve, vnew = (times[places] for times in (self.op, self.vs, self.ve, self.vnew))
        adjusts = int(np.count_nonzero(op)) if self.adjusts else 0
        return Arrived(op, vs, ve, vnew, (), adjusts, np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A checked batch: payload rows with the times of their elements.

    `ordered`: it is known that all are inserts, in the order of their starts.
    """

    codec: RowCodec
    op: np.ndarray
    vs: np.ndarray
    ve: np.ndarray
    vnew: np.ndarray
    rows: np.ndarray
    adjusts: int
    ordered: bool = False

    @property
    def sync(self) -> np.ndarray:
        """The earliest instant that each changes."""
        return np.where(self.op == ADJUST, np.minimum(self.ve, self.vnew), self.vs) if self.adjusts else self.vs

    def without(self, gone: np.ndarray) -> CheckedBatch:
        """The same without those at some places, which are adjusts."""
        keep = np.ones(len(self.op), bool)
        keep[gone] = False
        op, vs, ve, vnew, rows = (part[keep] for part in (self.op, self.vs, self.ve, self.vnew, self.rows))
        return CheckedBatch(self.codec, op, vs, ve, vnew, rows, self.adjusts - len(gone))

    def segments(self) -> Changes:
        """An insert is +[vs, ve); an adjust is the difference it makes."""
        if not self.adjusts:
            weight = np.empty(len(self.op), np.int64)
            weight.fill(1)
            return Changes(self.codec, self.vs, self.ve, weight, self.rows)
        lo, hi, weight, some = segments(self.op, self.vs, self.ve, self.vnew)
        if some == len(lo):
            return Changes(self.codec, lo, hi, weight, self.rows)
        keep = lo < hi
        return Changes(self.codec, lo[keep], hi[keep], weight[keep], self.rows[keep])

    def events(self) -> Changes:
        """Event form: an adjust takes the whole event back and says it again."""
        if not self.adjusts:
            return self.segments()
        adjust = np.flatnonzero(self.op == ADJUST)
        again = adjust[self.vnew[adjust] > self.vs[adjust]]
        lo, hi = np.concatenate([self.vs, self.vs[again]]), np.concatenate([self.ve, self.vnew[again]])
        weight = np.ones(len(lo), np.int64)
        weight[adjust] = -1
        return Changes(self.codec, lo, hi, weight, np.concatenate([self.rows, self.rows[again]]))


@loop
def over(op: Any, ve: Any, vnew: Any, floor: Any, places: Any) -> Any:
    """The places of inserts and adjusts that speak of instants from `floor` on.  Returns how many there are."""
    n = 0
    for i in range(len(op)):
        end = max(ve[i], vnew[i]) if op[i] == 1 else ve[i]
        places[n] = i
        n += (op[i] <= 1) & (end > floor)
    return n
