"""What has been said of each group, and how to take it back: the loops of `GroupChangelogEncoder`.

At every instant a group has one row at most, so the events said of it are disjoint and stand in the order of time:
a record is `[vs, ve]`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.run_pool import FIRST, LENGTH, START, RunArrays, copy_row, fits, growth, make_room, release

VS: Final = 0
VE: Final = 1


class Written(NamedTuple):
    """Where elements are written."""

    op: np.ndarray
    """0: insert, 1: adjust."""
    times: np.ndarray
    """vs, ve and vnew, one row each."""
    at: np.ndarray
    """The position of the segment whose row it is; as long as there may be elements."""


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
        last = place[k, START] + place[k, LENGTH] - 1
        prefetch(pool, last)
        if group[i + 13] == k:  # more than its end changes
            prefetch(pool, last - 4)


@njit(cache=True, inline="always")
def _record(written, n, what, vs, ve, vnew, i):
    written.op[n] = what
    written.times[0, n] = vs
    written.times[1, n] = ve
    written.times[2, n] = vnew
    written.at[n] = i


@loop
def close(groups, place):
    """Forget all events of groups that are over; some may have had none."""
    for i in range(len(groups)):
        if groups[i] < len(place):
            place[groups[i], LENGTH] = 0


@loop_of(runs=RunArrays, written=Written)
def take_back(i, group, lo, hi, runs, end, cti, written, count, rest):
    """Segments from the `i`th on that are taken back as adjusts, and inserts of what a cut leaves behind it.

    Segments of a group stand together, in the order of time.  Elements are written from `count` on; `rest` is scratch.
    Stops before a group for which there is not room enough.  Returns the position reached, how many elements there are,
    the end of the pool, and whether the segment there takes back what was never said.
    """
    place, pool, most = runs.place, runs.pool, len(written.at)
    n = len(group)
    while i < n:
        _ahead(group, place, pool, i)
        k = group[i]
        s = place[k, START]
        length = place[k, LENGTH]
        stop = s + length
        if length > 0 and (i + 1 == n or group[i + 1] != k) and count < most:
            # mostly it is the end of the last event
            vs = pool[stop - 1, VS]
            if vs <= lo[i] and pool[stop - 1, VE] == hi[i]:
                _record(written, count, 1, vs, hi[i], lo[i], i)
                count += 1
                pool[stop - 1, VE] = lo[i]
                place[k, LENGTH] = length - (vs == lo[i])
                i += 1
                continue
        stretch = i + 1
        while stretch < n and group[stretch] == k:
            stretch += 1
        more = 2 * (stretch - i) + length
        if count + more > most or more > len(rest) or end + growth(place, k, stretch - i) > len(pool):
            return i, count, end, False
        _drop_ended(place, pool, k, cti)
        s = place[k, START]
        to = x = _first_after(pool, s, place[k, LENGTH], lo[i])
        # what is left of the events from `to` to `x` is gathered in `rest`; the event at hand is [vs, ve)
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
                    if x == stop:
                        return i, count, end, True
                    vs = pool[x, VS]
                    ve = pool[x, VE]
                    some = True
                    x += 1
                if vs > a:
                    return i, count, end, True
                _record(written, count, 1, vs, ve, a, i)
                count += 1
                if a > vs:
                    rest[kept, VS] = vs
                    rest[kept, VE] = a
                    kept += 1
                some = ve > b
                if some:
                    _record(written, count, 0, b, ve, 0, i)
                    count += 1
                    vs = b
                a = min(b, ve)
            i += 1
        if some:
            rest[kept, VS] = vs
            rest[kept, VE] = ve
            kept += 1
        end = _replace(runs, end, k, to, x, rest, kept)
    return i, count, end, False


@loop
def _replace(runs, end, k, to, at, rest, kept):
    """Let the first records of `rest` stand for those from `to` to `at` in the run of `k`."""
    place, pool, free = runs.place, runs.pool, runs.free
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
def keep(i, group, lo, hi, place, pool, free, end, cti, promise):
    """Remember segments from the `i`th on that are said and do not end by the promise.

    Those of a group stand together, in the order of time.  Stops before a group for which there is not room enough.
    Returns the position reached and the end of the pool.
    """
    n = len(group)
    while i < n:
        _ahead(group, place, pool, i)
        k = group[i]
        if (i + 1 == n or group[i + 1] != k) and hi[i] > promise and fits(place, k, 1):
            # mostly it is one event behind all others
            length = place[k, LENGTH]
            last = place[k, START] + length
            if length == 0 or pool[last - 1, VS] <= lo[i]:
                pool[last, VS] = lo[i]
                pool[last, VE] = hi[i]
                place[k, LENGTH] = length + 1
                i += 1
                continue
        j = i
        stop = i + 1
        while stop < n and group[stop] == k:
            stop += 1
        while j < stop and hi[j] <= promise:  # those that last are the last
            j += 1
        lasting = stop - j
        if lasting > 0:
            if not fits(place, k, lasting):
                _drop_ended(place, pool, k, cti)
                if end + growth(place, k, lasting) > len(pool):
                    break
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
        i = stop
    return i, end


@loop
def survey(group, weight):
    """The largest group, and how many segments are taken back."""
    most = np.int64(-1)
    taken = 0
    for i in range(len(group)):
        most = max(most, group[i])
        taken += weight[i] < 0
    return most, taken


@loop
def say(lo, hi, op, times, count):
    """Write an insert for each segment, from the element `count` on."""
    for i in range(len(lo)):
        op[count + i] = 0
        times[0, count + i] = lo[i]
        times[1, count + i] = hi[i]
        times[2, count + i] = 0


@loop
def sync_times(op, times, sync):
    """The sync time of each element.  Returns whether the elements stand in the order of these."""
    ordered = True
    for i in range(len(sync)):
        sync[i] = min(times[1, i], times[2, i]) if op[i] == 1 else times[0, i]
        ordered &= i == 0 or sync[i - 1] <= sync[i]
    return ordered


@loop
def by_few(sync, few, which, order):
    """The stable order of times of which few are different, as in windows that tumble.  Returns whether they are few.

    `few` is scratch: three rows, as long as there may be different ones; `which` too.
    """
    different = 0
    p = 0
    for i in range(len(sync)):
        if different == 0 or few[0, p] != sync[i]:
            p = 0
            while p < different and few[0, p] != sync[i]:
                p += 1
            if p == few.shape[1]:
                return False
            if p == different:
                few[0, p] = sync[i]
                few[1, p] = 0
                different += 1
        few[1, p] += 1
        which[i] = p
    for p in range(different):
        few[2, p] = 0
        for q in range(different):
            few[2, p] += few[1, q] if few[0, q] < few[0, p] else 0
    for i in range(len(sync)):
        order[few[2, which[i]]] = i
        few[2, which[i]] += 1
    return True


@loop
def pick(rows, at, taken, out):
    """The rows of elements: those at the positions `at` of what is taken back, then all that are said."""
    for i in range(len(at)):
        copy_row(out, i, rows, at[i], rows.shape[1])
    for j in range(taken, len(rows)):
        copy_row(out, len(at) + j - taken, rows, j, rows.shape[1])


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
