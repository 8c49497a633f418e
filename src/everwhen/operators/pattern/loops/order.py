"""The order of rows: comparing, sorting, finding places."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.algebra.patterns.instructions import FLOATS, RANKED, SIGNED, UNSIGNED
from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.containers.run_pool import LENGTH, START, RunArrays
from everwhen.operators.pattern.loops.layout import DONE, NO_RANKS, Order

UNKNOWN: Final = 2
_LOWEST: Final = np.int64(-(2**63))
_REST: Final = np.int64(2**63 - 1)


@njit(cache=True, inline="always")
def compared(kind, a, b, ranks, ranks_at):
    """-1, 0 or 1 for two codes; 2: their ranks are not known."""
    if a == b:
        return 0
    if kind == FLOATS:
        a = a ^ _REST if a < 0 else a
        b = b ^ _REST if b < 0 else b
    elif kind == UNSIGNED:
        a = a ^ _LOWEST
        b = b ^ _LOWEST
    elif kind != SIGNED:
        at = ranks_at[kind - RANKED]
        if at < 0:
            return UNKNOWN
        a = ranks[at + a]
        b = ranks[at + b]
    return -1 if a < b else 1


@loop
def compare_rows(one, i, two, j, order):
    """-1, 0 or 1 for two records; 2: ranks are needed for it."""
    columns = order.columns
    for c in range(len(columns)):
        a_null = (one[i, columns[c, 1]] >> columns[c, 2]) & 1
        b_null = (two[j, columns[c, 1]] >> columns[c, 2]) & 1
        if a_null != b_null:
            first = a_null == 1
            if columns[c, 5] == 0:
                first = not first
            return -1 if first else 1
        found = compared(columns[c, 3], one[i, columns[c, 0]], two[j, columns[c, 0]], order.ranks, order.ranks_at)
        if found == UNKNOWN:
            return UNKNOWN
        if found != 0:
            return -found if columns[c, 4] == 1 else found
    return 0


@loop_of(order=Order)
def sort_groups(offsets, positions, batch, order, room):
    """Sort the positions of each group by their records; equal ones stay as they are.  Returns a status."""
    for g in range(len(offsets) - 1):
        first = offsets[g]
        stop = offsets[g + 1]
        sorted_ = True
        for x in range(first + 1, stop):
            found = compare_rows(batch, positions[x - 1], batch, positions[x], order)
            if found == UNKNOWN:
                return NO_RANKS
            if found > 0:
                sorted_ = False
                break
        if sorted_:
            continue
        width = 1
        while width < stop - first:
            for left in range(first, stop, 2 * width):
                middle = min(left + width, stop)
                right = min(left + 2 * width, stop)
                a = left
                b = middle
                for to in range(left, right):
                    take = a < middle
                    if take and b < right:
                        found = compare_rows(batch, positions[a], batch, positions[b], order)
                        if found == UNKNOWN:
                            return NO_RANKS
                        take = found <= 0
                    if take:
                        room[to] = positions[a]
                        a += 1
                    else:
                        room[to] = positions[b]
                        b += 1
            for x in range(first, stop):
                positions[x] = room[x]
            width *= 2
    return DONE


@loop_of(order=Order, runs=RunArrays)
def find_places(keys, offsets, positions, batch, order, runs, before, behind):
    """Where the sorted records of a batch stand in the runs of their keys: how many records are less, and how many are
    not greater.  Returns a status."""
    for g in range(len(keys)):
        s = runs.place[keys[g], START]
        n = runs.place[keys[g], LENGTH]
        least = np.int64(0)
        for x in range(offsets[g], offsets[g + 1]):
            i = positions[x]
            if n > 0:
                found = compare_rows(runs.pool, s + n - 1, batch, i, order)
                if found == UNKNOWN:
                    return NO_RANKS
                if found < 0:
                    before[x] = n
                    behind[x] = n
                    least = n
                    continue
            low = _first(runs.pool, s, least, n, batch, i, order, 0)
            high = _first(runs.pool, s, low, n, batch, i, order, 1)
            if low < 0 or high < 0:
                return NO_RANKS
            before[x] = low
            behind[x] = high
            least = low
    return DONE


@loop
def _first(pool, s, a, b, batch, i, order, limit):
    """The first of the places a … b-1 whose record is not less than one of the batch (limit 0), or greater (1); -2:
    ranks are needed."""
    while a < b:
        middle = (a + b) >> 1
        found = compare_rows(pool, s + middle, batch, i, order)
        if found == UNKNOWN:
            return np.int64(-2)
        if found < limit:
            a = middle + 1
        else:
            b = middle
    return np.int64(a)
