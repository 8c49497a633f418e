"""Rows that are added to a table of another system, as an input: each lives one tick.

The time of a row is its column of ORDERED BY; where none is declared, the time of the commit that added it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.connectors.changes.log import Log
from everwhen.connectors.changes.log_input import LogInput
from everwhen.formats.input_file import InputFile
from everwhen.stream.element_batch import ElementBatch


class AppendedInput(LogInput):
    """`rows` makes a table of records, the times of its rows where they have no column of time, and until when there
    are no others, if that is known."""

    def __init__(
        self,
        name: str,
        given: InputFile,
        log: Log[Any],
        rows: Callable[[Any], tuple[pa.Table, np.ndarray, int | None]],
        disorder: int | None,
    ) -> None:
        super().__init__(name, given, log, disorder)
        self._rows = rows

    def said(self, records: Any) -> ElementBatch | None:
        table, times, until = self._rows(records)
        if until is not None and self.given.time is None:
            self._reached.reach(self.log.parts[0], until)
        if not len(times):
            return None
        columns = {name: _array(table.column(name)) for name in table.column_names}
        if self.given.time is None:
            columns["vs"] = pa.array(times)
        (found,) = self.given.rows.of_table(pa.RecordBatch.from_pydict(columns), self.log.shown, 1)
        self._reached.see(self.log.parts[0], found.vs)
        return found


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
