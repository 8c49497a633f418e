"""Lifetimes under a time window."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, inline="always")
def _rounded_up(t, slide):
    """The next instant at or after `t` that is one before a multiple of the slide."""
    return -((-1 - t) // slide) * slide - 1


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
    # the last rounded start and end: most lifetimes are rounded to the same ones, and a division is dear
    up_a = _rounded_up(lo[0], slide) if n > 0 else np.int64(0)
    up_b = up_a
    for i in range(n):
        a = lo[i]
        b = hi[i]
        longest = max(longest, b - a if b != inf else inf)
        if b != inf:
            b = b + (size - 1) if size != inf else inf
        if b != inf:
            last = max(last, b)
        if slide > 1:
            if a > up_a or a <= up_a - slide:
                up_a = _rounded_up(a, slide)
            a = up_a
            if b != inf:
                if b > up_b or b <= up_b - slide:
                    up_b = _rounded_up(b, slide)
                b = up_b
        starts[i] = a
        ends[i] = b
        left += a < b
    return starts, ends, left, longest, last
