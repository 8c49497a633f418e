"""Lifetimes under a time window."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def windowed(lo, hi, size, slide, inf):
    """Each lifetime `size - 1` longer, then both ends rounded up to the next instant that is one before a multiple of
    the slide.

    Returns the starts and ends, how many are not empty, the longest lifetime given, and the largest finite end before
    rounding.
    """
    n = len(lo)
    starts = np.empty(n, np.int64)
    ends = np.empty(n, np.int64)
    left = 0
    longest = np.int64(0)
    last = np.int64(0)
    for i in range(n):
        a = lo[i]
        b = hi[i]
        longest = max(longest, b - a if b != inf else inf)
        if b != inf:
            b = b + (size - 1) if size != inf else inf
        if b != inf:
            last = max(last, b)
        if slide > 1:
            a = -((-1 - a) // slide) * slide - 1
            if b != inf:
                b = -((-1 - b) // slide) * slide - 1
        starts[i] = a
        ends[i] = b
        left += a < b
    return starts, ends, left, longest, last
