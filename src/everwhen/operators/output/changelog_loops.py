"""The sink's memory as a log: events said, in the order in which they were said, found again by their row's hash.

A log entry is `[vs, ve, after, row codes…]`.  Entries have numbers, which only rise; the log is a ring, and an entry
stands where its number, modulo the length of the log, says.  Those with the same hash form a chain, the newest first:
what is older than the first entry of the log is not there any more.  An entry is dead when it ended by the CTI, or when
it was taken back (`ve` = -∞).  Saying something costs one entry and one head, nothing is searched for; only what is
taken back is.  The dead go from the front of the log: a live entry that stands there is said again, to nobody, at its
end (`pass_on`).  So what a step does for it can be as little as one likes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.compiled.prefetch import prefetch
from everwhen.core.time import NEVER
from everwhen.operators.net_loops import hashed, same, slot_shift

_GONE: Final = np.int64(NEVER)
VS: Final = 0
VE: Final = 1
AFTER: Final = 2
ROW: Final = 3
_AHEAD: Final = 16
"""So many entries ahead the heads of chains are asked for."""


@njit(cache=True, nogil=True)
def say(lo, hi, weight, of, rows, heads, log, first, end, promise):
    """Turn signed segments into inserts and adjusts of the events said before; segment i is of row `of[i]`.

    What is taken back comes first.  Returns elements (rows of a matrix: op, vs, ve, vnew, the position of the payload)
    and their number, the end of the log, and the position of a segment that takes back what was never said (-1: none).
    There must be room in the log for all that is said and taken back, and in the elements there is for one more.
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
                out, n, end, found = _take_back(
                    lo[i], hi[i], -weight[i], of[i], rows, heads, log, first, end, out, n, said
                )
                if not found:
                    return out, n, end, np.int64(i)
    shift = slot_shift(len(heads))
    ring = len(log) - 1
    for i in range(len(lo)):
        for _ in range(weight[i]):
            _element(out, n, 0, lo[i], hi[i], 0, of[i])
            n += 1
            if hi[i] > promise:
                slot = hashed(rows, of[i], 0) >> shift
                at = end & ring
                log[at, VS] = lo[i]
                log[at, VE] = hi[i]
                log[at, AFTER] = heads[slot]
                for j in range(rows.shape[1]):
                    log[at, ROW + j] = rows[of[i], j]
                heads[slot] = end
                end += 1
    return out, n, end, np.int64(-1)


@njit(cache=True, nogil=True)
def _take_back(lo, b, copies, row, rows, heads, log, first, end, out, n, said):
    """Take [lo, b) of a row back, so many times: shorten, remove or cut events said, the best fitting first.

    Room is kept for `said` more elements.
    """
    slot = hashed(rows, row, 0) >> slot_shift(len(heads))
    ring = len(log) - 1
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
            return out, n, end, True
        best = np.int64(-1)
        number = heads[slot]
        while number >= first:
            at = number & ring
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
            number = log[at, AFTER]
        if best < 0:
            return out, n, end, False
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
            at = end & ring
            log[at] = log[best]
            log[at, VS] = b
            log[at, VE] = ve
            log[at, AFTER] = heads[slot]
            heads[slot] = end
            end += 1
        reached[copy] = min(b, ve)


@njit(cache=True, inline="always")
def _element(out, n, op, vs, ve, vnew, row):
    out[0, n] = op
    out[1, n] = vs
    out[2, n] = ve
    out[3, n] = vnew
    out[4, n] = row


@njit(cache=True, inline="always")
def _chained(heads, shift, log, at, number):
    """Let the entry that stands at a place have a number, and be the newest of its chain."""
    to = number & (len(log) - 1)
    if to != at:
        for j in range(log.shape[1]):
            log[to, j] = log[at, j]
    slot = hashed(log, to, ROW) >> shift
    log[to, AFTER] = heads[slot]
    heads[slot] = number


@njit(cache=True, nogil=True)
def tidy(heads, log, first, end, cti):
    """Drop the dead entries, in place, and chain the rest anew.  Returns the end of the log."""
    shift = slot_shift(len(heads))
    ring = len(log) - 1
    if len(heads) > 8 * (end - first):
        for number in range(first, end):
            heads[hashed(log, number & ring, ROW) >> shift] = -1
    else:
        heads[:] = -1
    last = first
    for number in range(first, end):
        if number + _AHEAD < end:
            prefetch(heads, np.int64(hashed(log, (number + _AHEAD) & ring, ROW) >> shift))
        at = number & ring
        if log[at, VE] > cti:
            _chained(heads, shift, log, at, last)
            last += 1
    return last


@njit(cache=True, nogil=True)
def pass_on(heads, log, first, until, end, cti):
    """Take the entries from the first one to `until` away from the front of the log; those that are alive go to its
    end.  Returns where it ends."""
    shift = slot_shift(len(heads))
    ring = len(log) - 1
    for number in range(first, until):
        if log[(number + _AHEAD) & ring, VE] > cti:
            prefetch(heads, np.int64(hashed(log, (number + _AHEAD) & ring, ROW) >> shift))
        at = number & ring
        if log[at, VE] > cti:
            _chained(heads, shift, log, at, end)
            end += 1
    return end


@njit(cache=True, nogil=True)
def of_parts(heads, log, first, low, high, parts):
    """The numbers of the entries whose slots are in the parts from `low` on and before `high`, of so many."""
    ring = len(log) - 1
    each = len(heads) // parts
    found = np.empty(256, np.int64)
    n = 0
    for slot in range(low * each, high * each):
        if slot + _AHEAD < high * each and heads[slot + _AHEAD] >= first:
            prefetch(log, heads[slot + _AHEAD] & ring)
        number = heads[slot]
        while number >= first:
            if n == len(found):
                more = np.empty(2 * n, np.int64)
                more[:n] = found
                found = more
            found[n] = number
            n += 1
            number = log[number & ring, AFTER]
    return found[:n]
