"""The versioned state of a query: for every stage and partition its input per epoch, and a snapshot now and then.

    <root>/stage=<s>/bucket=<b>/log-<epoch>        the input of the epoch and its metadata, published once
    <root>/stage=<s>/bucket=<b>/snapshot-<epoch>   the state after the epoch

Operators are deterministic, so `state n = snapshot m, then the logs m + 1 .. n` for any snapshot `m <= n`, and the
state before epoch 0 is empty.  What makes that hold:

* A log is published once: of several tasks that run the same epoch, one wins, and `publish_log` tells the others, who
  then work on the published log as if it were theirs.
* A file is there whole or not at all; whatever happened to it since is noticed when it is read (`sealed`).  A damaged
  snapshot is skipped, since an older one and the logs give the same state; a damaged log that is needed is an error.
* `collect` keeps whatever running the last two epochs again needs, twice over: from the newest snapshot, and from the
  one before.

`durable` asks the operating system to have the bytes on the disk before a file is published: needed against loss of
power, not against the death of a process.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from everwhen.errors import StateError
from everwhen.storage.arrow_ipc import stream_of, table_of
from everwhen.storage.folder import Folder, blame, open_folder
from everwhen.storage.framed_file import (
    LOG,
    SNAPSHOT,
    CorruptFile,
    OtherVersion,
    is_whole,
    read_frames,
    size,
    write_frames,
)
from everwhen.storage.state_format import decode, encode

_FILE: Final = re.compile(r"(log|snapshot)-(\d{12})")
_LEFTOVER_AGE: Final = 600.0
"""Seconds after which a file that was never published is taken for one whose writer is dead."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What one partition of a stage holds; `rows` and `bytes` of live state are None where its log does not say."""

    stage: int
    bucket: int
    epoch: int
    snapshot_epoch: int
    rows: int | None
    bytes: int | None
    log_files: int
    disk_bytes: int


class PartitionStore:
    """The files of one partition of one stage.  Call order: `newest_snapshot`, `logs_between`, then per epoch `log`,
    `publish_log` and sometimes `publish_snapshot` and `collect`.

    `damaged` lists the files that were skipped because they could not be read, with the reason.
    """

    def __init__(self, root: str | os.PathLike[str], stage: int, partition: int, durable: bool = False) -> None:
        self.stage = stage
        self.partition = partition
        self.durable = durable
        self.damaged: list[str] = []
        with _explained(os.fspath(root), "open it for the state"):
            self._folder = open_folder(root).within(f"stage={stage}").within(f"bucket={partition}")

    @property
    def place(self) -> str:
        """The folder of the partition, for messages."""
        return self._folder.place()

    # --- logs ---------------------------------------------------------------------------------------------------

    def log(self, epoch: int) -> tuple[pa.Table, dict[str, Any]] | None:
        """The published input of an epoch and its metadata; None if it has not been published."""
        name = _log(epoch)
        try:
            text, rows = self._unsealed(name, LOG)
            table, meta = table_of(rows), json.loads(bytes(text))
            table.validate(full=True)  # offsets that lead out of the memory would be followed
            return table, meta
        except FileNotFoundError:
            return None
        except (CorruptFile, ValueError, pa.ArrowException, OSError, RecursionError) as bad:
            raise self._bad_log(epoch, f"is damaged: {bad}") from None

    def publish_log(self, epoch: int, table: pa.Table, meta: dict[str, Any]) -> bool:
        """Publishes the input of an epoch; False, and nothing is changed, if someone has done so before."""
        name = _log(epoch)
        with _explained(self._folder.place(name), "write the input of the epoch"):
            if self._folder.exists(name):
                return False
            try:
                text = json.dumps(meta, ensure_ascii=False, separators=(",", ":")).encode()
            except (TypeError, ValueError) as bad:
                raise StateError(f"{self._folder.place(name)}: the metadata of a log must be JSON: {bad}") from None
            return self._folder.create(name, write_frames(LOG, [[text], stream_of(table)]), self.durable)

    def logs_between(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table, dict[str, Any]]]:
        """The logs of the epochs `after + 1 .. upto` in order; one that is missing or damaged is a `StateError`."""
        for epoch in range(after + 1, upto + 1):
            found = self.log(epoch)
            if found is None:
                raise self._bad_log(epoch, "is missing")
            yield epoch, *found

    def newest_epoch(self) -> int:
        """The last epoch whose log is there; -1 if there is none."""
        return max(self._epochs()[0], default=-1)

    # --- snapshots ----------------------------------------------------------------------------------------------

    def publish_snapshot(self, epoch: int, state: object) -> int:
        """Publishes the state after an epoch (again, if need be) and returns the bytes of the file."""
        name = f"snapshot-{epoch:012d}"
        try:
            chunks = write_frames(SNAPSHOT, encode(state))
        except StateError as bad:
            raise StateError(f"{self._folder.place(name)}: {bad}") from None
        with _explained(self._folder.place(name), "write the snapshot"):
            self._folder.replace(name, chunks, self.durable)
        return size(chunks)

    def newest_snapshot(self, at_most: int) -> tuple[int, Any] | None:
        """The newest snapshot of an epoch `<= at_most` that can be read; what it holds may be written to."""
        for epoch in reversed(self._epochs()[1]):
            if epoch > at_most:
                continue
            name = f"snapshot-{epoch:012d}"
            try:
                return epoch, decode(self._unsealed(name, SNAPSHOT))
            except FileNotFoundError:
                continue  # collected since the names were read
            except OtherVersion as bad:
                raise StateError(
                    f"{self._folder.place(name)} cannot be read: {bad}; go on with the version that wrote it, or start "
                    "the query with a new checkpoint"
                ) from None
            except CorruptFile as bad:
                self._skip(name, str(bad))
        return None

    def restore_points(self) -> tuple[int, ...]:
        """The epochs whose snapshots are there and whole, in order."""
        return tuple(epoch for epoch in self._epochs()[1] if self._is_whole(epoch))

    # --- tidying up ---------------------------------------------------------------------------------------------

    def collect(self, epoch: int, kept: int | None = None, leftover_age: float = _LEFTOVER_AGE) -> int:
        """Deletes what a snapshot of `epoch` made superfluous and returns the number of files.

        The base that stays is the newest whole snapshot of an epoch `<= epoch - 2`: from it the state before
        `epoch - 1` and all later ones follow.  Without one, the logs from epoch 0 on are the base, and all stay.
        Where steps of a loop count instead of epochs, `kept` is the first that may be run again; else `epoch - 1` is.
        """
        kept = epoch - 1 if kept is None else min(kept, epoch - 1)
        logs, snapshots = self._epochs()
        with _explained(self._folder.place(), "tidy up"):
            count = self._folder.sweep(leftover_age)
            if epoch not in snapshots:
                return count
            base = next((old for old in reversed(snapshots) if old < kept and self._is_whole(old)), None)
            if base is None:
                return count
            gone = [_log(old) for old in logs if old <= base] + [f"snapshot-{o:012d}" for o in snapshots if o < base]
            for name in gone:
                self._folder.remove(name)
        return count + len(gone)

    # --- inside -------------------------------------------------------------------------------------------------

    def _epochs(self) -> tuple[list[int], list[int]]:
        """The epochs that have a log, and those that have a snapshot, in order."""
        with _explained(self._folder.place(), "list the state"):
            found = [match.groups() for entry in self._folder.entries() if (match := _FILE.fullmatch(entry.name))]
        logs = [int(epoch) for kind, epoch in found if kind == "log"]
        return logs, [int(epoch) for kind, epoch in found if kind == "snapshot"]

    def _unsealed(self, name: str, kind: int, most: int | None = None) -> list[memoryview]:
        with _explained(self._folder.place(name), "read it", missing=True), self._folder.open(name) as file:
            return read_frames(file, kind, most)

    def _is_whole(self, epoch: int) -> bool:
        name = f"snapshot-{epoch:012d}"
        with _explained(self._folder.place(name), "read it"):
            sizes = {entry.name: entry.size for entry in self._folder.entries()}
            try:
                with self._folder.open(name) as file:
                    return is_whole(file, SNAPSHOT, sizes.get(name, -1))
            except FileNotFoundError:
                return False

    def _skip(self, name: str, why: str) -> None:
        text = f"{self._folder.place(name)}: {why}"
        if text not in self.damaged:
            self.damaged.append(text)

    def _bad_log(self, epoch: int, what: str) -> StateError:
        skipped = f"; snapshots that were skipped: {', '.join(self.damaged)}" if self.damaged else ""
        return StateError(
            f"{self._folder.place(_log(epoch))}: the log of epoch {epoch} of stage {self.stage}, partition "
            f"{self.partition} {what}; the state after it cannot be rebuilt{skipped} (restore the file from a copy, or "
            "start the query anew with an empty checkpoint)"
        )

    def _state(self) -> PartitionState:
        logs, snapshots = self._epochs()
        epoch = max(logs, default=-1)
        meta: dict[str, Any] = {}
        if logs:
            try:
                meta = json.loads(bytes(self._unsealed(_log(epoch), LOG, most=1)[0]))
            except (CorruptFile, FileNotFoundError, ValueError, RecursionError) as bad:
                self._skip(_log(epoch), str(bad))
        with _explained(self._folder.place(), "list the state"):
            disk = sum(entry.size for entry in self._folder.entries())
        rows, live = meta.get("state_rows"), meta.get("state_bytes")
        newest = max(snapshots, default=-1)
        return PartitionState(self.stage, self.partition, epoch, newest, rows, live, len(logs), disk)


def inspect(root: str | os.PathLike[str]) -> list[PartitionState]:
    """What every partition of every stage under a root holds, in order; nothing if there is no such place."""
    found: list[PartitionState] = []
    with _explained(os.fspath(root), "list the state"):
        folder = open_folder(root)
        for stage in _numbered(folder, "stage="):
            partitions = _numbered(folder.within(f"stage={stage}"), "bucket=")
            found.extend(PartitionStore(root, stage, partition)._state() for partition in partitions)
    return found


def _numbered(folder: Folder, prefix: str) -> list[int]:
    numbers = (name.removeprefix(prefix) for name in folder.folders() if name.startswith(prefix))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _log(epoch: int) -> str:
    return f"log-{epoch:012d}"


@contextmanager
def _explained(place: str, wanted: str, missing: bool = False) -> Iterator[None]:
    """Errors of the file system in words of the project; with `missing`, a file that is not there is left as it is."""
    try:
        yield
    except (OSError, pa.ArrowException) as bad:
        if missing and isinstance(bad, FileNotFoundError):
            raise
        error = bad if isinstance(bad, OSError) else OSError(None, str(bad))
        raise StateError(blame(error, place, wanted)) from bad
