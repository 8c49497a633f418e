"""Loops over the events of a row: the chain's matching, netting, level forms."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.time import INF

_INF: Final = np.int64(INF)


@njit(cache=True)
def net(keys, offsets, order, lo, hi, weight):
    """The sum of signed segments per key as disjoint segments: key, lo, hi, weight (never zero)."""
    total = 2 * len(order)
    out = np.empty((total + 1, 4), np.int64)
    n = 0
    for g in range(len(keys)):
        a = offsets[g]
        m = offsets[g + 1] - a
        if m == 1:
            i = order[a]
            out[n, 0] = keys[g]
            out[n, 1] = lo[i]
            out[n, 2] = hi[i]
            out[n, 3] = weight[i]
            n += 1
            continue
        t = np.empty(2 * m, np.int64)
        d = np.empty(2 * m, np.int64)
        for x in range(m):
            i = order[a + x]
            t[2 * x] = lo[i]
            d[2 * x] = weight[i]
            t[2 * x + 1] = hi[i]
            d[2 * x + 1] = -weight[i]
        by = np.argsort(t)
        level = 0
        x = 0
        since = np.int64(0)
        while x < 2 * m:
            now = t[by[x]]
            change = 0
            while x < 2 * m and t[by[x]] == now:
                change += d[by[x]]
                x += 1
            if change == 0:
                continue
            if level != 0:
                out[n, 0] = keys[g]
                out[n, 1] = since
                out[n, 2] = now
                out[n, 3] = level
                n += 1
            level += change
            since = now
    return out[:n]


@njit(cache=True)
def chain(keys, offsets, order, lo, hi, weight, start, length, pool, end, c):
    """Turn signed segments of rows into inserts and adjusts of the events said before.

    Regions hold the events said, `[vs, ve]` a record.  The new regions are written behind `end`.  Output records are
    key, vs, ve, vnew (-1 in the last column: an insert, 1: an adjust).  The position of a segment that takes back
    what was never said is returned as the last value (-1: none).
    """
    cap = 2 * len(order) + 64
    out = np.empty((cap, 5), np.int64)
    n = 0
    for g in range(len(keys)):
        k = keys[g]
        here = end
        for at in range(start[k], start[k] + length[k]):
            pool[end, 0] = pool[at, 0]
            pool[end, 1] = pool[at, 1]
            end += 1
        for x in range(offsets[g], offsets[g + 1]):
            i = order[x]
            left = -weight[i]
            if left <= 0:
                continue
            b = hi[i]
            # where each of the copies to take back has got to; always go on with the earliest, so that what is
            # said about one row has ascending sync times
            at_copy = np.full(left, lo[i], np.int64)
            while True:
                copy = 0
                for y in range(1, left):
                    if at_copy[y] < at_copy[copy]:
                        copy = y
                a = at_copy[copy]
                if a >= b:
                    break
                best = np.int64(-1)
                for at in range(here, end):
                    if pool[at, 0] <= a and a < pool[at, 1]:
                        if best < 0:
                            best = at
                        elif pool[at, 1] == b:
                            if pool[best, 1] != b or pool[at, 0] > pool[best, 0]:
                                best = at
                        elif pool[best, 1] != b and pool[at, 1] > pool[best, 1]:
                            best = at
                if best < 0:
                    return out[:n], end, i
                vs = pool[best, 0]
                ve = pool[best, 1]
                if n + 2 > cap:
                    cap *= 2
                    more = np.empty((cap, 5), np.int64)
                    more[:n] = out[:n]
                    out = more
                out[n, 0] = k
                out[n, 1] = vs
                out[n, 2] = ve
                out[n, 3] = a
                out[n, 4] = 1
                n += 1
                if a > vs:
                    pool[best, 1] = a
                else:
                    end -= 1
                    pool[best, 0] = pool[end, 0]
                    pool[best, 1] = pool[end, 1]
                if ve > b:
                    out[n, 0] = k
                    out[n, 1] = b
                    out[n, 2] = ve
                    out[n, 3] = 0
                    out[n, 4] = -1
                    n += 1
                    pool[end, 0] = b
                    pool[end, 1] = ve
                    end += 1
                at_copy[copy] = min(b, ve)
        for x in range(offsets[g], offsets[g + 1]):
            i = order[x]
            for _ in range(weight[i]):
                if n + 1 > cap:
                    cap *= 2
                    more = np.empty((cap, 5), np.int64)
                    more[:n] = out[:n]
                    out = more
                out[n, 0] = k
                out[n, 1] = lo[i]
                out[n, 2] = hi[i]
                out[n, 3] = 0
                out[n, 4] = -1
                n += 1
                if hi[i] > c:
                    pool[end, 0] = lo[i]
                    pool[end, 1] = hi[i]
                    end += 1
        start[k] = here
        length[k] = end - here
    return out[:n], end, np.int64(-1)


@njit(cache=True)
def partition(lo, hi, weight, rows, promise):
    """Which segments need no memory (one copy said that ends by the promise), and the rest."""
    n = len(lo)
    width = rows.shape[1]
    over = np.empty(n, np.bool_)
    m = 0
    for i in range(n):
        over[i] = weight[i] == 1 and hi[i] <= promise
        if not over[i]:
            m += 1
    times = np.empty((3, m), np.int64)
    rest = np.empty((m, width), np.int64)
    m = 0
    for i in range(n):
        if not over[i]:
            times[0, m] = lo[i]
            times[1, m] = hi[i]
            times[2, m] = weight[i]
            for j in range(width):
                rest[m, j] = rows[i, j]
            m += 1
    return over, times, rest


@njit(cache=True)
def assemble(records, codes, over, lo, hi, rows, size):
    """What the chain said and what needs no chain, as one: records op, vs, ve, vnew, and rows."""
    width = rows.shape[1]
    head = np.empty((size, 4), np.int64)
    out = np.empty((len(records) + over.sum(), width), np.int64)
    n = len(records)
    for i in range(n):
        head[i, 0] = 1 if records[i, 4] > 0 else 0
        head[i, 1] = records[i, 1]
        head[i, 2] = records[i, 2]
        head[i, 3] = records[i, 3]
        k = records[i, 0]
        for j in range(width):
            out[i, j] = codes[k, j]
    for i in range(len(over)):
        if over[i]:
            head[n, 0] = 0
            head[n, 1] = lo[i]
            head[n, 2] = hi[i]
            head[n, 3] = 0
            for j in range(width):
                out[n, j] = rows[i, j]
            n += 1
    return head, out


@njit(cache=True)
def drop_ended(keys, start, length, pool, end_column, c, soonest):
    """Drop records whose end is at or before `c`, in place; per key the soonest end left (INF: none)."""
    width = pool.shape[1]
    dropped = 0
    for g in range(len(keys)):
        k = keys[g]
        s = start[k]
        to = s
        low = _INF
        for at in range(s, s + length[k]):
            if pool[at, end_column] > c:
                if to != at:
                    for j in range(width):
                        pool[to, j] = pool[at, j]
                low = min(low, pool[to, end_column])
                to += 1
        dropped += length[k] - (to - s)
        length[k] = to - s
        soonest[g] = low
    return dropped


@njit(cache=True)
def levels(keys, offsets, records, out_offsets, longest):
    """The level form of signed records `[lo, hi, weight]` per key: maximal intervals, level k where the sum is ≥ k.

    Level k opens where the sum rises to k and closes where it falls below: last opened, first closed.  Intervals longer
    than `longest` are cut into pieces of that length.  Returns records `[lo, hi, 1]`; the sum must never be negative.
    """
    out = np.empty((2 * len(records) + 64, 3), np.int64)
    n = 0
    for g in range(len(keys)):
        out_offsets[g] = n
        a = offsets[g]
        m = offsets[g + 1] - a
        t = np.empty(2 * m, np.int64)
        d = np.empty(2 * m, np.int64)
        for x in range(m):
            t[2 * x] = records[a + x, 0]
            d[2 * x] = records[a + x, 2]
            t[2 * x + 1] = records[a + x, 1]
            d[2 * x + 1] = -records[a + x, 2]
        by = np.argsort(t)
        opened = np.empty(64, np.int64)
        depth = 0
        x = 0
        while x < 2 * m:
            now = t[by[x]]
            change = 0
            while x < 2 * m and t[by[x]] == now:
                change += d[by[x]]
                x += 1
            while change > 0:
                if depth == len(opened):
                    more = np.empty(2 * depth, np.int64)
                    more[:depth] = opened
                    opened = more
                opened[depth] = now
                depth += 1
                change -= 1
            while change < 0 and depth > 0:
                depth -= 1
                since = opened[depth]
                while True:
                    until = now
                    if longest > 0 and now != _INF and now - since > longest:
                        until = since + longest
                    if n == len(out):
                        bigger = np.empty((2 * n, 3), np.int64)
                        bigger[:n] = out
                        out = bigger
                    out[n, 0] = since
                    out[n, 1] = until
                    out[n, 2] = 1
                    n += 1
                    since = until
                    if since == now:
                        break
                change += 1
    out_offsets[len(keys)] = n
    return out[:n]
