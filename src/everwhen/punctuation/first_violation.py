"""The first element of a batch that breaks a punctuation before it, for few punctuations about one column."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit

LEAST: Final = np.int64(-(2**63))
MOST: Final = np.int64(2**63 - 1)


@loop
def first_violation(ranks, sync, gaps, standing, fresh, places):
    """The first element behind a promise with a rank in its range and an instant before its time; if none, how many
    there are.  What stands in the gaps, which are in order, is no element: the runs between them are compared.

    A promise is its first and last rank and its time; those that are `fresh` have places among the elements.
    """
    n = len(ranks)
    lowest, highest, latest = MOST, LEAST, LEAST
    for p in range(len(standing)):
        lowest, highest = min(lowest, standing[p, 0]), max(highest, standing[p, 1])
        latest = max(latest, standing[p, 2])
    start = 0
    seen = 0
    for g in range(len(gaps) + 1):
        stop = gaps[g] if g < len(gaps) else n
        run, instants = ranks[start:stop], sync[start:stop]
        while seen < len(fresh) and places[seen] < start:
            lowest, highest = min(lowest, fresh[seen, 0]), max(highest, fresh[seen, 1])
            latest = max(latest, fresh[seen, 2])
            seen += 1
        # mostly nothing lies within what all promises span
        hits = 0
        for i in range(len(run)):
            hits += (run[i] >= lowest) & (run[i] <= highest) & (instants[i] < latest)
        first = len(run)
        if hits:
            for p in range(len(standing)):
                first = _first_in(run, instants, first, standing[p])
            for p in range(seen):
                first = _first_in(run, instants, first, fresh[p])
        if first < len(run):
            return start + first
        start = stop + 1
    return n


@loop
def first_before(sync, until, gaps):
    """The first element with an instant before its own time; if none, how many there are.  Gaps are no elements."""
    n = len(sync)
    start = 0
    for g in range(len(gaps) + 1):
        stop = gaps[g] if g < len(gaps) else n
        hits = 0
        for i in range(start, stop):
            hits += np.int64(sync[i] < until[i])
        if hits:
            for i in range(start, stop):
                if sync[i] < until[i]:
                    return i
        start = stop + 1
    return n


@njit(cache=True, inline="always")
def _first_in(run, instants, n, promise):
    """The first of `n` elements that breaks a promise; `n` if none does."""
    low, high, t = promise[0], promise[1], promise[2]
    hits = 0
    for i in range(n):
        hits += (run[i] >= low) & (run[i] <= high) & (instants[i] < t)
    if hits:
        for i in range(n):
            if low <= run[i] <= high and instants[i] < t:
                return i
    return n
