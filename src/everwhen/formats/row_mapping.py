"""Rows that are no elements by themselves, made elements by what is declared of their input.

A constant row lives from 0 for ever; a row of a temporal relation from one of its columns to another; a row of a stream
that is ordered by a column for one tick from there.  An element that brings its own times keeps them.  A column that
only tells a time is dropped, unless the payload has it.

An object is an element if it has an object named `row`, or an `op` and the payload has no column of that name; any
other is a bare row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import Unfit, describe
from everwhen.core.schema import RESERVED, Schema
from everwhen.errors import InputError
from everwhen.formats.parquet import AT, COUNT, MATCH, elements_of_table
from everwhen.formats.time_columns import WANTED, ticks_of_array, ticks_of_text
from everwhen.stream.element_batch import CTI, OPS, ElementBatch

_SPECIAL: Final = (*RESERVED, MATCH, COUNT, AT)
_OWN_TIMES: Final = ("vs", "ve", "vnew")
_CONSTANT: Final = "a constant relation holds plain rows; declare it TEMPORAL or VARYING if they come and go"


@dataclass(frozen=True, slots=True)
class RowsAsElements:
    """How rows become elements: `start` and `end` are columns of times; without both, rows are constant if `constant`.

    `tick` is the length of a tick in nanoseconds.
    """

    schema: Schema
    start: str | None
    end: str | None
    constant: bool
    numbered: bool
    tick: int

    # -- objects of JSON lines ----------------------------------------------------------------------------------

    def of_object(self, found: dict[str, Any]) -> dict[str, Any]:
        """The element that an object stands for; what is wrong with it beyond that is found when it is read."""
        element: dict[str, Any] = dict(found) if self._is_element(found) else {"row": found}
        if not self.numbered and "row" in element:
            element.pop("at", None)
        op = element.get("op", OPS[0])
        if self.constant:
            times = [name for name in ("vs", "ve", "vnew", "t") if name in element]
            if times or op != OPS[0]:
                raise Unfit(f"a row with {times[0]!r}" if times else f"an element {describe(op)}", _CONSTANT)
            return {**element, "vs": 0, "ve": None}
        row = element.get("row")
        if op not in OPS[:CTI] or not isinstance(row, dict):
            return element
        if "vs" not in element:
            if self.start is None:
                return element
            element["vs"] = self._time(row, self.start)
            if self.end is not None and "ve" not in element:
                element["ve"] = None if row.get(self.end) is None else self._time(row, self.end)
        dropped = {name for name in (self.start, self.end) if name is not None and name not in self.schema}
        if dropped & row.keys():
            element["row"] = {name: value for name, value in row.items() if name not in dropped}
        return element

    def _is_element(self, found: dict[str, Any]) -> bool:
        if isinstance(found.get("row"), dict):
            return True
        return "op" not in self.schema and isinstance(found.get("op"), str) and found["op"] in OPS

    def _time(self, row: dict[str, Any], name: str) -> int:
        value = row.get(name)
        if value is None:
            what = f"its column {name!r} is null" if name in row else f"no column {name!r}"
            raise Unfit(f'the row has no time: neither "vs" nor a value in {name!r}, {what}', WANTED)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Unfit(f"the time in {name!r} is {describe(value)}", WANTED)
        if isinstance(value, int):
            return value
        return ticks_of_text(value, name, self.tick)

    # -- tables -------------------------------------------------------------------------------------------------

    def of_table(self, piece: pa.RecordBatch, source: str, first: int) -> Iterator[ElementBatch]:
        """The elements of a table whose first row has the number `first`."""
        names = piece.schema.names
        columns: dict[str, pa.Array] = {name: piece.column(name) for name in names}
        for own in _OWN_TIMES:
            if own in columns and pa.types.is_floating(columns[own].type):  # pandas has numbers with gaps so
                columns[own] = self._times(columns[own], own, source, first, nulls=True)
        if self.constant:
            timed = [name for name in RESERVED if name in columns]
            if timed:
                remedy = "give the rows as JSON lines" if timed[0] in self.schema else _CONSTANT
                raise InputError(f"there is a column {timed[0]!r}", source=source, remedy=remedy)
            columns["vs"] = pa.array(np.zeros(len(piece), np.int64))
            columns["ve"] = pa.nulls(len(piece), pa.int64())
        elif "vs" not in columns and self.start in columns:
            assert self.start is not None
            columns["vs"] = self._times(columns[self.start], self.start, source, first, nulls=False)
            if self.end is not None and "ve" not in columns:
                if self.end not in columns:
                    raise InputError(f"there is no column {self.end!r}", source=source, remedy=_there(names, self.end))
                columns["ve"] = self._times(columns[self.end], self.end, source, first, nulls=True)
        elif "vs" not in columns and self.start is not None:
            problem = f"there is neither a column 'vs' nor {self.start!r}"
            raise InputError(problem, source=source, remedy=_there(names, self.start))
        if not self.numbered:
            columns.pop(AT, None)
        for name in (self.start, self.end):
            if name is not None and name not in self.schema and name not in _SPECIAL:
                columns.pop(name, None)
        missing = next((name for name in self.schema.names if name not in columns), None)
        if missing is not None:
            remedy = f"{_there(names, missing)}; rename the column, or leave it out of the declaration"
            raise InputError(f"the declared column {missing!r} is not in the file", source=source, remedy=remedy)
        columns = {name: column for name, column in columns.items() if name in _SPECIAL or name in self.schema}
        yield from elements_of_table(pa.RecordBatch.from_pydict(columns), self.schema, source, first, self.tick)

    def _times(self, column: pa.Array, name: str, source: str, first: int, nulls: bool) -> pa.Array:
        """A column of times as ticks."""
        if not nulls and column.null_count:
            at = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InputError(f"the time in column {name!r} is null", source=source, line=first + at, remedy=WANTED)
        try:
            return ticks_of_array(column, name, self.tick)
        except Unfit as bad:
            raise InputError(bad.problem, source=source, line=first + bad.index, remedy=bad.remedy) from None


def _there(names: list[str], wanted: str) -> str:
    """What columns there are, and why the one that was looked for may not be among them."""
    there = f"there is {', '.join(names) or 'none'}"
    if len(names) == 1 and (between := next((mark for mark in ";\t|" if mark in names[0]), None)):
        shown = {"\t": "tabs"}.get(between, f"'{between}'")
        return f"{there}: are these columns with {shown} between them? In .csv there are commas, in .tsv tabs"
    near = next((name for name in names if name.strip().lower() == wanted.lower()), None)
    if near is not None:
        shown = near if near.isidentifier() else f'"{near}"'
        return f"{there}; the file writes it {near!r}: declare {shown}"
    return there
