"""What has been said of each group, and how to take it back: the loops of `GroupChain`.

At every instant a group has one row at most, so the events said of it are disjoint and stand in the order of time:
a record is `[vs, ve]`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.loops import loop
from everwhen.model.prefetch import prefetch
from everwhen.operators.kernels.runs import FIRST, LENGTH, START, copy_row, make_room, release

VS: Final = 0
VE: Final = 1


@njit(cache=True, inline="always")
def _drop_ended(place, pool, k, cti):
    """Forget the events of a group that can't be named any more: they are its first ones."""
    s = place[k, START]
    n = place[k, LENGTH]
    while n > 0 and pool[s, VE] <= cti:
        s += 1
        n -= 1
    place[k, START] = s
    place[k, LENGTH] = n


@njit(cache=True, inline="always")
def _first_after(pool, s, n, t):
    """The position of the first event that ends after `t`."""
    a = s
    b = s + n
    while a < b:
        mid = (a + b) >> 1
        if pool[mid, VE] <= t:
            a = mid + 1
        else:
            b = mid
    return a


@njit(cache=True, inline="always")
def _ahead(group, place, pool, i):
    """Ask for what the segments after the `i`th will need."""
    if i + 24 < len(group):
        prefetch(place, group[i + 24])
        k = group[i + 12]
        s = place[k, START]
        prefetch(pool, s)
        prefetch(pool, s + place[k, LENGTH])


@njit(cache=True, inline="always")
def _record(out, n, op, vs, ve, vnew, at):
    out[0, n] = op
    out[1, n] = vs
    out[2, n] = ve
    out[3, n] = vnew
    out[4, n] = at


@loop
def take_back(group, lo, hi, place, pool, free, end, cti, out, rest):
    """Segments that are taken back as adjusts, and inserts of what a cut leaves behind it.

    Segments of a group stand together, in the order of time.  `out` gets records as columns (op, vs, ve, vnew, and the
    position of the segment whose row it is); `rest` is scratch.  Returns how many records there are, the end of the
    pool, and the position of a segment that takes back what was never said (-1: none).
    """
    n = len(group)
    count = 0
    i = 0
    while i < n:
        _ahead(group, place, pool, i)
        k = group[i]
        _drop_ended(place, pool, k, cti)
        s = place[k, START]
        stop = s + place[k, LENGTH]
        to = at = _first_after(pool, s, place[k, LENGTH], lo[i])
        stretch = i
        while stretch < n and group[stretch] == k:
            stretch += 1
        # what is left of the events from `to` to `at` is gathered in `rest`; the event at hand is [vs, ve)
        vs = ve = np.int64(0)
        some = False
        kept = 0
        while i < stretch:
            a = lo[i]
            b = hi[i]
            while a < b:
                while not some or ve <= a:  # look for the event that covers a
                    if some:
                        rest[kept, VS] = vs
                        rest[kept, VE] = ve
                        kept += 1
                    if at == stop:
                        return count, end, i
                    vs = pool[at, VS]
                    ve = pool[at, VE]
                    some = True
                    at += 1
                if vs > a:
                    return count, end, i
                _record(out, count, 1, vs, ve, a, i)
                count += 1
                if a > vs:
                    rest[kept, VS] = vs
                    rest[kept, VE] = a
                    kept += 1
                some = ve > b
                if some:
                    _record(out, count, 0, b, ve, 0, i)
                    count += 1
                    vs = b
                a = min(b, ve)
            i += 1
        if some:
            rest[kept, VS] = vs
            rest[kept, VE] = ve
            kept += 1
        end = _replace(place, pool, free, end, k, to, at, rest, kept)
    return count, end, np.int64(-1)


@loop
def _replace(place, pool, free, end, k, to, at, rest, kept):
    """Let the first records of `rest` stand for those from `to` to `at` in the run of `k`."""
    grown = kept - (at - to)
    if grown > 0:
        s = place[k, START]
        end = make_room(place, pool, free, end, k, grown)
        to += place[k, START] - s
        at += place[k, START] - s
    stop = place[k, START] + place[k, LENGTH]
    if grown > 0:
        for x in range(stop - 1, at - 1, -1):
            copy_row(pool, x + grown, pool, x, 2)
    elif grown < 0:
        for x in range(at, stop):
            copy_row(pool, x + grown, pool, x, 2)
    for x in range(kept):
        copy_row(pool, to + x, rest, x, 2)
    place[k, LENGTH] += grown
    return end


@loop
def keep(keys, offsets, lo, hi, place, pool, free, end, cti, promise):
    """Remember segments that are said and do not end by the promise; those of a group, in the order of time, stand
    between offsets."""
    for v in range(len(keys)):
        if v + 16 < len(keys):
            prefetch(place, keys[v + 16])
            ahead = keys[v + 8]
            prefetch(pool, place[ahead, START])
            prefetch(pool, place[ahead, START] + place[ahead, LENGTH])
        k = keys[v]
        i = offsets[v]
        stop = offsets[v + 1]
        while i < stop and hi[i] <= promise:  # those that last are the last
            i += 1
        lasting = stop - i
        if lasting == 0:
            continue
        _drop_ended(place, pool, k, cti)
        end = make_room(place, pool, free, end, k, lasting)
        s = place[k, START]
        x = s + place[k, LENGTH] - 1
        place[k, LENGTH] += lasting
        to = x + lasting
        j = stop - 1
        while to > x:
            if x >= s and pool[x, VS] > lo[j]:
                copy_row(pool, to, pool, x, 2)
                x -= 1
            else:
                pool[to, VS] = lo[j]
                pool[to, VE] = hi[j]
                j -= 1
            to -= 1
    return end


@loop
def elements(lo, hi, rows, taken, records, count, head, out):
    """Write elements: the first `count` records of what is taken back, then an insert for each segment that is said.

    `head` gets op, vs, ve and vnew as columns; `out` gets the rows, unless it is empty.
    """
    width = out.shape[1]
    for i in range(count):
        head[0, i] = records[0, i]
        head[1, i] = records[1, i]
        head[2, i] = records[2, i]
        head[3, i] = records[3, i]
        copy_row(out, i, rows, records[4, i], width)
    for j in range(taken, len(lo)):
        i = count + j - taken
        head[0, i] = 0
        head[1, i] = lo[j]
        head[2, i] = hi[j]
        head[3, i] = 0
        if len(out) > 0:
            copy_row(out, i, rows, j, width)


@njit(cache=True)
def stretches(group):
    """The groups of segments that stand together, and the offsets at which each begins."""
    n = len(group)
    keys = np.empty(n, np.int64)
    offsets = np.empty(n + 1, np.int64)
    count = 0
    for i in range(n):
        if i == 0 or group[i] != group[i - 1]:
            keys[count] = group[i]
            offsets[count] = i
            count += 1
    offsets[count] = n
    return keys[:count], offsets[: count + 1]


@loop
def forget(place, pool, free, cti):
    """Drop all events that ended by `cti`."""
    for k in range(len(place)):
        if k + 16 < len(place) and place[k + 16, LENGTH] > 0:
            prefetch(pool, place[k + 16, START])
        if place[k, LENGTH] > 0:
            _drop_ended(place, pool, k, cti)
            if place[k, LENGTH] == 0:
                release(place, pool, free, k)
                place[k, FIRST] = place[k, START] = 0
