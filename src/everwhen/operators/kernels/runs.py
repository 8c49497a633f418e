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

from everwhen.model.prefetch import prefetch

FIRST: Final = 0
ROOM: Final = 1
START: Final = 2
LENGTH: Final = 3
_FEW: Final = 1 << 15


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


@njit(cache=True, inline="always")
def _fits(place, k, more):
    return place[k, START] + place[k, LENGTH] + more <= place[k, FIRST] + place[k, ROOM]


@njit(cache=True)
def make_room(place, pool, end, k, more):
    """Let the run of `k` have room for `more` records behind it.  Returns the end of the pool, which is big enough."""
    if _fits(place, k, more):
        return end
    s = place[k, START]
    n = place[k, LENGTH]
    if 4 * (n + more) <= 3 * place[k, ROOM]:
        to = place[k, FIRST]
    else:
        to = end
        place[k, FIRST] = to
        place[k, ROOM] = 2 * (n + more) + 4
        end += place[k, ROOM]
    for i in range(n):
        copy_row(pool, to + i, pool, s + i, pool.shape[1])
    place[k, START] = to
    return end


@njit(cache=True)
def needed(place, keys, offsets):
    """What `make_room` may need for so many more records of each key; and how many records the keys have, in all and at
    most."""
    room = 0
    total = 0
    longest = 0
    for i in range(len(keys)):
        k = keys[i]
        if i + 16 < len(keys):
            prefetch(place, keys[i + 16])
        more = 1 + offsets[i + 1] - offsets[i] if len(offsets) else 1
        n = place[k, LENGTH]
        if not _fits(place, k, more):
            room += 2 * (n + more) + 4
        total += n
        longest = max(longest, n)
    return room, total, longest


@njit(cache=True)
def _trim(place):
    """Take far too much room from runs.  Returns how much they have in all."""
    size = 0
    for k in range(len(place)):
        n = place[k, LENGTH]
        place[k, ROOM] = min(place[k, ROOM], 6 * n + 8) if n > 0 else 0
        size += place[k, ROOM]
    return size


@njit(cache=True)
def _move(place, pool, out):
    """Copy all runs to another pool, in the order of keys.  Returns its end."""
    width = pool.shape[1]
    end = 0
    for k in range(len(place)):
        n = place[k, LENGTH]
        s = place[k, START]
        place[k, FIRST] = end
        place[k, START] = end
        for i in range(n):
            copy_row(out, end + i, pool, s + i, width)
        end += place[k, ROOM]
    return end


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


def resized(array: np.ndarray, size: int) -> np.ndarray:
    """A copy with at least so many rows, twice as many as before."""
    out = np.empty((max(size, 2 * len(array)), array.shape[1]), np.int64)
    out[: len(array)] = array
    return out


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
        size = _trim(self.place)
        pool = np.zeros((size + size // 2 + 256, self.pool.shape[1]), np.int64)
        self.end = _move(self.place, self.pool, pool)
        self.pool = pool
        self._tidy_at = max(_FEW, 2 * self.end)

    def reserve(self, records: int) -> None:
        """Make room for so many records at the end of the pool.

        Kernels never do this themselves: arrays that don't change in a loop need no reference counts, and memory from
        NumPy comes in large pages.
        """
        if self.end + records > len(self.pool):
            self.pool = resized(self.pool, self.end + records)

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
        self.reserve(n)
        self.pool[self.end : self.end + n] = records
        self.place[ids, FIRST] = self.place[ids, START] = self.end + offsets[:-1]
        self.place[ids, ROOM] = self.place[ids, LENGTH] = np.diff(offsets)
        self.end += n

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + self.place.nbytes
