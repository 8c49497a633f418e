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
def _push(pool, heap, size, entry, order):
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
def _pop(pool, heap, size, order):
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
def first_rows(pool, root, lo, hi, most, peers, order, heap, out):
    """The first `most` records alive at some instant of a span, in order, and with `peers` > 0 all that are equal to
    the last of them in so many columns.  Returns how many there are, and whether these are all."""
    size = 0
    v = root
    while v >= 0:
        if pool[v, HI] > lo:
            if pool[v, LO] < hi:
                size = _push(pool, heap, size, 2 * v + 1, order)
            right = pool[v, RIGHT]
            if right >= 0 and pool[right, EARLIEST] < hi:
                size = _push(pool, heap, size, 2 * right, order)
            v = pool[v, LEFT]
        else:
            v = pool[v, RIGHT]
    n = 0
    while size > 0:
        entry = heap[0]
        v = entry >> 1
        size = _pop(pool, heap, size, order)
        if entry & 1:
            if n >= most and (peers < 0 or n == 0 or compare(pool, v, pool, out[n - 1], order, peers) != 0):
                return np.int64(n), False
            out[n] = v
            n += 1
            continue
        if pool[v, LO] < hi:
            size = _push(pool, heap, size, 2 * v + 1, order)
        for side in range(LEFT, RIGHT + 1):
            child = pool[v, side]
            if child >= 0 and pool[child, EARLIEST] < hi:
                size = _push(pool, heap, size, 2 * child, order)
    return np.int64(n), True
