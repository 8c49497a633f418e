"""Compiled loops over disjoint closed intervals in order, each with a time, and over byte strings between cuts.

Nothing here knows of patterns; the classes that own the arrays are `IntervalSet` and `ByteSteps`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit

_NEVER: Final = np.int64(-(2**63))


@njit(cache=True, inline="always")
def _emit(lo, hi, t, outs, k, first):
    """Appends a piece, or makes the last one longer; the new length."""
    if k > first and outs[k - 1, 2] == t and outs[k - 1, 1] + 1 == lo:
        outs[k - 1, 1] = hi
        return k
    outs[k, 0] = lo
    outs[k, 1] = hi
    outs[k, 2] = t
    return k + 1


@njit(cache=True)
def least_and_most(times):
    """The smallest and the largest of some times, of which there is one at least."""
    least = most = times[0]
    for t in times:
        least, most = min(least, t), max(most, t)
    return least, most


@njit(cache=True)
def merge_pieces(a, i, n, b, j, m, outs, first):
    """The larger time at each point of `a[i:n]` and `b[j:m]`, written from `first` on; where the output ends."""
    k = first
    la = a[i, 0] if i < n else 0
    lb = b[j, 0] if j < m else 0
    while i < n or j < m:
        if j == m or (i < n and a[i, 1] < lb):
            k = _emit(la, a[i, 1], a[i, 2], outs, k, first)
            i += 1
            la = a[i, 0] if i < n else 0
        elif i == n or b[j, 1] < la:
            k = _emit(lb, b[j, 1], b[j, 2], outs, k, first)
            j += 1
            lb = b[j, 0] if j < m else 0
        elif la < lb:
            k = _emit(la, lb - 1, a[i, 2], outs, k, first)
            la = lb
        elif lb < la:
            k = _emit(lb, la - 1, b[j, 2], outs, k, first)
            lb = la
        else:
            h = min(a[i, 1], b[j, 1])
            k = _emit(la, h, max(a[i, 2], b[j, 2]), outs, k, first)
            if a[i, 1] == h:
                i += 1
                la = a[i, 0] if i < n else 0
            else:
                la = h + 1
            if b[j, 1] == h:
                j += 1
                lb = b[j, 0] if j < m else 0
            else:
                lb = h + 1
    return k


@njit(cache=True)
def envelope(pieces):
    """The largest time at each point of any intervals, in any order, by merging neighbours of twice the size.

    `n` intervals have at most `2 n - 1` pieces.
    """
    n = len(pieces)
    here, there = np.empty((2 * n, 3), np.int64), np.empty((2 * n, 3), np.int64)
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        here[2 * i] = pieces[i]
        starts[i], ends[i] = 2 * i, 2 * i + 1
    runs = n
    while runs > 1:
        out = 0
        for r in range(0, runs, 2):
            first = starts[r]
            if r + 1 < runs:
                end = merge_pieces(here, starts[r], ends[r], here, starts[r + 1], ends[r + 1], there, first)
            else:
                end = merge_pieces(here, starts[r], ends[r], here, 0, 0, there, first)
            starts[out], ends[out] = first, end
            out += 1
        runs = out
        here, there = there, here
    return here[starts[0] : ends[0]].copy() if n else pieces


@njit(cache=True, inline="always")
def last_at_or_before(pieces, x):
    """The last piece that starts at or before x, -1 if there is none."""
    base, size = 0, len(pieces)
    while size > 1:
        half = size >> 1
        base = base + half if pieces[base + half, 0] <= x else base
        size -= half
    return base if size and pieces[base, 0] <= x else -1


@njit(cache=True)
def raise_to(pieces, points, out):
    """Raises `out` to the time of the piece that each point lies in."""
    for i in range(len(points)):
        at = last_at_or_before(pieces, points[i])
        if at >= 0 and points[i] <= pieces[at, 1] and pieces[at, 2] > out[i]:
            out[i] = pieces[at, 2]


@njit(cache=True)
def overlaps(a, b, outs):
    """The pieces that lie in both, with the smaller time; how many (at most `len(a) + len(b)`)."""
    i, j, k = 0, 0, 0
    while i < len(a) and j < len(b):
        lo, hi = max(a[i, 0], b[j, 0]), min(a[i, 1], b[j, 1])
        if lo <= hi:
            k = _emit(lo, hi, min(a[i, 2], b[j, 2]), outs, k, 0)
        if a[i, 1] < b[j, 1]:
            i += 1
        else:
            j += 1
    return k


@njit(cache=True)
def positions(offsets, first, data, cut_offsets, cut_data, out):
    """How many cuts are at or before each byte string."""
    for i in range(len(out)):
        a, b = offsets[first + i], offsets[first + i + 1]
        low, high = 0, len(cut_offsets) - 1
        while low < high:
            mid = (low + high) // 2
            c, d = cut_offsets[mid], cut_offsets[mid + 1]
            size = min(b - a, d - c)
            j = 0
            while j < size and data[a + j] == cut_data[c + j]:
                j += 1
            if (data[a + j] < cut_data[c + j]) if j < size else b - a < d - c:
                high = mid
            else:
                low = mid + 1
        out[i] = low
