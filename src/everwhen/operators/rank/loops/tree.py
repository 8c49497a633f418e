"""Rows of a partition as a tree in the order of their ends, each subtree with its first row and its earliest start.

A record is `[lo, hi, left, right, priority, first, earliest, row…]`; trees of all partitions share one pool.  The order
is that of ends, then rows, then starts.  So what has ended is at the front, a row that is taken back is found by its
end, and the first rows alive in a span of time are found from the roots of subtrees on, without looking at the rest.

A tree is a treap: a child's priority is not larger than its parent's, and priorities are drawn at random.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.core.time import INF
from everwhen.operators.rank.loops.order import compare

LO: Final = 0
HI: Final = 1
LEFT: Final = 2
RIGHT: Final = 3
PRIORITY: Final = 4
FIRST: Final = 5
"""The record of the subtree that comes first in the order of rows; of equal ones that with the least number, so that it
depends on what is in the subtree, not on its shape."""
EARLIEST: Final = 6
"""The least start in the subtree."""
ROW: Final = 7

DEEPEST: Final = 1 << 10
"""So deep no tree gets: the path of an insert or a removal."""

# the book of a pool
FREE: Final = 0
"""The first of a chain of unused records (by LEFT)."""
END: Final = 1
SEED: Final = 2
USED: Final = 3

_INF: Final = np.int64(INF)


@loop
def _before(pool, i, j, order):
    """Whether a record stands before another one in a tree."""
    if pool[i, HI] != pool[j, HI]:
        return pool[i, HI] < pool[j, HI]
    found = compare(pool, i, pool, j, order, len(order.columns))
    if found != 0:
        return found < 0
    return pool[i, LO] < pool[j, LO]


@loop
def _is_first(pool, i, j, order):
    """Whether a record is the FIRST of two different ones."""
    found = compare(pool, i, pool, j, order, len(order.columns))
    return found < 0 or (found == 0 and i < j)


@loop
def _settle(pool, path, depth, above, order):
    """Find out first and earliest of the records of a path anew, from its end on.  The first `above` of the path have
    changed in what is below them only: where that makes no difference, it makes none further up."""
    while depth > 0:
        depth -= 1
        v = path[depth]
        first = v
        earliest = pool[v, LO]
        for side in range(LEFT, RIGHT + 1):
            child = pool[v, side]
            if child >= 0:
                earliest = min(earliest, pool[child, EARLIEST])
                other = pool[child, FIRST]
                if _is_first(pool, other, first, order):
                    first = other
        if depth < above and pool[v, FIRST] == first and pool[v, EARLIEST] == earliest:
            return
        pool[v, FIRST] = first
        pool[v, EARLIEST] = earliest


@loop
def _come_in(pool, path, depth, x, order):
    """Let a record be known to those above it: the first `depth` of a path."""
    while depth > 0:
        depth -= 1
        v = path[depth]
        changed = False
        if pool[x, LO] < pool[v, EARLIEST]:
            pool[v, EARLIEST] = pool[x, LO]
            changed = True
        if _is_first(pool, x, pool[v, FIRST], order):
            pool[v, FIRST] = x
            changed = True
        if not changed:
            return


@loop
def new_record(pool, book):
    """An unused record, of which there is one, with a priority."""
    x = book[FREE]
    if x >= 0:
        book[FREE] = pool[x, LEFT]
    else:
        x = book[END]
        book[END] += 1
    book[USED] += 1
    book[SEED] = (book[SEED] * 1103515245 + 12345) & 0x7FFFFFFF
    pool[x, PRIORITY] = book[SEED] >> 4
    return x


@loop
def free_record(pool, book, x):
    """Leave a record."""
    for c in range(pool.shape[1]):
        pool[x, c] = 0
    pool[x, LEFT] = book[FREE]
    book[FREE] = x
    book[USED] -= 1


@loop
def insert(pool, root, x, order, path):
    """Put a record into a tree.  Returns the root."""
    depth = 0
    v = root
    side = LEFT
    while v >= 0 and pool[v, PRIORITY] >= pool[x, PRIORITY]:
        path[depth] = v
        depth += 1
        side = LEFT if _before(pool, x, v, order) else RIGHT
        v = pool[v, side]
    if depth == 0:
        root = x
    else:
        pool[path[depth - 1], side] = x
    above = depth
    path[depth] = x
    depth += 1
    # what was there goes to both sides of the record
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
    _settle(pool, path[above:], depth - above, 0, order)
    _come_in(pool, path, above, x, order)
    return root


@loop
def remove(pool, root, x, order, path):
    """Take a record out of its tree.  Returns the root."""
    depth = 0
    v = root
    side = LEFT
    while v != x:
        path[depth] = v
        depth += 1
        side = LEFT if _before(pool, x, v, order) else RIGHT
        v = pool[v, side]
    above = depth
    parent = path[depth - 1] if depth > 0 else np.int64(-1)
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
    _settle(pool, path, depth, above, order)
    return root


@loop
def _same(pool, v, batch, i):
    for c in range(ROW, pool.shape[1]):
        if pool[v, c] != batch[i, c]:
            return False
    return True


@loop
def ending_at(pool, root, hi, lo, batch, i, order):
    """Of the records with an end and the row of a batch's record: that with the latest start not after `lo` (-1: none).

    If several are equal, the one that stands last on the way, which `remove` finds."""
    found = np.int64(-1)
    v = root
    while v >= 0:
        if pool[v, HI] != hi:
            right = pool[v, HI] < hi
        else:
            by = compare(pool, v, batch, i, order, len(order.columns))
            right = by < 0 or (by == 0 and pool[v, LO] <= lo)
            if by == 0 and right:
                found = v
        v = pool[v, RIGHT] if right else pool[v, LEFT]
    if found >= 0 and not _same(pool, found, batch, i):
        return np.int64(-1)
    return found


@loop
def alive_at(pool, root, t, batch, i, stack):
    """A record with the row of a batch's record that is alive at an instant (-1: none)."""
    depth = 0
    if root >= 0:
        stack[0] = root
        depth = 1
    while depth > 0:
        depth -= 1
        v = stack[depth]
        if pool[v, EARLIEST] > t:
            continue
        right = pool[v, RIGHT]
        if pool[v, HI] > t:
            if pool[v, LO] <= t and _same(pool, v, batch, i):
                return v
            if pool[v, LEFT] >= 0:
                stack[depth] = pool[v, LEFT]
                depth += 1
        if right >= 0:
            stack[depth] = right
            depth += 1
    return np.int64(-1)


@loop
def drop_ended(pool, root, until, order, path, book):
    """Leave records that have ended by a time.  Returns the root, how many went, and the largest end among them."""
    gone = 0
    last = np.int64(-(2**63))
    # the front of the tree is cut off: `low` collects it
    low = np.int64(-1)
    low_at = np.int64(-1)
    high_at = np.int64(-1)
    depth = 0
    v = root
    while v >= 0:
        if pool[v, HI] <= until:
            if low_at < 0:
                low = v
            else:
                pool[low_at, RIGHT] = v
            low_at = v
            last = max(last, pool[v, HI])
            v = pool[v, RIGHT]
        else:
            if high_at < 0:
                root = v
            else:
                pool[high_at, LEFT] = v
            high_at = v
            path[depth] = v
            depth += 1
            v = pool[v, LEFT]
    if low_at < 0:
        return root, gone, last
    pool[low_at, RIGHT] = -1
    if high_at < 0:
        root = np.int64(-1)
    else:
        pool[high_at, LEFT] = -1
    _settle(pool, path, depth, 0, order)
    # the records of the front form a chain as they are met
    v = low
    while v >= 0:
        left = pool[v, LEFT]
        if left >= 0:  # turn it round until nothing is on the left
            pool[v, LEFT] = pool[left, RIGHT]
            pool[left, RIGHT] = v
            v = left
        else:
            right = pool[v, RIGHT]
            free_record(pool, book, v)
            gone += 1
            v = right
    return root, gone, last


@loop
def soonest(pool, root):
    """The first end of a tree (∞: it is empty)."""
    if root < 0:
        return _INF
    while pool[root, LEFT] >= 0:
        root = pool[root, LEFT]
    return pool[root, HI]
