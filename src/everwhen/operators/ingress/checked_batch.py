"""The data of a batch: its inserts and adjusts in arrival order, and where promises stand between them; and what is
wrong with an element whose times are.

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
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, show
from everwhen.stream.element import Adjust, Insert
from everwhen.stream.element_batch import ADJUST, CTI, ElementBatch


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


@loop
def over(op: Any, ve: Any, vnew: Any, floor: Any, places: Any) -> Any:
    """The places of inserts and adjusts that speak of instants from `floor` on.  Returns how many there are."""
    n = 0
    for i in range(len(op)):
        end = max(ve[i], vnew[i]) if op[i] == 1 else ve[i]
        places[n] = i
        n += (op[i] <= 1) & (end > floor)
    return n


def times_problem(batch: ElementBatch, at: int, sync: int, cti: int, name: str) -> tuple[str, str]:
    """What is wrong with the times of an element that a guard refuses, and what to do."""
    op, vs, ve, vnew = int(batch.op[at]), int(batch.vs[at]), int(batch.ve[at]), int(batch.vnew[at])
    finite = f"finite times lie within ±{MAX_TIME}"
    if op > 4:
        return f"unknown op {op}", "ops are insert, adjust, cti, punct, external_cti"
    if op == CTI:
        return f"the CTI {show(vs)} is out of range", finite
    if not MIN_TIME <= vs <= MAX_TIME or (ve > MAX_TIME and ve != INF):
        return f"the lifetime [{show(vs)}, {show(ve)}) is out of range", finite
    if vs >= ve:
        return f"the lifetime [{show(vs)}, {show(ve)}) is empty", "vs must be less than ve"
    if op == ADJUST and vnew < vs:
        return f"an adjust to {show(vnew)}, before the event's start {show(vs)}", "vnew = vs removes the event"
    if op == ADJUST and vnew > MAX_TIME and vnew != INF:
        return f"an adjust to {vnew} is out of range", finite
    what = "an adjust that changes" if op == ADJUST else "an insert that starts"
    remedy = (
        "a CTI promises that nothing before it changes; say what becomes of late rows: LATE ROWS DROP behind CREATE "
        f"STREAM {name} (…), --late {name}=drop, or late='drop' in ew.source"
    )
    return f"{what} at {show(sync)}, behind the CTI {show(cti)}", remedy
