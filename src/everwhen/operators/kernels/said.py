"""What has been said of each group, and how to take it back: the loops of `GroupChain`.

At every instant a group has one row at most, so the events said of it are disjoint and stand in the order of time:
a record is `[vs, ve]`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.operators.kernels.prefetch import prefetch
from everwhen.operators.kernels.runs import LENGTH, START, bigger, make_room

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
    if i + 12 < len(group):
        k = group[i + 12]
        s = place[k, START]
        prefetch(pool, s)
        prefetch(pool, s + place[k, LENGTH])


@njit(cache=True)
def chain(group, lo, hi, weight, place, pool, end, cti, promise):
    """Signed segments as inserts and adjusts: records op, vs, ve, vnew and the position of the segment whose row it is.

    First everything is taken back, then everything is said.  Segments of a group stand together, in the order of time.
    Events that end by the promise are not kept.  Returns the records, the pool and its end, and the position of a
    segment that takes back what was never said (-1: none).
    """
    n = len(group)
    out = np.empty((n + n // 4 + 16, 5), np.int64)
    count = 0
    rest = np.empty((16, 2), np.int64)
    i = 0
    while i < n:
        _ahead(group, place, pool, i)
        if weight[i] > 0:
            i += 1
            continue
        k = group[i]
        _drop_ended(place, pool, k, cti)
        s = place[k, START]
        stop = s + place[k, LENGTH]
        to = at = _first_after(pool, s, place[k, LENGTH], lo[i])
        # what is left of the events from here on is written over them; what a cut leaves behind it waits in between
        vs = ve = np.int64(0)
        some = False
        kept = 0
        while i < n and group[i] == k and weight[i] < 0:
            a = lo[i]
            b = hi[i]
            while a < b:
                while not some or ve <= a:  # the event that covers a
                    if some:
                        if kept == len(rest):
                            rest = bigger(rest, kept + 1)
                        rest[kept, VS] = vs
                        rest[kept, VE] = ve
                        kept += 1
                    if at == stop:
                        return out[:count], pool, end, i
                    vs = pool[at, VS]
                    ve = pool[at, VE]
                    some = True
                    at += 1
                if vs > a:
                    return out[:count], pool, end, i
                if count + 2 > len(out):
                    out = bigger(out, count + 2)
                out[count, 0] = 1
                out[count, 1] = vs
                out[count, 2] = ve
                out[count, 3] = a
                out[count, 4] = i
                count += 1
                if a > vs:
                    if kept == len(rest):
                        rest = bigger(rest, kept + 1)
                    rest[kept, VS] = vs
                    rest[kept, VE] = a
                    kept += 1
                some = False
                if ve > b:
                    out[count, 0] = 0
                    out[count, 1] = b
                    out[count, 2] = ve
                    out[count, 3] = 0
                    out[count, 4] = i
                    count += 1
                    vs = b
                    some = True
                a = min(b, ve)
            i += 1
        if some:
            if kept == len(rest):
                rest = bigger(rest, kept + 1)
            rest[kept, VS] = vs
            rest[kept, VE] = ve
            kept += 1
        grown = kept - (at - to)
        if grown > 0:
            pool, end = make_room(place, pool, end, k, grown)
            to += place[k, START] - s
            at += place[k, START] - s
            stop += place[k, START] - s
            for x in range(stop - 1, at - 1, -1):
                pool[x + grown, VS] = pool[x, VS]
                pool[x + grown, VE] = pool[x, VE]
        elif grown < 0:
            for x in range(at, stop):
                pool[x + grown, VS] = pool[x, VS]
                pool[x + grown, VE] = pool[x, VE]
        for x in range(kept):
            pool[to + x, VS] = rest[x, VS]
            pool[to + x, VE] = rest[x, VE]
        place[k, LENGTH] += grown
    i = 0
    while i < n:
        if weight[i] < 0:
            i += 1
            continue
        k = group[i]
        first = i
        lasting = 0
        while i < n and group[i] == k and weight[i] > 0:
            _ahead(group, place, pool, i)
            if count == len(out):
                out = bigger(out, count + 1)
            out[count, 0] = 0
            out[count, 1] = lo[i]
            out[count, 2] = hi[i]
            out[count, 3] = 0
            out[count, 4] = i
            count += 1
            lasting += hi[i] > promise
            i += 1
        if lasting:  # they are the last of the run
            _drop_ended(place, pool, k, cti)
            pool, end = make_room(place, pool, end, k, lasting)
            s = place[k, START]
            x = s + place[k, LENGTH] - 1
            place[k, LENGTH] += lasting
            to = x + lasting
            j = i - 1
            while lasting > 0:
                if x >= s and pool[x, VS] > lo[j]:
                    pool[to, VS] = pool[x, VS]
                    pool[to, VE] = pool[x, VE]
                    x -= 1
                else:
                    pool[to, VS] = lo[j]
                    pool[to, VE] = hi[j]
                    j -= 1
                    lasting -= 1
                to -= 1
    return out[:count], pool, end, np.int64(-1)


@njit(cache=True)
def forget(place, pool, cti):
    """Drop all events that ended by `cti`."""
    for k in range(len(place)):
        if place[k, LENGTH] > 0:
            _drop_ended(place, pool, k, cti)
