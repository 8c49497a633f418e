"""Loops over what promises reach: the elements of their own batch, the keys of an operator."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit

LEAST: Final = np.int64(-(2**63))
MOST: Final = np.int64(2**63 - 1)
FEW: Final = 64
"""So few ids are put in order one by one."""


@loop
def first_broken(ranks, sync, gaps, standing, fresh):
    """The first element behind a promise with a rank in its range and an instant before its time; if none, how many
    there are.  What stands in the gaps, which are in order, is no element: the runs between them are compared.

    A promise is its first and last rank and its time; those that are `fresh` also have a place among the elements.
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
        while seen < len(fresh) and fresh[seen, 3] < start:
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


@loop
def once(ids, times):
    """Leaves one of equal ids and the largest time of each; -1 goes.  How many are left.  Many ids must be in order."""
    if len(ids) <= FEW:
        for i in range(1, len(ids)):
            id_, t, j = ids[i], times[i], i
            while j and ids[j - 1] > id_:
                ids[j], times[j] = ids[j - 1], times[j - 1]
                j -= 1
            ids[j], times[j] = id_, t
    k = -1
    for i in range(len(ids)):
        if ids[i] < 0:
            continue
        if k >= 0 and ids[k] == ids[i]:
            times[k] = max(times[k], times[i])
        else:
            k += 1
            ids[k], times[k] = ids[i], times[i]
    return k + 1


@loop
def all_are(op, places, wanted):
    """Whether the elements at some places have a certain op."""
    for i in range(len(places)):
        if op[places[i]] != wanted:
            return False
    return True


@loop
def untouched(reached, touched, marks, out):
    """The reached keys that are not touched, in their order; how many there are.  `marks` has room for every key and is
    all zero, before and after."""
    for i in range(len(touched)):
        marks[touched[i]] = 1
    n = 0
    for i in range(len(reached)):
        if not marks[reached[i]]:
            out[n] = reached[i]
            n += 1
    for i in range(len(touched)):
        marks[touched[i]] = 0
    return n


@loop
def raise_floors(floors, ids, times, out):
    """Raise the floors of keys to times, each key once; those for which that is news, and how many there are."""
    n = 0
    for i in range(len(ids)):
        if times[i] > floors[ids[i]]:
            floors[ids[i]] = times[i]
            out[n] = ids[i]
            n += 1
    return n


@loop
def settle_floors(before, now, raised, gone):
    """The floors of raised keys stand; those of keys that are gone are as low as can be."""
    for i in range(len(raised)):
        before[raised[i]] = now[raised[i]]
    for i in range(len(gone)):
        if gone[i] < len(now):
            before[gone[i]] = now[gone[i]] = LEAST
