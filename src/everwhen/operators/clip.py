"""What of a run may be said: the clips of the emission policies, and where they cut.

Nothing at or after the frontier F is said, and edges after the limit L do not count.
  CUT       F = θ                                    everything before θ, cut there
  ENDED     F = max(m, last edge ≤ τ)                pieces that have ended by τ; cut at the promise m
  KNOWN     F = first edge > τ                       also the piece open at τ, as far as it is known
  INFINITE  F = ∞, L = τ                             also the piece open at τ, without an end
  ENDING    F = max(θ, last edge)                    all that ends, however late; what never ends is cut at θ
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF

CUT: Final = 0
ENDED: Final = 1
KNOWN: Final = 2
INFINITE: Final = 3
ENDING: Final = 4

NEW: Final = 10
"""So many if all that happens is after τ."""

_INF: Final = np.int64(INF)


@njit(cache=True, inline="always")
def after(pool, s, n, t):
    """The position of the first of the sorted edges that is later than `t`; at least one is not."""
    # of many edges mostly one of the last is meant, and each look at an old one is a cache miss
    tail = NEW
    while tail < n and pool[s + n - tail, 0] > t:
        tail <<= 2
    if tail < n:
        s += n - tail
        n = tail
    # without a branch: where an edge stands can't be foretold, and a wrong guess costs more than the search
    while n > 1:
        half = n >> 1
        s += half * (pool[s + half, 0] <= t)
        n -= half
    return s + 1


@njit(cache=True, inline="always")
def after_from(pool, at, end, t):
    """The same, from a position on whose edge is not later than `t`: mostly the next one is."""
    if at + 1 >= end or pool[at + 1, 0] > t:
        return at + 1
    return after(pool, at + 1, end - at - 1, t)


@njit(cache=True, inline="always")
def frontier_of(pool, s, n, mode, tau, m):
    if mode == CUT:
        return tau
    if mode == INFINITE:
        return _INF
    if mode == ENDING:
        return max(tau, pool[s + n - 1, 0])
    at = after(pool, s, n, tau)
    if mode == ENDED:
        return max(m, pool[at - 1, 0])
    return pool[at, 0] if at < s + n else _INF


@njit(cache=True, inline="always")
def alive(pool, at, ni):
    if pool[at, 1] != 0:
        return True
    for c in range(2, 1 + ni):
        if pool[at, c] != 0:
            return True
    return False


@njit(cache=True, inline="always")
def raised(floor, k, mode, tau, m):
    """τ (or θ) and the promise of a key: what is promised of it alone counts as the promise of all does."""
    if len(floor) == 0 or floor[k] <= m:
        return tau, m
    return (tau if mode == ENDED else max(tau, floor[k])), floor[k]
