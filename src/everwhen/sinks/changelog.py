"""A directory of all elements a query has said, epoch by epoch: the changelog, in Parquet or JSON lines.

Its files: `formats/changelog/layout.py`.  An epoch is in exactly when its manifest is, and manifests are published once
and whole.  Parts may be written by many tasks, several times and several at once: the name depends on epoch and
partition only, and each file appears whole.  Other programs may read the directory as a plain partitioned Parquet data
set (names with `_` and `.` in front are skipped by custom); they then see the parts of the epoch that is being written,
too.  A task that is killed may leave a file whose name starts with a dot, which nobody reads.

**Kept.**  By default every epoch is.  With `keep="unread"` an epoch goes when all readers that have left word have
passed it (`formats/changelog/readers.py`); without readers all are kept, and the last epoch always is.

A changelog is whole: its header and all manifests from the first kept epoch on are there.  One that was deleted, in
part or as a whole, while a query runs or between two runs, is noticed before the next epoch is published, and is an
error: what is left must not be taken for the whole.

The path may be a URI of any file system that `pyarrow.fs` knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from everwhen.core.scalars import json_texts
from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF, NEVER
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import QueryError, SinkError, SinkLostError
from everwhen.formats.changelog.layout import (
    ABOUT,
    FORMATS,
    MANIFESTS,
    Header,
    Manifest,
    Start,
    epochs_there,
    first_kept,
    header_text,
    manifest_name,
    manifest_text,
    read_header,
    read_manifest,
    remove_before,
)
from everwhen.formats.changelog.readers import Word, unread_from, words
from everwhen.formats.changelog.reading import read_changelog
from everwhen.formats.parquet import AT, COUNT, MATCH, write_elements
from everwhen.sinks.base import PartedSink
from everwhen.storage.folder import Folder, blame, open_folder
from everwhen.stream.element_batch import ElementBatch

__all__ = ["ChangelogSink", "changelog_format", "read_changelog"]

KEEPS: Final = ("all", "unread")
_LEFTOVER_AGE: Final = 600.0
_RESTORE: Final = (
    "put it back (from a backup, or where it was moved to) and start the query again with the same checkpoint, from "
    "which nothing is lost; or start with a new checkpoint and a new changelog"
)


def changelog_format(schema: Schema) -> str:
    """The format that has room for all columns of a schema: Parquet, unless a name is taken there."""
    return "jsonl" if any(name in (*RESERVED, MATCH, COUNT, AT) for name in schema.names) else "parquet"


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

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str = "parquet",
        *,
        since: int = NEVER,
        keep: str = "all",
        axis: TimeAxis | None = None,
    ) -> None:
        if format not in FORMATS:
            raise QueryError(f"a changelog has no format {format!r}; there are {', '.join(FORMATS)}")
        if keep not in KEEPS:
            raise QueryError(f"a changelog keeps {' or '.join(KEEPS)} epochs, not {keep!r}")
        text = os.fspath(path)
        # tasks have other working directories, so a relative path is meant from here
        named = not text or "://" in text or text.startswith("file:")
        self.path = text if named else os.path.abspath(os.path.expanduser(text))
        self.format = format
        self.since = since
        self.keep = keep
        self.axis = axis
        self._last: int | None = None
        self._start: Start | None = None
        self._headed: Start | None = None
        self._oldest: int | None = None

    def resume(self, published: int) -> None:
        """The epochs up to `published` were taken before: they must all be there still."""
        if published < 0:
            return
        with _explained(self.path, "look at the changelog"):
            folder = self._folder()
            there = set(epochs_there(folder))
            headed, kept = folder.exists(ABOUT), first_kept(folder)
        if missing := [epoch for epoch in range(kept, published + 1) if epoch not in there]:
            raise self._lost(missing[0], published)
        if not headed:
            raise SinkLostError(f"{folder.place(ABOUT)}, the header of the changelog, is gone: {_RESTORE}")

    def _require_last(self) -> None:
        """The epoch published last, and the header, must still be there."""
        folder, last = self._folder(), self.committed()
        if last >= 0 and not folder.exists(manifest_name(last)):
            raise self._lost(last, last)
        if not folder.exists(ABOUT):
            raise SinkLostError(f"{folder.place(ABOUT)}, the header of the changelog, is gone: {_RESTORE}")

    def _lost(self, epoch: int, published: int) -> SinkLostError:
        return SinkLostError(
            f"{self.path}: epoch {epoch} of the changelog is gone ({MANIFESTS}/{epoch}.json), and epochs up to "
            f"{published} were published: the changelog was deleted, moved or replaced. What is left is not the whole "
            f"answer, and nothing is added to it: {_RESTORE}"
        )

    def prepare(self, schema: Schema) -> None:
        self._check(schema)
        with _explained(self.path, "prepare the changelog"):
            folder = self._folder()
            folder.make()
            folder.sweep(_LEFTOVER_AGE)
            header = Header(self.format, schema, Start.new(self.since), self.axis or TICKS)
            if not folder.create(ABOUT, [header_text(header)]):
                header = self._compare(folder, schema)
            self.axis = header.axis  # a folder goes on as it was begun
            folder.within(MANIFESTS).make()
            there = epochs_there(folder)
            self._last = there[-1] if there else -1
            self._start = header.start
            if there:
                self._start = read_manifest(folder, there[-1]).start
                if self._start != header.start:  # it was killed between the two
                    folder.replace(ABOUT, [header_text(replace(header, start=self._start))])
            self._headed = self._start
            self._oldest = first_kept(folder)

    @property
    def start(self) -> Start:
        """The stream of elements that is appended to."""
        assert self._start is not None, "prepare it first"
        return self._start

    def begin_anew(self, since: int = NEVER) -> None:
        """What is committed from now on is another stream of elements, which is right from `since` on."""
        self._start = Start.new(since, self.committed() + 1)
        if self.committed() < 0:
            self._say_start()

    def right_from(self, since: int) -> None:
        """From the next epoch on the same stream is right from a later instant on only."""
        self._start = replace(self.start, since=max(since, self.start.since))

    def _say_start(self) -> None:
        with _explained(self.path, "write the header of the changelog"):
            folder = self._folder()
            folder.replace(ABOUT, [header_text(replace(read_header(folder), start=self.start))])
        self._headed = self._start

    def _check(self, schema: Schema) -> None:
        taken = [name for name in schema.names if name in (*RESERVED, MATCH, COUNT, AT)]
        if taken and self.format == "parquet":
            raise SinkError(f"{self.path}: a column named {taken[0]!r} has no place in a changelog (rename it)")
        try:
            for field in schema if self.format == "jsonl" else ():
                json_texts(pa.array([], field.type))
        except QueryError as bad:
            raise SinkError(f"{self.path}: {bad} (take the format 'parquet', or cast the column)") from None

    def _compare(self, folder: Folder, schema: Schema) -> Header:
        there = read_header(folder)
        if self.axis is not None and there.axis.dated and self.axis.tick != there.axis.tick:
            raise SinkError(
                f"{self.path}: there is a changelog of ticks of {there.axis.tick_text}, not {self.axis.tick_text} (run "
                f"with --tick {there.axis.tick_text}, or choose another path)"
            )
        if there.format != self.format or there.schema != schema:
            raise SinkError(
                f"{self.path}: there is a changelog of other output: expected {self.format} of {schema}, "
                f"found {there.format} of {there.schema} (choose another path)"
            )
        return there

    def committed(self) -> int:
        if self._last is None:
            with _explained(self.path, "list the changelog"):
                self._last = max(epochs_there(self._folder()), default=-1)
        return self._last

    def commit(self, epoch: int, batch: ElementBatch, run: Mapping[str, Any] | None = None) -> None:
        """Takes all elements of an epoch; `run` is noted in its manifest for the run that writes it."""
        if epoch > self.committed():
            self._publish(epoch, [part] if (part := self.write_part(epoch, 0, batch)) else [], run)

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

    def _publish(self, epoch: int, names: Sequence[str], run: Mapping[str, Any] | None = None) -> None:
        with _explained(self.path, f"publish epoch {epoch}"):
            self._require_last()
            if self._start is None:
                self._start = self._headed = read_header(self._folder()).start
            manifest = Manifest(epoch, tuple(names), self._start, run)
            self._folder().create(manifest_name(epoch), [manifest_text(manifest)])
        self._last = epoch
        if self._start != self._headed:
            self._say_start()

    def give_up(self, epoch: int, parts: Sequence[str], wholly: bool) -> None:
        """Remove the parts of an epoch that is not to be; `wholly`: and the changelog, which has no epochs."""
        with _explained(self.path, f"remove what was written of epoch {epoch}"):
            folder = self._folder()
            for part in parts:
                folder.remove(part)
            folder.remove_empty(f"epoch={epoch}")
            if wholly:
                folder.remove(ABOUT)
                folder.remove_empty(MANIFESTS)
                folder.remove_empty("")

    def tidy(self, needed: int = INF) -> list[Word]:
        """Remove epochs that all readers have passed, if only unread ones are kept, and that the writer does not need
        for itself, as it does those from `needed` on; the word of the readers."""
        with _explained(self.path, "look at its readers"):
            folder = self._folder()
            told = words(folder)
            unread = unread_from(told)
            if self.keep == "unread" and unread is not None:
                oldest = first_kept(folder) if self._oldest is None else self._oldest
                kept = min(unread, needed, self.committed())
                if kept > oldest:
                    remove_before(folder, kept, range(oldest, kept))
                    self._oldest = kept
        return told

    def _write(self, name: str, batch: ElementBatch) -> str:
        with _explained(self.path, f"write {name}"):
            folder = self._folder()
            path = folder.local(name)
            if path is not None:
                write_elements([batch], path, axis=self.axis or TICKS)
                return name
            with TemporaryDirectory(prefix="everwhen-") as aside:
                path = Path(aside, name.rpartition("/")[2])
                write_elements([batch], path, axis=self.axis or TICKS)
                folder.replace(name, [path.read_bytes()])
        return name

    def _folder(self) -> Folder:
        return open_folder(self.path)


@contextmanager
def _explained(place: str, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as bad:
        error = bad if isinstance(bad, OSError) else OSError(None, str(bad))
        raise SinkError(blame(error, place, wanted)) from bad
