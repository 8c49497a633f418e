"""How far all units of a list have come, row by row: the smallest of their largest values."""

from __future__ import annotations

import numpy as np

from everwhen.compiled.njit import njit


@njit(cache=True)
def low_water(
    values: np.ndarray,
    unit: np.ndarray,
    place: np.ndarray,
    tops: np.ndarray,
    at: np.ndarray,
    reached: np.ndarray,
    check: bool,
) -> tuple[int, int]:
    """The first row whose value is below what every unit had reached before it (-1: none), and the unit that is the
    last behind all rows (-1: some have not reported).

    `tops` is each unit's largest value so far, if it is `reached`, and `at` the `place` of the row that had it; they
    are brought up to date.  `unit` is -1 for rows that count for nothing.  Without `check` rows are only taken in.
    When the last unit moves on, all are looked at again: at worst every row costs the number of units.
    """
    n_units = len(tops)
    waiting = 0
    for u in range(n_units):
        if not reached[u]:
            waiting += 1
    last = -1
    if waiting == 0:
        last = 0
        for u in range(n_units):
            if tops[u] < tops[last]:
                last = u
    broken = -1
    for i in range(len(values)):
        value = values[i]
        if check and broken < 0 and waiting == 0 and value < tops[last]:
            broken = i
        u = unit[i]
        if u < 0:
            continue
        if not reached[u]:
            reached[u] = True
            tops[u] = value
            at[u] = place[i]
            waiting -= 1
            if waiting > 0:
                continue
            last = 0
        elif value > tops[u]:
            tops[u] = value
            at[u] = place[i]
            if waiting > 0 or u != last:
                continue
        else:
            continue
        for other in range(n_units):
            if tops[other] < tops[last]:
                last = other
    return broken, last
