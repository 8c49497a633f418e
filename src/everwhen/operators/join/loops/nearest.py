"""Pairs of points and intervals of values, of one key, that live together.

Points stand in the order of keys and values.  Those of an interval are neighbours; blocks of them in which nothing
lives together with it are passed by: of values alone, or of lifetimes alone, there may be very many.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.operators.join.loops.lifetimes import doubled

NEAR: Final = 5
FAR: Final = 10
"""Blocks are of 32 and of 1,024 points."""


class Spans(NamedTuple):
    """Points or intervals: keys, least and largest values (points: the same), starts, ends."""

    ids: np.ndarray
    low: np.ndarray
    high: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


class Blocks(NamedTuple):
    """The least start and the largest end in each block of points, small and large blocks."""

    near: np.ndarray
    far: np.ndarray


@njit(cache=True, nogil=True)
def blocks_of(lo, hi, shift):
    """The least start and the largest end of each block of `1 << shift` points."""
    n = len(lo)
    out = np.empty(((n >> shift) + 1, 2), np.int64)
    for b in range(len(out)):
        first = b << shift
        stop = min(n, first + (1 << shift))
        if first < stop:
            out[b, 0] = lo[first:stop].min()
            out[b, 1] = hi[first:stop].max()
    return out


@njit(cache=True)
def _from(points, k, value):
    """The first point of a key, or behind it, whose value is not below one."""
    a = 0
    b = len(points.ids)
    while a < b:
        middle = (a + b) >> 1
        if points.ids[middle] < k or (points.ids[middle] == k and points.low[middle] < value):
            a = middle + 1
        else:
            b = middle
    return a


@njit(cache=True, nogil=True)
def probe_points(points, blocks, intervals, first, cap):
    """Pairs (interval, point) for the intervals from `first` on.  Stops after the interval with which `cap` pairs are
    reached; returns the pairs and where to go on."""
    left = np.empty(1024, np.int64)
    right = np.empty(1024, np.int64)
    n = 0
    i = first
    m = len(points.ids)
    while i < len(intervals.ids) and n < cap:
        k = intervals.ids[i]
        high = intervals.high[i]
        x = intervals.lo[i]
        y = intervals.hi[i]
        at = _from(points, k, intervals.low[i])
        while at < m and points.ids[at] == k and points.low[at] <= high:
            far = at >> FAR
            if at & ((1 << FAR) - 1) == 0 and (blocks.far[far, 0] >= y or blocks.far[far, 1] <= x):
                at += 1 << FAR
                continue
            near = at >> NEAR
            if at & ((1 << NEAR) - 1) == 0 and (blocks.near[near, 0] >= y or blocks.near[near, 1] <= x):
                at += 1 << NEAR
                continue
            if points.lo[at] < y and x < points.hi[at]:
                if n == len(left):
                    left = doubled(left)
                    right = doubled(right)
                left[n] = i
                right[n] = at
                n += 1
            at += 1
        i += 1
    return left[:n], right[:n], i
