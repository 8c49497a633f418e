"""One side of a join: a log of the rows that the other side may still meet, chained by key, and how it is probed.

A log entry is `[lo, hi, weight, link, below, row codes…]`.  `link` has two halves: the key id, and the next older entry
of the same key.  `below` is a time before which, or at which, all older entries of the key end (-∞: there are none).
`heads` has for each key the newest entry (-1: none) and such a time for all of them.  Adding a row writes one entry and
one head; nothing is moved or sorted.  An entry is dead when the other side has promised that nothing before its end
will come (`hi` ≤ the side's CTI), or when it was taken back (`hi` = -∞).  A probe that passes a dead entry takes it out
of its chain, so no probe meets it again; `tidy` takes the dead ones out of the log.

A walk down a chain ends where all older entries ended before it begins.  So rows that are kept only because a promise
is late cost the probes in order nothing.  Ends only ever become earlier, which leaves `below` true.  What is still
walked without a result: by a probe that comes late, what came in since its time; and by all probes, what lies above an
older row that lives on.

All weights kept are positive.  A negative segment is cut out of entries with the same row, which a legal stream
always has.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.time import NEVER

_GONE: Final = np.int64(NEVER)
LO: Final = 0
HI: Final = 1
WEIGHT: Final = 2
LINK: Final = 3
BELOW: Final = 4
ROW: Final = 5
MOST: Final = 2**31
"""Key ids and positions in a log lie below this, so that two of them fit into a link."""
_HALF: Final = 32
_OLDER: Final = np.int64(2**_HALF - 1)


@njit(cache=True, inline="always")
def linked(key, after):
    """The link of an entry: its key, and the next older entry (-1: none)."""
    return (key << _HALF) | (after + 1)


@njit(cache=True, inline="always")
def after_of(link):
    """The next older entry (-1: none)."""
    return (link & _OLDER) - 1


def link_of(keys: np.ndarray) -> np.ndarray:
    """Links of entries that no older ones follow."""
    return keys << _HALF


def key_of(links: np.ndarray) -> np.ndarray:
    """The key ids of links."""
    return links >> _HALF


@njit(cache=True)
def probe(ids, lo, hi, first, heads, log, cti, cap):
    """Pairs (change, entry) of one key whose lifetimes overlap, for the changes from `first` on.

    Stops after the change with which `cap` pairs are reached; returns the pairs and where to go on.
    """
    left = np.empty(len(ids) + 64, np.int64)
    right = np.empty(len(ids) + 64, np.int64)
    n = 0
    i = first
    while i < len(ids) and n < cap:
        k = ids[i]
        x = lo[i]
        y = hi[i]
        newer = np.int64(-1)
        at = heads[k, 0]
        below = heads[k, 1]
        since = max(x, cti)
        while at >= 0 and below > since:
            after = after_of(log[at, LINK])
            below = log[at, BELOW]
            end = log[at, HI]
            if end <= cti:
                if newer < 0:
                    heads[k, 0] = after
                    heads[k, 1] = below
                else:
                    log[newer, LINK] = linked(k, after)
                    log[newer, BELOW] = below
            else:
                if x < end and log[at, LO] < y:
                    if n == len(left):
                        left = _doubled(left)
                        right = _doubled(right)
                    left[n] = i
                    right[n] = at
                    n += 1
                newer = at
            at = after
        i += 1
    return left[:n], right[:n], i


@njit(cache=True)
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
                    left = _doubled(left)
                    right = _doubled(right)
                left[n] = i
                right[n] = at
                n += 1
            a += 1
        i += 1
    return left[:n], right[:n], i


@njit(cache=True)
def _doubled(array):
    more = np.empty(2 * len(array), np.int64)
    more[: len(array)] = array
    return more


@njit(cache=True)
def overlap(mine, entry, lo, hi, weight, log, times, first):
    """When both of each pair are alive, and how many of them: lo, hi and weight are the rows of `times`."""
    for p in range(len(mine)):
        i = mine[p]
        at = entry[p]
        times[0, first + p] = max(lo[i], log[at, LO])
        times[1, first + p] = min(hi[i], log[at, HI])
        times[2, first + p] = weight[i] * log[at, WEIGHT]


@njit(cache=True)
def beside(a, a_at, a_column, a_width, b, b_at, b_column, b_width, out, first):
    """Rows of `a` beside rows of `b`, where one null mask word is enough.  A row begins at its matrix's `…_column` with
    the null mask and has `…_width` values."""
    for p in range(len(a_at)):
        i = a_at[p]
        j = b_at[p]
        to = first + p
        out[to, 0] = a[i, a_column] | (b[j, b_column] << a_width)
        for c in range(1, a_width + 1):
            out[to, c] = a[i, a_column + c]
        for c in range(1, b_width + 1):
            out[to, a_width + c] = b[j, b_column + c]


@njit(cache=True)
def keep(ids, lo, hi, weight, rows, heads, log, count, cti):
    """Add what the other side may still meet, then cut out what is taken back.

    Returns the log (a bigger one if the cuts left more pieces than there was room for), how many entries it has, and
    the position of a negative segment that nothing covers (-1: none).
    """
    width = rows.shape[1]
    negative = False
    for i in range(len(ids)):
        if weight[i] > 0 and hi[i] > cti:
            log[count, LO] = lo[i]
            log[count, HI] = hi[i]
            log[count, WEIGHT] = weight[i]
            _put_first(ids[i], heads, log, count)
            for j in range(width):
                log[count, ROW + j] = rows[i, j]
            count += 1
        elif weight[i] < 0:
            negative = True
    if negative:
        for i in range(len(ids)):
            a = max(lo[i], cti)
            if weight[i] < 0 and a < hi[i]:
                log, count, covered = _cut(ids[i], a, hi[i], -weight[i], rows[i], heads, log, count)
                if not covered:
                    return log, count, i
    return log, count, np.int64(-1)


@njit(cache=True, inline="always")
def _put_first(k, heads, log, at):
    """Make an entry the newest one of its key."""
    log[at, LINK] = linked(k, heads[k, 0])
    log[at, BELOW] = heads[k, 1]
    heads[k, 0] = at
    heads[k, 1] = max(heads[k, 1], log[at, HI])


@njit(cache=True)
def _cut(k, a, b, left, row, heads, log, count):
    """Cut [a, b) out of entries with the same row, `left` times; an entry with the same end is the best match."""
    lo = a
    while left > 0:
        best = np.int64(-1)
        exact = False
        at = heads[k, 0]
        below = heads[k, 1]
        while at >= 0 and below > lo:
            if log[at, LO] <= lo and lo < log[at, HI] and _same(log, at, row):
                if log[at, HI] == b:
                    if not exact or log[at, LO] == lo:
                        best = at
                        exact = True
                    if log[at, LO] == lo:
                        break  # no other one fits better
                elif not exact and (best < 0 or log[at, HI] > log[best, HI]):
                    best = at
            below = log[at, BELOW]
            at = after_of(log[at, LINK])
        if best < 0:
            return log, count, False
        if count + 2 > len(log):
            more = np.empty((2 * count + 2, log.shape[1]), np.int64)
            more[:count] = log[:count]
            log = more
        s = log[best, LO]
        e = log[best, HI]
        stop = min(b, e)
        times = min(left, log[best, WEIGHT]) if lo == a and stop == b else np.int64(1)
        rest = log[best, WEIGHT] - times
        if stop < e:
            count = _piece(k, log, count, best, stop, e, times)
        if rest > 0:
            log[best, WEIGHT] = rest
            if s < lo:
                count = _piece(k, log, count, best, s, lo, times)
        else:
            log[best, HI] = lo if s < lo else _GONE
            if stop == e:
                _lower(k, heads, log, best)
        if stop == b:
            left -= times
            lo = a
        else:
            lo = stop
    return log, count, True


@njit(cache=True)
def _lower(k, heads, log, ended):
    """Let the entries above one that ends earlier now know it: else a row that was open when the next ones came would
    keep every walk going.  Costs as much as the walk that found the entry."""
    path = np.empty(16, np.int64)
    n = 0
    at = heads[k, 0]
    while at != ended:
        if n == len(path):
            path = _doubled(path)
        path[n] = at
        n += 1
        at = after_of(log[at, LINK])
    below = max(log[ended, HI], log[ended, BELOW])
    while n > 0:
        n -= 1
        at = path[n]
        if log[at, BELOW] == below:
            return
        log[at, BELOW] = below
        below = max(below, log[at, HI])
    heads[k, 1] = below


@njit(cache=True, inline="always")
def _same(log, at, row):
    for j in range(len(row)):
        if log[at, ROW + j] != row[j]:
            return False
    return True


@njit(cache=True, inline="always")
def _piece(k, log, count, at, lo, hi, weight):
    """A part of an entry as an entry of its own, next in its chain."""
    log[count] = log[at]
    log[count, LO] = lo
    log[count, HI] = hi
    log[count, WEIGHT] = weight
    log[at, LINK] = linked(k, count)
    log[at, BELOW] = max(log[at, BELOW], hi)
    return count + 1


@njit(cache=True)
def expire(ids, until, heads, log, cti):
    """Entries of keys that end by the time promised for their key are dead.  Returns how many that were."""
    n = 0
    for i in range(len(ids)):
        at = heads[ids[i], 0]
        below = heads[ids[i], 1]
        while at >= 0 and below > cti:
            if cti < log[at, HI] <= until[i]:
                log[at, HI] = _GONE
                n += 1
            below = log[at, BELOW]
            at = after_of(log[at, LINK])
    return n


@njit(cache=True)
def occupied(ids, before, heads, log, cti):
    """Whether keys (-1: unknown) have an entry that lives before a time."""
    found = np.zeros(len(ids), np.bool_)
    for i in range(len(ids)):
        if ids[i] < 0:
            continue
        at = heads[ids[i], 0]
        below = heads[ids[i], 1]
        while at >= 0 and below > cti and not found[i]:
            found[i] = log[at, HI] > cti and log[at, LO] < before[i]
            below = log[at, BELOW]
            at = after_of(log[at, LINK])
    return found


@njit(cache=True)
def tidy(heads, log, count, cti):
    """Drop the dead entries, in place, and chain the rest anew.  Returns how many are left."""
    width = log.shape[1]
    n = 0
    for at in range(count):
        k = log[at, LINK] >> _HALF
        heads[k, 0] = -1
        heads[k, 1] = _GONE
    for at in range(count):
        if log[at, HI] > cti:
            if n != at:
                for j in range(width):
                    log[n, j] = log[at, j]
            _put_first(log[n, LINK] >> _HALF, heads, log, n)
            n += 1
    return n
