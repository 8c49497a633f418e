"""Compiled loops over the promises of one batch, and over rows and the promises of one column.

`cells` is the flat table of a column's constants (`point_kernels`), `pieces` its ranges (`promise_kernels`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.containers.int_table_loops import value_of
from everwhen.punctuation.columns.box_loops import last_at_or_before

FEW: Final = 64
"""So few are put in order one by one."""


@loop
def unite(runs, times):
    """Makes one of intervals of one time that meet or touch, in the order of times, the latest first, and starts; many
    must be in that order.  How many are left."""
    if len(runs) <= FEW:
        for i in range(1, len(runs)):
            lo, hi, t, j = runs[i, 0], runs[i, 1], times[i], i
            while j and (times[j - 1] < t or (times[j - 1] == t and runs[j - 1, 0] > lo)):
                runs[j, 0], runs[j, 1], times[j] = runs[j - 1, 0], runs[j - 1, 1], times[j - 1]
                j -= 1
            runs[j, 0], runs[j, 1], times[j] = lo, hi, t
    k = 0
    for i in range(1, len(runs)):
        lo, hi = runs[i, 0], runs[i, 1]
        if times[i] == times[k] and (lo <= runs[k, 1] or lo - 1 == runs[k, 1]):
            runs[k, 1] = max(runs[k, 1], hi)
        else:
            k += 1
            runs[k, 0], runs[k, 1], times[k] = lo, hi, times[i]
    return k + 1


@loop
def apart(pieces, keys):
    """Whether no key lies in an interval or beside one."""
    for i in range(len(keys)):
        at = last_at_or_before(pieces, keys[i])
        if at >= 0 and (keys[i] <= pieces[at, 1] or keys[i] - 1 == pieces[at, 1]):
            return False
        if at + 1 < len(pieces) and pieces[at + 1, 0] - 1 == keys[i]:
            return False
    return True


@loop
def prolonged(pieces, more):
    """Whether each of some intervals goes on where one of the same time ends, or lies in it, and reaches no other: then
    it becomes a part of it.  Those before the first that does not have become so, too."""
    for i in range(len(more)):
        at = last_at_or_before(pieces, more[i, 0])
        if at < 0 or pieces[at, 2] != more[i, 2]:
            return False
        if more[i, 0] > pieces[at, 1] and more[i, 0] - 1 > pieces[at, 1]:
            return False
        if at + 1 < len(pieces) and pieces[at + 1, 0] - 1 <= more[i, 1]:
            return False
        pieces[at, 1] = max(pieces[at, 1], more[i, 1])
    return True


@loop
def singles(pieces):
    """How many intervals have one rank."""
    count = 0
    for i in range(len(pieces)):
        count += pieces[i, 0] == pieces[i, 1]
    return count


@loop
def meet_keys(cells, pieces, least, floor, keys, times, at, until):
    """What is said of keys both by given times and here: in the table, in the intervals, or of everything (`least`).
    Which keys have a time after `floor`, and these times; how many there are."""
    n = 0
    for i in range(len(keys)):
        t = max(value_of(cells, keys[i]), least)
        piece = last_at_or_before(pieces, keys[i])
        if piece >= 0 and keys[i] <= pieces[piece, 1]:
            t = max(t, pieces[piece, 2])
        t = min(t, times[i])
        if t > floor:
            at[n], until[n] = i, t
            n += 1
    return n


@loop
def first_late(bits, base, cells, pieces, keys, sync, gaps, floor):
    """The first key with a time after `floor` in the table or in the intervals that is after its instant; if none, how
    many there are.  What stands in the gaps, which are in order, does not count.  If there are bits, keys whose bit is
    not set are passed."""
    n = len(keys)
    g = 0
    size = np.uint64(8 * len(bits))
    low, high = np.int64(0), np.int64(-1)
    if len(pieces):
        low, high = pieces[0, 0], pieces[len(pieces) - 1, 1]
    for i in range(n):
        key = keys[i]
        if size:
            bit = np.uint64(key) - np.uint64(base)
            if bit >= size or not (bits[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7))) & 1:
                continue
        while g < len(gaps) and gaps[g] < i:
            g += 1
        if g < len(gaps) and gaps[g] == i:
            continue
        t = value_of(cells, key)
        if low <= key <= high:
            at = last_at_or_before(pieces, key)
            if at >= 0 and key <= pieces[at, 1]:
                t = max(t, pieces[at, 2])
        if t > floor and sync[i] < t:
            return i
    return n


@loop
def mark(bits, base, lows, highs):
    """Sets the bits of closed intervals, counted from `base`; whether all are covered."""
    size = np.uint64(8 * len(bits))
    for i in range(len(lows)):
        low, high = np.uint64(lows[i]) - np.uint64(base), np.uint64(highs[i]) - np.uint64(base)
        if low >= size or high >= size:
            return False
        for at in range(np.int64(low), np.int64(high) + 1):
            bits[at >> 3] |= np.uint8(1 << (at & 7))
    return True
