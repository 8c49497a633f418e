"""Keyed state: coded rows interned to dense ids, exact, ids reused after removal.  O(1) expected per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.compiled.njit import loop, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.arrays import grown

_CACHED: Final = 1 << 18
"""So many slots are as good as in a cache."""
_AT_ONCE: Final = 1 << 19
"""So many slots are written to in one call of `expect`."""


@njit(cache=True)
def _hash(row: np.ndarray) -> np.uint64:
    h = np.uint64(0x243F6A8885A308D3)
    for j in range(len(row)):
        h = (h ^ np.uint64(row[j])) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    h = h * np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _new_id(free, n_free, top):
    """An id that was given back, or the next one."""
    if n_free > 0:
        return free[n_free - 1], n_free - 1, top
    return top, n_free, top + 1


@njit(cache=True, inline="always")
def _probe(slots, codes, hashes, row, h):
    """Where a row stands among the slots, or where it would stand; and its id (-1: it is not there)."""
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while True:
        id_ = slots[at]
        if id_ < 0:
            return at, id_
        if hashes[id_] == h:
            same = True
            for j in range(len(row)):
                if codes[id_, j] != row[j]:
                    same = False
                    break
            if same:
                return at, id_
        at = (at + np.uint64(1)) & mask


@loop
def _intern(slots, codes, hashes, free, n_free, top, batch, ids):
    mask = np.uint64(len(slots) - 1)
    large = len(slots) > _CACHED
    if large:  # hash all rows first, so that slots can be asked for ahead
        for i in range(len(batch)):
            ids[i] = np.int64(_hash(batch[i]))
    for i in range(len(batch)):
        row = batch[i]
        if large and i + 16 < len(batch):
            prefetch(slots, np.int64(np.uint64(ids[i + 16]) & mask))
        h = np.uint64(ids[i]) if large else _hash(row)
        at, found = _probe(slots, codes, hashes, row, h)
        if found < 0:
            found, n_free, top = _new_id(free, n_free, top)
            slots[at] = found
            hashes[found] = h
            for j in range(len(row)):
                codes[found, j] = row[j]
        ids[i] = found
    return n_free, top


@loop
def _intern_direct(direct, codes, free, n_free, top, batch, ids):
    """Rows of one small code: `direct` has the id of each code, the last entry that of null."""
    for i in range(len(batch)):
        at = batch[i, 1] if batch[i, 0] == 0 else len(direct) - 1
        found = direct[at]
        if found < 0:
            found, n_free, top = _new_id(free, n_free, top)
            direct[at] = found
            codes[found, 0] = batch[i, 0]
            codes[found, 1] = batch[i, 1]
        ids[i] = found
    return n_free, top


@loop
def _remove_direct(direct, codes, free, n_free, ids):
    """Forget such rows."""
    for i in range(len(ids)):
        at = codes[ids[i], 1] if codes[ids[i], 0] == 0 else len(direct) - 1
        direct[at] = -1
        free[n_free] = ids[i]
        n_free += 1
    return n_free


@loop
def _intern_column(direct, codes, free, n_free, top, rows, column, ids, first):
    """The same where the code stands in a column of other rows, from the row `first` on, and is never null.  Stops
    before a code that is too large for `direct`, and returns also that row."""
    for i in range(first, len(rows)):
        if i + 16 < len(rows):
            prefetch(direct, rows[i + 16, column])
        at = rows[i, column]
        if at >= len(direct) - 1:
            return n_free, top, i
        found = direct[at]
        if found < 0:
            found, n_free, top = _new_id(free, n_free, top)
            direct[at] = found
            codes[found, 0] = 0
            codes[found, 1] = at
        ids[i] = found
    return n_free, top, len(rows)


@loop
def _find(slots, codes, hashes, batch, ids):
    for i in range(len(batch)):
        _, ids[i] = _probe(slots, codes, hashes, batch[i], _hash(batch[i]))


@loop
def _remove(slots, hashes, free, n_free, ids):
    mask = np.uint64(len(slots) - 1)
    for i in range(len(ids)):
        if i + 16 < len(ids):
            prefetch(slots, np.int64(hashes[ids[i + 16]] & mask))
        id_ = ids[i]
        at = hashes[id_] & mask
        while slots[at] != id_:
            if slots[at] < 0:
                return np.int64(-1)
            at = (at + np.uint64(1)) & mask
        # close the gap: move back whatever probed past it
        hole = at
        at = (at + np.uint64(1)) & mask
        while slots[at] >= 0:
            home = hashes[slots[at]] & mask
            if ((at - home) & mask) >= ((at - hole) & mask):
                slots[hole] = slots[at]
                hole = at
            at = (at + np.uint64(1)) & mask
        slots[hole] = -1
        free[n_free] = id_
        n_free += 1
    return n_free


@loop
def _rehash(slots, codes, hashes, ids):
    mask = np.uint64(len(slots) - 1)
    for i in range(len(ids)):
        hashes[ids[i]] = _hash(codes[ids[i]])
    for i in range(len(ids)):
        if i + 16 < len(ids):
            prefetch(slots, np.int64(hashes[ids[i + 16]] & mask))
        id_ = ids[i]
        at = hashes[id_] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = id_


def _slots_for(size: int) -> int:
    slots = 256
    while slots < size:
        slots *= 2
    return slots


class KeyTable:
    """Distinct coded rows with ids 0, 1, …; `pooled` names the columns whose codes belong to a pool."""

    def __init__(self, width: int, pooled: Sequence[tuple[int, pa.DataType]] = ()) -> None:
        self.width = width
        self.pooled = tuple(pooled)
        self.codes = np.zeros((64, width), np.int64)
        self._hashes = np.zeros(64, np.uint64)
        self._free = np.zeros(64, np.int64)
        self._n_free = 0
        self._top = 0
        self._slots = np.full(256, -1, np.int64)
        self._coming, self._written = np.empty(0, np.int64), 0  # larger slots that are being made
        self._direct: np.ndarray | None = None
        if width == 2 and [at for at, _ in self.pooled] == [1]:
            self._direct = np.full(256, -1, np.int64)  # codes of a pool are small: no need to hash them

    def __len__(self) -> int:
        return self._top - self._n_free

    @property
    def top(self) -> int:
        """All ids that were ever given are below this."""
        return self._top

    @property
    def capacity(self) -> int:
        """All ids are below this."""
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self._hashes.nbytes + self._slots.nbytes

    def expect(self, count: int) -> bool:
        """So many rows will be there soon, none is yet: make room once.  To write to new memory may take milliseconds
        for a megabyte, so a large table is made in several calls; whether it is done."""
        if count > len(self.codes):
            self._grow(count)
        if self._direct is not None or 2 * count <= len(self._slots):
            return True
        if not len(self._coming):
            self._coming, self._written = np.empty(_slots_for(4 * count), np.int64), 0
        self._coming[self._written : self._written + _AT_ONCE] = -1
        self._written += _AT_ONCE
        if self._written < len(self._coming):
            return False
        self._slots, self._coming = self._coming, np.empty(0, np.int64)
        return True

    def intern(self, rows: np.ndarray) -> np.ndarray:
        """The ids of rows; unknown ones get a new id.  Call `Calendar.grow` and `Regions.grow` afterwards."""
        n = len(rows)
        if self._top + n > len(self.codes):
            self._grow(self._top + n)
        ids = np.empty(n, np.int64)
        if self._direct is not None:
            if n:
                self._address(int(rows[:, 1].max()))
                self._n_free, self._top = _intern_direct(
                    self._direct, self.codes, self._free, self._n_free, self._top, rows, ids
                )
            return ids
        if 2 * (len(self) + n) > len(self._slots):
            self._rebuild(4 * (len(self) + n))
        self._n_free, self._top = _intern(
            self._slots, self.codes, self._hashes, self._free, self._n_free, self._top, rows, ids
        )
        return ids

    def intern_column(self, rows: np.ndarray, column: int) -> np.ndarray:
        """The ids of rows `[0, code]`, where the codes stand in a column of `rows`."""
        n = len(rows)
        if self._direct is None or not n:
            alone = np.zeros((n, 2), np.int64)
            alone[:, 1] = rows[:, column]
            return self.intern(alone)
        if self._top + n > len(self.codes):
            self._grow(self._top + n)
        ids, done = np.empty(n, np.int64), 0
        while done < n:
            self._n_free, self._top, done = _intern_column(
                self._direct, self.codes, self._free, self._n_free, self._top, rows, column, ids, done
            )
            if done < n:
                self._address(int(rows[done:, column].max()))
        return ids

    def put(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Let an empty table have these rows with these ids."""
        self._top = int(ids.max(initial=-1)) + 1
        if self._top > len(self.codes):
            self._grow(self._top)
        self.codes[ids] = rows
        unused = np.ones(self._top, np.bool_)
        unused[ids] = False
        free = np.flatnonzero(unused)
        self._n_free = len(free)
        self._free[: len(free)] = free
        self.recoded()

    def find(self, rows: np.ndarray) -> np.ndarray:
        """The ids of rows, -1 for unknown ones."""
        if self._direct is not None:
            last = len(self._direct) - 1
            at = np.where(rows[:, 0] == 0, rows[:, 1], last)
            known = (at < last) | (rows[:, 0] != 0)
            return np.where(known, self._direct[np.minimum(at, last)], -1)
        ids = np.empty(len(rows), np.int64)
        _find(self._slots, self.codes, self._hashes, rows, ids)
        return ids

    def remove(self, ids: np.ndarray) -> None:
        """Forget rows; their ids may be given out again."""
        if len(ids) and self._direct is not None:
            self._n_free = _remove_direct(self._direct, self.codes, self._free, self._n_free, ids)
        elif len(ids):
            free = _remove(self._slots, self._hashes, self._free, self._n_free, ids)
            assert free >= 0, "a row was removed twice"
            self._n_free = free

    def ids(self) -> np.ndarray:
        """All ids in use."""
        used = np.ones(self._top, np.bool_)
        used[self._free[: self._n_free]] = False
        return np.flatnonzero(used)

    def _address(self, code: int) -> None:
        assert self._direct is not None
        if code >= len(self._direct) - 1:
            null = self._direct[-1]
            self._direct[-1] = -1
            self._direct = grown(self._direct, max(code + 2, 2 * len(self._direct)), -1)
            self._direct[-1] = null

    def _grow(self, needed: int) -> None:
        size = max(needed, 2 * len(self.codes))
        self.codes = grown(self.codes, size, 0)
        self._hashes = grown(self._hashes, size, 0)
        self._free = grown(self._free, size, 0)

    def _rebuild(self, size: int) -> None:
        self._coming = np.empty(0, np.int64)
        self._slots = np.full(_slots_for(size), -1, np.int64)
        _rehash(self._slots, self.codes, self._hashes, self.ids())

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self.codes[self._free[: self._n_free]] = 0
        return [(self.codes[: self._top], self.pooled)]

    def recoded(self) -> None:
        if self._direct is None:
            self._rebuild(4 * max(1, len(self)))
            return
        ids = self.ids()
        rows = self.codes[ids]
        self._direct = np.full(256, -1, np.int64)
        self._address(int(rows[:, 1].max(initial=0)))
        self._direct[np.where(rows[:, 0] == 0, rows[:, 1], len(self._direct) - 1)] = ids
