"""What interpreting has cost so far, remembered from one process to the next.

A loop is compiled once it has been interpreted for as long as its compilation takes.  If each process began to count
anew, a query that is run again and again for some seconds would be interpreted for ever.  So the seconds are kept in
the file `interpreted.json` beside the compiled loops; with a digest of the loop's code, since they mean nothing after
a change.  Losing the file, or some of its seconds, costs time and nothing else.
"""

from __future__ import annotations

import atexit
import json
import os
from typing import Any, Final

from everwhen.compiled.claims import Claim

_FILE: Final = "interpreted.json"
_LEAST_S: Final = 0.05
"""Less than this is not worth writing."""
_PATIENCE_S: Final = 1.0
"""At the end of a process nobody waits longer for another one that is writing."""
_S_PER_ITEM: Final = 0.00001
"""What a loop is thought to take per item of its longest array as long as nothing is known of it."""
_SAFETY: Final = 3.0
_BOOKS: Final[dict[str, _Book]] = {}


class Account:
    """One loop's: seconds that were spent on interpreting it, by this process and by earlier ones."""

    def __init__(self, name: str, digest: str, folder: str | None) -> None:
        self._name = name
        self._digest = digest
        self._book = _book(folder) if folder else None
        self.spent = self._book.before(name, digest) if self._book else 0.0
        self._here_s = 0.0
        self._items = 0

    def spend(self, seconds: float, items: int) -> None:
        """A call over arrays of so many items took so long."""
        self.spent += seconds
        self._here_s += seconds
        self._items += items
        if self._book is not None:
            self._book.spend(self._name, self._digest, seconds)

    def settle(self) -> None:
        """The loop has been compiled: for other types it begins anew."""
        if self._book is not None:
            self._book.spend(self._name, self._digest, -self.spent)
        self.spent = 0.0

    def expected(self, items: int) -> float:
        """Seconds that a call may take: arrays with room to spare, of which little is read, count by experience."""
        return items * (_SAFETY * self._here_s / self._items if self._items else _S_PER_ITEM)


class _Book:
    """The accounts of all loops whose compiled versions are in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._before = _read(folder)
        self._spent: dict[str, tuple[str, float]] = {}

    def before(self, name: str, digest: str) -> float:
        """Seconds that earlier processes have spent on a loop with this code."""
        known, seconds = self._before.get(name, ("", 0.0))
        return seconds if known == digest else 0.0

    def spend(self, name: str, digest: str, seconds: float) -> None:
        self._spent[name] = (digest, self._spent.get(name, ("", 0.0))[1] + seconds)

    def write(self) -> None:
        """Add what this process has spent to what the others have."""
        spent, self._spent = self._spent, {}
        claim = Claim(self._folder, _FILE)
        if sum(abs(seconds) for _, seconds in spent.values()) < _LEAST_S or not claim.wait(_PATIENCE_S):
            return
        try:
            self._add(spent)
        except OSError:
            pass  # a full disk, a folder that has gone: the seconds are lost
        finally:
            claim.release()

    def _add(self, spent: dict[str, tuple[str, float]]) -> None:
        entries = _read(self._folder)
        for name, (digest, seconds) in spent.items():
            known, before = entries.get(name, ("", 0.0))
            entries[name] = (digest, round(max(seconds + before, 0.0) if known == digest else seconds, 4))
        path = os.path.join(self._folder, f"{_FILE}.{os.getpid()}")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(entries, file)
        os.replace(path, os.path.join(self._folder, _FILE))


def _book(folder: str) -> _Book:
    if folder not in _BOOKS:
        _BOOKS[folder] = _Book(folder)
    return _BOOKS[folder]


@atexit.register
def _write_all() -> None:
    for one in _BOOKS.values():
        one.write()


def _read(folder: str) -> dict[str, tuple[str, float]]:
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as file:
            entries: dict[str, Any] = json.load(file)
        return {name: (str(digest), float(seconds)) for name, (digest, seconds) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # not there, or damaged
