"""Inserts put in the order of their starts: by counting, where many start close together, else by comparing."""

from __future__ import annotations

import numpy as np

from everwhen.compiled.njit import loop


def by_time(times: np.ndarray) -> np.ndarray:
    """The positions of times, the earliest first; equal ones as they stand."""
    if not len(times):
        return np.empty(0, np.int64)
    lowest, highest = int(times.min()), int(times.max())
    if highest - lowest >= 4 * len(times):
        return np.argsort(times, kind="stable")
    order = np.empty(len(times), np.int64)
    _counted(times, lowest, np.zeros(highest - lowest + 1, np.int64), order)
    return order


@loop
def _counted(times, lowest, places, order):
    """The order of times from `lowest` on; `places` are as many zeros as there may be different times."""
    for i in range(len(times)):
        places[times[i] - lowest] += 1
    before = 0
    for t in range(len(places)):
        count = places[t]
        places[t] = before
        before += count
    for i in range(len(times)):
        t = times[i] - lowest
        order[places[t]] = i
        places[t] += 1


@loop
def pick(order, vs, ve, rows, some_vs, some_ve, some_rows):
    """Starts, ends and rows in this order."""
    for i in range(len(order)):
        at = order[i]
        some_vs[i] = vs[at]
        some_ve[i] = ve[at]
        for j in range(rows.shape[1]):
            some_rows[i, j] = rows[at, j]
