"""64-bit integers with a time each, in one flat hash table: no Python object per integer.

A cell holds the integer and its time side by side, so a look-up touches one place in memory, asked for some ahead.
A time of `NEVER` marks an empty cell.  Costs: add and look up O(1) each, amortised; forgetting is a sweep.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.compiled.prefetch import prefetch
from everwhen.core.time import NEVER

_LEAST: Final = 16
_NEVER: Final = np.int64(-(2**63))
_SEED: Final = np.uint64(0x9AE16A3B2F90404F)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)
_AHEAD: Final = 16


@njit(cache=True, inline="always")
def _hash(key):
    h = (_SEED ^ np.uint64(key)) * _MIX
    h ^= h >> np.uint64(29)
    h *= _LAST
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _seek(cells, key, h):
    """The cell of a key, or the empty one where it would be."""
    mask = np.uint64(len(cells) - 1)
    at = np.int64(h & mask)
    while cells[at, 1] != _NEVER and cells[at, 0] != key:
        at = np.int64(np.uint64(at + 1) & mask)
    return at


@njit(cache=True)
def _find(cells, keys, out):
    """The time of each key, `NEVER` where there is none."""
    n = len(keys)
    mask = np.uint64(len(cells) - 1)
    hashes = np.empty(n, np.uint64)
    for i in range(n):
        hashes[i] = _hash(keys[i])
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(cells, np.int64(hashes[i + _AHEAD] & mask))
        out[i] = cells[_seek(cells, keys[i], hashes[i]), 1]


@njit(cache=True)
def _put(cells, keys, times):
    """Keeps the larger time of each key; how many keys are new.  There must be room for all."""
    n = len(keys)
    mask = np.uint64(len(cells) - 1)
    hashes = np.empty(n, np.uint64)
    for i in range(n):
        hashes[i] = _hash(keys[i])
    new = 0
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(cells, np.int64(hashes[i + _AHEAD] & mask))
        at = _seek(cells, keys[i], hashes[i])
        if cells[at, 1] == _NEVER:
            cells[at, 0] = keys[i]
            cells[at, 1] = times[i]
            new += 1
        elif cells[at, 1] < times[i]:
            cells[at, 1] = times[i]
    return new


class IntTimes:
    """Integers to the largest time given for each."""

    def __init__(self) -> None:
        self._count = 0
        self._cells = _empty(_LEAST)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes

    def add(self, keys: np.ndarray, times: np.ndarray) -> None:
        self._reserve(len(keys))
        self._count += int(_put(self._cells, keys, times))

    def at(self, keys: np.ndarray) -> np.ndarray:
        """The time of each key, `NEVER` where there is none."""
        out = np.empty(len(keys), np.int64)
        _find(self._cells, keys, out)
        return out

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and their times, in no order."""
        used = self._cells[self._cells[:, 1] != NEVER]
        return used[:, 0].copy(), used[:, 1].copy()

    def retain(self, kept: np.ndarray) -> None:
        """Forgets the entries that are not marked, in the order of `entries`."""
        keys, times = self.entries()
        self._cells, self._count = _empty(_LEAST), 0
        self.add(keys[kept], times[kept])

    def _reserve(self, more: int) -> None:
        size = len(self._cells)
        while 2 * (self._count + more) > size:
            size *= 2
        if size > len(self._cells):
            keys, times = self.entries()
            self._cells = _empty(size)
            _put(self._cells, keys, times)


def _empty(size: int) -> np.ndarray:
    cells = np.zeros((size, 2), np.int64)
    cells[:, 1] = NEVER
    return cells
