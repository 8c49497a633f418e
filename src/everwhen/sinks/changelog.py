"""A directory of all elements a query has said, epoch by epoch: the changelog, in Parquet or JSON lines.

    <path>/_changelog.json               format and columns
    <path>/epoch=<n>/part-<b>.parquet    the elements of epoch n from partition b, in the files of the element format
    <path>/epoch=<n>/tail.parquet        its promises (CTIs), which come after all its parts
    <path>/_epochs/<n>.json              the manifest: epoch n is in, and consists of these files

An epoch is in exactly when its manifest is, and manifests are published once and whole.  Parts may be written by many
tasks, several times and several at once: the name depends on epoch and partition only, and each file appears whole.
`read_changelog` follows the manifests, so it never sees a part of an epoch that was not finished.  Other programs may
read the directory as a plain partitioned Parquet data set (names with `_` and `.` in front are skipped by custom);
they then see the parts of the epoch that is being written, too.  A task that is killed may leave a file whose name
starts with a dot, which nobody reads.

A changelog is whole: its header and all manifests from the first epoch on are there.  One that was deleted, in part or
as a whole, while a query runs or between two runs, is noticed before the next epoch is published, and is an error:
what is left must not be taken for the whole.

The path may be a URI of any file system that `pyarrow.fs` knows.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from everwhen.core.scalars import json_texts
from everwhen.core.schema import RESERVED, Schema
from everwhen.errors import InputError, QueryError, SinkError, SinkLostError
from everwhen.formats.json.lines import DEFAULT_BATCH
from everwhen.formats.parquet import AT, COUNT, MATCH, read_elements, write_elements
from everwhen.sinks.base import PartedSink
from everwhen.storage.folder import Folder, blame, open_folder
from everwhen.stream.element_batch import ElementBatch

FORMATS: Final = ("parquet", "jsonl")
_ABOUT: Final = "_changelog.json"
_MANIFESTS: Final = "_epochs"
_VERSION: Final = 1
_PART: Final = re.compile(r"epoch=\d+/(part-\d+|tail)\.(parquet|jsonl)")
_LEFTOVER_AGE: Final = 600.0
_RESTORE: Final = (
    "put it back (from a backup, or where it was moved to) and start the query again with the same checkpoint, from "
    "which nothing is lost; or start with a new checkpoint and a new changelog"
)


class ChangelogSink(PartedSink):
    """Either `commit` per epoch, or `write_part` in any number of tasks and then `commit_parts` in one place.

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

    lasting = True

    def __init__(self, path: str | os.PathLike[str], format: str = "parquet") -> None:
        if format not in FORMATS:
            raise QueryError(f"a changelog has no format {format!r}; there are {', '.join(FORMATS)}")
        text = os.fspath(path)
        # tasks have other working directories, so a relative path is meant from here
        named = not text or "://" in text or text.startswith("file:")
        self.path = text if named else os.path.abspath(os.path.expanduser(text))
        self.format = format
        self._last: int | None = None

    def resume(self, published: int) -> None:
        """The epochs up to `published` were taken before: they must all be there still."""
        if published < 0:
            return
        with _explained(self.path, "look at the changelog"):
            folder = self._folder()
            there = set(_epochs(folder))
            headed = folder.exists(_ABOUT)
        if missing := [epoch for epoch in range(published + 1) if epoch not in there]:
            raise self._lost(missing[0], published)
        if not headed:
            raise SinkLostError(f"{folder.place(_ABOUT)}, the header of the changelog, is gone: {_RESTORE}")

    def _require_last(self) -> None:
        """The epoch published last, and the header, must still be there."""
        folder, last = self._folder(), self.committed()
        if last >= 0 and not folder.exists(f"{_MANIFESTS}/{last}.json"):
            raise self._lost(last, last)
        if not folder.exists(_ABOUT):
            raise SinkLostError(f"{folder.place(_ABOUT)}, the header of the changelog, is gone: {_RESTORE}")

    def _lost(self, epoch: int, published: int) -> SinkLostError:
        return SinkLostError(
            f"{self.path}: epoch {epoch} of the changelog is gone ({_MANIFESTS}/{epoch}.json), and epochs up to "
            f"{published} were published: the changelog was deleted, moved or replaced. What is left is not the whole "
            f"answer, and nothing is added to it: {_RESTORE}"
        )

    def prepare(self, schema: Schema) -> None:
        self._check(schema)
        about = _about(self.format, schema)
        with _explained(self.path, "prepare the changelog"):
            folder = self._folder()
            folder.make()
            folder.sweep(_LEFTOVER_AGE)
            if not folder.create(_ABOUT, [about]):
                self._compare(folder, schema)
            folder.within(_MANIFESTS).make()
        self._last = None

    def _check(self, schema: Schema) -> None:
        taken = [name for name in schema.names if name in (*RESERVED, MATCH, COUNT, AT)]
        if taken and self.format == "parquet":
            raise SinkError(f"{self.path}: a column named {taken[0]!r} has no place in a changelog (rename it)")
        try:
            for field in schema if self.format == "jsonl" else ():
                json_texts(pa.array([], field.type))
        except QueryError as bad:
            raise SinkError(f"{self.path}: {bad} (take the format 'parquet', or cast the column)") from None

    def _compare(self, folder: Folder, schema: Schema) -> None:
        format_, there = _read_about(folder)
        if format_ != self.format or there != schema:
            raise SinkError(
                f"{self.path}: there is a changelog of other output: expected {self.format} of {schema}, "
                f"found {format_} of {there} (choose another path)"
            )

    def committed(self) -> int:
        if self._last is None:
            with _explained(self.path, "list the changelog"):
                self._last = max(_epochs(self._folder()), default=-1)
        return self._last

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if epoch > self.committed():
            self._publish(epoch, [part] if (part := self.write_part(epoch, 0, batch)) else [])

    def write_part(self, epoch: int, partition: int, batch: ElementBatch) -> str:
        """Writes the elements of one partition and returns the part's name; "" if there are none, and so no part."""
        return self._write(f"epoch={epoch}/part-{partition:05d}.{self.format}", batch) if len(batch) else ""

    def commit_parts(self, epoch: int, parts: Sequence[str], tail: ElementBatch) -> None:
        """Makes an epoch of parts that were written, in this order, and of the elements that come after them."""
        if epoch <= self.committed():
            return
        names = [part for part in parts if part]
        with _explained(self.path, f"look at the parts of epoch {epoch}"):
            found = {f"epoch={epoch}/{entry.name}" for entry in self._folder().within(f"epoch={epoch}").entries()}
        if missing := [name for name in names if name not in found]:
            self._require_last()
            raise SinkError(
                f"{self.path}: epoch {epoch} should have the part {missing[0]}, which is not there (do all workers "
                "write to the same file system?)"
            )
        if len(tail):
            names.append(self._write(f"epoch={epoch}/tail.{self.format}", tail))
        self._publish(epoch, names)

    def _publish(self, epoch: int, names: list[str]) -> None:
        text = json.dumps({"version": _VERSION, "epoch": epoch, "parts": names})
        with _explained(self.path, f"publish epoch {epoch}"):
            self._require_last()
            self._folder().create(f"{_MANIFESTS}/{epoch}.json", [text.encode()])
        self._last = epoch

    def _write(self, name: str, batch: ElementBatch) -> str:
        with _explained(self.path, f"write {name}"):
            folder = self._folder()
            path = folder.local(name)
            if path is not None:
                write_elements([batch], path)
                return name
            with TemporaryDirectory(prefix="everwhen-") as aside:
                path = Path(aside, name.rpartition("/")[2])
                write_elements([batch], path)
                folder.replace(name, [path.read_bytes()])
        return name

    def _folder(self) -> Folder:
        return open_folder(self.path)


def read_changelog(path: str | os.PathLike[str], batch: int = DEFAULT_BATCH) -> Iterator[ElementBatch]:
    """The elements of all committed epochs in order, an epoch's promises after the rest of it.

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
    place = os.fspath(path)
    try:
        folder = open_folder(path)
        _, schema = _read_about(folder)
        for epoch in _epochs(folder):
            for name in _parts(folder, epoch):
                yield from _read_part(folder, name, epoch, schema, batch)
    except FileNotFoundError as bad:
        remedy = "a changelog that a ChangelogSink has prepared has one"
        raise InputError(f"there is no {_ABOUT}", source=place, remedy=remedy) from bad
    except (OSError, SinkError) as bad:
        problem = blame(bad, place, "read the changelog") if isinstance(bad, OSError) else str(bad)
        raise InputError(problem) from bad


def _read_part(folder: Folder, name: str, epoch: int, schema: Schema, batch: int) -> Iterator[ElementBatch]:
    if not folder.exists(name):
        remedy = f"{_MANIFESTS}/{epoch}.json names it; restore it from a copy"
        raise InputError(f"a part of epoch {epoch} is missing", source=folder.place(name), remedy=remedy)
    path = folder.local(name)
    if path is not None:
        yield from read_elements(path, schema, batch)
        return
    with TemporaryDirectory(prefix="everwhen-") as aside:
        path = Path(aside, name.rpartition("/")[2])
        path.write_bytes(folder.read(name))
        yield from read_elements(path, schema, batch)


def _epochs(folder: Folder) -> list[int]:
    names = (entry.name.removesuffix(".json") for entry in folder.within(_MANIFESTS).entries())
    return sorted(int(name) for name in names if name.isdecimal())


def _parts(folder: Folder, epoch: int) -> list[str]:
    name = f"{_MANIFESTS}/{epoch}.json"
    parts = _json(folder, name).get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, str) and _PART.fullmatch(part) for part in parts):
        raise _unknown(folder, name, ValueError("its parts are no files of a changelog"))
    return parts


def _about(format_: str, schema: Schema) -> bytes:
    columns = [{"name": field.name, "type": str(field.type)} for field in schema]
    arrow = base64.b64encode(schema.to_arrow().serialize()).decode()
    return json.dumps({"version": _VERSION, "format": format_, "columns": columns, "arrow": arrow}, indent=1).encode()


def _read_about(folder: Folder) -> tuple[str, Schema]:
    found = _json(folder, _ABOUT)
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["arrow"])))
        return found["format"], Schema.of(schema)
    except (KeyError, TypeError, ValueError) as bad:
        raise _unknown(folder, _ABOUT, bad) from None


def _json(folder: Folder, name: str) -> dict[str, Any]:
    text = folder.read(name)
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']}, not {_VERSION}")
    except (KeyError, TypeError, ValueError) as bad:
        raise _unknown(folder, name, bad) from None
    return found


def _unknown(folder: Folder, name: str, bad: Exception) -> SinkError:
    return SinkError(f"{folder.place(name)}: not a file of a changelog of this program: {bad} (choose another path)")


@contextmanager
def _explained(place: str, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as bad:
        error = bad if isinstance(bad, OSError) else OSError(None, str(bad))
        raise SinkError(blame(error, place, wanted)) from bad
