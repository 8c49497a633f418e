"""Rows of a partition as a tree in the order asked for, each subtree with its least start, its largest and least end.

A record is `[lo, hi, left, right, priority, latest, earliest, soonest, row…]`; trees of all partitions share one pool.
The order is that of rows, then starts, then ends.  So the rows next to a row are near it, rows alive in a span of time
are met in order, subtrees without any are passed by, and what has ended is found by the least end.

It is a treap, as `tree.py` has it.  There the first of very many rows are found, here those beside a given one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.core.time import NEVER
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.tree import EARLIEST, HI, LEFT, LO, PRIORITY, RIGHT, free_record

LATEST: Final = 5
"""The largest end in the subtree."""
SOONEST: Final = 7
"""The least end in the subtree."""
ROW: Final = 8

_NEVER: Final = np.int64(NEVER)


@loop
def _before(pool, i, j, order):
    """Whether a record stands before another one in a tree."""
    found = compare(pool, i, pool, j, order, len(order.columns))
    if found != 0:
        return found < 0
    if pool[i, LO] != pool[j, LO]:
        return pool[i, LO] < pool[j, LO]
    if pool[i, HI] != pool[j, HI]:
        return pool[i, HI] < pool[j, HI]
    return i < j


@loop
def _settle(pool, path, depth):
    """Find out the times of the subtrees of a path anew, from its end on."""
    while depth > 0:
        depth -= 1
        v = path[depth]
        earliest = pool[v, LO]
        latest = pool[v, HI]
        soonest = pool[v, HI]
        for side in range(LEFT, RIGHT + 1):
            child = pool[v, side]
            if child >= 0:
                earliest = min(earliest, pool[child, EARLIEST])
                latest = max(latest, pool[child, LATEST])
                soonest = min(soonest, pool[child, SOONEST])
        pool[v, EARLIEST] = earliest
        pool[v, LATEST] = latest
        pool[v, SOONEST] = soonest


@loop
def insert(pool, root, x, order, path):
    """Put a record into a tree.  Returns the root."""
    above = np.int64(-1)
    side = LEFT
    v = root
    while v >= 0 and pool[v, PRIORITY] >= pool[x, PRIORITY]:
        pool[v, EARLIEST] = min(pool[v, EARLIEST], pool[x, LO])
        pool[v, LATEST] = max(pool[v, LATEST], pool[x, HI])
        pool[v, SOONEST] = min(pool[v, SOONEST], pool[x, HI])
        above = v
        side = LEFT if _before(pool, x, v, order) else RIGHT
        v = pool[v, side]
    if above < 0:
        root = x
    else:
        pool[above, side] = x
    # what was there goes to both sides of the record
    path[0] = x
    depth = 1
    low = x
    low_side = LEFT
    high = x
    high_side = RIGHT
    while v >= 0:
        path[depth] = v
        depth += 1
        if _before(pool, x, v, order):
            pool[high, high_side] = v
            high = v
            high_side = LEFT
            v = pool[v, LEFT]
        else:
            pool[low, low_side] = v
            low = v
            low_side = RIGHT
            v = pool[v, RIGHT]
    pool[low, low_side] = -1
    pool[high, high_side] = -1
    _settle(pool, path, depth)
    return root


@loop
def _take_out(pool, root, x, path, depth):
    """Take a record out of its tree: `path` leads to it.  Returns the root."""
    parent = path[depth - 1] if depth > 0 else np.int64(-1)
    side = RIGHT if parent >= 0 and pool[parent, RIGHT] == x else LEFT
    a = pool[x, LEFT]
    b = pool[x, RIGHT]
    while True:
        child = a if a >= 0 and (b < 0 or pool[a, PRIORITY] >= pool[b, PRIORITY]) else b
        if parent < 0:
            root = child
        else:
            pool[parent, side] = child
        if a < 0 or b < 0:
            break
        path[depth] = child
        depth += 1
        parent = child
        if child == a:
            side = RIGHT
            a = pool[a, RIGHT]
        else:
            side = LEFT
            b = pool[b, LEFT]
    _settle(pool, path, depth)
    return root


@loop
def remove(pool, root, x, order, path):
    """Take a record out of its tree.  Returns the root."""
    depth = 0
    v = root
    while v != x:
        path[depth] = v
        depth += 1
        v = pool[v, LEFT if _before(pool, x, v, order) else RIGHT]
    return _take_out(pool, root, x, path, depth)


@loop
def record_of(pool, root, batch, i, start, least, most, order, stack):
    """A record with the row of a batch's record that starts by a time and ends from one time to another (-1: none)."""
    stack[0] = root
    depth = 1
    while depth > 0:
        depth -= 1
        v = stack[depth]
        if v < 0 or pool[v, EARLIEST] > start or pool[v, LATEST] < least or pool[v, SOONEST] > most:
            continue
        by = compare(pool, v, batch, i, order, len(order.columns))
        if by == 0 and pool[v, LO] <= start and least <= pool[v, HI] <= most:
            return v
        if by >= 0:
            stack[depth] = pool[v, LEFT]
            depth += 1
        if by <= 0:
            stack[depth] = pool[v, RIGHT]
            depth += 1
    return np.int64(-1)


@loop
def equal_rows(pool, root, lo, hi, batch, i, order, stack, out, n):
    """Put records with the row of a batch's record that are alive at some instant of a span behind the first `n` of
    `out`.  Returns how many there are then."""
    stack[0] = root
    depth = 1
    while depth > 0:
        depth -= 1
        v = stack[depth]
        if v < 0 or pool[v, EARLIEST] >= hi or pool[v, LATEST] <= lo:
            continue
        by = compare(pool, v, batch, i, order, len(order.columns))
        if by == 0 and pool[v, LO] < hi and pool[v, HI] > lo:
            out[n] = v
            n += 1
        if by >= 0:
            stack[depth] = pool[v, LEFT]
            depth += 1
        if by <= 0:
            stack[depth] = pool[v, RIGHT]
            depth += 1
    return n


@loop
def alive_rows(pool, root, lo, hi, stack, out):
    """All records alive at some instant of a span, in order.  Returns how many there are."""
    n = 0
    depth = 0
    v = root
    while True:
        while v >= 0 and pool[v, EARLIEST] < hi and pool[v, LATEST] > lo:
            stack[depth] = v
            depth += 1
            v = pool[v, LEFT]
        if depth == 0:
            return n
        depth -= 1
        v = stack[depth]
        if pool[v, LO] < hi and pool[v, HI] > lo:
            out[n] = v
            n += 1
        v = pool[v, RIGHT]


@loop
def drop_ended(pool, root, until, path, book):
    """Leave records that have ended by a time.  Returns the root, how many went, and the largest end among them."""
    gone = 0
    last = _NEVER
    while root >= 0 and pool[root, SOONEST] <= until:
        depth = 0
        v = root
        while pool[v, HI] > until:
            path[depth] = v
            depth += 1
            left = pool[v, LEFT]
            v = left if left >= 0 and pool[left, SOONEST] <= until else pool[v, RIGHT]
        last = max(last, pool[v, HI])
        root = _take_out(pool, root, v, path, depth)
        free_record(pool, book, v)
        gone += 1
    return root, gone, last
