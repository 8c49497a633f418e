"""Lifetimes under a time window."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.core.time import INF

_INF: Final = np.int64(INF)
_SHORT: Final = 1 << 40
"""Slides up to this can be added to any time a few times."""


@njit(cache=True, inline="always")
def _rounded_up(t, slide):
    """The next instant at or after `t` that is one before a multiple of the slide."""
    return -((-1 - t) // slide) * slide - 1


@loop
def windowed(lo, hi, size, slide, starts, ends):
    """Each lifetime `size - 1` longer, then both ends rounded up to the next instant that is one before a multiple of
    the slide: into `starts` and `ends`.

    Returns how many are not empty, the longest lifetime given, and the largest finite end before rounding.
    """
    longest = np.int64(0)
    last = np.int64(0)
    more = _INF if size == _INF else np.int64(size - 1)
    for i in range(len(lo)):
        a = lo[i]
        b = hi[i]
        longest = max(longest, _INF if b == _INF else b - a)
        b = _INF if b == _INF or more == _INF else b + more
        last = max(last, 0 if b == _INF else b)
        starts[i] = a
        ends[i] = b
    if slide > 1:
        _round_up(starts, slide)
        _round_up(ends, slide)
    left = np.int64(0)
    for i in range(len(lo)):
        left += np.int64(starts[i] < ends[i])
    return left, longest, last


@njit(cache=True, inline="always")
def _round_up(times, slide):
    """Round finite times up in place.  A division is dear: if the times of a batch are rounded to a few instants, the
    borders that each has passed are counted, else it is seen whether it is rounded as the one before."""
    least = _INF
    most = -_INF
    for i in range(len(times)):
        t = times[i]
        least = min(least, t)
        most = max(most, -_INF if t == _INF else t)
    up = _rounded_up(least, slide) if least < _INF else _INF
    if slide <= _SHORT and most <= up + 4 * slide:
        for i in range(len(times)):
            t = times[i]
            passed = np.int64(t > up) + np.int64(t > up + slide)
            passed += np.int64(t > up + 2 * slide) + np.int64(t > up + 3 * slide)
            times[i] = _INF if t == _INF else up + slide * passed
        return
    for i in range(len(times)):
        t = times[i]
        if t != _INF:
            if t > up or t <= up - slide:
                up = _rounded_up(t, slide)
            times[i] = up
