"""One side of a join: a log of the rows that the other side may still meet, and how it is probed.

The entries of a key are a tree by start (`kernels.lifetimes`), so that a probe, also one that comes late or beside an
old row that lives on, touches what it meets and little else.  An entry is dead when the other side has promised that
nothing before its end will come (`hi` ≤ the side's CTI), or when it was taken back (`hi` = -∞).  Walks pass by the
dead; `tidy` takes them out of the log.

All weights kept are positive.  A negative segment is cut out of entries with the same row, which a legal stream
always has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.core.time import NEVER
from everwhen.operators.join.loops.exact import enter, found
from everwhen.operators.join.loops.lifetimes import (
    DEPTH,
    END,
    HI,
    KEY,
    LAST,
    LINKS,
    LO,
    NEWEST,
    ROW,
    SETTLED,
    WEIGHT,
    doubled,
    earlier,
    on_spine,
    other,
    put,
    settle,
    shorten,
)

GONE: Final = np.int64(NEVER)
_PATIENCE: Final = 4
"""After so many entries that came in order and are not met, a probe lets the key settle."""
_DONE: Final = 0
_FULL: Final = 1
_DEEP: Final = 2
_UNCOVERED: Final = 3
_TOO_DEEP: Final = np.int64(-2)


class Side(NamedTuple):
    """One side's entries, and what is promised to it."""

    heads: np.ndarray
    """Per key where its tree begins."""
    log: np.ndarray
    """The entries."""
    cti: int
    """Nothing before it will be met any more."""
    touched: np.ndarray
    """Counts the entries that were looked at."""


class Segments(NamedTuple):
    """Changes of a side, in the order in which they came."""

    ids: np.ndarray
    """Keys."""
    lo: np.ndarray
    """Starts."""
    hi: np.ndarray
    """Ends."""
    weight: np.ndarray
    """How many times the row comes, or goes if it is negative."""
    rows: np.ndarray
    """Coded rows."""


class Pairs(NamedTuple):
    """Where pairs are written."""

    left: np.ndarray
    """Positions of changes."""
    right: np.ndarray
    """Positions of entries."""


@njit(cache=True, nogil=True)
def probe(ids, lo, hi, first, heads, log, cti, cap, touched):
    """Pairs (change, entry) of one key whose lifetimes overlap, for the changes from `first` on.

    Stops after the change with which `cap` pairs are reached; returns the pairs and where to go on.
    """
    left = np.empty(len(ids) + 64, np.int64)
    right = np.empty(len(ids) + 64, np.int64)
    stack = np.empty(DEPTH, np.int64)
    n = 0
    i = first
    side = Side(heads, log, cti, touched)
    while i < len(ids) and n < cap:
        i, n, full, deep = _meet(ids, lo, hi, i, n, cap, side, Pairs(left, right), stack)
        if full:
            left = doubled(left)
            right = doubled(right)
        if deep:
            stack = doubled(stack)
    return left[:n], right[:n], i


@loop
def _meet(ids, lo, hi, first, n, cap, side, pairs, stack):
    """Probe from a change on; `n` pairs are there.  Returns the next change, the number of pairs, and whether there was
    no room for that one's pairs, or for the way to them."""
    heads, log, cti, touched = side.heads, side.log, side.cti, side.touched
    left, right = pairs.left, pairs.right
    i = first
    while i < len(ids) and n < cap:
        k = ids[i]
        y = hi[i]
        since = max(lo[i], cti)
        before = n
        depth = 0
        passed = 0
        at = heads[k, NEWEST] if heads[k, END] > since else np.int64(-1)
        while at >= 0:
            touched[0] += 1
            links = log[at, LINKS]
            starts = log[at, LO] < y
            if starts and log[at, HI] > since:
                if n == len(left):
                    return i, before, True, False
                left[n] = i
                right[n] = at
                n += 1
            elif on_spine(links):
                passed += 1
                if passed == _PATIENCE and heads[k, SETTLED] != heads[k, NEWEST]:
                    settle(heads, log, k, touched)
                    n = before
                    depth = 0
                    at = heads[k, NEWEST]
                    continue
            following = other(links) if starts or on_spine(links) else np.int64(-1)
            if following >= 0 and log[following, LAST] <= since:
                following = np.int64(-1)
            below = earlier(links)
            if below >= 0 and log[below, LAST] > since:
                if following >= 0:
                    if depth == len(stack):
                        return i, before, False, True
                    stack[depth] = following
                    depth += 1
                following = below
            if following < 0 and depth > 0:
                depth -= 1
                following = stack[depth]
            at = following
        _newest_first(right, before, n)
        i += 1
    return i, n, False, False


@njit(cache=True, inline="always")
def _newest_first(entries, first, stop):
    """Order what a walk has found: the tree's form depends on where entries stand, which a restored one does not know.

    A chain is walked in this order already; what is not is sorted by halves of its length and so on (Shell)."""
    gap = np.int64(0)
    for p in range(first + 1, stop):
        if entries[p] > entries[p - 1]:
            gap = (stop - first) >> 1
            break
    while gap > 0:
        for p in range(first + gap, stop):
            entry = entries[p]
            q = p
            while q - gap >= first and entries[q - gap] < entry:
                entries[q] = entries[q - gap]
                q -= gap
            entries[q] = entry
        gap >>= 1


@njit(cache=True, nogil=True)
def probe_band(lo, hi, low, high, first, entries, values, log, cap):
    """Pairs whose lifetimes overlap and whose entry's value (ascending in `values`) lies in `[low, high]`."""
    left = np.empty(1024, np.int64)
    right = np.empty(1024, np.int64)
    n = 0
    i = first
    m = len(entries)
    while i < len(lo) and n < cap:
        a = 0
        b = m
        while a < b:
            mid = (a + b) >> 1
            if values[mid] < low[i]:
                a = mid + 1
            else:
                b = mid
        x = lo[i]
        y = hi[i]
        while a < m and values[a] <= high[i]:
            at = entries[a]
            if log[at, LO] < y and x < log[at, HI]:
                if n == len(left):
                    left = doubled(left)
                    right = doubled(right)
                left[n] = i
                right[n] = at
                n += 1
            a += 1
        i += 1
    return left[:n], right[:n], i


@njit(cache=True, nogil=True)
def keep(ids, lo, hi, weight, rows, heads, log, count, cti, touched, slots):
    """Add what the other side may still meet, then cut out what is taken back.  `slots`: where entries stand, if that
    is noted.

    Returns the log (a bigger one if the cuts left more pieces than there was room for), how many entries it has, and
    the position of a negative segment that nothing covers (-1: none).
    """
    path = np.empty(DEPTH, np.int64)
    segments = Segments(ids, lo, hi, weight, rows)
    count, negative = _add(segments, Side(heads, log, cti, touched), count, path, slots)
    if negative:
        stack = np.empty(DEPTH, np.int64)
        i = 0
        cut = np.int64(0)
        since = np.int64(NEVER)
        while i < len(ids):
            side = Side(heads, log, cti, touched)
            i, cut, since, count, why = _cut(segments, side, count, i, cut, since, path, stack, slots)
            if why == _UNCOVERED:
                return log, count, i
            if why == _DEEP:
                stack = doubled(stack)
            elif why == _FULL:
                more = np.empty((2 * count + 2, log.shape[1]), np.int64)
                more[:count] = log[:count]
                log = more
    return log, count, np.int64(-1)


@loop
def _add(segments, side, count, path, slots):
    """Add positive segments.  Returns how many entries there are then, and whether there are negative segments."""
    ids, lo, hi, weight, rows = segments.ids, segments.lo, segments.hi, segments.weight, segments.rows
    heads, log, cti, touched = side.heads, side.log, side.cti, side.touched
    negative = False
    for i in range(len(ids)):
        if weight[i] > 0 and hi[i] > cti:
            log[count, LO] = lo[i]
            log[count, HI] = hi[i]
            log[count, WEIGHT] = weight[i]
            log[count, KEY] = ids[i]
            for j in range(rows.shape[1]):
                log[count, ROW + j] = rows[i, j]
            put(heads, log, ids[i], count, path, touched)
            enter(slots, log, count, rows.shape[1])
            count += 1
        elif weight[i] < 0:
            negative = True
    return count, negative


@loop
def _cut(segments, side, count, first, cut, since, path, stack, slots):
    """Cut negative segments, from the one at `first` on, out of entries with the same row; of that one as many times as
    `cut` says are done, and the next time up to `since`.

    Returns how far it came in the same way, how many entries there are, and why it stopped.
    """
    ids, lo, hi, weight, rows = segments.ids, segments.lo, segments.hi, segments.weight, segments.rows
    heads, log, cti, touched = side.heads, side.log, side.cti, side.touched
    i = first
    while i < len(ids):
        a = max(lo[i], cti)
        b = hi[i]
        while weight[i] + cut < 0 and a < b:
            if count + 2 > len(log):
                return i, cut, since, count, _FULL
            begin = max(a, since)
            best = found(slots, log, rows, i, begin, b)
            if best >= 0:  # the ends above it stay too late, as they may, until the log is tidied
                times = min(-weight[i] - cut, log[best, WEIGHT]) if begin == a else np.int64(1)
                log[best, WEIGHT] -= times
                if log[best, WEIGHT] == 0:
                    log[best, HI] = GONE
                cut += times
                since = GONE
                continue
            settle(heads, log, ids[i], touched)
            best = _fitting(ids[i], begin, b, rows, i, heads, log, stack, touched)
            if best < 0:
                return i, cut, since, count, _DEEP if best == _TOO_DEEP else _UNCOVERED
            s = log[best, LO]
            e = log[best, HI]
            stop = min(b, e)
            times = min(-weight[i] - cut, log[best, WEIGHT]) if begin == a and stop == b else np.int64(1)
            rest = log[best, WEIGHT] - times
            if stop < e:
                count = _piece(heads, log, count, best, stop, e, times, path, touched)
                enter(slots, log, count - 1, rows.shape[1])
            if rest > 0:
                log[best, WEIGHT] = rest
                if s < begin:
                    count = _piece(heads, log, count, best, s, begin, times, path, touched)
                    enter(slots, log, count - 1, rows.shape[1])
            else:
                log[best, HI] = begin if s < begin else GONE
                shorten(heads, log, ids[i], best, path, touched)
            if stop == b:
                cut += times
                since = GONE
            else:
                since = stop
        i += 1
        cut = np.int64(0)
    return i, cut, since, count, _DONE


@njit(cache=True, inline="always")
def _fitting(k, lo, b, rows, i, heads, log, stack, touched):
    """The entry with the same row out of which [lo, b) is best cut (-1: none lives at `lo`): one with the same end, if
    possible with the same start as well; else the one that ends last.  Of several the newest, wherever they stand."""
    depth = 0
    best = np.int64(-1)
    fits = 0
    at = heads[k, NEWEST]
    while at >= 0:
        following = np.int64(-1)
        touched[0] += 1
        if log[at, LAST] > lo:
            links = log[at, LINKS]
            starts = log[at, LO] <= lo
            if starts and lo < log[at, HI] and _same(log, at, rows, i):
                like = (1 + (log[at, LO] == lo)) if log[at, HI] == b else 0
                later = best < 0 or log[at, HI] > log[best, HI] or (log[at, HI] == log[best, HI] and at > best)
                if like > fits or (like == fits and later):
                    best = at
                    fits = like
            following = earlier(links)
            if (starts or on_spine(links)) and other(links) >= 0:
                if following >= 0:
                    if depth == len(stack):
                        best = _TOO_DEEP
                        break
                    stack[depth] = following
                    depth += 1
                following = other(links)
        if following < 0 and depth > 0:
            depth -= 1
            following = stack[depth]
        at = following
    return best


@njit(cache=True, inline="always")
def _same(log, at, rows, i):
    for j in range(rows.shape[1]):
        if log[at, ROW + j] != rows[i, j]:
            return False
    return True


@loop
def _piece(heads, log, count, at, lo, hi, weight, path, touched):
    """A part of an entry as an entry of its own."""
    for j in range(log.shape[1]):
        log[count, j] = log[at, j]
    log[count, LO] = lo
    log[count, HI] = hi
    log[count, WEIGHT] = weight
    put(heads, log, log[at, KEY], count, path, touched)
    return count + 1
