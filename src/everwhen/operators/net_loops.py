"""Loops over the events of a row: netting, dropping what has ended, level forms."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF

_INF: Final = np.int64(INF)


@njit(cache=True, nogil=True)
def net(keys, offsets, order, lo, hi, weight):
    """The sum of signed segments per key as disjoint segments: key, lo, hi, weight (never zero)."""
    total = 2 * len(order)
    out = np.empty((total + 1, 4), np.int64)
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
        t = np.empty(2 * m, np.int64)
        d = np.empty(2 * m, np.int64)
        for x in range(m):
            i = order[a + x]
            t[2 * x] = lo[i]
            d[2 * x] = weight[i]
            t[2 * x + 1] = hi[i]
            d[2 * x + 1] = -weight[i]
        by = np.argsort(t)
        level = 0
        x = 0
        since = np.int64(0)
        while x < 2 * m:
            now = t[by[x]]
            change = 0
            while x < 2 * m and t[by[x]] == now:
                change += d[by[x]]
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
