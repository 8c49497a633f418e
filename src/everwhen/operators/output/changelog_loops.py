"""The sink's memory as a log: events said, in the order in which they were said, found again by their row's hash.

A log entry is `[vs, ve, after, row codes…]`; entries with the same hash form a chain, the newest first.  An entry is
dead when it ended by the CTI, or when it was taken back (`ve` = -∞).  Saying something costs one entry and one head,
nothing is searched for; only what is taken back is.  Dead entries go in bulk.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import NEVER

_GONE: Final = np.int64(NEVER)
VS: Final = 0
VE: Final = 1
AFTER: Final = 2
ROW: Final = 3


@njit(cache=True, inline="always")
def _hash(rows, i, first):
    """The hash of a row that begins in column `first`."""
    h = np.uint64(0x243F6A8885A308D3)
    for j in range(first, rows.shape[1]):
        h = (h ^ np.uint64(rows[i, j])) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _same(rows, i, log, at, first):
    for j in range(rows.shape[1]):
        if rows[i, j] != log[at, first + j]:
            return False
    return True


@njit(cache=True, nogil=True)
def corrected(weight, rows):
    """Which segments must be netted: those of rows of which this batch takes something back and says more than that.

    Returns the positions of all others, and the former grouped by row: offsets, positions.
    """
    n = len(weight)
    negative = 0
    for i in range(n):
        if weight[i] < 0:
            negative += 1
    size = 64
    while size < 4 * negative:
        size *= 2
    mask = np.uint64(size - 1)
    slots = np.full(size, -1, np.int64)
    member = np.empty(negative, np.int64)  # a segment of each group
    counts = np.zeros(negative + 1, np.int64)
    group = np.full(n, -1, np.int64)
    groups = 0
    for turn in range(2):  # rows that are taken back make the groups; the others may fall into one
        for i in range(n):
            if (weight[i] < 0) != (turn == 0):
                continue
            slot = _hash(rows, i, 0) & mask
            while slots[slot] >= 0 and not _same(rows, i, rows, member[slots[slot]], 0):
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] < 0:
                if turn == 1:
                    continue
                slots[slot] = groups
                member[groups] = i
                groups += 1
            group[i] = slots[slot]
            counts[slots[slot]] += 1
    # several segments: netted
    number = np.full(groups, -1, np.int64)
    offsets = np.zeros(groups + 1, np.int64)
    several = 0
    for g in range(groups):
        if counts[g] > 1:
            number[g] = several
            offsets[several + 1] = offsets[several] + counts[g]
            several += 1
    total = offsets[several]
    order = np.empty(total, np.int64)
    others = np.empty(n - total, np.int64)
    fill = offsets[:several].copy()
    m = 0
    for i in range(n):
        g = number[group[i]] if group[i] >= 0 else np.int64(-1)
        if g < 0:
            others[m] = i
            m += 1
        else:
            order[fill[g]] = i
            fill[g] += 1
    return others, offsets[: several + 1], order


@njit(cache=True, nogil=True)
def say(lo, hi, weight, of, rows, heads, log, count, promise):
    """Turn signed segments into inserts and adjusts of the events said before; segment i is of row `of[i]`.

    What is taken back comes first.  Returns elements (rows of a matrix: op, vs, ve, vnew, the position of the payload)
    and their number, the log with its new count, and the position of a segment that takes back what was never said (-1:
    none).  There must be room in the log for all that is said, and in the elements there is for one more.
    """
    said = 0
    taken = 0
    for i in range(len(lo)):
        if weight[i] > 0:
            said += weight[i]
        else:
            taken -= weight[i]
    out = np.empty((5, said + 2 * taken + 1), np.int64)
    n = 0
    if taken > 0:
        for i in range(len(lo)):
            if weight[i] < 0:
                out, n, log, count, found = _take_back(
                    lo[i], hi[i], -weight[i], of[i], rows, heads, log, count, out, n, said
                )
                if not found:
                    return out, n, log, count, np.int64(i)
    mask = np.uint64(len(heads) - 1)
    for i in range(len(lo)):
        for _ in range(weight[i]):
            _element(out, n, 0, lo[i], hi[i], 0, of[i])
            n += 1
            if hi[i] > promise:
                slot = _hash(rows, of[i], 0) & mask
                log[count, VS] = lo[i]
                log[count, VE] = hi[i]
                log[count, AFTER] = heads[slot]
                for j in range(rows.shape[1]):
                    log[count, ROW + j] = rows[of[i], j]
                heads[slot] = count
                count += 1
    return out, n, log, count, np.int64(-1)


@njit(cache=True, nogil=True)
def _take_back(lo, b, copies, row, rows, heads, log, count, out, n, said):
    """Take [lo, b) of a row back, so many times: shorten, remove or cut events said, the best fitting first.

    Room is kept for `said` more elements and entries.
    """
    slot = _hash(rows, row, 0) & np.uint64(len(heads) - 1)
    # where each of the copies to take back has got to; always go on with the earliest, so that what is said about one
    # row has ascending sync times
    reached = np.full(copies, lo, np.int64)
    while True:
        copy = 0
        for y in range(1, copies):
            if reached[y] < reached[copy]:
                copy = y
        a = reached[copy]
        if a >= b:
            return out, n, log, count, True
        best = np.int64(-1)
        at = heads[slot]
        while at >= 0:
            if log[at, VS] <= a and a < log[at, VE] and _same(rows, row, log, at, ROW):
                # who ends with it, else who ends last; of these who starts last: never who stands first in the log, for
                # a log that was restored may have another order
                fits = log[at, VE] == b
                fitted = best >= 0 and log[best, VE] == b
                if (
                    best < 0
                    or (fits and not fitted)
                    or (
                        fits == fitted
                        and (
                            log[at, VE] > log[best, VE]
                            or (log[at, VE] == log[best, VE] and log[at, VS] > log[best, VS])
                        )
                    )
                ):
                    best = at
            at = log[at, AFTER]
        if best < 0:
            return out, n, log, count, False
        vs = log[best, VS]
        ve = log[best, VE]
        if n + said + 3 > out.shape[1]:
            more = np.empty((5, 2 * (n + said + 3)), np.int64)
            more[:, :n] = out[:, :n]
            out = more
        _element(out, n, 1, vs, ve, a, row)
        n += 1
        log[best, VE] = a if a > vs else _GONE
        if ve > b:
            _element(out, n, 0, b, ve, 0, row)
            n += 1
            if count + said + 1 > len(log):
                longer = np.empty((2 * (count + said + 1), log.shape[1]), np.int64)
                longer[:count] = log[:count]
                log = longer
            log[count] = log[best]
            log[count, VS] = b
            log[count, VE] = ve
            log[best, AFTER] = count
            count += 1
        reached[copy] = min(b, ve)


@njit(cache=True, inline="always")
def _element(out, n, op, vs, ve, vnew, row):
    out[0, n] = op
    out[1, n] = vs
    out[2, n] = ve
    out[3, n] = vnew
    out[4, n] = row


@njit(cache=True, nogil=True)
def tidy(heads, log, count, cti):
    """Drop the dead entries, in place, and chain the rest anew.  Returns how many are left."""
    mask = np.uint64(len(heads) - 1)
    width = log.shape[1]
    n = 0
    if len(heads) > 8 * count:
        for at in range(count):
            heads[_hash(log, at, ROW) & mask] = -1
    else:
        heads[:] = -1
    for at in range(count):
        if log[at, VE] > cti:
            if n != at:
                for j in range(width):
                    log[n, j] = log[at, j]
            slot = _hash(log, n, ROW) & mask
            log[n, AFTER] = heads[slot]
            heads[slot] = n
            n += 1
    return n
