"""The first rows of a partition that are alive in a span of time, in order, found from the roots of subtrees on."""

from __future__ import annotations

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.tree import EARLIEST, FIRST, HI, LEFT, LO, RIGHT


@loop
def _first(pool, entry):
    """The first row of what an entry stands for: a record alone (odd), or its subtree."""
    return entry >> 1 if entry & 1 else pool[entry >> 1, FIRST]


@loop
def push(pool, heap, size, entry, order):
    row = _first(pool, entry)
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if compare(pool, row, pool, _first(pool, heap[above]), order, len(order.columns)) >= 0:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = entry
    return size + 1


@loop
def pop(pool, heap, size, order):
    """Take the first entry away.  Returns the size left."""
    size -= 1
    entry = heap[size]
    row = _first(pool, entry)
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size:
            one = _first(pool, heap[below])
            two = _first(pool, heap[below + 1])
            if compare(pool, two, pool, one, order, len(order.columns)) < 0:
                below += 1
        if compare(pool, row, pool, _first(pool, heap[below]), order, len(order.columns)) <= 0:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = entry
    return size


@loop
def first_rows(pool, root, lo, hi, most, peers, enough, order, heap, out):
    """The first `most` records alive at some instant of a span, in order, and with `peers` > 0 all that are equal to
    the last of them in so many columns.  Returns how many there are, whether these are all, and the bar.

    With `enough` > 0 so many records that are alive throughout the span are all that is asked for: they are before
    whatever comes behind them at every instant.  With `peers` > 0 their equals are given too; with `enough` < 0
    as many groups of equals are asked for.  The bar is the last of them (-1: there are not so many)."""
    size = 0
    v = root
    while v >= 0:
        if pool[v, HI] > lo:
            if pool[v, LO] < hi:
                size = push(pool, heap, size, 2 * v + 1, order)
            right = pool[v, RIGHT]
            if right >= 0 and pool[right, EARLIEST] < hi:
                size = push(pool, heap, size, 2 * right, order)
            v = pool[v, LEFT]
        else:
            v = pool[v, RIGHT]
    n = 0
    throughout = 0
    last = np.int64(-1)  # the last one of those that are alive throughout
    while size > 0:
        entry = heap[0]
        v = entry >> 1
        size = pop(pool, heap, size, order)
        if entry & 1:
            done = throughout > 0 and throughout == abs(enough)
            if done and (peers < 0 or compare(pool, v, pool, last, order, peers) != 0):
                return np.int64(n), True, last
            if n >= most and (peers < 0 or n == 0 or compare(pool, v, pool, out[n - 1], order, peers) != 0):
                return np.int64(n), False, np.int64(-1)
            out[n] = v
            n += 1
            if throughout < abs(enough) and pool[v, LO] <= lo and pool[v, HI] >= hi:
                if enough > 0 or last < 0 or compare(pool, v, pool, last, order, peers) != 0:
                    throughout += 1
                last = v
            continue
        if pool[v, LO] < hi:
            size = push(pool, heap, size, 2 * v + 1, order)
        for side in range(LEFT, RIGHT + 1):
            child = pool[v, side]
            if child >= 0 and pool[child, EARLIEST] < hi:
                size = push(pool, heap, size, 2 * child, order)
    return np.int64(n), True, last if throughout > 0 and throughout == abs(enough) else np.int64(-1)
