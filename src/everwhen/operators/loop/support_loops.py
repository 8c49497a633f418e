"""Loops of the head of a set loop: per row, pieces of time with a birth and two counts of derivations."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF

_INF: Final = np.int64(INF)
LO: Final = 0
HI: Final = 1
BIRTH: Final = 2
"""The round in which the row came; 0: it is absent."""
LOW: Final = 3
"""Derivations from premises that are older than the row."""
ALL: Final = 4
"""All derivations."""
PIECE: Final = 5

HOLD: Final = 0
"""Only take derivations."""
DELETE: Final = 1
"""Let go what is present without older support."""
INSERT: Final = 2
"""Let come what is absent and derived."""


@njit(cache=True, nogil=True)
def take(old, offsets, given, order, lo, hi, weight, premise, phase, birth):
    """Add derivations to the pieces of rows, and let rows go or come.

    `old[offsets[i]:offsets[i + 1]]` are the pieces of row i, `order[given[i]:given[i + 1]]` the positions of its
    derivations.  Returns the new pieces with their offsets, what goes or comes as (row, lo, hi, weight, birth), which
    rows are still due, and whether the derivations were ones that can be.
    """
    n = len(offsets) - 1
    most = 2 * len(old) + n + 2 * len(order)
    new = np.empty((most, PIECE), np.int64)
    new_offsets = np.zeros(n + 1, np.int64)
    sent = np.empty((most, 5), np.int64)
    due = np.zeros(n, np.bool_)
    legal = True
    end = 0
    m = 0
    longest = 0
    for i in range(n):
        longest = max(longest, given[i + 1] - given[i])
    time = np.empty(2 * longest, np.int64)
    count = np.empty(2 * longest, np.int64)
    before = np.empty(2 * longest, np.int64)
    for i in range(n):
        edges = _edges(given[i], given[i + 1], order, lo, hi, weight, premise, time, count, before)
        first = end
        first_sent = m
        at = offsets[i]
        last = offsets[i + 1]
        passed = 0
        added = 0
        # the pieces and the gaps between them, one after the other
        start = time[0] if edges > 0 else old[at, LO] if at < last else 0
        if at < last and old[at, LO] < start:
            start = old[at, LO]
        while at < last or passed < edges:
            if at < last and old[at, LO] == start:
                stop = old[at, HI]
                born = old[at, BIRTH]
                low = old[at, LOW]
                total = old[at, ALL]
                at += 1
            else:
                stop = old[at, LO] if at < last else time[edges - 1]
                born = low = total = np.int64(0)
                if stop == start:
                    break
            while passed < edges and time[passed] <= start:
                added += count[passed]
                passed += 1
            older = np.int64(0)
            if born > 0:
                for e in range(passed):
                    if before[e] < born:
                        older += count[e]
            here = start
            while True:
                then = time[passed] if passed < edges and time[passed] < stop else stop
                b = born
                lw = low + older
                t = total + added
                if t < 0 or (b > 0 and lw < 0):
                    legal = False
                if phase == DELETE and b > 0 and lw <= 0:
                    if m > first_sent and sent[m - 1, 2] == here and sent[m - 1, 4] == b:
                        sent[m - 1, 2] = then
                    else:
                        sent[m, 0] = i
                        sent[m, 1] = here
                        sent[m, 2] = then
                        sent[m, 3] = -1
                        sent[m, 4] = b
                        m += 1
                    b = np.int64(0)
                elif phase == INSERT and b == 0 and t > 0:
                    if m > first_sent and sent[m - 1, 2] == here:
                        sent[m - 1, 2] = then
                    else:
                        sent[m, 0] = i
                        sent[m, 1] = here
                        sent[m, 2] = then
                        sent[m, 3] = 1
                        sent[m, 4] = birth
                        m += 1
                    b = birth
                    lw = t
                if b == 0:
                    lw = np.int64(0)
                    if t > 0:
                        due[i] = True
                if b > 0 or t > 0:
                    same = (
                        end > first
                        and new[end - 1, HI] == here
                        and new[end - 1, BIRTH] == b
                        and new[end - 1, LOW] == lw
                        and new[end - 1, ALL] == t
                    )
                    if same:
                        new[end - 1, HI] = then
                    else:
                        new[end, LO] = here
                        new[end, HI] = then
                        new[end, BIRTH] = b
                        new[end, LOW] = lw
                        new[end, ALL] = t
                        end += 1
                if then == stop:
                    break
                while passed < edges and time[passed] == then:
                    added += count[passed]
                    if born > 0 and before[passed] < born:
                        older += count[passed]
                    passed += 1
                here = then
            start = stop
        new_offsets[i + 1] = end
    return new[:end].copy(), new_offsets, sent[:m].copy(), due, legal


@njit(cache=True, nogil=True, inline="always")
def _edges(first, last, order, lo, hi, weight, premise, time, count, before):
    """The starts and ends of a row's derivations in the order of time; how many there are."""
    n = 0
    for j in range(first, last):
        i = order[j]
        time[n] = lo[i]
        count[n] = weight[i]
        before[n] = premise[i]
        time[n + 1] = hi[i]
        count[n + 1] = -weight[i]
        before[n + 1] = premise[i]
        n += 2
    if n <= 32:
        for i in range(1, n):
            t = time[i]
            c = count[i]
            b = before[i]
            j = i - 1
            while j >= 0 and time[j] > t:
                time[j + 1] = time[j]
                count[j + 1] = count[j]
                before[j + 1] = before[j]
                j -= 1
            time[j + 1] = t
            count[j + 1] = c
            before[j + 1] = b
    else:
        by_time = np.argsort(time[:n], kind="mergesort")
        time[:n] = time[:n][by_time]
        count[:n] = count[:n][by_time]
        before[:n] = before[:n][by_time]
    return n


@njit(cache=True, nogil=True)
def distinct(ids, seen):
    """Each id once, in the order of first sight; `seen` is scratch (-1)."""
    out = np.empty(len(ids), np.int64)
    n = 0
    for i in range(len(ids)):
        if seen[ids[i]] < 0:
            seen[ids[i]] = n
            out[n] = ids[i]
            n += 1
    for i in range(n):
        seen[out[i]] = -1
    return out[:n].copy()


@njit(cache=True, nogil=True)
def first_ends(ids, pool, start, length):
    """When the first record of each id ends."""
    out = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        low = _INF
        for at in range(start[ids[i]], start[ids[i]] + length[ids[i]]):
            low = min(low, pool[at, HI])
        out[i] = low
    return out


@njit(cache=True, nogil=True)
def drop_ended(old, offsets, until):
    """The pieces that end after `until`, and their offsets."""
    new = np.empty((len(old), old.shape[1]), np.int64)
    new_offsets = np.zeros(len(offsets), np.int64)
    end = 0
    for i in range(len(offsets) - 1):
        for at in range(offsets[i], offsets[i + 1]):
            if old[at, HI] > until:
                new[end] = old[at]
                end += 1
        new_offsets[i + 1] = end
    return new[:end].copy(), new_offsets
