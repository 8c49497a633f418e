"""Rows that are added to a table of another system, as an input: each lives one tick.

The time of a row is its column of ORDERED BY; where none is declared, the time of the commit that added it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.connectors.changes.log import Log, Plain, Reached
from everwhen.engine.files.live_inputs import LiveInput, Position
from everwhen.errors import InputError
from everwhen.formats.input_file import InputFile
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import ElementBatch, batch_of, joined


class AppendedInput(LiveInput):
    """`rows` makes a table of records, and the times of its rows where they have no column of time."""

    def __init__(
        self,
        name: str,
        given: InputFile,
        log: Log[Any],
        rows: Callable[[Any], tuple[pa.Table, np.ndarray]],
        disorder: int | None,
    ) -> None:
        super().__init__(name, given)
        self.log, self._rows = log, rows
        self._reached = Reached(disorder)
        self._begun = False
        self._first: Plain | None = None

    @property
    def is_there(self) -> bool:
        return self.log.is_there

    @property
    def position(self) -> dict[str, Any]:
        log = self.log.position if self._begun else None
        return {"log": log, "first": self._first, **self._reached.to_plain()}

    def seek(self, position: Position) -> None:
        if position["log"] is not None:
            self._begun, self._first = True, position["first"]
            self.log.seek(position["log"])
            self._reached.of_plain(position)

    def take(self, most: int) -> ElementBatch | None:
        self.begin()
        before = self.log.position
        try:
            return self._said(self.log.take(most))
        except InputError:
            self.log.seek(before)
            raise

    def take_to(self, position: Position) -> ElementBatch | None:
        if not self._begun:
            self._begun, self._first = True, position["first"]
            self.log.seek(position["first"])
        return self._said(self.log.take_to(position["log"]))

    def leave_word(self, reader: str, position: Position, cares: int) -> None:
        if self._begun and position.get("log") is not None:
            self.log.passed(position["log"])

    def close(self) -> None:
        self.log.close()

    def begin(self) -> None:
        """Go to where a new job begins, unless it is under way."""
        if not self._begun:
            self.log.begin()
            self._begun, self._first = True, self.log.position

    def _said(self, records: Any) -> ElementBatch | None:
        if records is None:
            return None
        table, times = self._rows(records)
        columns = {name: _array(table.column(name)) for name in table.column_names}
        if self.given.time is None:
            columns["vs"] = pa.array(times)
        found: ElementBatch | None = None
        if len(times):
            piece = pa.RecordBatch.from_pydict(columns)
            (found,) = self.given.rows.of_table(piece, self.log.shown, 1)
            self._reached.see(self.log.parts[0], found.vs)
        promised = self._reached.promise(self.log.parts)
        if promised is None:
            return found
        promise = batch_of([Cti(promised)], self.given.schema)
        return promise if found is None else joined(found, promise)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
