"""Who compiles what: locks between processes that share a folder of compiled loops.

A claim is a lock on one byte of the file `claims` in that folder; which byte, the name of the loop says.  The system
frees it when the process ends, in whatever way, so nothing has to be cleaned up.  Where files can not be locked, or
the folder can not be written, nobody claims anything: then a loop may be compiled twice, which costs time and no more.

A loop's index is read and written only under its claim.  Numba writes the index before the code, and numbers files
from one again after a change of the source: without a claim one could read the code of an older source.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LONGEST_S: Final = 120.0
"""Nobody waits longer for a claim: the other process may have been stopped."""
_FILES: Final[dict[str, int]] = {}
"""The file of each folder, open.  To close one would free all locks on it."""


_threads = threading.RLock()
"""A process has its locks as a whole; this one is between its threads.  Numba compiles in one thread at a time."""


class Claim:
    """The right to compile a loop; entered, it waits for it."""

    def __init__(self, folder: str | None, name: str) -> None:
        self._file = _opened(folder) if folder else None
        self._byte = zlib.crc32(name.encode())
        self._held = 0
        self._lock = _threads

    def take(self) -> bool:
        """Take it unless another thread or process has it.  What can not be locked between processes is free."""
        if not self._lock.acquire(blocking=False):
            return False
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
            except (BlockingIOError, PermissionError):
                self._lock.release()
                return False
            except OSError:
                self._file = None  # a file system without locks
        self._held += 1
        return True

    def wait(self, seconds: float = _LONGEST_S) -> bool:
        """Take it as soon as it is free; whether that was in time."""
        until = time.monotonic() + seconds
        while not self.take():
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def release(self) -> None:
        """Give back what was taken."""
        if self._held:
            self._held -= 1
            if self._file is not None and not self._held:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._byte)
            self._lock.release()

    def __enter__(self) -> Claim:
        self.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _anew() -> None:
    """A forked process has no threads but one, and none of its parent's locks."""
    global _threads
    _threads = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_anew)


def _opened(folder: str) -> int | None:
    if fcntl is None:
        return None
    if folder not in _FILES:
        try:
            os.makedirs(folder, exist_ok=True)
            _FILES[folder] = os.open(os.path.join(folder, "claims"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            _FILES[folder] = -1
    return _FILES[folder] if _FILES[folder] >= 0 else None
