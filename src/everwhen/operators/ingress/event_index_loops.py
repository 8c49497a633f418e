"""Entries found by (start, end, row): a hash table whose chains stand newest first, changed by appending.

An entry is a line of `fields`, whose first two numbers are its start and its end, and a coded row.  One that is gone
has the end -∞.  Nothing moves until `keep` writes the entries that stay anew, in their order.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import NEVER
from everwhen.operators.ingress.event_log_loops import _hash

GONE: Final = np.int64(NEVER)


@njit(cache=True)
def find(heads, after, fields, held, start, end, row, least):
    """The newest entry of that name whose third field is at least `least`; -1: there is none."""
    at = heads[_hash(start, end, row) & np.uint64(len(heads) - 1)]
    while at >= 0:
        if fields[at, 0] == start and fields[at, 1] == end and fields[at, 2] >= least:
            same = True
            for j in range(len(row)):
                if held[at, j] != row[j]:
                    same = False
                    break
            if same:
                return at
        at = after[at]
    return np.int64(-1)


@njit(cache=True, inline="always")
def add(heads, after, fields, held, at, start, end, third, fourth, row):
    """Append an entry at position `at`."""
    fields[at, 0] = start
    fields[at, 1] = end
    fields[at, 2] = third
    fields[at, 3] = fourth
    for j in range(len(row)):
        held[at, j] = row[j]
    slot = _hash(start, end, row) & np.uint64(len(heads) - 1)
    after[at] = heads[slot]
    heads[slot] = at


@njit(cache=True)
def note(fields, held, at, vs, ve, rows, least):
    """Append inserts that end at `least` or later as entries (start, end, end, 0) that nobody can find yet; how many
    entries there are then."""
    for i in range(len(vs)):
        if ve[i] < least:
            continue
        fields[at, 0] = vs[i]
        fields[at, 1] = ve[i]
        fields[at, 2] = ve[i]
        fields[at, 3] = 0
        for j in range(held.shape[1]):
            held[at, j] = rows[i, j]
        at += 1
    return at


@njit(cache=True)
def keep(fields, held, count, column, least):
    """Keep the entries that are not gone and whose field `column` is at least `least`; how many are left."""
    n = 0
    for i in range(count):
        if fields[i, 1] != GONE and fields[i, column] >= least:
            if n != i:
                for j in range(4):
                    fields[n, j] = fields[i, j]
                for j in range(held.shape[1]):
                    held[n, j] = held[i, j]
            n += 1
    return n


@njit(cache=True)
def chain(heads, after, fields, held, first, count):
    """Chain the entries from `first` on where they stand, all of them anew if that is 0; the gone are left out."""
    if first == 0:
        heads[:] = -1
    mask = np.uint64(len(heads) - 1)
    for i in range(first, count):
        if fields[i, 1] != GONE:
            slot = _hash(fields[i, 0], fields[i, 1], held[i]) & mask
            after[i] = heads[slot]
            heads[slot] = i
