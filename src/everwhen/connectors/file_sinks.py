"""Rows in files: one file that is appended to, or a folder with a file per epoch.

**FolderRows** writes `epoch-000000012.jsonl` (or `.parquet`) for an epoch with changes.  The file appears whole, by a
rename, and its name is the epoch: so an epoch is in or not, and writing it again changes nothing.  A name that begins
with a point is not finished.

**FileRows** appends lines to one file, and notes epoch and length beside it (`.best.jsonl.epochs`) once they are in.
What stands behind that length is of an epoch that was not finished: it is cut off at the next start, and the epoch
comes again.  A reader may see such lines before they are cut off; one who must not reads a folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from everwhen.connectors.json_rows import change_lines
from everwhen.core.schema import Schema
from everwhen.errors import SinkError, SinkLostError
from everwhen.sinks.rows import RowChanges, RowSink
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.folder import blame

_OPS: Final = ("put", "delete", "before", "after")
_ABOUT: Final = ".everwhen.json"


class FolderRows(RowSink):
    """A file per epoch."""

    def __init__(self, path: str, form: str, format_: str, key: tuple[str, ...], writer: str = "") -> None:
        self.path, self.form, self.format, self.key, self.writer = Path(path), form, format_, key, writer
        self._last: int | None = None

    def resume(self, published: int) -> None:
        with _explained(self.path, "look at the folder"):
            if published >= 0 and not (self.path / _ABOUT).exists():
                raise SinkLostError(
                    f"{self.path}: the folder that epochs were written to is gone, or was emptied (put it back and "
                    "start again; or take a new checkpoint and a new folder)"
                )

    def prepare(self, schema: Schema) -> None:
        about = {"form": self.form, "format": self.format, "columns": str(schema), "writer": self.writer}
        with _explained(self.path, "use the folder"):
            self.path.mkdir(parents=True, exist_ok=True)
            note = self.path / _ABOUT
            if note.exists():
                there = json.loads(note.read_text(encoding="utf-8"))
                if there != about:
                    if there.get("writer") != self.writer or any(self.path.glob("epoch-*")):
                        raise _other(self.path, note, there, about)
                    _replace(note, about)  # nothing was written yet
            elif self._epochs():
                raise SinkError(f"{self.path}: there are epochs that no job has signed (take another folder)")
            else:
                _replace(note, about)
            self._last = max(self._epochs(), default=-1)

    def _epochs(self) -> list[int]:
        names = (path.stem for path in self.path.glob(f"epoch-*.{self.format}"))
        return [int(name[6:]) for name in names if name[6:].isdecimal()]

    def committed(self) -> int:
        return -1 if self._last is None else self._last

    def commit(self, epoch: int, changes: RowChanges) -> None:
        if epoch <= self.committed() or not len(changes):
            return
        file = self.path / f"epoch-{epoch:09d}.{self.format}"
        with _explained(self.path, f"write epoch {epoch}"), whole_file(file) as aside:
            if self.format == "parquet":
                pq.write_table(_table(changes), aside)
            else:
                aside.write_text("\n".join(change_lines(changes, self.key)) + "\n", encoding="utf-8")
            _synced(aside)
        self._last = epoch


class FileRows(RowSink):
    """One file of lines."""

    def __init__(self, path: str, form: str, key: tuple[str, ...], writer: str = "") -> None:
        self.path, self.form, self.key, self.writer = Path(path), form, key, writer
        self._note = self.path.with_name(f".{self.path.name}.epochs")
        self._last, self._size = -1, 0
        self._about: dict[str, Any] = {}

    def resume(self, published: int) -> None:
        if published >= 0 and not self._note.exists():
            raise SinkLostError(
                f"{self.path}: {self._note.name}, which tells what is in the file, is gone (put both back and start "
                "again; or take a new checkpoint and a new file)"
            )

    def prepare(self, schema: Schema) -> None:
        self._about = {"form": self.form, "columns": str(schema), "writer": self.writer}
        with _explained(self.path, "use the file"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self._note.exists():
                if self.path.exists() and self.path.stat().st_size:
                    raise SinkError(f"{self.path}: there is a file that no job has signed (take another name)")
                self._sign(-1, 0)
            there = json.loads(self._note.read_text(encoding="utf-8"))
            self._last, self._size = there.pop("epoch"), there.pop("size")
            if there != self._about:
                if there.get("writer") != self.writer or self._last >= 0:
                    raise _other(self.path, self._note, there, self._about)
                self._sign(-1, 0)  # nothing was written yet
            self.path.touch()
            if self.path.stat().st_size < self._size:
                raise SinkLostError(f"{self.path} is shorter than what was written to it (put it back as it was)")
            os.truncate(self.path, self._size)

    def _sign(self, epoch: int, size: int) -> None:
        _replace(self._note, {**self._about, "epoch": epoch, "size": size})
        self._last, self._size = epoch, size

    def committed(self) -> int:
        return self._last

    def commit(self, epoch: int, changes: RowChanges) -> None:
        if epoch <= self._last or not len(changes):
            return
        data = ("\n".join(change_lines(changes, self.key)) + "\n").encode()
        with _explained(self.path, f"write epoch {epoch}"):
            if not self.path.exists():
                raise SinkLostError(f"{self.path} is gone: it was moved or deleted (put it back and start again)")
            with open(self.path, "r+b") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._sign(epoch, self._size + len(data))


def _table(changes: RowChanges) -> pa.Table:
    table = pa.Table.from_batches([changes.rows])
    if changes.form == "append":
        return table
    return table.add_column(0, "op", pa.array(np.array(_OPS, object)[changes.op], pa.string()))


def _replace(path: Path, value: dict[str, Any]) -> None:
    with whole_file(path) as aside:
        aside.write_text(json.dumps(value), encoding="utf-8")
        _synced(aside)


def _synced(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _other(path: Path, note: Path, there: dict[str, Any], mine: dict[str, Any]) -> SinkError:
    anew = "" if note.parent == path else f"; to begin anew, remove it and {note.name} beside it"
    for name, value in mine.items():
        if there.get(name) != value:
            what = (
                "another job writes there" if name == "writer" else f"{name} is {there.get(name)} there, here {value}"
            )
            return SinkError(f"{path}: {what} (go on with its checkpoint, or take another place{anew})")
    return SinkError(f"{path}: there are rows of another kind (take another place)")


@contextmanager
def _explained(place: Path, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as bad:
        error = bad if isinstance(bad, OSError) else OSError(None, str(bad))
        raise SinkError(blame(error, str(place), wanted)) from bad
