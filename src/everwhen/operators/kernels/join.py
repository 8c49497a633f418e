"""Probing: which kept records overlap which changes."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def probe(ids, lo, hi, first, last, start, length, pool, cap):
    """Pairs (change, record) of one key whose lifetimes overlap, for changes `first`…`last`.

    Stops after the change with which `cap` pairs are reached; returns the pairs and where to go on.
    """
    left = np.empty(1024, np.int64)
    right = np.empty(1024, np.int64)
    n = 0
    i = first
    while i < last and n < cap:
        k = ids[i]
        if k >= 0:
            s = start[k]
            m = length[k]
            if n + m > len(left):
                size = 2 * (n + m)
                a = np.empty(size, np.int64)
                a[:n] = left[:n]
                left = a
                b = np.empty(size, np.int64)
                b[:n] = right[:n]
                right = b
            x = lo[i]
            y = hi[i]
            for at in range(s, s + m):
                if pool[at, 0] < y and x < pool[at, 1]:
                    left[n] = i
                    right[n] = at
                    n += 1
        i += 1
    return left[:n], right[:n], i


@njit(cache=True)
def probe_band(lo, hi, low, high, first, last, s, order, values, pool, cap):
    """Pairs whose lifetimes overlap and whose record's value (sorted in `values`) lies in `[low, high]`."""
    left = np.empty(1024, np.int64)
    right = np.empty(1024, np.int64)
    n = 0
    i = first
    m = len(order)
    while i < last and n < cap:
        a = 0
        b = m
        while a < b:
            mid = (a + b) >> 1
            if values[mid] < low[i]:
                a = mid + 1
            else:
                b = mid
        x = lo[i]
        y = hi[i]
        while a < m and values[a] <= high[i]:
            at = s + order[a]
            if pool[at, 0] < y and x < pool[at, 1]:
                if n == len(left):
                    p = np.empty(2 * n, np.int64)
                    p[:n] = left
                    left = p
                    q = np.empty(2 * n, np.int64)
                    q[:n] = right
                    right = q
                left[n] = i
                right[n] = at
                n += 1
            a += 1
        i += 1
    return left[:n], right[:n], i
