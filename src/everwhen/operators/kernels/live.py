"""Live multisets: per key the segments that are alive or still to come, as records `[lo, hi, weight, value codes…]`.

All weights kept are positive.  A negative segment is cut out of segments with the same values, which a legal stream
always has; so a record is an event or what is left of one.

The records of a key are a run in the order of their ends (`kernels.runs`).  What has ended is its head; what a change
or a request may meet, the records that end after it, is its tail.  So a step touches these and no others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.loops import loop
from everwhen.model.time import INF
from everwhen.operators.kernels.runs import LENGTH, START, copy_row, growth, make_room

_INF: Final = np.int64(INF)
LO: Final = 0
HI: Final = 1
WEIGHT: Final = 2
VALUES: Final = 3
_FEW: Final = 32
"""So many records of a key are put where they belong one by one; more are sorted."""


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


@njit(cache=True, inline="always")
def ending_after(pool, s, n, t):
    """Where in a run the records begin that end after `t`."""
    a = s
    b = s + n
    while a < b:
        mid = (a + b) >> 1
        if pool[mid, HI] <= t:
            a = mid + 1
        else:
            b = mid
    return a


@loop
def apply(first, keys, offsets, order, batch, place, pool, free, end, tail):
    """Add signed records to the runs of keys, from the `first`th key on; `tail` is scratch.

    Stops before a key for which there is not room enough.  Returns the key reached, the end of the pool, how much room
    that key needs in `tail` and in the pool (0: there is enough), and the position of a negative segment that nothing
    covers (-1: none).
    """
    width = pool.shape[1]
    none = np.int64(-1)
    for g in range(first, len(keys)):
        k = keys[g]
        n = place[k, LENGTH]
        if offsets[g + 1] - offsets[g] <= _FEW and _only_added(offsets[g], offsets[g + 1], order, batch):
            more = offsets[g + 1] - offsets[g]
            if end + growth(place, k, more) > len(pool):
                return g, end, 0, growth(place, k, more), none
            end = make_room(place, pool, free, end, k, more)
            for x in range(offsets[g], offsets[g + 1]):
                _insert(pool, place[k, START], place[k, START] + n, batch, order[x], width)
                n += 1
            place[k, LENGTH] = n
            continue
        since = _INF
        for x in range(offsets[g], offsets[g + 1]):
            since = min(since, batch[order[x], LO])
        here = ending_after(pool, place[k, START], n, since) - place[k, START]
        count = n - here
        if count + offsets[g + 1] - offsets[g] > len(tail):
            return g, end, count + offsets[g + 1] - offsets[g], 0, none
        for at in range(count):
            copy_row(tail, at, pool, place[k, START] + here + at, width)
        for x in range(offsets[g], offsets[g + 1]):
            if batch[order[x], WEIGHT] > 0:
                copy_row(tail, count, batch, order[x], width)
                count += 1
        for x in range(offsets[g], offsets[g + 1]):
            if batch[order[x], WEIGHT] < 0:
                count = _cut(tail, count, batch, order[x], width)
                if count == -1:
                    return g, end, 0, 0, order[x]
                if count == -2:
                    return g, end, 2 * len(tail), 0, none
        more = max(here + count - n, 0)
        if end + growth(place, k, more) > len(pool):
            return g, end, 0, growth(place, k, more), none
        end = make_room(place, pool, free, end, k, more)
        _by_end(tail, count, width)
        for at in range(count):
            copy_row(pool, place[k, START] + here + at, tail, at, width)
        place[k, LENGTH] = here + count
    return len(keys), end, 0, 0, none


@njit(cache=True, inline="always")
def _only_added(first, stop, order, batch):
    for x in range(first, stop):
        if batch[order[x], WEIGHT] < 0:
            return False
    return True


@njit(cache=True, inline="always")
def _insert(pool, first, stop, batch, i, width):
    """Put a record into a run, which has room behind it: mostly it ends last."""
    at = stop
    while at > first and pool[at - 1, HI] > batch[i, HI]:
        copy_row(pool, at, pool, at - 1, width)
        at -= 1
    copy_row(pool, at, batch, i, width)


@loop
def _cut(tail, count, batch, i, width):
    """Cut a negative segment out of the first `count` records.  Returns how many there are then (-1: nothing covers the
    segment, -2: there is no room for the pieces)."""
    a = batch[i, LO]
    b = batch[i, HI]
    left = -batch[i, WEIGHT]
    lo = a
    # a covering record with the same end is the best match
    while left > 0:
        if count + 2 > len(tail):
            return -2
        best = np.int64(-1)
        exact = False
        for at in range(count):
            if tail[at, LO] <= lo and lo < tail[at, HI] and _same(tail, at, batch, i, width):
                if tail[at, HI] == b:
                    if not exact or (tail[best, LO] != lo and tail[at, LO] == lo):
                        best = at
                        exact = True
                elif not exact and (best < 0 or tail[at, HI] > tail[best, HI]):
                    best = at
        if best < 0:
            return -1
        stop = min(b, tail[best, HI])
        times = min(left, tail[best, WEIGHT]) if lo == a and stop == b else np.int64(1)
        s = tail[best, LO]
        e = tail[best, HI]
        rest = tail[best, WEIGHT] - times
        if stop < e:
            copy_row(tail, count, tail, best, width)
            tail[count, LO] = stop
            tail[count, WEIGHT] = times
            count += 1
        if rest > 0:
            if s < lo:
                copy_row(tail, count, tail, best, width)
                tail[count, HI] = lo
                tail[count, WEIGHT] = times
                count += 1
            tail[best, WEIGHT] = rest
        elif s < lo:
            tail[best, HI] = lo
        else:
            count -= 1
            copy_row(tail, best, tail, count, width)
        if stop == b:
            left -= times
            lo = a
        else:
            lo = stop
    return count


@njit(cache=True, inline="always")
def _by_end(tail, count, width):
    """Order the first `count` records by their ends.  Mostly they are so; what is not is sorted by halves of its length
    and so on (Shell)."""
    gap = 0
    for p in range(1, count):
        if tail[p, HI] < tail[p - 1, HI]:
            gap = count >> 1
            break
    while gap > 0:
        for p in range(gap, count):
            q = p
            while q >= gap and tail[q - gap, HI] > tail[q, HI]:
                for c in range(width):
                    tail[q, c], tail[q - gap, c] = tail[q - gap, c], tail[q, c]
                q -= gap
        gap >>= 1


@loop
def drop_ended(keys, until, place, pool, soonest):
    """Drop records that end by a time, per key; per key the soonest end left (INF: none).  Returns how many went."""
    dropped = 0
    for g in range(len(keys)):
        k = keys[g]
        s = place[k, START]
        n = place[k, LENGTH]
        gone = 0
        while gone < n and pool[s + gone, HI] <= until[g]:
            gone += 1
        place[k, START] = s + gone
        place[k, LENGTH] = n - gone
        dropped += gone
        soonest[g] = pool[s + gone, HI] if gone < n else _INF
    return dropped


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
def extremes(keys, times, place, pool, columns, kinds, words, bits):
    """Per request (grouped by key, ascending times) and column the largest order code alive (smallest possible:
    none)."""
    n = len(keys)
    nc = len(columns)
    none = np.int64(-0x8000000000000000)
    out = np.full((nc, n), none, np.int64)
    i = 0
    while i < n:
        k = keys[i]
        j = i
        while j < n and keys[j] == k:
            j += 1
        s = ending_after(pool, place[k, START], place[k, LENGTH], times[i])
        m = place[k, START] + place[k, LENGTH] - s
        if (j - i) * m <= 64 * (j - i + m):
            for at in range(s, s + m):
                a = _not_before(times, i, j, pool[at, LO])
                b = j if times[j - 1] < pool[at, HI] else _not_before(times, a, j, pool[at, HI])
                for c in range(nc):
                    if (pool[at, words[c]] >> bits[c]) & 1 == 0:
                        v = _order_code(pool[at, columns[c]], kinds[c])
                        for r in range(a, b):
                            out[c, r] = max(out[c, r], v)
        else:
            order = np.argsort(pool[s : s + m, LO])
            for c in range(nc):
                _heap_sweep(i, j, times, s, order, pool, columns[c], kinds[c], words[c], bits[c], out, c)
        i = j
    return out.T


@njit(cache=True, inline="always")
def _not_before(times, a, b, t):
    """The first of the ascending times from `a` to `b` that is not before `t`."""
    while a < b:
        mid = (a + b) >> 1
        if times[mid] < t:
            a = mid + 1
        else:
            b = mid
    return a


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
            out[c, r] = heap_v[0]


@njit(cache=True)
def pairs(keys, times, place, pool):
    """All (request, record) with the record alive at the request's instant."""
    first = np.empty(len(keys), np.int64)
    total = 0
    for r in range(len(keys)):
        stop = place[keys[r], START] + place[keys[r], LENGTH]
        first[r] = ending_after(pool, place[keys[r], START], place[keys[r], LENGTH], times[r])
        for at in range(first[r], stop):
            total += pool[at, LO] <= times[r]
    request = np.empty(total, np.int64)
    record = np.empty(total, np.int64)
    n = 0
    for r in range(len(keys)):
        for at in range(first[r], place[keys[r], START] + place[keys[r], LENGTH]):
            if pool[at, LO] <= times[r]:
                request[n] = r
                record[n] = at
                n += 1
    return request, record
