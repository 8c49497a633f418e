"""Elements in arrival order with promises between them: the data alone, and the first element that breaks a promise.

`gaps` are the places of the elements that are no data, in order; what stands between two of them is a run of data.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def without(gaps, op, vs, ve, vnew):
    """The four columns of a batch without its gaps."""
    n = len(op) - len(gaps)
    kind = np.empty(n, np.uint8)
    times = np.empty((3, n), np.int64)
    start, to = 0, 0
    for g in range(len(gaps) + 1):
        stop = gaps[g] if g < len(gaps) else len(op)
        size = stop - start
        kind[to : to + size] = op[start:stop]
        times[0, to : to + size] = vs[start:stop]
        times[1, to : to + size] = ve[start:stop]
        times[2, to : to + size] = vnew[start:stop]
        start, to = stop + 1, to + size
    return kind, times[0], times[1], times[2]


@njit(cache=True)
def first_broken(gaps, ranks, sync, places, lows, highs, times):
    """The first element behind a promise that changes an instant before its time, in its range of ranks; -1: none.

    A few promises: every run of data is compared with each that stands before it.
    """
    start = 0
    for g in range(len(gaps) + 1):
        stop = gaps[g] if g < len(gaps) else len(ranks)
        if stop > start:
            found = False
            for p in range(len(places)):
                if places[p] < start:
                    low, high, t = lows[p], highs[p], times[p]
                    hits = 0
                    for i in range(start, stop):
                        hits += (ranks[i] >= low) & (ranks[i] <= high) & (sync[i] < t)
                    found |= hits > 0
            if found:
                for i in range(start, stop):
                    for p in range(len(places)):
                        if places[p] < i and lows[p] <= ranks[i] <= highs[p] and sync[i] < times[p]:
                            return i
        start = stop + 1
    return -1
