"""Times put in order: by counting, where few are different or many are close together, else by comparing."""

from __future__ import annotations

import numpy as np

from everwhen.compiled.njit import loop


def by_time(times: np.ndarray) -> np.ndarray:
    """The positions of times, the earliest first; equal ones as they stand."""
    few, (which, order) = np.empty((3, 8), np.int64), np.empty((2, len(times)), np.int64)
    if _of_few(times, few, which, order):
        return order
    lowest, highest = int(times.min()), int(times.max())
    if highest - lowest >= 4 * len(times):
        return np.argsort(times, kind="stable")
    _counted(times, lowest, np.zeros(highest - lowest + 1, np.int64), order)
    return order


@loop
def _of_few(times, few, which, order):
    """The stable order of times of which few are different, as in windows that tumble.  Returns whether they are few.

    `few` is scratch: three rows, as long as there may be different ones; `which` too.
    """
    different = 0
    p = 0
    for i in range(len(times)):
        if different == 0 or few[0, p] != times[i]:
            p = 0
            while p < different and few[0, p] != times[i]:
                p += 1
            if p == few.shape[1]:
                return False
            if p == different:
                few[0, p] = times[i]
                few[1, p] = 0
                different += 1
        few[1, p] += 1
        which[i] = p
    for p in range(different):
        few[2, p] = 0
        for q in range(different):
            few[2, p] += few[1, q] if few[0, q] < few[0, p] else 0
    for i in range(len(times)):
        order[few[2, which[i]]] = i
        few[2, which[i]] += 1
    return True


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
