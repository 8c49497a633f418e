"""Variable-length regions per id: a run of 64-bit records in one flat pool.

A changed region is written anew at the end of the pool (so the old one can still be read within the step); the pool is
compacted when more than half of it is garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from everwhen.compiled.njit import njit
from everwhen.containers.arrays import grown


@njit(cache=True)
def _gather(pool, start, length, ids, offsets):
    total = 0
    for i in range(len(ids)):
        offsets[i] = total
        total += length[ids[i]]
    offsets[len(ids)] = total
    out = np.empty((total, pool.shape[1]), pool.dtype)
    for i in range(len(ids)):
        s = start[ids[i]]
        o = offsets[i]
        for j in range(length[ids[i]]):
            for c in range(pool.shape[1]):
                out[o + j, c] = pool[s + j, c]
    return out


@njit(cache=True)
def _compact(pool, start, length, ids, target):
    end = 0
    for i in range(len(ids)):
        k = ids[i]
        s = start[k]
        for j in range(length[k]):
            for c in range(pool.shape[1]):
                target[end + j, c] = pool[s + j, c]
        start[k] = end
        end += length[k]
    return end


class Regions:
    """Per id a run of records of `width` integers; `pooled` names the record's columns that belong to a pool."""

    def __init__(self, width: int, pooled: Sequence[tuple[int, pa.DataType]] = ()) -> None:
        self.width = width
        self.pooled = tuple(pooled)
        self.pool = np.zeros((256, width), np.int64)
        self.start = np.zeros(64, np.int64)
        self.length = np.zeros(64, np.int64)
        self.end = 0
        self.rows = 0

    def grow(self, capacity: int) -> None:
        """Make room for ids below `capacity`."""
        if capacity > len(self.start):
            self.start = grown(self.start, capacity, 0)
            self.length = grown(self.length, capacity, 0)

    def reserve(self, rows: int) -> None:
        """Make room for so many records at the end of the pool: close the gaps, in a bigger one if need be."""
        if self.end + rows > len(self.pool):
            self._close_gaps(rows)

    def _close_gaps(self, rows: int) -> None:
        ids = np.flatnonzero(self.length)
        ids = ids[np.argsort(self.start[ids])]
        pool = self.pool
        if 2 * (self.rows + rows) > len(pool):
            pool = np.empty((max(256, 3 * (self.rows + rows)), self.width), np.int64)
        self.end = _compact(self.pool, self.start, self.length, ids, pool)
        self.pool = pool

    def gather(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of ids, one after the other, and the offsets at which each id's begin."""
        offsets = np.empty(len(ids) + 1, np.int64)
        return _gather(self.pool, self.start, self.length, ids, offsets), offsets

    def put(self, ids: np.ndarray, offsets: np.ndarray, records: np.ndarray) -> None:
        """Replace the records of (distinct) ids."""
        n = len(records)
        self.rows += n - int(self.length[ids].sum())
        self.length[ids] = 0
        self.reserve(n)
        self.pool[self.end : self.end + n] = records
        self.start[ids] = self.end + offsets[:-1]
        self.length[ids] = np.diff(offsets)
        self.end += n

    def clear(self) -> None:
        """Forget all records of all ids."""
        self.length[:] = 0
        self.rows = self.end = 0

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + self.start.nbytes + self.length.nbytes

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._close_gaps(0)  # garbage records may hold dead codes
        return [(self.pool[: self.end], self.pooled)]

    def recoded(self) -> None:
        """Records carry no hash."""
