"""CSV that is appended to: a header, then a row per line, as they come.

A line without its end waits.  A field with a line end inside cannot be told from half a row, so it is an error: that of
its own line, else the rows up to the next mark would be text within one field.
"""

from __future__ import annotations

from everwhen.engine.epochs import joined
from everwhen.engine.files.live.inputs import GrowingFile
from everwhen.errors import InputError
from everwhen.formats.csv import csv_lines, is_open
from everwhen.stream.element_batch import ElementBatch


class GrowingCsv(GrowingFile):
    """Rows that are appended to a file; positions are those of any file that grows."""

    def _taken(self, lines: list[bytes]) -> ElementBatch | None:
        if not lines:
            return None
        if self._line == 1:
            header, rows, first = lines[0], lines[1:], 2
        else:
            with open(self.given.file, "rb") as file:
                header = file.readline()
            rows, first = lines, self._line
        data = b"".join(row for row in rows if row.strip())
        found: list[ElementBatch] = []
        for line, row in enumerate([header, *rows], first - 1):
            if is_open(row, self.given.file):
                raise InputError(
                    "a quotation mark is opened in this line and not closed in it: a row per line is read here",
                    source=self.given.shown,
                    line=line if row is not header else 1,
                    remedy="close it, or take it out; a field of a CSV that grows has no line end inside",
                )
        if data:
            given = self.given
            piece = csv_lines(given.file, header, data, given.schema, given.times, first)
            found = list(given.rows.of_table(piece, given.shown, first))
        self._passed(lines)
        return joined(found) if found else None
