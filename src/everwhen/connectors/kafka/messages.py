"""Messages as elements: JSON rows, or elements as they stand in JSON lines.

An object is an element if it has an object named `row`, or an `op` that is one of ours and no column; any other is a
row.  A row lives one tick from its time: the column of ORDERED BY, or, where none is declared, the message's own
timestamp.  Fields of a row that are not declared are left alone.  A message without a value says nothing.

What is wrong with a message is an `InputError` whose line is the number of the message in the list, from 1.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import Unfit
from everwhen.core.schema import RESERVED
from everwhen.errors import InputError
from everwhen.formats.input_file import InputFile
from everwhen.formats.json.arrow_reader import FastReader, decode, may_be_deep, safe_floats
from everwhen.formats.json.python_reader import decode_lines, elements_of_objects
from everwhen.stream.element_batch import CTI, OPS, ElementBatch

_PLAIN: Final = (pa.int64(), pa.float64(), pa.string(), pa.bool_())
_STAMP: Final = 10**6  # nanoseconds of a millisecond


def as_lines(values: list[bytes | None]) -> list[bytes]:
    """Values of messages as lines; a missing one is a blank line."""
    found = [b"\n" if value is None else value + b"\n" for value in values]
    if any(line.find(b"\n", 0, -1) >= 0 for line in found):  # within text a line end would be written \n
        found = [line[:-1].replace(b"\n", b" ") + b"\n" for line in found]
    return found


class MessageReader:
    """Reads the messages of one topic."""

    def __init__(self, given: InputFile) -> None:
        self.given = given
        self.schema = given.schema
        self._fast = FastReader(given.schema, given.shown)
        self._plain = len(given.schema) > 0 and all(type_ in _PLAIN for type_ in given.schema.types)
        self._elements = True
        tick = given.tick_length
        self._scale = (_STAMP // tick, 1) if tick <= _STAMP else (1, tick // _STAMP)

    def read(self, values: list[bytes | None], stamps: np.ndarray) -> ElementBatch:
        """The elements of messages; `stamps` are their timestamps in milliseconds."""
        lines = as_lines(values)
        ways = (self._quick, self._rows) if self._elements else (self._rows, self._quick)
        for way in ways:
            found = way(lines, stamps)
            if found is not None:
                self._elements = way is ways[0] if self._elements else way is not ways[0]
                return found
        return self._careful(lines, stamps)

    def _quick(self, lines: list[bytes], stamps: np.ndarray) -> ElementBatch | None:
        return self._fast.read(lines, 1)

    def _rows(self, lines: list[bytes], stamps: np.ndarray) -> ElementBatch | None:
        """All messages as rows, decoded by Arrow; None where anything is unusual."""
        if not self._plain or any(map(may_be_deep, lines)) or set(RESERVED) & set(self.schema.names):
            return None
        text = b"".join(lines)
        table = decode(text, len(lines), self.schema.to_arrow(), more=True)
        if table is None or {"op", "row", *RESERVED} & set(table.column_names):
            return None
        piece = table.combine_chunks().to_batches()
        columns = dict(zip(table.column_names, piece[0].columns, strict=True)) if len(piece) == 1 else {}
        if not columns or any(c.type == pa.float64() and not safe_floats(c) for c in columns.values()):
            return None
        if self.given.time is None:
            columns["vs"] = pa.array(self._ticks(stamps))
        elif self.given.time not in columns:
            return None
        try:
            found = list(self.given.rows.of_table(pa.RecordBatch.from_pydict(columns), self.given.shown, 1))
        except InputError:
            return None  # the careful reader says what is wrong, and where
        return found[0] if len(found) == 1 else None

    def _careful(self, lines: list[bytes], stamps: np.ndarray) -> ElementBatch:
        objects, numbers = decode_lines(lines, 1, self.given.shown)
        ticks = self._ticks(stamps)
        for i, element in enumerate(objects):
            try:
                objects[i] = self._element(element, int(ticks[numbers[i] - 1]))
            except Unfit as bad:
                place = int(numbers[i])
                raise InputError(bad.problem, source=self.given.shown, line=place, remedy=bad.remedy) from None
        return elements_of_objects(objects, numbers, self.schema, self.given.shown)

    def _element(self, found: dict[str, Any], stamp: int) -> dict[str, Any]:
        op = found.get("op")
        bare = not isinstance(found.get("row"), dict) and ("op" in self.schema or op not in OPS)
        if bare:
            wanted = {*self.schema.names, *self.given.times}
            found = {"row": {name: value for name, value in found.items() if name in wanted}}
            if self.given.time is None:
                found["vs"] = stamp
        element = self.given.rows.of_object(found)
        if element.get("op", OPS[0]) in OPS[:CTI] and "vs" not in element and not bare:
            element["vs"] = stamp
        return element

    def _ticks(self, stamps: np.ndarray) -> np.ndarray:
        times, by = self._scale
        return stamps * times // by
