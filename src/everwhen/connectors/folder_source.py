"""A folder of files as a stream: each file is read whole, once, in the order of names; new ones as they appear.

A file must appear whole: write it elsewhere, or under a name that begins with `.` or `_`, and rename it.  Names must
increase: a file whose name stands before one that was read is an error; nothing is lost, because a rename lets it be
read.  What is kept of the folder is one name and a count, however many files there are.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from everwhen.engine.epochs import joined
from everwhen.engine.files.live.inputs import LiveInput, Position
from everwhen.errors import InputError, StateError
from everwhen.formats.input_file import InputFile, read_input
from everwhen.formats.json.lines import DEFAULT_BATCH
from everwhen.stream.element_batch import ElementBatch

_MOMENT: Final = 0.03
"""Seconds that are spent with many small files before what they hold is worked on."""


class FolderOfFiles(LiveInput):
    """The files of a folder.  `last`: the file that is being read or was read last, `taken` elements of it; `count`: so
    many files stand up to it in the order of names."""

    def __init__(self, name: str, given: InputFile, pattern: str) -> None:
        super().__init__(name, given)
        self._pattern = pattern
        self._last, self._taken, self._count = "", 0, 0
        self._done = True
        self._rest: Iterator[ElementBatch] | None = None
        self._left: ElementBatch | None = None

    @property
    def is_there(self) -> bool:
        return os.path.isdir(self.given.file)

    @property
    def position(self) -> dict[str, Any]:
        return {"last": self._last, "taken": self._taken, "count": self._count, "done": self._done}

    def seek(self, position: Position) -> None:
        self._last, self._taken = position["last"], position["taken"]
        self._count, self._done = position["count"], position["done"]
        self._rest = self._left = None

    @property
    def lag(self) -> int:
        """Files that were not read yet."""
        return sum(name > self._last for name in self._names())

    lag_unit = "files"

    def take(self, most: int) -> ElementBatch | None:
        if not self.is_there:
            return None
        names = self._names()
        self._check(names)
        found: list[ElementBatch] = []
        count, until = 0, time.monotonic() + _MOMENT
        while count < most and (not count or time.monotonic() < until):
            if self._done:
                following = next((name for name in names if name > self._last), None)
                if following is None:
                    break
                self._begin(following)
            piece = self._piece(most - count)
            if piece is not None:
                found.append(piece)
                count += len(piece)
        return joined(found) if found else None

    def take_to(self, position: Position) -> ElementBatch | None:
        names = self._names()
        found: list[ElementBatch] = []
        while (self._last, self._taken) != (position["last"], position["taken"]):
            if self._done:
                following = next((name for name in names if self._last < name <= position["last"]), None)
                if following is None:
                    raise StateError(f"{self.given.shown}: {position['last']} was read and is gone (put it back)")
                self._begin(following)
            most = position["taken"] - self._taken if self._last == position["last"] else DEFAULT_BATCH
            piece = self._piece(most) if most else None
            if piece is not None:
                found.append(piece)
            elif self._last == position["last"] and self._taken != position["taken"]:
                raise StateError(f"{self._path} is shorter than what was read of it (put it back as it was)")
        if self._count > position["count"]:
            self._check_count(names, position["count"])
        self._count, self._done = position["count"], position["done"]
        return joined(found) if found else None

    def _names(self) -> list[str]:
        if not self.is_there:
            return []
        with os.scandir(self.given.file) as entries:
            found = [each.name for each in entries if each.name[0] not in "._" and each.is_file()]
        return sorted(fnmatch.filter(found, self._pattern))

    def _check(self, names: list[str]) -> None:
        """A file that came too late for its name is told, not left out."""
        self._count = self._check_count(names, self._count)

    def _check_count(self, names: list[str], known: int) -> int:
        before = [name for name in names if name <= self._last]
        if len(before) > known:
            raise InputError(
                f"a file came whose name stands before {self._last}, which was read: one of {', '.join(before[-4:])}",
                source=self.given.shown,
                remedy="names must increase: rename it behind the last one",
            )
        return len(before)

    def _begin(self, name: str) -> None:
        self._last, self._taken, self._done = name, 0, False
        self._count += 1
        self._rest = self._left = None

    @property
    def _path(self) -> str:
        return os.path.join(self.given.file, self._last)

    def _piece(self, most: int) -> ElementBatch | None:
        if self._rest is None:
            if not os.path.exists(self._path):
                raise StateError(f"{self._path} is gone, and not all of it was read (put it back)")
            self._rest = read_input(replace(self.given, file=self._path, name=""), DEFAULT_BATCH, self._taken)
        found = self._left if self._left is not None else next(self._rest, None)
        self._left = None
        if found is None:
            self._done, self._rest = True, None
            return None
        if len(found) > most:
            self._left = found.slice(most, len(found) - most)
            found = found.slice(0, most)
        else:
            self._left = next(self._rest, None)  # a file that was read to its end is done, and may go
            if self._left is None:
                self._done, self._rest = True, None
        self._taken += len(found)
        return found
