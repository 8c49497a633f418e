"""Live multisets: per key the segments that are alive or still to come, as records `[lo, hi, weight, value codes…]`.

All weights kept are positive.  A negative segment is cut out of segments with the same values, which a legal stream
always has; so a record is an event or what is left of one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.time import INF

_INF: Final = np.int64(INF)
LO: Final = 0
HI: Final = 1
WEIGHT: Final = 2
VALUES: Final = 3


@njit(cache=True)
def group_rows(kid, slot):
    """Positions of a batch grouped by key, in batch order: keys, offsets, positions.  `slot` is scratch (-1)."""
    n = len(kid)
    keys = np.empty(n, np.int64)
    group = np.empty(n, np.int64)
    counts = np.zeros(n + 1, np.int64)
    ng = 0
    for i in range(n):
        g = slot[kid[i]]
        if g < 0:
            g = ng
            slot[kid[i]] = g
            keys[g] = kid[i]
            ng += 1
        group[i] = g
        counts[g + 1] += 1
    for g in range(ng):
        slot[keys[g]] = -1
        counts[g + 1] += counts[g]
    offsets = counts[: ng + 1].copy()
    order = np.empty(n, np.int64)
    for i in range(n):
        g = group[i]
        order[counts[g]] = i
        counts[g] += 1
    return keys[:ng], offsets, order


@njit(cache=True, inline="always")
def _same(pool, at, batch, i, width):
    for c in range(VALUES, width):
        if pool[at, c] != batch[i, c]:
            return False
    return True


@njit(cache=True)
def apply(keys, offsets, order, batch, start, length, pool, end, c):
    """Write the new regions of keys behind `end`: what is alive after `c`, plus the batch.

    Returns the new end and the position of a negative segment that nothing covers (-1: none).
    """
    width = pool.shape[1]
    for g in range(len(keys)):
        k = keys[g]
        here = end
        for at in range(start[k], start[k] + length[k]):
            if pool[at, HI] > c:
                for j in range(width):
                    pool[end, j] = pool[at, j]
                end += 1
        for x in range(offsets[g], offsets[g + 1]):
            i = order[x]
            if batch[i, WEIGHT] > 0:
                for j in range(width):
                    pool[end, j] = batch[i, j]
                end += 1
        for x in range(offsets[g], offsets[g + 1]):
            i = order[x]
            if batch[i, WEIGHT] >= 0:
                continue
            a = batch[i, LO]
            b = batch[i, HI]
            left = -batch[i, WEIGHT]
            lo = a
            # cut [a, b) out `left` times; a covering record with the same end is the best match
            while left > 0:
                best = np.int64(-1)
                exact = False
                for at in range(here, end):
                    if pool[at, LO] <= lo and lo < pool[at, HI] and _same(pool, at, batch, i, width):
                        if pool[at, HI] == b:
                            if not exact or (pool[best, LO] != lo and pool[at, LO] == lo):
                                best = at
                                exact = True
                        elif not exact and (best < 0 or pool[at, HI] > pool[best, HI]):
                            best = at
                if best < 0:
                    return end, i
                stop = min(b, pool[best, HI])
                times = min(left, pool[best, WEIGHT]) if lo == a and stop == b else np.int64(1)
                s = pool[best, LO]
                e = pool[best, HI]
                if pool[best, WEIGHT] > times:
                    pool[best, WEIGHT] -= times
                    if s < lo:
                        for j in range(width):
                            pool[end, j] = pool[best, j]
                        pool[end, HI] = lo
                        pool[end, WEIGHT] = times
                        end += 1
                    if stop < e:
                        for j in range(width):
                            pool[end, j] = pool[best, j]
                        pool[end, LO] = stop
                        pool[end, WEIGHT] = times
                        end += 1
                else:
                    if stop < e:
                        for j in range(width):
                            pool[end, j] = pool[best, j]
                        pool[end, LO] = stop
                        end += 1
                    if s < lo:
                        pool[best, HI] = lo
                    else:
                        end -= 1
                        for j in range(width):
                            pool[best, j] = pool[end, j]
                if stop == b:
                    left -= times
                    lo = a
                else:
                    lo = stop
        start[k] = here
        length[k] = end - here
    return end, np.int64(-1)


@njit(cache=True, inline="always")
def _order_code(code, kind):
    """Codes so that their integer order is the values' order: kind 1 floats, 2 unsigned, 0 as they are; negative:
    reversed."""
    k = kind if kind >= 0 else ~kind
    if k == 1 and code < 0:
        code ^= np.int64(0x7FFFFFFFFFFFFFFF)
    elif k == 2:
        code ^= np.int64(-0x8000000000000000)
    return code if kind >= 0 else ~code


@njit(cache=True)
def extremes(keys, times, start, length, pool, columns, kinds, words, bits):
    """Per request (grouped by key, ascending times) and column the largest order code alive (smallest possible:
    none)."""
    n = len(keys)
    nc = len(columns)
    none = np.int64(-0x8000000000000000)
    out = np.full((n, nc), none, np.int64)
    i = 0
    while i < n:
        k = keys[i]
        j = i
        while j < n and keys[j] == k:
            j += 1
        s = start[k]
        m = length[k]
        if (j - i) * m <= 64 * (j - i + m):
            for at in range(s, s + m):
                lo = pool[at, LO]
                hi = pool[at, HI]
                # requests in [lo, hi)
                a = i
                b = j
                while a < b:
                    mid = (a + b) >> 1
                    if times[mid] < lo:
                        a = mid + 1
                    else:
                        b = mid
                for r in range(a, j):
                    if times[r] >= hi:
                        break
                    for c in range(nc):
                        if (pool[at, words[c]] >> bits[c]) & 1 == 0:
                            v = _order_code(pool[at, columns[c]], kinds[c])
                            if v > out[r, c]:
                                out[r, c] = v
        else:
            order = np.argsort(pool[s : s + m, LO])
            for c in range(nc):
                _heap_sweep(i, j, times, s, order, pool, columns[c], kinds[c], words[c], bits[c], out, c)
        i = j
    return out


@njit(cache=True)
def _heap_sweep(i, j, times, s, order, pool, column, kind, word, bit, out, c):
    """One pass over records by start, with a heap of (order code, end) from which the ended fall lazily."""
    heap_v = np.empty(len(order), np.int64)
    heap_e = np.empty(len(order), np.int64)
    size = 0
    x = 0
    for r in range(i, j):
        t = times[r]
        while x < len(order) and pool[s + order[x], LO] <= t:
            at = s + order[x]
            x += 1
            if (pool[at, word] >> bit) & 1 != 0 or pool[at, HI] <= t:
                continue
            v = _order_code(pool[at, column], kind)
            e = pool[at, HI]
            p = size
            size += 1
            while p > 0 and heap_v[(p - 1) >> 1] < v:
                heap_v[p] = heap_v[(p - 1) >> 1]
                heap_e[p] = heap_e[(p - 1) >> 1]
                p = (p - 1) >> 1
            heap_v[p] = v
            heap_e[p] = e
        while size > 0 and heap_e[0] <= t:
            size -= 1
            v = heap_v[size]
            e = heap_e[size]
            p = 0
            while True:
                q = 2 * p + 1
                if q >= size:
                    break
                if q + 1 < size and heap_v[q + 1] > heap_v[q]:
                    q += 1
                if heap_v[q] <= v:
                    break
                heap_v[p] = heap_v[q]
                heap_e[p] = heap_e[q]
                p = q
            heap_v[p] = v
            heap_e[p] = e
        if size > 0:
            out[r, c] = heap_v[0]


@njit(cache=True)
def pairs(keys, times, start, length, pool):
    """All (request, record) with the record alive at the request's instant."""
    total = 0
    for r in range(len(keys)):
        for at in range(start[keys[r]], start[keys[r]] + length[keys[r]]):
            if pool[at, LO] <= times[r] and times[r] < pool[at, HI]:
                total += 1
    request = np.empty(total, np.int64)
    record = np.empty(total, np.int64)
    n = 0
    for r in range(len(keys)):
        for at in range(start[keys[r]], start[keys[r]] + length[keys[r]]):
            if pool[at, LO] <= times[r] and times[r] < pool[at, HI]:
                request[n] = r
                record[n] = at
                n += 1
    return request, record
