"""Who uses a checkpoint: one run at a time, and the second one is told who is the first.

    <folder>/lock    the holder: machine, process, since when, what it runs; empty once it has been given back

On a mounted file system the operating system locks the file for as long as the process lives.  So the lock of a process
that was killed is free, and what stands in the file tells who that was.

Elsewhere (hdfs, s3 …), and where the system has no locks, it is a lease: the holder renews it, and one that was not
renewed for a while, or whose process on this machine is dead, is taken over.  Every takeover has a greater token.  A
holder asks before it publishes anything whether the token is still its own (`check`), so one that was only slow finds
out and stops.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Final

from everwhen.errors import InUseError, StateError
from everwhen.storage.folder import Folder, LocalFolder, blame

_log = logging.getLogger(__name__)
_LOCK: Final = "lock"
_RENEWED: Final = 15.0
"""Seconds between two renewals of a lease."""
_LEASE: Final = 60.0
"""A lease that was not renewed for so many seconds is looked at for two renewals; if it still is not, it is free."""
_TRIES: Final = 5
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


@dataclass(frozen=True)
class Holder:
    """Who holds a checkpoint.  `machine` is where process numbers mean something; `born` tells a process from a later
    one of the same number."""

    id: str
    token: int
    machine: str
    host: str
    process: int
    born: str
    since: float
    renewed: float
    what: str

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.process} on {self.host} ({self.what}), since {since}"

    @property
    def is_dead(self) -> bool:
        """Whether the process is known not to be there any more."""
        return self.machine == _machine() and _born(self.process) != self.born


class Lease(ABC):
    """A checkpoint that this run holds.  `is_used` says whether the run goes on: one that has ended without a word
    does not keep others of the same process out."""

    def __init__(self, place: str, holder: Holder) -> None:
        self.place, self.holder = place, holder
        self.is_used: Callable[[], bool] = lambda: True

    @abstractmethod
    def check(self) -> None:
        """Raises `StateError` if somebody else has taken the checkpoint over."""

    @abstractmethod
    def release(self) -> None:
        """Give the checkpoint back; again is fine."""


_MINE: Final[dict[str, Lease]] = {}
"""What this process holds, by place."""
_TAKING: Final = threading.Lock()


def take_lease(folder: Folder, given: str, what: str = "checkpoint") -> Lease:
    """The checkpoint, or `what` else this is, for this run alone; `InUseError` says who has it.  `folder` is where the
    lock lies."""
    named = f"the {what} {given}"
    with _TAKING:
        place = os.path.realpath(folder.path) if isinstance(folder, LocalFolder) else folder.place()
        mine = _MINE.get(place)
        if mine is not None and not mine.is_used():
            mine.release()
        try:
            folder.make()
            lease = _locked(folder, named) if isinstance(folder, LocalFolder) else None
            _MINE[place] = lease = lease or _leased(folder, named)
        except OSError as bad:
            raise StateError(blame(bad, given, f"use it as a{'n' * what.startswith('o')} {what}")) from None
        return lease


def held_by(folder: Path) -> Holder | None:
    """Who holds the lock that lies in a directory; None if nobody does.  The lock is left as it is."""
    try:
        with open(folder / _LOCK, "rb") as file:
            found = _parsed(file.read())
            if found is None:
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as bad:
                return found if bad.errno in _BUSY else None if found.is_dead else found
            fcntl.flock(file, fcntl.LOCK_UN)
            return None
    except OSError:
        return None


def release_all() -> None:
    """Give back all that this process holds, since it ends."""
    for lease in list(_MINE.values()):
        lease.release()


# -- a lock of the operating system ------------------------------------------------------------------------------------


class _FileLock(Lease):
    def __init__(self, place: str, holder: Holder, file: IO[bytes]) -> None:
        super().__init__(place, holder)
        self._file = file

    def check(self) -> None:
        """The system keeps it for as long as the process lives."""

    def release(self) -> None:
        self.is_used = lambda: False
        if not self._file.closed:
            with suppress(OSError):
                self._file.truncate(0)
                fcntl.flock(self._file, fcntl.LOCK_UN)  # also where a process that was forked meanwhile has it, too
            self._file.close()


def _locked(folder: LocalFolder, named: str) -> Lease | None:
    """The file locked by the system; None if it has no locks there."""
    file = open(folder.place(_LOCK), "a+b", buffering=0)  # noqa: SIM115 - it is the lock, and closed by `release`
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as bad:
        found = _parsed(_content(file))
        file.close()
        if bad.errno in _BUSY:
            raise _refused(named, found) from None
        return None
    before = _parsed(_content(file))
    if before is not None:
        _say_taken_over(named, before)
    holder = _me(1 if before is None else before.token + 1)
    file.truncate(0)
    file.write(_text(holder))
    return _FileLock(named, holder, file)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


# -- a lease in a file -------------------------------------------------------------------------------------------------


class _FileLease(Lease):
    def __init__(self, place: str, holder: Holder, folder: Folder) -> None:
        super().__init__(place, holder)
        self._folder = folder
        self._ended = threading.Event()
        threading.Thread(target=self._renew, name="everwhen-lease", daemon=True).start()

    def check(self) -> None:
        found = _parsed(self._folder.read(_LOCK)) if self._folder.exists(_LOCK) else None
        if found is None or found.id != self.holder.id:
            self._ended.set()
            who = "it was given to nobody" if found is None else f"it is held by {found} now"
            raise StateError(
                f"{self.place} was taken over from this run, which had not renewed its lease in time: "
                f"{who}. This run stops, so that it does not write over what the other one does; nothing is lost"
            )

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED):
            with suppress(OSError, StateError):  # it is tried again; who took it over is said by `check`
                self.check()
                self._folder.replace(_LOCK, [_text(replace(self.holder, renewed=time.time()))])

    def release(self) -> None:
        self.is_used = lambda: False
        if not self._ended.is_set():
            self._ended.set()
            with suppress(OSError, StateError):
                self.check()
                self._folder.remove(_LOCK)


def _leased(folder: Folder, named: str) -> Lease:
    for _ in range(_TRIES):
        holder = _me(1)
        if folder.create(_LOCK, [_text(holder)]):
            return _FileLease(named, holder, folder)
        before = _read(folder)
        if before is None:
            folder.remove(_LOCK)  # empty or damaged: nobody can be named, and nobody renews it
            continue
        if not (before.is_dead or _is_over(folder, before)):
            raise _refused(named, before)
        holder = _me(before.token + 1)
        folder.replace(_LOCK, [_text(holder)])
        found = _read(folder)
        if found is not None and found.id == holder.id:
            _say_taken_over(named, before)
            return _FileLease(named, holder, folder)
    raise _refused(named, _read(folder))


def _read(folder: Folder) -> Holder | None:
    try:
        return _parsed(folder.read(_LOCK))
    except FileNotFoundError:
        return None


def _is_over(folder: Folder, before: Holder) -> bool:
    """Whether a lease was not renewed for long.  Clocks of machines differ, so it is also watched for a while."""
    if time.time() - before.renewed < _LEASE:
        return False
    until = time.monotonic() + 2 * _RENEWED
    while time.monotonic() < until:
        time.sleep(min(1.0, _RENEWED / 4))
        if _read(folder) != before:
            return False
    return True


# -- words -------------------------------------------------------------------------------------------------------------


def _me(token: int) -> Holder:
    now, process = time.time(), os.getpid()
    what = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c") else "Python"
    return Holder(uuid.uuid4().hex, token, _machine(), socket.gethostname(), process, _born(process), now, now, what)


def _text(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _parsed(text: bytes) -> Holder | None:
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _refused(named: str, holder: Holder | None) -> InUseError:
    who = "another run" if holder is None else f"another run: {holder}"
    return InUseError(f"{named} is in use by {who}; wait for it or stop it, or take another directory")


def _say_taken_over(named: str, before: Holder) -> None:
    _log.warning("%s was left behind by %s, which is gone; this run takes it over", named, before)


def _machine() -> str:
    """Where process numbers mean the same: a host, and within it a space of processes."""
    with suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _born(process: int) -> str:
    """When a process was started, as far as the system tells; "" if it is not there."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return "?"
    return "" if os.path.isdir("/proc/self") else "?"
