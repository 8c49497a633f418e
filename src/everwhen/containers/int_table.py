"""64-bit integers with a time each, in one flat hash table: no Python object per integer.

A cell holds the integer and its time side by side, so a look-up touches one place in memory, asked for some ahead.
A time of `NEVER` marks an empty cell.  Most integers that are looked up are not there: eight bits per cell, of which
one in sixteen is set at most, tell so of most of them.  Costs: add and look up O(1) each, amortised; forgetting is a
sweep.
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


@njit(cache=True, inline="always")
def _mark(key, shift):
    """The place of a key among eight bits per cell: its byte and its bit."""
    at = (np.uint64(key) * _MIX) >> shift
    return np.int64(at >> np.uint64(3)), np.uint8(1) << np.uint8(at & np.uint64(7))


@njit(cache=True)
def _raise_to(cells, marks, shift, keys, out):
    """Raises `out` to the time of each key that is there.  First the bits of all keys are looked at, without a branch
    that would be guessed wrong; then the cells of the few that may be there."""
    n = len(keys)
    mask = np.uint64(len(cells) - 1)
    at = np.empty(n, np.int64)
    some = 0
    for i in range(n):
        byte, bit = _mark(keys[i], shift)
        at[some] = i
        some += np.int64((marks[byte] & bit) != 0)
    for j in range(some):
        if j + _AHEAD < some:
            prefetch(cells, np.int64(_hash(keys[at[j + _AHEAD]]) & mask))
        i = at[j]
        out[i] = max(out[i], cells[_seek(cells, keys[i], _hash(keys[i])), 1])


@njit(cache=True)
def _put(cells, marks, shift, keys, times):
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
            byte, bit = _mark(keys[i], shift)
            marks[byte] |= bit
            new += 1
        elif cells[at, 1] < times[i]:
            cells[at, 1] = times[i]
    return new


class IntTimes:
    """Integers to the largest time given for each."""

    _count: int
    _cells: np.ndarray
    _marks: np.ndarray
    _shift: np.uint64

    def __init__(self) -> None:
        self._clear(_LEAST)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self._marks.nbytes

    def add(self, keys: np.ndarray, times: np.ndarray) -> None:
        self._reserve(len(keys))
        self._count += int(_put(self._cells, self._marks, self._shift, keys, times))

    def raise_to(self, keys: np.ndarray, out: np.ndarray) -> None:
        """Raises `out` to the time of each key that is there."""
        _raise_to(self._cells, self._marks, self._shift, keys, out)

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and their times, in no order."""
        used = self._cells[self._cells[:, 1] != NEVER]
        return used[:, 0].copy(), used[:, 1].copy()

    def retain(self, kept: np.ndarray) -> None:
        """Forgets the entries that are not marked, in the order of `entries`."""
        keys, times = self.entries()
        self._clear(_LEAST)
        self.add(keys[kept], times[kept])

    def _reserve(self, more: int) -> None:
        size = len(self._cells)
        while 2 * (self._count + more) > size:
            size *= 2
        if size > len(self._cells):
            keys, times = self.entries()
            self._clear(size)
            self._count = int(_put(self._cells, self._marks, self._shift, keys, times))

    def _clear(self, size: int) -> None:
        self._count = 0
        self._cells = np.zeros((size, 2), np.int64)
        self._cells[:, 1] = NEVER
        self._marks = np.zeros(size, np.uint8)
        self._shift = np.uint64(65 - (8 * size).bit_length())
