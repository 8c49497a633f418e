"""Live multisets: per key the segments that are alive or still to come, as records `[lo, hi, weight, value codes…]`.

All weights kept are positive.  A negative segment is cut out of segments with the same values, which a legal stream
always has; so a record is an event or what is left of one.

The records of a key are a run in the order of their ends (`kernels.runs`).  What has ended is its head; what a change
or a request may meet, the records that end after it, is its tail.  So a step touches these and no others.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.containers.calendar import BLOCK
from everwhen.containers.run_pool import LENGTH, START, copy_row, growth, make_room
from everwhen.core.time import INF

_INF: Final = np.int64(INF)
LO: Final = 0
HI: Final = 1
WEIGHT: Final = 2
VALUES: Final = 3
_FEW: Final = 32
"""So many records of a key are put where they belong one by one; more are sorted."""


@loop
def recorded(lo, hi, weight, rows, columns, words, out):
    """Segments as records with the codes of some columns behind so many words of null bits, where nothing is null."""
    for i in range(len(rows)):
        out[i, LO] = lo[i]
        out[i, HI] = hi[i]
        out[i, WEIGHT] = weight[i]
        for j in range(words):
            out[i, VALUES + j] = 0
        for j in range(len(columns)):
            out[i, VALUES + words + j] = rows[i, columns[j]]


@njit(cache=True, nogil=True)
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

    Stops where there is not room enough; what that key is done with is left out of its `offsets`.  Returns the key
    reached, the end of the pool, how much room that key needs in `tail` and in the pool (0: there is enough), and the
    position of a negative segment that nothing covers (-1: none).
    """
    width = pool.shape[1]
    none = np.int64(-1)
    for g in range(first, len(keys)):
        k = keys[g]
        n = place[k, LENGTH]
        if offsets[g + 1] - offsets[g] <= _FEW:
            more = offsets[g + 1] - offsets[g]
            if end + growth(place, k, more) > len(pool):
                return g, end, 0, growth(place, k, more), none
            end = make_room(place, pool, free, end, k, more)
            offsets[g] = _one_by_one(k, offsets[g], offsets[g + 1], order, batch, place, pool, width)
            if offsets[g] == offsets[g + 1]:
                continue
            n = place[k, LENGTH]
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
def _one_by_one(k, first, stop, order, batch, place, pool, width):
    """Put records where they belong in a run, which has room behind it, and take out those that are taken back whole.
    Returns where in `order` those begin that are to be cut out of others."""
    s = place[k, START]
    n = place[k, LENGTH]
    for x in range(first, stop):
        if batch[order[x], WEIGHT] > 0:
            _insert(pool, s, s + n, batch, order[x], width)
            n += 1
    left = stop
    for x in range(stop - 1, first - 1, -1):
        if batch[order[x], WEIGHT] < 0:
            at = _found(pool, s, n, batch, order[x], width)
            if at < 0:
                left -= 1
                order[left] = order[x]
            elif pool[at, WEIGHT] + batch[order[x], WEIGHT] > 0:
                pool[at, WEIGHT] += batch[order[x], WEIGHT]
            else:
                n -= 1
                for y in range(at, s + n):
                    copy_row(pool, y, pool, y + 1, width)
    place[k, LENGTH] = n
    return left


@njit(cache=True, inline="always")
def _found(pool, s, n, batch, i, width):
    """The position of a record in a run that is what a negative one takes back, or more of the same (-1: none)."""
    at = ending_after(pool, s, n, batch[i, HI] - 1)
    while at < s + n and pool[at, HI] == batch[i, HI]:
        enough = pool[at, LO] == batch[i, LO] and pool[at, WEIGHT] + batch[i, WEIGHT] >= 0
        if enough and _same(pool, at, batch, i, width):
            return at
        at += 1
    return np.int64(-1)


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
def drop_ended(keys, cti, until, place, pool, due, block, empty):
    """Drop records that end by `cti`, or by a time of their key's own (`until`, if there are any), and note the soonest
    end that is left in a calendar.  Returns how many went, and how many keys have none left: these stand in `empty`."""
    dropped = 0
    n_empty = 0
    for g in range(len(keys)):
        k = keys[g]
        s = place[k, START]
        n = place[k, LENGTH]
        gone = 0
        over = max(cti, until[g]) if len(until) else cti
        while gone < n and pool[s + gone, HI] <= over:
            gone += 1
        place[k, START] = s + gone
        place[k, LENGTH] = n - gone
        dropped += gone
        soonest = pool[s + gone, HI] if gone < n else _INF
        due[k, 0] = soonest
        block[k // BLOCK, 0] = min(block[k // BLOCK, 0], soonest)
        empty[n_empty] = k
        n_empty += gone == n
    return dropped, n_empty


@loop
def lengths(keys, place):
    """How many records keys have, in all and at most."""
    total = np.int64(0)
    longest = np.int64(0)
    for g in range(len(keys)):
        total += place[keys[g], LENGTH]
        longest = max(longest, place[keys[g], LENGTH])
    return total, longest


@njit(cache=True, nogil=True)
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
