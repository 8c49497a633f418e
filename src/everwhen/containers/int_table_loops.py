"""Compiled loops of a flat hash table: rows of `width` words, a cell is the row and its value.

A value of `NEVER` marks an empty cell.  The class that owns the array is `point_table`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.compiled.prefetch import prefetch

_NEVER: Final = np.int64(-(2**63))
_MOST: Final = np.int64(2**63 - 1)
_SEED: Final = np.uint64(0x9AE16A3B2F90404F)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)
_AHEAD: Final = 16


@njit(cache=True, inline="always")
def _hash(rows, i, width):
    h = _SEED
    for j in range(width):
        h = (h ^ np.uint64(rows[i, j])) * _MIX
        h ^= h >> np.uint64(29)
    h *= _LAST
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _seek(cells, rows, i, width, h):
    """The cell of a row, or the empty one where it would be."""
    mask = np.uint64(len(cells) - 1)
    at = np.int64(h & mask)
    while cells[at, width] != _NEVER:
        same = True
        for j in range(width):
            if cells[at, j] != rows[i, j]:
                same = False
                break
        if same:
            break
        at = np.int64(np.uint64(at + 1) & mask)
    return at


@njit(cache=True, inline="always")
def _place(cells, key):
    """The cell of a row of one word, or the empty one where it would be."""
    h = (_SEED ^ np.uint64(key)) * _MIX
    h ^= h >> np.uint64(29)
    h *= _LAST
    h ^= h >> np.uint64(32)
    mask = np.uint64(len(cells) - 1)
    at = np.int64(h & mask)
    while cells[at, 1] != _NEVER and cells[at, 0] != key:
        at = np.int64(np.uint64(at + 1) & mask)
    return at


@njit(cache=True, inline="always")
def value_of(cells, key):
    """The value of a row of one word, `NEVER` if there is none."""
    return cells[_place(cells, key), 1]


@njit(cache=True)
def find_rows(cells, rows, out):
    """The value of each row, `NEVER` where there is none."""
    n, width = rows.shape
    mask = np.uint64(len(cells) - 1)
    hashes = np.empty(n, np.uint64)
    for i in range(n):
        hashes[i] = _hash(rows, i, width)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(cells, np.int64(hashes[i + _AHEAD] & mask))
        out[i] = cells[_seek(cells, rows, i, width, hashes[i]), width]


@njit(cache=True)
def put_rows(cells, rows, values):
    """Keeps the larger value of each row; how many rows are new.  There must be room for all."""
    n, width = rows.shape
    mask = np.uint64(len(cells) - 1)
    hashes = np.empty(n, np.uint64)
    for i in range(n):
        hashes[i] = _hash(rows, i, width)
    new = 0
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(cells, np.int64(hashes[i + _AHEAD] & mask))
        at = _seek(cells, rows, i, width, hashes[i])
        if cells[at, width] == _NEVER:
            for j in range(width):
                cells[at, j] = rows[i, j]
            cells[at, width] = values[i]
            new += 1
        elif cells[at, width] < values[i]:
            cells[at, width] = values[i]
    return new


@njit(cache=True)
def number_rows(cells, rows, count, out):
    """Numbers each row by its value; new rows get the next number.  How many there are now."""
    n, width = rows.shape
    for i in range(n):
        at = _seek(cells, rows, i, width, _hash(rows, i, width))
        if cells[at, width] == _NEVER:
            for j in range(width):
                cells[at, j] = rows[i, j]
            cells[at, width] = count
            count += 1
        out[i] = cells[at, width]
    return count


@njit(cache=True)
def remove_rows(cells, rows):
    """Removes rows that may be there; how many were.  What stands behind one moves up, so that no gap hides it."""
    n, width = rows.shape
    mask = np.uint64(len(cells) - 1)
    gone = 0
    for i in range(n):
        hole = _seek(cells, rows, i, width, _hash(rows, i, width))
        if cells[hole, width] == _NEVER:
            continue
        gone += 1
        at = hole
        while True:
            at = np.int64(np.uint64(at + 1) & mask)
            if cells[at, width] == _NEVER:
                break
            home = _hash(cells, at, width) & mask
            # It may move if its home is not between the hole and where it stands.
            if (np.uint64(at) - home) & mask >= (np.uint64(at) - np.uint64(hole)) & mask:
                for j in range(width + 1):
                    cells[hole, j] = cells[at, j]
                hole = at
        cells[hole, width] = _NEVER
    return gone


@loop
def put_keys(cells, keys, values, limit):
    """Keeps the larger value of each key, for rows of one word.  How many are new, and how many with the same value
    stand in a row at most, up to about a limit.  There must be room for all."""
    new = 0
    for i in range(len(keys)):
        at = _place(cells, keys[i])
        if cells[at, 1] == _NEVER:
            cells[at, 0] = keys[i]
            cells[at, 1] = values[i]
            new += 1
        elif cells[at, 1] < values[i]:
            cells[at, 1] = values[i]
    longest = 0
    for i in range(len(keys)):
        low = high = keys[i]
        while high - low < limit and low != _NEVER and cells[_place(cells, low - 1), 1] == values[i]:
            low -= 1
        while high - low < limit and high != _MOST and cells[_place(cells, high + 1), 1] == values[i]:
            high += 1
        longest = max(longest, high - low + 1)
    return new, longest


@njit(cache=True)
def neighbours(cells, starts, ends, times, limit, left, right):
    """How many keys beside each run are there with the same time, up to a limit on each side (width 1)."""
    probe = np.empty((1, 1), np.int64)
    for i in range(len(starts)):
        left[i] = 0
        while left[i] < limit and starts[i] - left[i] != _NEVER:
            probe[0, 0] = starts[i] - left[i] - 1
            at = _seek(cells, probe, 0, 1, _hash(probe, 0, 1))
            if cells[at, 1] != times[i]:
                break
            left[i] += 1
        right[i] = 0
        while right[i] < limit and ends[i] + right[i] != np.int64(2**63 - 1):
            probe[0, 0] = ends[i] + right[i] + 1
            at = _seek(cells, probe, 0, 1, _hash(probe, 0, 1))
            if cells[at, 1] != times[i]:
                break
            right[i] += 1
