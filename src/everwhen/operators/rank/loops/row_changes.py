"""Changes of partitions that are kept in the order of rows: rows come, are cut, and go."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, loop_of
from everwhen.containers.calendar import BLOCK, DueTimes
from everwhen.core.time import INF, NEVER
from everwhen.operators.rank.loops.changes import Segments
from everwhen.operators.rank.loops.order import Order
from everwhen.operators.rank.loops.row_tree import ROW, SOONEST, drop_ended, insert, record_of, remove
from everwhen.operators.rank.loops.tree import HI, LO, free_record, new_record

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)


@loop
def _add(pool, book, k, lo, hi, batch, i, root, count, order, path):
    """A record for a row of a batch."""
    x = new_record(pool, book)
    for c in range(ROW, pool.shape[1]):
        pool[x, c] = batch[i, c]
    pool[x, LO] = lo
    pool[x, HI] = hi
    root[k] = insert(pool, root[k], x, order, path)
    count[k] += 1


@loop
def _note_end(k, root, pool, calendar):
    """Note in a calendar when the first row of a key ends."""
    t = pool[root[k], SOONEST] if root[k] >= 0 else _INF
    calendar.due[k, 0] = t
    calendar.block[k // BLOCK, 0] = min(calendar.block[k // BLOCK, 0], t)


@loop_of(given=Segments, order=Order, calendar=DueTimes)
def apply(given, root, count, pool, book, order, path, calendar):
    """Let segments of rows come, and cut negative ones out of equal rows; for each copy the pool has an unused record.
    Returns the position of a segment that takes back what is not there (-1: none)."""
    positions = given.positions
    offsets = given.offsets
    batch = given.batch
    weight = given.weight
    for g in range(len(offsets) - 1):
        k = given.ids[positions[offsets[g]]]
        for at in range(offsets[g], offsets[g + 1]):
            i = positions[at]
            for _ in range(weight[i]):
                lo = batch[i, LO]
                x = record_of(pool, root[k], batch, i, lo, lo, lo, order, path)
                if x >= 0:  # the row lives on
                    root[k] = remove(pool, root[k], x, order, path)
                    pool[x, HI] = batch[i, HI]
                    root[k] = insert(pool, root[k], x, order, path)
                else:
                    _add(pool, book, k, lo, batch[i, HI], batch, i, root, count, order, path)
            for _ in range(-weight[i]):
                lo = batch[i, LO]
                hi = batch[i, HI]
                while lo < hi:
                    x = record_of(pool, root[k], batch, i, lo, hi, hi, order, path)
                    if x < 0:
                        x = record_of(pool, root[k], batch, i, lo, lo + 1, _INF, order, path)
                    if x < 0:
                        return i
                    start = pool[x, LO]
                    end = pool[x, HI]
                    stop = min(end, hi)
                    root[k] = remove(pool, root[k], x, order, path)
                    count[k] -= 1
                    free_record(pool, book, x)
                    if start < lo:
                        _add(pool, book, k, start, lo, batch, i, root, count, order, path)
                    if stop < end:
                        _add(pool, book, k, stop, end, batch, i, root, count, order, path)
                    lo = stop
        _note_end(k, root, pool, calendar)
    return np.int64(-1)


@loop_of(order=Order, calendar=DueTimes)
def drop(keys, until, root, count, pool, book, path, calendar):
    """Drop rows that have ended by a time of their key, and note when the next one ends.  Returns how many went, and
    the largest end among them."""
    gone = 0
    last = _NEVER
    for g in range(len(keys)):
        k = keys[g]
        root[k], n, end = drop_ended(pool, root[k], until[g], path, book)
        count[k] -= n
        gone += n
        last = max(last, end)
        _note_end(k, root, pool, calendar)
    return gone, last
