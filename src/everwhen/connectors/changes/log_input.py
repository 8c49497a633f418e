"""What all inputs over a log have in common: where it was begun, how far it was read, and the same again.

A position is that of the log, where the log began, and what was promised.  If elements cannot be made of records, the
log is put back to before them, so that nothing is passed over.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from everwhen.connectors.changes.log import Log, Plain, Reached
from everwhen.engine.files.live.inputs import LiveInput, Position
from everwhen.errors import InputError
from everwhen.formats.input_file import InputFile
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import ElementBatch, batch_of, joined


class LogInput(LiveInput):
    """`said` makes elements of records, in a subclass."""

    def __init__(self, name: str, given: InputFile, log: Log[Any], disorder: int | None) -> None:
        super().__init__(name, given)
        self.log = log
        self._reached = Reached(disorder)
        self._begun = False
        self._first: Plain | None = None

    @abstractmethod
    def said(self, records: Any) -> ElementBatch | None:
        """What records of the log say, without what is promised; how far they reach is noted in `_reached`."""

    @property
    def is_there(self) -> bool:
        return self.log.is_there

    @property
    def position(self) -> dict[str, Any]:
        log = self.log.position if self._begun else None
        return {"log": log, "first": self._first, **self._reached.to_plain()}

    def begin(self) -> None:
        """Go to where a new job begins, unless it is under way."""
        if not self._begun:
            self.log.begin()
            self._begun, self._first = True, self.log.position

    def seek(self, position: Position) -> None:
        if position["log"] is None:
            return
        self._begun, self._first = True, position["first"]
        self._go_to(position)
        self._reached.of_plain(position)

    def take(self, most: int) -> ElementBatch | None:
        self.begin()
        before = self.log.position
        try:
            return self._with_promise(self.log.take(most))
        except InputError:
            self.log.seek(before)
            raise

    def take_to(self, position: Position) -> ElementBatch | None:
        if not self._begun:
            self._begun, self._first = True, position["first"]
            self.log.seek(position["first"])
        return self._with_promise(self.log.take_to(position["log"]))

    def leave_word(self, reader: str, position: Position, cares: int) -> None:
        if self._begun and position.get("log") is not None:
            self._passed(position)

    def place_of(self, error: InputError) -> InputError:
        if error.source == self.name:
            return InputError(error.problem, source=self.log.shown, remedy=error.remedy)
        return error

    def close(self) -> None:
        self.log.close()

    def _go_to(self, position: Position) -> None:
        """Be where a position is; what an input remembers of what is before it is put together again."""
        self.log.seek(position["log"])

    def _passed(self, position: Position) -> None:
        """What is before a position will not be asked for again."""
        self.log.passed(position["log"])

    def _with_promise(self, records: Any) -> ElementBatch | None:
        if records is None:
            return None
        found = self.said(records)
        promised = self._reached.promise(self.log.parts)
        if promised is None:
            return found
        promise = batch_of([Cti(promised)], self.given.schema)
        return promise if found is None else joined(found, promise)
