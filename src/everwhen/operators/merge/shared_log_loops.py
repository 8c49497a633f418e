"""Loops over the events of several copies of one stream, each stored once with a bit per copy that has it.

An event is an entry (vs, ve, row) with a link to the one before it that has the same hash.  Entries are numbered as
they come and stand in a ring; those before `oldest` are forgotten.  One that no copy has any more is gone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit

BEFORE: Final = 0
VS: Final = 1
VE: Final = 2
HAVE: Final = 3
ROW: Final = 4
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
def _found(log, oldest, at, vs, ve, row, bit, wanted):
    """The last entry of an event that the copy has (`wanted`) or has not; -1: there is none."""
    mask = len(log) - 1
    while at >= oldest:
        entry = log[at & mask]
        if entry[VS] == vs and entry[VE] == ve and entry[HAVE] != 0 and ((entry[HAVE] & bit) != 0) == wanted:
            same = True
            for j in range(len(row)):
                if entry[ROW + j] != row[j]:
                    same = False
                    break
            if same:
                return at
        at = entry[BEFORE]
    return np.int64(-1)


@njit(cache=True, inline="always")
def _add(log, heads, oldest, count, vs, ve, row, bit, journal, done):
    slot = _slot(vs, ve, row, len(heads))
    at = _found(log, oldest, heads[slot], vs, ve, row, bit, False)
    if at >= 0:
        log[at & (len(log) - 1), HAVE] |= bit
        journal[done] = at * 4 + _GIVEN
        return count
    entry = log[count & (len(log) - 1)]
    entry[BEFORE] = heads[slot]
    entry[VS] = vs
    entry[VE] = ve
    entry[HAVE] = bit
    for j in range(len(row)):
        entry[ROW + j] = row[j]
    heads[slot] = count
    journal[done] = count * 4 + _ADDED
    return count + 1


@loop
def apply(op, vs, ve, vnew, rows, until, log, heads, oldest, count, bit, journal):
    """Take a copy's elements in arrival order: how many entries there are then, how many steps the journal has, and the
    first adjust without its event (-1: none).  Events that end before `until` can be named by nobody later."""
    done = 0
    for i in range(len(op)):
        if op[i] == 0:
            if ve[i] >= until:
                count = _add(log, heads, oldest, count, vs[i], ve[i], rows[i], bit, journal, done)
                done += 1
        elif op[i] == 1:
            slot = _slot(vs[i], ve[i], rows[i], len(heads))
            at = _found(log, oldest, heads[slot], vs[i], ve[i], rows[i], bit, True)
            if at < 0:
                return count, done, np.int64(i)
            log[at & (len(log) - 1), HAVE] &= ~bit
            journal[done] = at * 4 + _TAKEN
            done += 1
            if vnew[i] > vs[i]:
                count = _add(log, heads, oldest, count, vs[i], vnew[i], rows[i], bit, journal, done)
                done += 1
    return count, done, np.int64(-1)


@loop
def undo(log, heads, count, bit, journal, done):
    """Take the steps of a journal back, the last first; how many entries there are then."""
    mask = len(log) - 1
    for x in range(done - 1, -1, -1):
        at, kind = journal[x] >> 2, journal[x] & 3
        entry = log[at & mask]
        if kind == _TAKEN:
            entry[HAVE] |= bit
        else:
            entry[HAVE] &= ~bit
            if kind == _ADDED:
                heads[_slot(entry[VS], entry[VE], entry[ROW:], len(heads))] = entry[BEFORE]
                count -= 1
    return count


@njit(cache=True, inline="always")
def _had(have, ve, ctis):
    """The copies that may still name an event."""
    left = np.int64(0)
    for port in range(len(ctis)):
        if (have >> port) & 1 and ve >= ctis[port]:
            left |= np.int64(1) << port
    return left


@loop
def forget(log, oldest, count, ctis):
    """The number of the first entry, from the oldest on, that a copy may still name."""
    while oldest < count:
        entry = log[oldest & (len(log) - 1)]
        if _had(entry[HAVE], entry[VE], ctis) != 0:
            break
        oldest += 1
    return oldest


@loop
def alive(log, oldest, count, ctis, bits):
    """How many entries some of the copies may still name."""
    found = 0
    for at in range(oldest, count):
        entry = log[at & (len(log) - 1)]
        if _had(entry[HAVE], entry[VE], ctis) & bits != 0:
            found += 1
    return found


@loop
def rewrite(log, oldest, count, ctis, target, heads, renumber):
    """Write entries into another ring, those that can be named (with new numbers, from 0 on) or all; the number of the
    next one."""
    heads[:] = -1
    to = np.int64(0) if renumber else oldest
    for at in range(oldest, count):
        entry = log[at & (len(log) - 1)]
        have = entry[HAVE]
        if renumber:
            have = _had(have, entry[VE], ctis)
            if have == 0:
                continue
        copied = target[to & (len(target) - 1)]
        slot = _slot(entry[VS], entry[VE], entry[ROW:], len(heads))
        for j in range(len(entry)):
            copied[j] = entry[j]
        copied[HAVE] = have
        copied[BEFORE] = heads[slot]
        heads[slot] = to
        to += 1
    return to
