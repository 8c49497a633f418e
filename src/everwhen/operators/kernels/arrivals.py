"""Loops over what promises reach: the elements of their own batch, the keys of an operator."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.model.loops import loop

LEAST: Final = np.int64(-(2**63))
MOST: Final = np.int64(2**63 - 1)
FEW: Final = 64
"""So few ids are put in order one by one."""


@loop
def first_broken(ranks, sync, gaps, places, lows, highs, times):
    """The first element behind a promise with a rank in its range and an instant before its time; if none, how many
    there are.  What stands in the gaps, which are in order, is no element: the runs between them are compared.
    """
    n = len(ranks)
    start = 0
    for g in range(len(gaps) + 1):
        stop = gaps[g] if g < len(gaps) else n
        run, instants = ranks[start:stop], sync[start:stop]
        first = len(run)
        # mostly nothing lies within what all promises span
        lowest, highest, latest, hits = MOST, LEAST, LEAST, 0
        for p in range(len(places)):
            if places[p] < start:
                lowest, highest, latest = min(lowest, lows[p]), max(highest, highs[p]), max(latest, times[p])
        for i in range(len(run)):
            hits += (run[i] >= lowest) & (run[i] <= highest) & (instants[i] < latest)
        for p in range(len(places) if hits else 0):
            low, high, t = lows[p], highs[p], times[p]
            if places[p] >= start:
                continue
            hits = 0
            for i in range(len(run)):
                hits += (run[i] >= low) & (run[i] <= high) & (instants[i] < t)
            if hits:
                for i in range(first):
                    if low <= run[i] <= high and instants[i] < t:
                        first = i
                        break
        if first < len(run):
            return start + first
        start = stop + 1
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
