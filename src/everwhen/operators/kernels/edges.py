"""Segments as edges: what changes at each instant, grouped by key and sorted by time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.time import INF

_INF: Final = np.int64(INF)


@njit(cache=True, inline="always")
def added(hi, lo, dh, dl):
    """(hi, lo) + (dh, dl) in twice the precision."""
    s = hi + dh
    b = s - hi
    e = (hi - (s - b)) + (dh - b) + lo + dl
    h = s + e
    return h, e - (h - s)


@njit(cache=True)
def group_edges(kid, lo, hi, values, values_f, ni, na, slot):
    """Segments as consolidated edge deltas, grouped by key and sorted by time.

    The first `ni` of `na` added lanes are integers.  `slot` is scratch, one entry per key id, all -1 (and left so).
    Returns the keys, the offsets of their edges, per edge its time, lane deltas and the change in the number of open
    segments, and per key the first and last time.
    """
    n = len(kid)
    keys = np.empty(n, np.int64)
    group = np.empty(n, np.int64)
    counts = np.zeros(n + 1, np.int64)
    ng = 0
    for i in range(n):
        k = kid[i]
        g = slot[k]
        if g < 0:
            g = ng
            slot[k] = g
            keys[g] = k
            ng += 1
        group[i] = g
        counts[g + 1] += 2 if hi[i] != _INF else 1
    for g in range(ng):
        slot[keys[g]] = -1
        counts[g + 1] += counts[g]
    total = counts[ng]
    time = np.empty(total, np.int64)
    ref = np.empty(total, np.int64)
    fill = counts[:ng].copy()
    for i in range(n):
        g = group[i]
        at = fill[g]
        time[at] = lo[i]
        ref[at] = i
        if hi[i] != _INF:
            time[at + 1] = hi[i]
            ref[at + 1] = ~i
            fill[g] = at + 2
        else:
            fill[g] = at + 1
    et = np.empty(total, np.int64)
    ed = np.zeros((total, na), np.int64)
    ef = ed.view(np.float64)
    er = np.zeros(total, np.int64)
    offsets = np.empty(ng + 1, np.int64)
    first = np.empty(ng, np.int64)
    last = np.empty(ng, np.int64)
    out = 0
    for g in range(ng):
        a = counts[g]
        b = counts[g + 1]
        _sort(time, ref, a, b)
        offsets[g] = out
        open_ = 0
        x = a
        while x < b:
            t = time[x]
            et[out] = t
            refs = 0
            while x < b and time[x] == t:
                r = ref[x]
                if r >= 0:
                    refs += 1
                    for j in range(ni):
                        ed[out, j] += values[r, j]
                    for j in range(ni, na, 2):
                        ef[out, j], ef[out, j + 1] = added(
                            ef[out, j], ef[out, j + 1], values_f[r, j], values_f[r, j + 1]
                        )
                else:
                    refs -= 1
                    r = ~r
                    for j in range(ni):
                        ed[out, j] -= values[r, j]
                    for j in range(ni, na, 2):
                        ef[out, j], ef[out, j + 1] = added(
                            ef[out, j], ef[out, j + 1], -values_f[r, j], -values_f[r, j + 1]
                        )
                x += 1
            er[out] = refs
            open_ += refs
            out += 1
        first[g] = time[a]
        last[g] = _INF if open_ != 0 else time[b - 1]
    offsets[ng] = out
    return keys[:ng], offsets, et[:out], ed[:out], er[:out], first, last


@njit(cache=True)
def _sort(time, ref, a, b):
    """Sort a run by time: by insertion if it is short."""
    if b - a <= 48:
        for x in range(a + 1, b):
            t = time[x]
            r = ref[x]
            y = x - 1
            while y >= a and time[y] > t:
                time[y + 1] = time[y]
                ref[y + 1] = ref[y]
                y -= 1
            time[y + 1] = t
            ref[y + 1] = r
    else:
        order = np.argsort(time[a:b])
        time[a:b] = time[a:b][order]
        ref[a:b] = ref[a:b][order]
