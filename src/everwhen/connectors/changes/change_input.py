"""A log of row changes as an input of a query: inserts and adjusts, and what has been promised.

A position of such an input does not say which rows lived there, so after `seek` the table is put together again: from
the newest copy of it in the folder `state`, if there is one, and the changes of the log since.  Without a folder the
log is read again from its beginning.  Copies are written when the run says how far it will not ask again; then the log
may forget what is before the copy.  The times of changes depend on the log alone, not on how it was cut into batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from everwhen.connectors.changes.live_rows import LiveRows, TableChanges
from everwhen.connectors.changes.log import Log, Plain
from everwhen.connectors.changes.log_input import LogInput
from everwhen.connectors.changes.table_copies import TableCopies
from everwhen.engine.files.live.inputs import Position
from everwhen.errors import SourceError
from everwhen.formats.input_file import InputFile
from everwhen.stream.element_batch import ElementBatch, joined

Changed = Iterable[tuple[str, TableChanges]]
"""Changes, and the part of the log that they are from."""
_EFFORT: Final = 20
"""Copies of a table take a twentieth of the time at most."""


class ChangeInput(LogInput):
    """`decode` makes changes of records; their times are brought in order here."""

    def __init__(
        self,
        name: str,
        given: InputFile,
        log: Log[Any],
        decode: Callable[[Any], Changed],
        key: Sequence[str],
        disorder: int = 0,
        state: str | None = None,
    ) -> None:
        super().__init__(name, given, log, disorder)
        if not key:
            raise SourceError(f"{log.shown}: which rows replace each other? (give the key: key = 'id')")
        self._decode = decode
        self._rows = LiveRows(given.schema, key)
        self._copies = None if state is None else TableCopies(state, key)
        self._copied: Plain | None = None
        self._changed = True
        self._due = 0.0

    def said(self, records: Any) -> ElementBatch | None:
        found: ElementBatch | None = None
        for part, changes in self._decode(records):
            if changes.until is not None:
                self._reached.reach(part, changes.until)
            if not len(changes):
                continue
            self._changed = True
            times = self._reached.kept_up(part, changes.times)
            if changes.clears:
                batch = self._rows.clear(int(times[0]), self.log.shown)
            else:
                ordered = TableChanges(times, changes.gone, changes.columns, changes.kept)
                batch = self._rows.take(ordered, self.log.shown)
            found = batch if found is None else joined(found, batch)
        return found if found is not None and len(found) else None

    def _go_to(self, position: Position) -> None:
        copy = None if self._copies is None else self._copies.before(position)
        if copy is None:
            self.log.seek(position["first"])
        else:
            _, about, table = copy
            self._rows.restore(table)
            self._reached.of_plain(about)
            self.log.seek(about["log"])
        self._changed = True
        if self.log.position != position["log"]:
            self._with_promise(self.log.take_to(position["log"]))

    def _passed(self, position: Position) -> None:
        """The table is copied, and the log may forget what is before the newest copy that can still be asked for."""
        if self._copies is None:
            return
        began = time.monotonic()
        here = self.position
        if self._copied != here["log"] and not self._changed:
            self._copies.still(here, position)
            self._copied = here["log"]
        elif self._copied != here["log"] and began >= self._due:
            self._copies.add(self._rows.table(), here)
            self._copied, self._changed = here["log"], False
            self._due = began + _EFFORT * (time.monotonic() - began)
        copy = self._copies.before(position)
        if copy is not None:
            number, about, _ = copy
            self.log.passed(about["log"])
            self._copies.forget(number)
