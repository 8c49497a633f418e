"""Loops over the events of several parties, each stored once with a bit per party that has it.

An event is an entry (vs, ve, row), found by its hash: entries of one hash are linked.  Those that nobody has any more
are linked to be used again, the first one and their number in `free`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.compiled.prefetch import prefetch

NEXT: Final = 0
VS: Final = 1
VE: Final = 2
HAVE: Final = 3
"""A bit per copy; `FREE`: no event."""
ROW: Final = 4
FREE: Final = -1
_ADDED: Final = 0
_GIVEN: Final = 1
_TAKEN: Final = 2
_C: Final = np.uint64(0x9E3779B97F4A7C15)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)


@njit(cache=True, inline="always")
def _slot(vs, ve, row, size):
    h = (np.uint64(vs) ^ (np.uint64(ve) << np.uint64(1))) * _C
    for j in range(len(row)):
        h = (h ^ np.uint64(row[j])) * _C
        h ^= h >> np.uint64(29)
    h = h * _LAST
    return np.int64((h ^ (h >> np.uint64(32))) & np.uint64(size - 1))


@njit(cache=True, inline="always")
def _found(pool, at, vs, ve, row, bit, wanted):
    """An entry of an event that the copy has (`wanted`) or has not; -1: there is none."""
    while at >= 0:
        entry = pool[at]
        if entry[VS] == vs and entry[VE] == ve and ((entry[HAVE] & bit) != 0) == wanted:
            same = True
            for j in range(len(row)):
                if entry[ROW + j] != row[j]:
                    same = False
                    break
            if same:
                return at
        at = entry[NEXT]
    return np.int64(-1)


@njit(cache=True, inline="always")
def _unlink(pool, heads, free, at):
    """Let an entry be used again."""
    slot = _slot(pool[at, VS], pool[at, VE], pool[at, ROW:], len(heads))
    if heads[slot] == at:
        heads[slot] = pool[at, NEXT]
    else:
        before = heads[slot]
        while pool[before, NEXT] != at:
            before = pool[before, NEXT]
        pool[before, NEXT] = pool[at, NEXT]
    pool[at, NEXT] = free[0]
    pool[at, HAVE] = FREE
    free[0] = at
    free[1] += 1


@njit(cache=True, inline="always")
def _add(pool, heads, free, top, slot, vs, ve, row, bit, journal, done):
    at = _found(pool, heads[slot], vs, ve, row, bit, False)
    if at >= 0:
        pool[at, HAVE] |= bit
        journal[done] = at * 4 + _GIVEN
        return top
    at = free[0]
    if at >= 0:
        free[0] = pool[at, NEXT]
        free[1] -= 1
    else:
        at = top
        top += 1
    entry = pool[at]
    entry[NEXT] = heads[slot]
    entry[VS] = vs
    entry[VE] = ve
    entry[HAVE] = bit
    for j in range(len(row)):
        entry[ROW + j] = row[j]
    heads[slot] = at
    journal[done] = at * 4 + _ADDED
    return top


class Elements(NamedTuple):
    """Elements of a batch in arrival order."""

    op: np.ndarray
    """0: insert, 1: adjust; others carry no data."""
    vs: np.ndarray
    """Starts."""
    ve: np.ndarray
    """Ends; of an adjust the end by which it names its event."""
    vnew: np.ndarray
    """New ends of adjusts."""
    rows: np.ndarray
    """Coded rows."""


@loop_of(elements=Elements)
def apply(elements, until, pool, heads, free, top, bit, slots, journal):
    """Take a copy's elements in arrival order: how many entries were ever used, how many steps the journal has, and the
    first adjust without its event (-1: none).  Events that end before `until` can be named by nobody later.  `slots`
    has room for as many as there are elements."""
    op, vs, ve, vnew, rows = elements.op, elements.vs, elements.ve, elements.vnew, elements.rows
    done = 0
    n = len(op)
    for i in range(n):
        slots[i] = _slot(vs[i], ve[i], rows[i], len(heads))
    for i in range(n):
        if i + 16 < n:
            prefetch(heads, slots[i + 16])
        if i + 8 < n and heads[slots[i + 8]] >= 0:
            prefetch(pool, heads[slots[i + 8]])
        if op[i] == 0:
            if ve[i] >= until:
                top = _add(pool, heads, free, top, slots[i], vs[i], ve[i], rows[i], bit, journal, done)
                done += 1
        elif op[i] == 1:
            at = _found(pool, heads[slots[i]], vs[i], ve[i], rows[i], bit, True)
            if at < 0:
                return top, done, np.int64(i)
            pool[at, HAVE] &= ~bit
            journal[done] = at * 4 + _TAKEN
            done += 1
            if vnew[i] > vs[i]:
                slot = _slot(vs[i], vnew[i], rows[i], len(heads))
                top = _add(pool, heads, free, top, slot, vs[i], vnew[i], rows[i], bit, journal, done)
                done += 1
    return top, done, np.int64(-1)


@loop
def undo(pool, heads, free, bit, journal, done):
    """Take the steps of a journal back, the last first."""
    for x in range(done - 1, -1, -1):
        at, kind = journal[x] >> 2, journal[x] & 3
        if kind == _TAKEN:
            pool[at, HAVE] |= bit
        elif kind == _GIVEN:
            pool[at, HAVE] &= ~bit
        else:
            _unlink(pool, heads, free, at)


@loop
def release(pool, heads, free, journal, done):
    """Let the entries be used again that a journal has left without a copy."""
    for x in range(done):
        if pool[journal[x] >> 2, HAVE] == 0:
            _unlink(pool, heads, free, journal[x] >> 2)


@njit(cache=True, inline="always")
def _had(have, ve, ctis, latest):
    """The copies that may still name an event; `latest`: the largest of their CTIs."""
    if ve >= latest:
        return have
    left = np.int64(0)
    for port in range(len(ctis)):
        if (have >> port) & 1 and ve >= ctis[port]:
            left |= np.int64(1) << port
    return left


@loop
def expire(pool, top, ctis, latest):
    """Take from copies the events that they may not name any more."""
    for at in range(top):
        if pool[at, HAVE] > 0:
            pool[at, HAVE] = _had(pool[at, HAVE], pool[at, VE], ctis, latest)


@loop
def alive(pool, top, ctis, latest, bits):
    """How many entries some of the copies may still name."""
    found = 0
    for at in range(top):
        if pool[at, HAVE] > 0 and _had(pool[at, HAVE], pool[at, VE], ctis, latest) & bits != 0:
            found += 1
    return found


@loop
def link(pool, heads, free, top):
    """Link the entries of a pool anew; those that are free are used again the first one first."""
    heads[:] = -1
    free[0] = -1
    free[1] = 0
    for at in range(top - 1, -1, -1):
        entry = pool[at]
        if entry[HAVE] == FREE:
            entry[NEXT] = free[0]
            free[0] = at
            free[1] += 1
        else:
            slot = _slot(entry[VS], entry[VE], entry[ROW:], len(heads))
            entry[NEXT] = heads[slot]
            heads[slot] = at


@loop
def sweep(pool, heads, free, top, limit):
    """Let the entries be used again that nobody has, and those that end before `limit`."""
    for at in range(top):
        if pool[at, HAVE] <= 0 or pool[at, VE] < limit:
            pool[at, HAVE] = FREE
    link(pool, heads, free, top)


# -- what inputs of a merge say, and what was emitted ------------------------------------------------------------------


@loop
def change(rows, hi, weight, limit, pool, heads, free, top, bit, slots):
    """Events come and go by their weights, those first that come; what ends by `limit` does not count.  `rows` have the
    start as their last word; `slots` has room for one more than there are events.  How many entries were ever used, and
    how many events that go were not there."""
    last = rows.shape[1] - 1
    n = len(hi)
    missing = 0
    negative = 0
    for i in range(n):
        slots[i] = _slot(rows[i, last], hi[i], rows[i, :last], len(heads))
        negative += weight[i] < 0
    for i in range(n):
        if i + 16 < n:
            prefetch(heads, slots[i + 16])
        if i + 8 < n and heads[slots[i + 8]] >= 0:
            prefetch(pool, heads[slots[i + 8]])
        if hi[i] > limit:
            for _ in range(weight[i]):
                top = _add(pool, heads, free, top, slots[i], rows[i, last], hi[i], rows[i, :last], bit, slots, n)
    for i in range(n if negative else 0):
        if weight[i] < 0 and hi[i] > limit:
            for _ in range(-weight[i]):
                at = _found(pool, heads[slots[i]], rows[i, last], hi[i], rows[i, :last], bit, True)
                if at < 0:
                    missing += 1
                else:
                    pool[at, HAVE] &= ~bit
                    if pool[at, HAVE] == 0:
                        _unlink(pool, heads, free, at)
    return top, missing


@loop
def held(pool, top, one, other, limit, found):
    """The entries, behind `limit`, that just one of two parties has; how many there are."""
    n = 0
    for at in range(top):
        have = pool[at, HAVE]
        if have > 0 and ((have & one) != 0) != ((have & other) != 0) and pool[at, VE] > limit:
            found[n] = at
            n += 1
    return n


@loop
def follow(pool, heads, free, top, one, other, limit, lo, hi, weight, rows):
    """Let a party (`other`) have the events that another one has, of those that begin from `limit` on: which they are,
    with their start as the last word of their rows, and 1 if it has come to have them, -1 if it had them.  Returns how
    many they are, and how many others differ that end behind `limit`."""
    last = rows.shape[1] - 1
    n = 0
    older = 0
    for at in range(top):
        entry = pool[at]
        have = entry[HAVE]
        if have > 0 and ((have & one) != 0) != ((have & other) != 0) and entry[VE] > limit:
            if entry[VS] < limit:
                older += 1
                continue
            lo[n] = entry[VS]
            hi[n] = entry[VE]
            weight[n] = 1 if (have & one) != 0 else -1
            for j in range(last):
                rows[n, j] = entry[ROW + j]
            rows[n, last] = entry[VS]
            n += 1
            entry[HAVE] = have ^ other
            if have == other:
                _unlink(pool, heads, free, at)
    return n, older


@loop
def take(pool, heads, free, places, bits):
    """Parties have the events of these entries no more."""
    for x in range(len(places)):
        at = places[x]
        pool[at, HAVE] &= ~bits
        if pool[at, HAVE] == 0:
            _unlink(pool, heads, free, at)
