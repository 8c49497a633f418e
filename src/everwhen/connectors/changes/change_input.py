"""A log of row changes as an input of a query: inserts and adjusts, and what has been promised.

A position of such an input does not say which rows lived there, so after `seek` the table is put together again: from
the newest copy of it in the folder `state`, if there is one, and the changes of the log since.  Without a folder the
log is read again from its beginning.  Copies are written when the run says how far it will not ask again; then the log
may forget what is before the copy.  The times of changes depend on the log alone, not on how it was cut into batches.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from everwhen.connectors.changes.live_rows import LiveRows, TableChanges
from everwhen.connectors.changes.log import Log, Plain, Reached
from everwhen.engine.files.live_inputs import LiveInput, Position
from everwhen.errors import InputError, SourceError
from everwhen.formats.input_file import InputFile
from everwhen.storage.atomic_file import whole_file
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import ElementBatch, batch_of, joined

Changed = Iterable[tuple[str, TableChanges]]
"""Changes, and the part of the log that they are from."""
_ABOUT: Final = b"everwhen"
_EFFORT: Final = 20
"""Copies of a table take a twentieth of the time at most."""


class ChangeInput(LiveInput):
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
        super().__init__(name, given)
        if not key:
            raise SourceError(f"{log.shown}: which rows replace each other? (give the key: key = 'id')")
        self.log, self._decode = log, decode
        self._rows = LiveRows(given.schema, key)
        self._reached = Reached(disorder)
        self._state = state
        self._begun = False
        self._first: Plain | None = None
        self._copied: Plain | None = None
        self._due = 0.0

    @property
    def is_there(self) -> bool:
        return self.log.is_there

    @property
    def position(self) -> dict[str, Any]:
        log = self.log.position if self._begun else None
        return {"log": log, "first": self._first, **self._reached.to_plain()}

    def take(self, most: int) -> ElementBatch | None:
        self.begin()
        return self._said(self.log.take(most))

    def take_to(self, position: Position) -> ElementBatch | None:
        if not self._begun:
            self._begun, self._first = True, position["first"]
            self.log.seek(position["first"])
        return self._said(self.log.take_to(position["log"]))

    def seek(self, position: Position) -> None:
        if position["log"] is None:
            return
        self._begun = True
        self._first = position["first"]
        copy = self._copy_before(position)
        if copy is None:
            self.log.seek(position["first"])
        else:
            about, table = copy
            self._rows.restore(table)
            self._reached.of_plain(about)
            self.log.seek(about["log"])
        if self.log.position != position["log"]:
            self._said(self.log.take_to(position["log"]))
        self._reached.of_plain(position)

    def leave_word(self, reader: str, position: Position, cares: int) -> None:
        """What is before a position will not be asked for again: the table is copied, and the log may forget what is
        before the newest copy that can still be asked for."""
        if self._state is None or position.get("log") is None or not self._begun:
            return
        began = time.monotonic()
        if self._copied != self.position["log"] and began >= self._due:
            self._write_copy(self.position)
            self._copied = self.position["log"]
            self._due = began + _EFFORT * (time.monotonic() - began)
        copy = self._copy_before(position)
        if copy is not None:
            about, _ = copy
            self.log.passed(about["log"])
            for number, path in _copies(Path(self._state)):
                if number < about["number"]:
                    path.unlink(missing_ok=True)

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
        found: list[ElementBatch] = []
        for part, changes in self._decode(records):
            if not len(changes):
                continue
            times = self._reached.kept_up(part, changes.times)
            if changes.clears:
                found.append(self._rows.clear(int(times[0]), self.log.shown))
                continue
            ordered = TableChanges(times, changes.gone, changes.columns, changes.kept)
            found.append(self._rows.take(ordered, self.log.shown))
        promised = self._reached.promise(self.log.parts)
        if promised is not None:
            found.append(batch_of([Cti(promised)], self.given.schema))
        said = found[0] if found else None
        for batch in found[1:]:
            assert said is not None
            said = joined(said, batch)
        return said if said is not None and len(said) else None

    def place_of(self, error: InputError) -> InputError:
        if error.source == self.name:
            return InputError(error.problem, source=self.log.shown, remedy=error.remedy)
        return error

    # -- copies of the table ------------------------------------------------------------------------------------

    def _write_copy(self, position: Position) -> None:
        assert self._state is not None
        folder = Path(self._state)
        folder.mkdir(parents=True, exist_ok=True)
        there = _copies(folder)
        number = there[-1][0] + 1 if there else 0
        table = self._rows.table()
        about = json.dumps({"position": dict(position), "key": list(self._rows.key)}).encode()
        table = table.replace_schema_metadata({_ABOUT: about})
        with (
            whole_file(folder / f"table-{number}.arrow") as part,
            pa.OSFile(os.fspath(part), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)

    def _copy_before(self, position: Position) -> tuple[Plain, pa.Table] | None:
        """The newest copy that is not beyond a position."""
        if self._state is None or not Path(self._state).is_dir():
            return None
        for number, path in reversed(_copies(Path(self._state))):
            with pa.OSFile(os.fspath(path)) as file:
                table = pa.ipc.open_file(file).read_all()
                about = json.loads(table.schema.metadata[_ABOUT])
                if about["key"] == list(self._rows.key) and not_beyond(about["position"]["log"], position["log"]):
                    return {**about["position"], "number": number}, table
        return None


def not_beyond(first: Plain, second: Plain) -> bool:
    """Whether a position of a log is not after another one: all of its numbers are at most as large."""
    return all(name in second and number <= second[name] for name, number in first.items())


def _copies(folder: Path) -> list[tuple[int, Path]]:
    found = ((path.stem.removeprefix("table-"), path) for path in folder.glob("table-*.arrow"))
    return sorted((int(number), path) for number, path in found if number.isdecimal())
