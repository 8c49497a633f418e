"""Loops over the events of a row: netting, dropping what has ended, level forms."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.core.time import INF

_INF: Final = np.int64(INF)
_FEW: Final = 64
"""So many edges of a row are sorted by insertion."""


@njit(cache=True)
def sort_edges(t, d):
    """Sort times, and what changes at each with them; few are mostly in order already."""
    n = len(t)
    if n > _FEW:
        by = np.argsort(t)
        t[:], d[:] = t[by], d[by]
        return
    for x in range(1, n):
        time, delta = t[x], d[x]
        y = x - 1
        while y >= 0 and t[y] > time:
            t[y + 1], d[y + 1] = t[y], d[y]
            y -= 1
        t[y + 1], d[y + 1] = time, delta


@njit(cache=True, nogil=True)
def net(keys, offsets, order, lo, hi, weight):
    """The sum of signed segments per key as disjoint segments: key, lo, hi, weight (never zero)."""
    total = 2 * len(order)
    out = np.empty((total + 1, 4), np.int64)
    times, deltas = np.empty(64, np.int64), np.empty(64, np.int64)
    n = 0
    for g in range(len(keys)):
        a = offsets[g]
        m = offsets[g + 1] - a
        if m == 1:
            i = order[a]
            out[n, 0] = keys[g]
            out[n, 1] = lo[i]
            out[n, 2] = hi[i]
            out[n, 3] = weight[i]
            n += 1
            continue
        if m == 2:  # mostly what was said is taken back
            i, j = order[a], order[a + 1]
            if lo[i] == lo[j] and hi[i] == hi[j] and weight[i] == -weight[j]:
                continue
        if 2 * m > len(times):
            times = np.empty(4 * m, np.int64)
            deltas = np.empty(4 * m, np.int64)
        t, d = times[: 2 * m], deltas[: 2 * m]
        for x in range(m):
            i = order[a + x]
            t[2 * x] = lo[i]
            d[2 * x] = weight[i]
            t[2 * x + 1] = hi[i]
            d[2 * x + 1] = -weight[i]
        sort_edges(t, d)
        level = 0
        x = 0
        since = np.int64(0)
        while x < 2 * m:
            now = t[x]
            change = 0
            while x < 2 * m and t[x] == now:
                change += d[x]
                x += 1
            if change == 0:
                continue
            if level != 0:
                out[n, 0] = keys[g]
                out[n, 1] = since
                out[n, 2] = now
                out[n, 3] = level
                n += 1
            level += change
            since = now
    return out[:n]


@njit(cache=True, nogil=True)
def levels(keys, offsets, records, out_offsets, longest):
    """The level form of signed records `[lo, hi, weight]` per key: maximal intervals, level k where the sum is ≥ k.

    Level k opens where the sum rises to k and closes where it falls below: last opened, first closed.  Intervals longer
    than `longest` are cut into pieces of that length.  Returns records `[lo, hi, 1]`; the sum must never be negative.
    """
    out = np.empty((2 * len(records) + 64, 3), np.int64)
    n = 0
    for g in range(len(keys)):
        out_offsets[g] = n
        a = offsets[g]
        m = offsets[g + 1] - a
        t = np.empty(2 * m, np.int64)
        d = np.empty(2 * m, np.int64)
        for x in range(m):
            t[2 * x] = records[a + x, 0]
            d[2 * x] = records[a + x, 2]
            t[2 * x + 1] = records[a + x, 1]
            d[2 * x + 1] = -records[a + x, 2]
        by = np.argsort(t)
        opened = np.empty(64, np.int64)
        depth = 0
        x = 0
        while x < 2 * m:
            now = t[by[x]]
            change = 0
            while x < 2 * m and t[by[x]] == now:
                change += d[by[x]]
                x += 1
            while change > 0:
                if depth == len(opened):
                    more = np.empty(2 * depth, np.int64)
                    more[:depth] = opened
                    opened = more
                opened[depth] = now
                depth += 1
                change -= 1
            while change < 0 and depth > 0:
                depth -= 1
                since = opened[depth]
                while True:
                    until = now
                    if longest > 0 and now != _INF and now - since > longest:
                        until = since + longest
                    if n == len(out):
                        bigger = np.empty((2 * n, 3), np.int64)
                        bigger[:n] = out
                        out = bigger
                    out[n, 0] = since
                    out[n, 1] = until
                    out[n, 2] = 1
                    n += 1
                    since = until
                    if since == now:
                        break
                change += 1
    out_offsets[len(keys)] = n
    return out[:n]


@njit(cache=True, inline="always")
def hashed(rows, i, first):
    """The hash of a row that begins in column `first`."""
    h = np.uint64(0x243F6A8885A308D3)
    for j in range(first, rows.shape[1]):
        h = (h ^ np.uint64(rows[i, j])) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def slot_shift(count):
    """By how many bits a hash is shifted to be one of so many slots, a power of two: by its high bits, so that a part
    of all hashes is a part of all slots, however many there are."""
    bits = 64
    while count > 1:
        count >>= 1
        bits -= 1
    return np.uint64(min(bits, 63))


@loop
def parts(rows, count, found):
    """The parts, of so many (a power of two), to which rows belong by the high bits of their hash."""
    shift = slot_shift(count)
    for i in range(len(rows)):
        found[i] = np.int64((hashed(rows, i, 0) >> shift) & np.uint64(count - 1))


@njit(cache=True, inline="always")
def same(rows, i, log, at, first):
    """Whether row i is that of an entry of a log, from a column on."""
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
            slot = hashed(rows, i, 0) & mask
            while slots[slot] >= 0 and not same(rows, i, rows, member[slots[slot]], 0):
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
