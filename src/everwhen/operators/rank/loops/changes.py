"""Changes of partitions: rows come, are cut, and go; the spans of time that changes touch.

A row that comes behind enough others that outlive it has no number, and will have none unless something is taken back
from its partition.  It is left idle: in a chain of records (by LEFT) beside the tree, of which `idle` has per key the
first one and the least end.  If something is taken back, all idle rows of the partition go into its tree first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.containers.calendar import BLOCK, DueTimes
from everwhen.core.time import INF, NEVER
from everwhen.operators.rank.loops.order import Order, compare
from everwhen.operators.rank.loops.tree import (
    DEEPEST,
    HI,
    LEFT,
    LO,
    RIGHT,
    ROW,
    alive_at,
    drop_ended,
    ending_at,
    free_record,
    insert,
    new_record,
    remove,
    soonest,
)

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)


@njit(cache=True, nogil=True)
def spans_of(keys, offsets, positions, lo, hi):
    """The instants that segments of each key touch, as disjoint spans in order: `[lo, hi]` each, and the offsets at
    which those of a key begin."""
    out = np.empty((len(positions), 2), np.int64)
    out_offsets = np.empty(len(keys) + 1, np.int64)
    n = 0
    for g in range(len(keys)):
        out_offsets[g] = n
        first = offsets[g]
        stop = offsets[g + 1]
        if stop - first == 1:
            out[n, 0] = lo[positions[first]]
            out[n, 1] = hi[positions[first]]
            n += 1
            continue
        mine = positions[first:stop]
        by = np.argsort(lo[mine])
        since = n
        for x in by:
            i = mine[x]
            if n > since and lo[i] <= out[n - 1, 1]:
                out[n - 1, 1] = max(out[n - 1, 1], hi[i])
            else:
                out[n, 0] = lo[i]
                out[n, 1] = hi[i]
                n += 1
    out_offsets[len(keys)] = n
    return out[:n], out_offsets


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
def _warm(pool, k, root, idle, order, path):
    """Put the idle records of a key into its tree."""
    x = idle[k, 0]
    idle[k, 0] = -1
    idle[k, 1] = _INF
    while x >= 0:
        after = pool[x, LEFT]
        pool[x, LEFT] = -1
        root[k] = insert(pool, root[k], x, order, path)
        x = after


@loop
def _rest(pool, book, k, batch, i, count, idle):
    """A record for a row of a batch that has no number as long as nothing is taken back."""
    x = new_record(pool, book)
    for c in range(ROW, pool.shape[1]):
        pool[x, c] = batch[i, c]
    pool[x, LO] = batch[i, LO]
    pool[x, HI] = batch[i, HI]
    pool[x, LEFT] = idle[k, 0]
    idle[k, 0] = x
    idle[k, 1] = min(idle[k, 1], batch[i, HI])
    count[k] += 1


class Segments(NamedTuple):
    """Segments of a batch, and where those of each key are: one key after the other, so that a tree is gone through
    while it is near."""

    positions: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    batch: np.ndarray
    weight: np.ndarray


@loop_of(given=Segments, order=Order)
def apply(given, bars, columns, due, root, count, pool, book, idle, order, path):
    """Let segments of rows come, and cut negative ones out of equal rows; for each copy the pool has an unused record.

    `bars`: for each key a record behind which, by the first `columns` of the order, no row that comes has a number
    (-1: there is none); such rows are left idle until something is taken back from the key.  `due`: when the first
    row of each key ended before.  Returns the position of a segment that takes back what is not there (-1: none)."""
    positions = given.positions
    offsets = given.offsets
    ids = given.ids
    batch = given.batch
    weight = given.weight
    for g in range(len(offsets) - 1):
        k = ids[positions[offsets[g]]]
        bar = bars[g]
        for at in range(offsets[g], offsets[g + 1]):
            if weight[positions[at]] < 0:
                bar = np.int64(-1)
                if idle[k, 0] >= 0:
                    _warm(pool, k, root, idle, order, path)
                break
        for at in range(offsets[g], offsets[g + 1]):
            i = positions[at]
            for _ in range(weight[i]):
                if bar >= 0 and compare(pool, bar, batch, i, order, columns) < 0:
                    _rest(pool, book, k, batch, i, count, idle)
                    continue
                before = np.int64(-1)
                if due[k, 0] <= batch[i, LO]:
                    before = ending_at(pool, root[k], batch[i, LO], _INF, batch, i, order)
                if before >= 0:  # the row lives on
                    root[k] = remove(pool, root[k], before, order, path)
                    pool[before, HI] = batch[i, HI]
                    root[k] = insert(pool, root[k], before, order, path)
                else:
                    _add(pool, book, k, batch[i, LO], batch[i, HI], batch, i, root, count, order, path)
            for _ in range(-weight[i]):
                lo = batch[i, LO]
                hi = batch[i, HI]
                while lo < hi:
                    x = ending_at(pool, root[k], hi, lo, batch, i, order)
                    if x < 0:
                        x = alive_at(pool, root[k], lo, batch, i, path)
                        if x < 0:
                            return i
                        x = ending_at(pool, root[k], pool[x, HI], pool[x, LO], batch, i, order)
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
    return np.int64(-1)


@loop_of(calendar=DueTimes)
def note_ends(keys, root, pool, idle, calendar):
    """Note in a calendar when the first row of each key ends."""
    for g in range(len(keys)):
        k = keys[g]
        t = min(soonest(pool, root[k]), idle[k, 1])
        calendar.due[k, 0] = t
        calendar.block[k // BLOCK, 0] = min(calendar.block[k // BLOCK, 0], t)


@loop
def _drop_idle(pool, book, k, until, idle):
    """Drop idle records that have ended by a time.  Returns how many went, and the largest end among them."""
    gone = 0
    last = _NEVER
    x = idle[k, 0]
    idle[k, 0] = -1
    idle[k, 1] = _INF
    while x >= 0:
        after = pool[x, LEFT]
        if pool[x, HI] <= until:
            last = max(last, pool[x, HI])
            free_record(pool, book, x)
            gone += 1
        else:
            pool[x, LEFT] = idle[k, 0]
            idle[k, 0] = x
            idle[k, 1] = min(idle[k, 1], pool[x, HI])
        x = after
    return gone, last


@loop_of(order=Order, calendar=DueTimes)
def drop(keys, until, root, count, pool, book, idle, order, path, calendar):
    """Drop rows that have ended by a time of their key, and note when the next one ends.  Returns how many went, and
    the largest end among them."""
    gone = 0
    last = _NEVER
    for g in range(len(keys)):
        k = keys[g]
        root[k], n, end = drop_ended(pool, root[k], until[g], order, path, book)
        count[k] -= n
        gone += n
        if n > 0:
            last = max(last, end)
        if idle[k, 1] <= until[g]:
            n, end = _drop_idle(pool, book, k, until[g], idle)
            count[k] -= n
            gone += n
            last = max(last, end)
        t = min(soonest(pool, root[k]), idle[k, 1])
        calendar.due[k, 0] = t
        calendar.block[k // BLOCK, 0] = min(calendar.block[k // BLOCK, 0], t)
    return gone, last


@njit(cache=True, nogil=True)
def gathered(keys, root, count, pool, idle):
    """The records of keys, one key after the other, in the order of their tree, idle ones last; and the offsets at
    which each begins."""
    offsets = np.zeros(len(keys) + 1, np.int64)
    for g in range(len(keys)):
        offsets[g + 1] = offsets[g] + count[keys[g]]
    out = np.empty(offsets[len(keys)], np.int64)
    stack = np.empty(DEEPEST, np.int64)
    n = 0
    for g in range(len(keys)):
        depth = 0
        v = root[keys[g]]
        while v >= 0 or depth > 0:
            while v >= 0:
                stack[depth] = v
                depth += 1
                v = pool[v, LEFT]
            depth -= 1
            v = stack[depth]
            out[n] = v
            n += 1
            v = pool[v, RIGHT]
        v = idle[keys[g], 0]
        while v >= 0:
            out[n] = v
            n += 1
            v = pool[v, LEFT]
    return out, offsets
