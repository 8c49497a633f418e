"""Minimum and maximum of a live multiset at the instants where pieces begin.

Of each record the *order code* of a column counts: an integer that is the larger the more extreme the value is.  So
either is the largest order code of what is alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.containers.live_runs import HI, LO, ending_after
from everwhen.containers.run_pool import LENGTH, START

NONE: Final = np.int64(-0x8000000000000000)
"""The smallest order code: nothing is alive that has a value."""
_MANY: Final = 64
"""Up to so many times their sum, the product of instants and records is looked at; a heap does with less."""


class OrderedColumns(NamedTuple):
    """Columns of records of which the largest order code is looked for."""

    values: np.ndarray
    """The word of a record in which the value stands."""
    kinds: np.ndarray
    """The kind of order code."""
    words: np.ndarray
    """The word that says whether the value is null."""
    bits: np.ndarray
    """The bit of that word."""


class ExtremeArrays(NamedTuple):
    """Live rows as loops take them to fill in evaluated lanes, with scratch."""

    place: np.ndarray
    """Where the records of each key stand."""
    pool: np.ndarray
    """The records."""
    columns: OrderedColumns
    """One column per evaluated lane."""
    at: np.ndarray
    """Scratch: instants, and the edges that begin there."""
    best: np.ndarray
    """Scratch: the largest order codes at these instants, one row per column."""
    heap: np.ndarray
    """Scratch: two rows with room for all records of a key."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """Live rows as a sweep needs them to fill in its evaluated lanes, where these are extremes and nothing else.

    `longest`: no key has more records.
    """

    place: np.ndarray
    pool: np.ndarray
    columns: OrderedColumns
    longest: int

    def arrays(self, edges: int) -> ExtremeArrays:
        """What the loops get, with scratch for runs of so many edges."""
        at, best = np.empty((2, edges), np.int64), np.empty((len(self.columns.values), edges), np.int64)
        heap = np.empty((2, self.longest), np.int64)
        return ExtremeArrays(self.place, self.pool, self.columns, at, best, heap)


_NO_INTS: Final = np.empty(0, np.int64)
_NOTHING: Final = np.empty((0, 0), np.int64)
_NO_COLUMNS: Final = OrderedColumns(_NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS)
NO_EXTREMES: Final = ExtremeArrays(_NOTHING, _NOTHING, _NO_COLUMNS, _NOTHING, _NOTHING, _NOTHING)
"""For a sweep that has no such lanes."""


@njit(cache=True, inline="always")
def order_code(code, kind):
    """Codes so that their integer order is the values' order: kind 1 floats, 2 unsigned, 0 as they are; negative:
    reversed."""
    k = kind if kind >= 0 else ~kind
    if k == 1 and code < 0:
        code ^= np.int64(0x7FFFFFFFFFFFFFFF)
    elif k == 2:
        code ^= NONE
    return code if kind >= 0 else ~code


@njit(cache=True, inline="always")
def plain_code(order, kind):
    """The code whose order code it is."""
    return order_code(order if kind >= 0 else ~order, kind if kind >= 0 else ~kind)


@loop
def fill(k, edges, x, stop, top, limit, since, added, extremes):
    """Fill in the lanes of those edges of a key from `x` to `stop` that are to be said, before `top` and not after
    `limit`, are alive and not known.  Evaluated lanes stand behind the `added` ones, and whether they are known last.

    What begins before `since` holds from there on.
    """
    at, best = extremes.at, extremes.best
    known = edges.shape[1] - 1
    n = 0
    for e in range(x, stop):
        t = max(edges[e, 0], since)
        if t >= top or t > limit:
            break
        at[0, n] = t
        at[1, n] = e
        n += (edges[e, 1] != 0) & (edges[e, known] == 0)
    if n == 0:
        return
    _largest(k, at[0], 0, n, extremes.place, extremes.pool, extremes.columns, best, extremes.heap)
    for r in range(n):
        for c in range(len(best)):
            edges[at[1, r], 1 + added + c] = best[c, r]
        edges[at[1, r], known] = 1


@njit(cache=True)
def largest(keys, times, place, pool, columns, heap):
    """Per column and request (grouped by key, ascending times) the largest order code alive."""
    out = np.empty((len(columns.values), len(keys)), np.int64)
    i = 0
    while i < len(keys):
        j = i + 1
        while j < len(keys) and keys[j] == keys[i]:
            j += 1
        _largest(keys[i], times, i, j, place, pool, columns, out, heap)
        i = j
    return out


@loop
def _largest(k, times, i, j, place, pool, columns, out, heap):
    """The same for one key, at its times from `i` to `j`."""
    values, kinds, words, bits = columns.values, columns.kinds, columns.words, columns.bits
    stop = place[k, START] + place[k, LENGTH]
    first = ending_after(pool, place[k, START], place[k, LENGTH], times[i])
    m = stop - first
    for c in range(len(values)):
        if (j - i) * m > _MANY * (j - i + m):
            _by_heap(times, i, j, first, stop, pool, columns, c, out, heap)
            continue
        for r in range(i, j):
            out[c, r] = NONE
        for at in range(first, stop):
            if (pool[at, words[c]] >> bits[c]) & 1 == 0:
                code = order_code(pool[at, values[c]], kinds[c])
                lo = pool[at, LO]
                hi = pool[at, HI]
                for r in range(i, j):  # without a search: where a record begins can't be foretold
                    there = (lo <= times[r]) & (times[r] < hi)
                    out[c, r] = max(out[c, r], code if there else NONE)


@njit(cache=True, inline="always")
def _by_heap(times, i, j, first, stop, pool, columns, c, out, heap):
    """From the last instant to the first: records come in the order of their ends, into a heap of order codes and
    starts, from which those that begin later fall when they are on top."""
    column, kind, word, bit = columns.values[c], columns.kinds[c], columns.words[c], columns.bits[c]
    size = 0
    x = stop - 1
    for r in range(j - 1, i - 1, -1):
        t = times[r]
        while x >= first and pool[x, HI] > t:
            if (pool[x, word] >> bit) & 1 == 0 and pool[x, LO] <= t:
                v = order_code(pool[x, column], kind)
                p = size
                size += 1
                while p > 0 and heap[0, (p - 1) >> 1] < v:
                    heap[0, p] = heap[0, (p - 1) >> 1]
                    heap[1, p] = heap[1, (p - 1) >> 1]
                    p = (p - 1) >> 1
                heap[0, p] = v
                heap[1, p] = pool[x, LO]
            x -= 1
        while size > 0 and heap[1, 0] > t:
            size -= 1
            v = heap[0, size]
            lo = heap[1, size]
            p = 0
            while True:
                q = 2 * p + 1
                if q >= size:
                    break
                if q + 1 < size and heap[0, q + 1] > heap[0, q]:
                    q += 1
                if heap[0, q] <= v:
                    break
                heap[0, p] = heap[0, q]
                heap[1, p] = heap[1, q]
                p = q
            heap[0, p] = v
            heap[1, p] = lo
        out[c, r] = heap[0, 0] if size > 0 else NONE
