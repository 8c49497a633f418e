"""Who compiles what: locks between processes that share a folder of compiled loops.

A claim is a lock on one byte of the file `claims` in that folder; which byte, the name of the loop says.  The system
frees it when the process ends, in whatever way, so nothing has to be cleaned up.  Where files can not be locked, or
the folder can not be written, nobody claims anything: then a loop may be compiled twice, which costs time and no more.

A loop's index is read and written only under its claim.  Numba writes the index before the code, and numbers files
from one again after a change of the source: without a claim one could read the code of an older source.
"""

from __future__ import annotations

import os
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


class Claim:
    """The right of one process to compile a loop; entered, it waits for it."""

    def __init__(self, folder: str, name: str) -> None:
        self._file = _opened(folder)
        self._byte = zlib.crc32(name.encode())
        self.held = False

    def take(self) -> bool:
        """Take it unless another process has it.  True also where nothing can be claimed."""
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
            except (BlockingIOError, PermissionError):
                return False
            except OSError:
                return True  # a file system without locks
            self.held = True
        return True

    def release(self) -> None:
        if self.held and self._file is not None:
            self.held = False
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._byte)

    def __enter__(self) -> Claim:
        until = time.monotonic() + _LONGEST_S
        while not self.take() and time.monotonic() < until:
            time.sleep(0.02)
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _opened(folder: str) -> int | None:
    if fcntl is None or not folder:
        return None
    if folder not in _FILES:
        try:
            os.makedirs(folder, exist_ok=True)
            _FILES[folder] = os.open(os.path.join(folder, "claims"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            _FILES[folder] = -1
    return _FILES[folder] if _FILES[folder] >= 0 else None
