"""Byte strings with a time each, in one flat hash table: the constants of a column of text.

A look-up for a string that is not there touches one place in memory, for one that is there two: the cell with its hash,
and the record with time, length and bytes.  Both are asked for some rows ahead, so that a million strings cost little
more than ten.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.compiled.hashing import mixed, word_at
from everwhen.compiled.njit import njit
from everwhen.compiled.prefetch import prefetch
from everwhen.core.time import NEVER
from everwhen.errors import StateError

_SEED: Final = np.uint64(0x9AE16A3B2F90404F)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)
_LEAST: Final = 16
_EMPTY: Final = np.uint64(2**64 - 1)
_UPPER: Final = np.uint64(0xFFFFFFFF00000000)
_LOWER: Final = np.uint64(0xFFFFFFFF)
_HEAD: Final = 2  # words of a record before its bytes: time, length
_MOST: Final = 2**32 - 2
"""Words that half a cell can tell apart; the last one would look like an empty cell."""
_FAR, _NEAR = 24, 10


@njit(cache=True, inline="always")
def _finished(h):
    h *= _LAST
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _hash(data, a, b):
    h = _SEED ^ np.uint64(b - a)
    for j in range(a, b, 8):
        h = mixed(h, word_at(data, j, b))
    return _finished(h)


@njit(cache=True, inline="always")
def _seek(cells, arena, h, data, a, b):
    """The cell of a string, or the empty one where it would be.

    A cell is the upper half of the hash and the place of the record; only a record whose half agrees is looked at.
    """
    mask = np.uint64(len(cells) - 1)
    half = h & _UPPER
    at = h & mask
    while cells[at] != _EMPTY:
        if cells[at] & _UPPER == half:
            record = np.int64(cells[at] & _LOWER)
            same = arena[record + 1] == b - a
            if same:
                word = record + _HEAD
                for j in range(a, b, 8):
                    if np.uint64(arena[word]) != word_at(data, j, b):
                        same = False
                        break
                    word += 1
            if same:
                break
        at = (at + np.uint64(1)) & mask
    return at


@njit(cache=True)
def _find(cells, arena, offsets, first, data, out):
    n = len(out)
    mask = np.uint64(len(cells) - 1)
    hashes = np.empty(n, np.uint64)
    for i in range(n):
        hashes[i] = _hash(data, np.int64(offsets[first + i]), np.int64(offsets[first + i + 1]))
    for i in range(n):
        if i + _FAR < n:
            prefetch(cells, np.int64(hashes[i + _FAR] & mask))
            soon = hashes[i + _NEAR]
            cell = cells[soon & mask]
            # No branch, which would be guessed wrong for half of the rows: the first record stands for none.
            record = np.int64(cell & _LOWER) if cell & _UPPER == soon & _UPPER else np.int64(0)
            prefetch(arena, record)
            prefetch(arena, record + _HEAD + 1)
        a, b = np.int64(offsets[first + i]), np.int64(offsets[first + i + 1])
        cell = cells[_seek(cells, arena, hashes[i], data, a, b)]
        out[i] = NEVER if cell == _EMPTY else arena[np.int64(cell & _LOWER)]


@njit(cache=True, inline="always")
def _append(cells, arena, at, h, used, data, a, b, value):
    cells[at] = (h & _UPPER) | np.uint64(used)
    arena[used] = value
    arena[used + 1] = b - a
    used += _HEAD
    for j in range(a, b, 8):
        arena[used] = np.int64(word_at(data, j, b))
        used += 1
    return used


@njit(cache=True)
def _put(cells, arena, used, offsets, first, data, times):
    """Keeps the larger time of each string; how many are new, and where the records end.  There must be room."""
    new = 0
    for i in range(len(times)):
        a, b = np.int64(offsets[first + i]), np.int64(offsets[first + i + 1])
        h = _hash(data, a, b)
        at = _seek(cells, arena, h, data, a, b)
        if cells[at] == _EMPTY:
            used = _append(cells, arena, at, h, used, data, a, b, times[i])
            new += 1
        else:
            record = np.int64(cells[at] & _LOWER)
            arena[record] = max(arena[record], times[i])
    return new, used


@njit(cache=True)
def _spread(cells, arena, used):
    """Fills an empty table with the records."""
    mask = np.uint64(len(cells) - 1)
    record = 0
    while record < used:
        size = arena[record + 1]
        h = _SEED ^ np.uint64(size)
        words = (size + 7) // 8
        for j in range(words):
            h = mixed(h, np.uint64(arena[record + _HEAD + j]))
        h = _finished(h)
        at = h & mask
        while cells[at] != _EMPTY:
            at = (at + np.uint64(1)) & mask
        cells[at] = (h & _UPPER) | np.uint64(record)
        record += _HEAD + words


@njit(cache=True)
def _records(arena, used, times, offsets):
    """The time and the end of every string, in the order in which they came."""
    at, i, size = 0, 0, 0
    while at < used:
        times[i] = arena[at]
        size += arena[at + 1]
        i += 1
        offsets[i] = size
        at += _HEAD + (arena[at + 1] + 7) // 8


@njit(cache=True)
def _bytes(arena, offsets, data):
    at = 0
    for i in range(len(offsets) - 1):
        at += _HEAD
        for j in range(offsets[i], offsets[i + 1]):
            k = j - offsets[i]
            data[j] = np.uint8((arena[at + k // 8] >> (8 * (k % 8))) & 255)
        at += (offsets[i + 1] - offsets[i] + 7) // 8


class BytesTimes:
    """Byte strings to the largest time given for each."""

    def __init__(self) -> None:
        self.count = 0
        self._cells = _no_cells(_LEAST)
        self._arena = np.zeros(64, np.int64)
        self._used = 0

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self._arena.nbytes

    def add(self, offsets: np.ndarray, first: int, data: np.ndarray, times: np.ndarray) -> None:
        """Strings that stand in `data` between offsets, the first of them at `first`."""
        n = len(times)
        size = int(offsets[first + n]) - int(offsets[first]) if n else 0
        self._reserve(self.count + n, self._used + (_HEAD + 1) * n + size // 8)
        new, self._used = _put(self._cells, self._arena, self._used, offsets, first, data, times)
        self.count += new

    def find(self, offsets: np.ndarray, first: int, n: int, data: np.ndarray) -> np.ndarray:
        """The time of each string, `NEVER` for one that is not there."""
        out = np.empty(n, np.int64)
        _find(self._cells, self._arena, offsets, first, data, out)
        return out

    def entries(self) -> tuple[pa.Array, np.ndarray]:
        """All strings, as a binary column in the order in which they came, and their times."""
        times, offsets = np.empty(self.count, np.int64), np.zeros(self.count + 1, np.int64)
        _records(self._arena, self._used, times, offsets)
        data = np.empty(int(offsets[-1]), np.uint8)
        _bytes(self._arena, offsets, data)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), self.count, buffers), times

    def _reserve(self, count: int, words: int) -> None:
        if words > _MOST:
            raise StateError("promises about a column hold 32 GB of text; let a cti or ranges overtake the constants")
        if words > len(self._arena):
            arena = np.empty(max(words, 2 * len(self._arena)), np.int64)
            arena[: self._used] = self._arena[: self._used]
            self._arena = arena
        size = len(self._cells)
        while 4 * count > size:  # sparse: a string that is not there mostly meets an empty cell at once
            size *= 2
        if size > len(self._cells):
            self._cells = _no_cells(size)
            _spread(self._cells, self._arena, self._used)


def _no_cells(size: int) -> np.ndarray:
    return np.full(size, _EMPTY, np.uint64)
