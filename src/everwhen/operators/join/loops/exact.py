"""Where entries of a log stand, by row and start: so that a segment that is taken back whole is found at once.

A table of positions, which may be incomplete, and may name entries that are dead: who finds nothing, or is told
otherwise by the entry itself, looks through the tree of the key.  Its last word counts the positions in it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.hashing import mixed
from everwhen.compiled.njit import loop, njit
from everwhen.operators.join.loops.lifetimes import HI, LO, ROW

_SEED: Final = np.uint64(0x243F6A8885A308D3)
NO_SLOTS: Final = np.zeros(0, np.int64)
"""No table."""


def empty_slots(entries: int) -> np.ndarray:
    """A table with room for so many entries, and as many again."""
    size = 256
    while size < 4 * entries:
        size *= 2
    slots = np.full(size + 1, -1, np.int64)
    slots[-1] = 0
    return slots


@njit(cache=True, inline="always")
def _slot(slots, lo, rows, i, first, words):
    h = mixed(_SEED, np.uint64(lo))
    for j in range(words):
        h = mixed(h, np.uint64(rows[i, first + j]))
    return (h ^ (h >> np.uint64(32))) & np.uint64(len(slots) - 2)


@njit(cache=True, inline="always")
def enter(slots, log, at, words):
    """Note where an entry with a row of so many words stands, if there is a table with room."""
    if len(slots) > 0 and 2 * slots[len(slots) - 1] < len(slots):
        mask = np.uint64(len(slots) - 2)
        slot = _slot(slots, log[at, LO], log, at, ROW, words)
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = at
        slots[len(slots) - 1] += 1


@njit(cache=True, inline="always")
def found(slots, log, rows, i, lo, hi):
    """An entry with the row, start and end (-1: none is known)."""
    if len(slots) == 0:
        return np.int64(-1)
    mask = np.uint64(len(slots) - 2)
    slot = _slot(slots, lo, rows, i, 0, rows.shape[1])
    while slots[slot] >= 0:
        at = slots[slot]
        if log[at, LO] == lo and log[at, HI] == hi:
            same = True
            for j in range(rows.shape[1]):
                if log[at, ROW + j] != rows[i, j]:
                    same = False
                    break
            if same:
                return at
        slot = (slot + np.uint64(1)) & mask
    return np.int64(-1)


@loop
def enter_all(slots, log, count, words):
    """Note where all entries stand."""
    for at in range(count):
        enter(slots, log, at, words)
