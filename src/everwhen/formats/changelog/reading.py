"""Reading a changelog folder: once as it is now, or epoch by epoch as it grows.

A reader follows the manifests, so it never sees a part of an epoch that was not finished.  Whoever follows a folder
asks for the next manifest by its name: that costs one look at one file, however many epochs there are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from everwhen.errors import InputError, SinkError
from everwhen.formats.changelog.layout import (
    ABOUT,
    MANIFESTS,
    Header,
    Manifest,
    Start,
    epochs_there,
    first_kept,
    read_header,
    read_manifest,
)
from everwhen.formats.json.lines import DEFAULT_BATCH
from everwhen.formats.parquet import read_elements
from everwhen.storage.folder import Folder, LocalFolder, blame, open_folder
from everwhen.stream.element_batch import ElementBatch

_HEADER_PAUSE: Final = 0.2
"""Seconds between two looks at the header, while no epoch comes."""


def read_changelog(path: str | os.PathLike[str], batch: int = DEFAULT_BATCH, skip: int = 0) -> Iterator[ElementBatch]:
    """The elements of a changelog that are in, in the order in which they were said; of several starts the last one's.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], s.schema)
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     sink = ew.spark.ChangelogSink(f"{folder}/answers", format="jsonl")
    ...     sink.prepare(s.schema)
    ...     sink.commit(0, batch)
    ...     print(*(element for part in ew.spark.read_changelog(sink.path) for element in part.elements()))
    ...
    insert [0, 5) x=1 cti 3
    """
    with read_errors(os.fspath(path)):
        folder = open_folder(path)
        header = read_header(folder)
        for manifest in finished(folder):
            for name in manifest.parts:
                for found in read_part(folder, name, manifest.epoch, header, batch):
                    if skip >= len(found):
                        skip -= len(found)
                        continue
                    yield found.slice(skip, len(found) - skip) if skip else found
                    skip = 0


def header_of(path: str | os.PathLike[str]) -> Header:
    """What a folder holds; an `InputError` if it is no changelog."""
    with read_errors(os.fspath(path)):
        return read_header(open_folder(path))


def finished(folder: Folder) -> Iterator[Manifest]:
    """The epochs of the last start that are in."""
    there = epochs_there(folder)
    if not there:
        return
    start, kept = read_manifest(folder, there[-1]).start, first_kept(folder)
    if kept > start.first:
        raise InputError(
            f"the epochs before {kept} are gone: all readers had passed them",
            source=folder.place(MANIFESTS),
            remedy="let the folder keep all epochs, or read it with a reader that is there from the beginning",
        )
    for epoch in there:
        if epoch >= start.first:
            yield read_manifest(folder, epoch)


def read_part(folder: Folder, name: str, epoch: int, header: Header, batch: int) -> Iterator[ElementBatch]:
    """The elements of a part of an epoch that is in, on the header's axis."""
    schema, tick = header.schema, header.axis.tick
    if not folder.exists(name):
        remedy = f"{MANIFESTS}/{epoch}.json names it; restore it from a copy"
        raise InputError(f"a part of epoch {epoch} is missing", source=folder.place(name), remedy=remedy)
    if isinstance(folder, LocalFolder):
        yield from read_elements(folder.place(name), schema, batch, tick)
        return
    with TemporaryDirectory(prefix="everwhen-") as aside:
        path = Path(aside, name.rpartition("/")[2])
        path.write_bytes(folder.read(name))
        yield from read_elements(path, schema, batch, tick)


@contextmanager
def read_errors(place: str) -> Iterator[None]:
    """What goes wrong here is the input's fault."""
    try:
        yield
    except FileNotFoundError as bad:
        remedy = "a changelog that a ChangelogSink has prepared has one"
        raise InputError(f"there is no {ABOUT}", source=place, remedy=remedy) from bad
    except (OSError, SinkError) as bad:
        problem = blame(bad, place, "read the changelog") if isinstance(bad, OSError) else str(bad)
        raise InputError(problem) from bad


@dataclass(slots=True)
class FolderTail:
    """A folder that grows.  `start`, `epoch` and `part` say what comes next."""

    folder: Folder
    start: Start | None = None
    epoch: int = 0
    part: int = 0
    _next: Manifest | None = None
    _looked: float = 0.0

    def look(self) -> Manifest | None:
        """The manifest of the next part, if it is in.  If that is of another start than before, `start` changes."""
        if self._next is None:
            if self.start is None:
                self._look_at_start()
            self._next = self._found()
        if self._next is not None and (self.start is None or self._next.start.id != self.start.id):
            self.start, self.part = self._next.start, 0
            if self.epoch != self.start.first:
                self.epoch = self.start.first
                self._next = self._found()
        return self._next

    def take(self) -> str:
        """The next part; "" if the epoch has no more, and then the next epoch follows."""
        found = self._next
        assert found is not None, "look first"
        if self.part < len(found.parts):
            self.part += 1
            return found.parts[self.part - 1]
        self.epoch, self.part, self._next = self.epoch + 1, 0, None
        return ""

    def seek(self, start: Start | None, epoch: int, part: int) -> None:
        self.start, self.epoch, self.part, self._next = start, epoch, part, None

    def _found(self) -> Manifest | None:
        try:
            return read_manifest(self.folder, self.epoch)
        except FileNotFoundError:
            self._look_at_start()
            return None

    def _look_at_start(self) -> None:
        """Where the next epoch does not come: has the writer begun anew elsewhere, or is the epoch gone for good?"""
        now = time.monotonic()
        if now - self._looked < _HEADER_PAUSE:
            return
        self._looked = now
        try:
            present = read_header(self.folder).start
            kept = first_kept(self.folder)
        except FileNotFoundError:
            return
        if (self.start is None or present.id != self.start.id) and self.epoch != present.first:
            self.epoch, self.part = present.first, 0
        if self.epoch < kept:
            raise InputError(
                f"epoch {self.epoch} is gone: the folder keeps those from {kept} on, which its readers had not passed",
                source=self.folder.place(MANIFESTS),
                remedy="let the folder keep all epochs, or leave word as a reader before it is written",
            )
