"""Runs: per key a sorted run of records that loses its head and grows at its tail, in one flat pool.

Each key owns a stretch of the pool and keeps its run somewhere inside it.  Dropping from the front moves the start;
appending uses the room behind; when that is used up the run slides back to the front of its stretch, or moves to a
bigger one if it is too long for that.  So a key's records stay where they are, and a step touches the memory of the
keys that it changes and no other.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

FIRST: Final = 0
ROOM: Final = 1
START: Final = 2
LENGTH: Final = 3
_FEW: Final = 1 << 15


@njit(cache=True, inline="always")
def bigger(array, size):
    """A copy with room for at least `size` rows, twice as many as before."""
    out = np.empty((max(size, 2 * len(array)), array.shape[1]), array.dtype)
    out[: len(array)] = array
    return out


@njit(cache=True, inline="always")
def copy_row(to, i, source, j, width):
    """Copy a record.  Records are short, and a loop over a few words costs more than the words: so no loop for most."""
    if width == 2:
        to[i, 0] = source[j, 0]
        to[i, 1] = source[j, 1]
    elif width == 3:
        to[i, 0] = source[j, 0]
        to[i, 1] = source[j, 1]
        to[i, 2] = source[j, 2]
    elif width == 4:
        to[i, 0] = source[j, 0]
        to[i, 1] = source[j, 1]
        to[i, 2] = source[j, 2]
        to[i, 3] = source[j, 3]
    else:
        for c in range(width):
            to[i, c] = source[j, c]


@njit(cache=True)
def make_room(place, pool, end, k, more):
    """Let the run of `k` have room for `more` records behind it.  Returns the pool, which may be a new one, and its
    end."""
    s = place[k, START]
    n = place[k, LENGTH]
    room = place[k, ROOM]
    if s + n + more <= place[k, FIRST] + room:
        return pool, end
    width = pool.shape[1]
    if 4 * (n + more) <= 3 * room:
        to = place[k, FIRST]
    else:
        to = end
        room = 2 * (n + more) + 4
        end += room
        if end > len(pool):
            pool = bigger(pool, end)
        place[k, FIRST] = to
        place[k, ROOM] = room
    for i in range(n):
        copy_row(pool, to + i, pool, s + i, width)
    place[k, START] = to
    return pool, end


@njit(cache=True)
def tidied(place, pool):
    """All runs in a new pool, in the order of keys, and the end of it.  A run keeps its room unless it is far too
    much."""
    size = 0
    for k in range(len(place)):
        n = place[k, LENGTH]
        place[k, ROOM] = min(place[k, ROOM], 6 * n + 8) if n > 0 else 0
        size += place[k, ROOM]
    width = pool.shape[1]
    out = np.zeros((size + size // 2 + 256, width), pool.dtype)
    end = 0
    for k in range(len(place)):
        n = place[k, LENGTH]
        s = place[k, START]
        place[k, FIRST] = end
        place[k, START] = end
        for i in range(n):
            copy_row(out, end + i, pool, s + i, width)
        end += place[k, ROOM]
    return out, end


@njit(cache=True)
def gathered(place, pool, ids):
    """The records of ids, one run after the other, and the offsets at which each begins."""
    offsets = np.zeros(len(ids) + 1, np.int64)
    for i in range(len(ids)):
        offsets[i + 1] = offsets[i] + place[ids[i], LENGTH]
    out = np.empty((offsets[len(ids)], pool.shape[1]), pool.dtype)
    for i in range(len(ids)):
        s = place[ids[i], START]
        for j in range(place[ids[i], LENGTH]):
            out[offsets[i] + j] = pool[s + j]
    return out, offsets


class Runs:
    """Per id a run of records of `width` integers.  Kernels change `place`, `pool` and `end`."""

    def __init__(self, width: int) -> None:
        self.place = np.zeros((64, 4), np.int64)
        self.pool = np.zeros((256, width), np.int64)
        self.end = 0
        self._tidy_at = _FEW

    def grow(self, capacity: int) -> None:
        """Make room for ids below `capacity`."""
        if capacity > len(self.place):
            more = np.zeros((max(capacity, 2 * len(self.place)) - len(self.place), 4), np.int64)
            self.place = np.concatenate([self.place, more])

    @property
    def crowded(self) -> bool:
        """Whether there may be many gaps by now: as much again has been used as after the last `tidy`."""
        return self.end > self._tidy_at

    def tidy(self) -> None:
        """Close the gaps."""
        self.pool, self.end = tidied(self.place, self.pool)
        self._tidy_at = max(_FEW, 2 * self.end)

    def clear(self) -> None:
        """Forget all records of all ids."""
        self.place[:] = 0
        self.end = 0

    @property
    def records(self) -> np.ndarray:
        """All records, key by key, for looking at them."""
        return self.gather(np.flatnonzero(self.place[:, LENGTH]))[0]

    def gather(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of ids, one run after the other, and the offsets at which each begins."""
        found: tuple[np.ndarray, np.ndarray] = gathered(self.place, self.pool, ids)
        return found

    def put(self, ids: np.ndarray, offsets: np.ndarray, records: np.ndarray) -> None:
        """Give records to ids that have none."""
        self.grow(int(ids.max(initial=-1)) + 1)
        n = len(records)
        if self.end + n > len(self.pool):
            self.pool = bigger(self.pool, self.end + n)
        self.pool[self.end : self.end + n] = records
        self.place[ids, FIRST] = self.place[ids, START] = self.end + offsets[:-1]
        self.place[ids, ROOM] = self.place[ids, LENGTH] = np.diff(offsets)
        self.end += n

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + self.place.nbytes
