"""The sink's memory as a log: events said, in the order in which they were said, found again by their row's hash.

A log entry is `[vs, ve, after, row codes…]`; entries with the same hash form a chain, the newest first.  An entry is
dead when it ended by the CTI, or when it was taken back (`ve` = -∞).  Saying something costs one entry and one head,
nothing is searched for; only what is taken back is.  Dead entries go in bulk.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.compiled.prefetch import prefetch
from everwhen.core.time import NEVER
from everwhen.operators.net_loops import hashed, same

_GONE: Final = np.int64(NEVER)
VS: Final = 0
VE: Final = 1
AFTER: Final = 2
ROW: Final = 3
_AHEAD: Final = 16
"""So many entries ahead the heads of chains are asked for."""


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
                slot = hashed(rows, of[i], 0) & mask
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
    slot = hashed(rows, row, 0) & np.uint64(len(heads) - 1)
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
            if log[at, VS] <= a and a < log[at, VE] and same(rows, row, log, at, ROW):
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
            heads[hashed(log, at, ROW) & mask] = -1
    else:
        heads[:] = -1
    for at in range(count):
        if at + _AHEAD < count:
            prefetch(heads, np.int64(hashed(log, at + _AHEAD, ROW) & mask))
        if log[at, VE] > cti:
            if n != at:
                for j in range(width):
                    log[n, j] = log[at, j]
            slot = hashed(log, n, ROW) & mask
            log[n, AFTER] = heads[slot]
            heads[slot] = n
            n += 1
    return n
