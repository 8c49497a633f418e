"""How a worker reaches the owner of a partition: the worker of this machine that has its state (`state_host`).

    <temporary folder>/everwhen-<user>/<process>      the socket of a worker
    <temporary folder>/everwhen-<user>/<partition>    a link to the socket of the partition's owner

An owner that is dead, has the state no more, or is too busy hangs up, and the worker that asks does the step itself.
One that is stopped, or stuck, does not hang up.  So nobody waits for ever: one that is silent for a while, and does not
work meanwhile, counts as one that has hung up (`_Patience`).  If it wakes up later, it finds the epoch's input
published, and does no harm.

What is sent is JSON and Arrow, and only the user's own processes can reach the sockets.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from everwhen.storage.arrow_ipc import stream_of, table_of
from everwhen.storage.folder import Chunk

Request: TypeAlias = Mapping[str, Any]
"""What is asked of an owner beside the rows; what JSON can say."""

Answer: TypeAlias = Callable[[pa.Table], Iterator[pa.RecordBatch]]

_LENGTH: Final = struct.Struct("!Q")
_LOOK: Final = 0.25
"""Seconds between two looks at a process that is silent."""
_STOPPED: Final = 1.0
"""Seconds after which a process that the system shows as stopped is given up."""
_SILENCE: Final = 10.0
"""Seconds after which a process is given up that is silent and does not work."""
_END: Final = b""
"""The frame after the last one.  A connection that ends without it has failed."""


class StateServer:
    """This process as the owner of partitions.  `agrees` says how it answers to a request, None if it does not; it is
    called in a thread of its own, as is the answer."""

    def __init__(self, agrees: Callable[[Request], Answer | None], folder: Path | None = None) -> None:
        self._agrees = agrees
        self._folder = folder or _folder()
        self._name = str(os.getpid())
        _tidy(self._folder)
        path = self._folder / self._name
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(64)
        threading.Thread(target=self._serve, name="everwhen-owner", daemon=True).start()

    def keep(self, partition: str) -> None:
        """From now on this process is the owner of a partition."""
        link = self._folder / partition
        with suppress(OSError):
            if os.readlink(link) == self._name:
                return
        with suppress(OSError):
            mine = self._folder / f"{partition}.{self._name}"
            mine.unlink(missing_ok=True)
            mine.symlink_to(self._name)
            mine.replace(link)

    def close(self) -> None:
        """Nobody lives here any more."""
        self._socket.close()
        (self._folder / self._name).unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                caller = self._socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._receive, args=(caller,), name="everwhen-visit", daemon=True).start()

    def _receive(self, caller: socket.socket) -> None:
        with caller, suppress(Exception):  # hung up: the caller does it itself, and meets what is wrong
            line = _Line(caller, _Patience(None))
            answer = self._agrees(json.loads(bytes(line.read())))
            if answer is None:
                return
            line.send([_END])
            for batch in answer(table_of(line.read())):
                line.send(stream_of(pa.Table.from_batches([batch])))
            line.send([_END])


def ask(partition: str, words: Request, rows: pa.Table, folder: Path | None = None) -> list[pa.RecordBatch] | None:
    """What the owner of a partition answers; None if it has none, or that does not answer, or is this process.

    It does not wait for an owner that neither says anything nor works."""
    try:
        folder = folder or _folder()
        owner = os.readlink(folder / partition)
        if owner == str(os.getpid()):
            return None
        with socket.socket(socket.AF_UNIX) as to:
            line = _Line(to, _Patience(int(owner)))
            to.connect(str(folder / owner))
            line.send([json.dumps(words).encode()])
            line.read()
            line.send(stream_of(rows))
            found: list[pa.RecordBatch] = []
            while len(frame := line.read()):
                found += table_of(frame).to_batches()
            return found
    except OSError:
        return None


def _folder() -> Path:
    """The folder of this user's owners, which nobody else can look into."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no sockets with names")
    folder = Path(tempfile.gettempdir()) / f"everwhen-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder


def _tidy(folder: Path) -> None:
    """Remove what dead workers have left behind."""
    for entry in folder.iterdir():
        if entry.name.isdecimal() and not _alive(int(entry.name)):
            entry.unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.is_symlink() and not entry.exists():
            entry.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Patience:
    """How long the other side may be silent.  `process` is its number, where that is known: what is silent because it
    works is waited for."""

    def __init__(self, process: int | None) -> None:
        self._process = process
        self._since = time.monotonic()
        self._work = -1

    def heard(self) -> None:
        self._since = time.monotonic()

    def look(self) -> None:
        """Called while it is silent; raises `TimeoutError` when that has lasted too long."""
        state, work = ("?", -1) if self._process is None else _seen(self._process)
        if work != self._work:
            self._work, self._since = work, time.monotonic()
        if time.monotonic() - self._since >= (_STOPPED if state in "TtZX" else _SILENCE):
            raise TimeoutError(f"process {self._process} does not answer")


def _seen(process: int) -> tuple[str, int]:
    """The state of a process, and how much it has worked, where the system tells."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return "?", -1


@dataclass(frozen=True)
class _Line:
    """One side of a connection, over which frames go."""

    peer: socket.socket
    patience: _Patience

    def __post_init__(self) -> None:
        self.peer.settimeout(_LOOK)

    def send(self, chunks: list[Chunk]) -> None:
        views = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
        self._sent(memoryview(_LENGTH.pack(sum(view.nbytes for view in views))))
        for view in views:
            self._sent(view)

    def read(self) -> memoryview:
        """The next frame, in Arrow's memory, which is used again sooner than the system's."""
        (length,) = _LENGTH.unpack(self._filled(memoryview(bytearray(_LENGTH.size))))
        return self._filled(memoryview(pa.allocate_buffer(length)))

    def _sent(self, view: memoryview) -> None:
        self.patience.heard()
        at = 0
        while at < len(view):
            try:
                at += self.peer.send(view[at:])
                self.patience.heard()
            except TimeoutError:
                self.patience.look()

    def _filled(self, into: memoryview) -> memoryview:
        self.patience.heard()
        at = 0
        while at < len(into):
            try:
                got = self.peer.recv_into(into[at:])
            except TimeoutError:
                self.patience.look()
                continue
            if not got:
                raise ConnectionResetError("the other side has hung up")
            self.patience.heard()
            at += got
        return into
