"""Calendars: per id the times at which it wants to be visited.

Finding the due ids costs one look per block of 256 ids plus the blocks that hold one, so idle ids cost next to nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.containers.arrays import grown
from everwhen.core.time import INF

BLOCK: Final = 256
_INF: Final = np.int64(INF)


@njit(cache=True)
def _due(due, block, bounds, n_blocks):
    if len(bounds) == 3:
        return _due_of_three(due, block, bounds[0], bounds[1], bounds[2], n_blocks)
    out = np.empty(64, np.int64)
    n = 0
    reasons = len(bounds)
    low = np.empty(reasons, np.int64)
    for b in range(n_blocks):
        some = False
        for r in range(reasons):
            if block[b, r] < bounds[r]:
                some = True
        if not some:
            continue
        out = _with_room(out, n)
        low[:] = _INF
        for k in range(b * BLOCK, (b + 1) * BLOCK):
            found = False
            for r in range(reasons):
                t = due[k, r]
                if t < bounds[r]:
                    found = True
                if t < low[r]:
                    low[r] = t
            out[n] = k
            n += found
        block[b] = low
    return out[:n]


@njit(cache=True)
def _due_of_three(due, block, first, second, third, n_blocks):
    """The same for three reasons: without branches, because which ids are due can't be foretold."""
    out = np.empty(64, np.int64)
    n = 0
    for b in range(n_blocks):
        if block[b, 0] >= first and block[b, 1] >= second and block[b, 2] >= third:
            continue
        out = _with_room(out, n)
        low0 = low1 = low2 = _INF
        for k in range(b * BLOCK, (b + 1) * BLOCK):
            t0 = due[k, 0]
            t1 = due[k, 1]
            t2 = due[k, 2]
            low0 = min(low0, t0)
            low1 = min(low1, t1)
            low2 = min(low2, t2)
            out[n] = k
            n += (t0 < first) | (t1 < second) | (t2 < third)
        block[b, 0] = low0
        block[b, 1] = low1
        block[b, 2] = low2
    return out[:n]


@njit(cache=True)
def _with_room(out, n):
    """The array, or a longer copy, with room for the ids of a block behind the first `n`."""
    if n + BLOCK < len(out):
        return out
    more = np.empty(2 * (n + BLOCK), np.int64)
    more[:n] = out[:n]
    return more


@njit(cache=True)
def _schedule(due, block, ids, times):
    for i in range(len(ids)):
        k = ids[i]
        b = k // BLOCK
        for r in range(times.shape[1]):
            t = times[i, r]
            due[k, r] = t
            if t < block[b, r]:
                block[b, r] = t


class DueTimes(NamedTuple):
    """The arrays of a `Calendar`, as loops take them; they hold until it grows."""

    due: np.ndarray
    """Per id its time for each reason."""
    block: np.ndarray
    """Per block of ids no later times than theirs."""


class Calendar:
    """Per id the times at which it wants to be visited, one for each reason (INF: never)."""

    def __init__(self, reasons: int = 1) -> None:
        self._hold(np.full((BLOCK, reasons), INF, np.int64), np.full((1, reasons), INF, np.int64))

    def _hold(self, due: np.ndarray, block: np.ndarray) -> None:
        self.due, self.block = due, block
        self.times = DueTimes(due, block)

    def grow(self, capacity: int) -> None:
        blocks = -(-capacity // BLOCK)
        if blocks > len(self.block):
            blocks = max(blocks, 2 * len(self.block))
            self._hold(grown(self.due, blocks * BLOCK, INF), grown(self.block, blocks, INF))

    def schedule(self, ids: np.ndarray, times: np.ndarray) -> None:
        """Set the times of ids: one column per reason."""
        _schedule(self.due, self.block, ids, times if times.ndim == 2 else times[:, None])

    def before(self, *bounds: int) -> np.ndarray:
        """The ids with a time before the bound of its reason; they stay scheduled."""
        return _due(self.due, self.block, bounds, len(self.block))

    @property
    def nbytes(self) -> int:
        return self.due.nbytes + self.block.nbytes
