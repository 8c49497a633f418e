"""Inputs of a run that goes on: what is there so far, and exactly the same again.

    GrowingFile    JSON lines that are appended to; a last line without its end waits (CSV: `growing_csv.py`)
    LiveFolder     a changelog that grows, epoch by epoch; its writer may begin anew
    WholeFile      what cannot grow: Parquet, CSV, relations

**Guarantee.**  `take` hands out what is there, and `position` then says how far that was, as plain data.  From a
position `take_to` another one gives the same elements again, in this or another process.  A file that is not what it
was (it is shorter, or other bytes stand before the position) is an error.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import IO, Any, Final

import numpy as np

from everwhen.engine.epochs import joined
from everwhen.errors import InputError, StateError
from everwhen.formats.changelog.layout import ABOUT, Header, Start
from everwhen.formats.changelog.readers import Word, leave_word
from everwhen.formats.changelog.reading import FolderTail, read_errors, read_part
from everwhen.formats.input_file import (
    InputFile,
    is_csv,
    is_folder,
    read_input,
    require_columns,
)
from everwhen.formats.json.lines import DEFAULT_BATCH
from everwhen.formats.parquet import is_parquet
from everwhen.storage.folder import open_folder
from everwhen.stream.element_batch import ElementBatch

Position = Mapping[str, Any]
_CHUNK: Final = 1 << 20
_SHOWN: Final = 64
_MOMENT: Final = 0.03
"""Seconds that are spent with many small parts before what they hold is worked on."""


class LiveInput(ABC):
    """One input.  `begun`: the start of its writer, if that is new since the last look at it."""

    def __init__(self, name: str, given: InputFile) -> None:
        self.name, self.given = name, given
        self.ended = False
        self.begun: Start | None = None

    @property
    @abstractmethod
    def is_there(self) -> bool:
        """Whether it is there at all."""

    @property
    @abstractmethod
    def position(self) -> dict[str, Any]:
        """How far it was read."""

    @abstractmethod
    def seek(self, position: Position) -> None:
        """Go on from a position."""

    @abstractmethod
    def take(self, most: int) -> ElementBatch | None:
        """What is there, about so many elements at most; None if there is nothing new."""

    @abstractmethod
    def take_to(self, position: Position) -> ElementBatch | None:
        """All up to a position, at which it was after the present one."""

    def place_of(self, error: InputError) -> InputError:
        """An error of the batch taken last, with the place that a user knows."""
        return error

    def leave_word(self, reader: str, position: Position, cares: int) -> None:  # noqa: B027 - files have no writers
        """Tell the writer how far it will not be asked again, and from when on its answer counts."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what is held; it is not looked at any more."""


def live_input(name: str, given: InputFile) -> LiveInput:
    """An input by what its file is, which need not be there yet."""
    if is_folder(given.file):
        return LiveFolder(name, given)
    if is_parquet(given.file) or is_csv(given.file) or given.known_whole:
        return WholeFile(name, given)
    return GrowingFile(name, given)


class GrowingFile(LiveInput):
    """Lines that are appended to a file."""

    def __init__(self, name: str, given: InputFile) -> None:
        super().__init__(name, given)
        self._file: IO[bytes] | None = None
        self._offset, self._line = 0, 1
        self._tail = b""

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.given.file)

    @property
    def position(self) -> dict[str, Any]:
        return {"offset": self._offset, "line": self._line, "before": _digest(self._tail)}

    def seek(self, position: Position) -> None:
        self._offset, self._line = position["offset"], position["line"]
        file = self._opened()
        begin = max(self._offset - _SHOWN, 0)
        if file is not None:
            file.seek(begin)
        self._tail = b"" if file is None else file.read(self._offset - begin)
        self._require_same(position)

    def take(self, most: int) -> ElementBatch | None:
        file = self._opened()
        if file is None:
            return None
        size = os.fstat(file.fileno()).st_size
        self._same(file, size)
        if size == self._offset:
            return None
        data = self._read(file, size - self._offset)
        return self._taken(list(islice(io.BytesIO(data), most)))

    def take_to(self, position: Position) -> ElementBatch | None:
        file = self._opened()
        if file is None or os.fstat(file.fileno()).st_size < position["offset"]:
            raise StateError(f"{self.given.shown} is shorter than what was read of it (put it back as it was)")
        file.seek(self._offset)
        found = self._taken(list(io.BytesIO(file.read(position["offset"] - self._offset))))
        self._require_same(position)
        return found

    def _require_same(self, position: Position) -> None:
        if _digest(self._tail) != position["before"] or self._line != position["line"]:
            raise StateError(
                f"{self.given.shown} is not the file that was read: other bytes stand before line {self._line} "
                "(put it back as it was, or take a new checkpoint and a new output)"
            )

    def _opened(self) -> IO[bytes] | None:
        if self._file is None:
            try:
                self._file = open(self.given.file, "rb", buffering=0)  # noqa: SIM115 - for as long as the run lasts
            except FileNotFoundError:
                return None
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _same(self, file: IO[bytes], size: int) -> None:
        try:
            there = os.stat(self.given.file).st_ino == os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            there = False
        if size < self._offset or not there:
            problem = "the file has become shorter" if size < self._offset else "the file was replaced or removed"
            remedy = "a file that is followed is only appended to"
            raise InputError(problem, source=self.given.shown, line=self._line, remedy=remedy)

    def _read(self, file: IO[bytes], rest: int) -> bytes:
        """Whole lines: as many as fit, or one that is longer."""
        length = _CHUNK
        while True:
            file.seek(self._offset)
            data = file.read(length)
            end = data.rfind(b"\n") + 1
            if end or length >= rest:
                return data[:end]
            length *= 4

    def _taken(self, lines: list[bytes]) -> ElementBatch | None:
        if not lines:
            return None
        found = list(self.given.lines.elements(iter(lines), len(lines), self._line))
        self._passed(lines)
        return joined(found) if found else None

    def _passed(self, lines: list[bytes]) -> None:
        self._offset += sum(map(len, lines))
        self._line += len(lines)
        self._tail = (self._tail + b"".join(lines[-_SHOWN:]))[-_SHOWN:]


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class LiveFolder(LiveInput):
    """A changelog, part by part."""

    def __init__(self, name: str, given: InputFile) -> None:
        super().__init__(name, given)
        self._folder = open_folder(given.file)
        self._tail = FolderTail(self._folder)
        self._about: Header | None = None
        self._parts: list[tuple[str, ElementBatch]] = []

    @property
    def is_there(self) -> bool:
        return self._folder.exists(ABOUT)

    @property
    def position(self) -> dict[str, Any]:
        start = self._tail.start
        plain = None if start is None else start.to_plain()
        return {"start": plain, "epoch": self._tail.epoch, "part": self._tail.part}

    def seek(self, position: Position) -> None:
        start = position["start"]
        self._tail.seek(None if start is None else Start.of(start), position["epoch"], position["part"])

    def take(self, most: int) -> ElementBatch | None:
        if self._about is None and not self.is_there:
            return None
        self._header()
        self._parts, self.begun = [], None
        known, count = self._tail.start, 0
        until = time.monotonic() + _MOMENT
        with read_errors(self.given.file):
            while count < most and (not count or time.monotonic() < until):
                before = (self._tail.start, self._tail.epoch, self._tail.part)
                found = self._tail.look()
                if self._tail.start is not known and self._tail.start != known:
                    if count:  # what is of another start is for the next time
                        self._tail.seek(*before)
                        break
                    if known is None or self._tail.start is None or known.id != self._tail.start.id:
                        self.begun = self._tail.start
                    known = self._tail.start
                if found is None:
                    break
                count += self._add(self._tail.take(), found.epoch)
        return self._joined()

    def take_to(self, position: Position) -> ElementBatch | None:
        start = Start.of(position["start"])
        self._parts, self.begun = [], None
        tail = self._tail
        if tail.start is None or start.id != tail.start.id:
            self.begun = start
            tail.seek(start, start.first, 0)
        with read_errors(self.given.file):
            while (tail.epoch, tail.part) < (position["epoch"], position["part"]):
                found = tail.look()
                if found is None or found.start.id != start.id:
                    raise StateError(
                        f"{self.given.file}: epoch {tail.epoch} is gone, and it was read before (put the folder back, "
                        "or take a new checkpoint and a new output)"
                    )
                self._add(tail.take(), found.epoch)
        tail.start = start
        return self._joined()

    def _add(self, name: str, epoch: int) -> int:
        if not name:
            return 0
        parts = read_part(self._folder, name, epoch, self._header(), DEFAULT_BATCH)
        found = [(self._folder.place(name), batch) for batch in parts]
        self._parts += found
        return sum(len(batch) for _, batch in found)

    def _header(self) -> Header:
        if self._about is None:
            self._about = require_columns(self.given)
        return self._about

    def _joined(self) -> ElementBatch | None:
        """The parts as one batch, in which elements are numbered throughout."""
        if not self._parts:
            return None
        whole = joined([batch for _, batch in self._parts])
        return replace(whole, source=self.given.file, lines=np.arange(1, len(whole) + 1))

    def place_of(self, error: InputError) -> InputError:
        at = 0 if error.line is None or error.source != self.given.file else error.line
        for place, batch in self._parts if at else ():
            if at <= len(batch):
                return InputError(error.problem, source=place, line=batch.line(at - 1), remedy=error.remedy)
            at -= len(batch)
        return error

    def leave_word(self, reader: str, position: Position, cares: int) -> None:
        with read_errors(self.given.file):
            if self.is_there:
                leave_word(self._folder, Word(reader, position["epoch"], cares))


class WholeFile(LiveInput):
    """A file that does not grow: it ends where it ends."""

    def __init__(self, name: str, given: InputFile) -> None:
        super().__init__(name, given)
        self._taken = 0
        self._rest: Iterator[ElementBatch] | None = None
        self._left: ElementBatch | None = None

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.given.file)

    @property
    def position(self) -> dict[str, Any]:
        return {"taken": self._taken, "ended": self.ended}

    def seek(self, position: Position) -> None:
        self._taken, self.ended = position["taken"], position["ended"]

    def take(self, most: int) -> ElementBatch | None:
        if self.ended or not self.is_there:
            return None
        if self.given.known_whole:
            found = list(self._batches())
            self.ended = True
        else:
            found = [] if (piece := self._piece(most)) is None else [piece]
        self._taken += sum(map(len, found))
        return joined(found) if found else None

    def take_to(self, position: Position) -> ElementBatch | None:
        found: list[ElementBatch] = []
        while self._taken < position["taken"]:
            piece = self._piece(position["taken"] - self._taken)
            if piece is None:
                raise StateError(f"{self.given.shown} is shorter than what was read of it (put it back as it was)")
            found.append(piece)
            self._taken += len(piece)
        self.ended = position["ended"]
        return joined(found) if found else None

    def _batches(self) -> Iterator[ElementBatch]:
        if self._rest is None:
            self._rest = read_input(self.given, DEFAULT_BATCH, self._taken)
        return self._rest

    def _piece(self, most: int) -> ElementBatch | None:
        found = self._left if self._left is not None else next(self._batches(), None)
        self._left = None
        if found is None:
            self.ended = True
        elif len(found) > most:
            self._left = found.slice(most, len(found) - most)
            found = found.slice(0, most)
        return found
