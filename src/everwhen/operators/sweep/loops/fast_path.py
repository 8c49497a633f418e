"""A visit in the usual case: two integer lanes, a count and a sum, said as of now.

Edges up to τ count then, and the piece open at τ has no end.  So what a lifetime changes can be told while walking over
the new edges once: up to the former τ the old lanes are the new ones without what the lifetime adds, from there on the
old ones are those of the last edge before.  Nothing is copied aside, and where no lifetime has come the walk is over
the few edges that τ has passed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF

_INF: Final = np.int64(INF)


@njit(cache=True, inline="always")
def one_lifetime(j, j1, et, ed, start, stop):
    """Whether new edges are the start and the end of one lifetime, so that a count changes at either.

    `start` and `stop` are those of all that came; what was taken back again has left no edges.
    """
    if j1 - j != 2 or et[j] != start or et[j + 1] != stop or ed[j, 0] == 0:
        return False
    return ed[j, 0] + ed[j + 1, 0] == 0 and ed[j, 1] + ed[j + 1, 1] == 0


@njit(cache=True, inline="always")
def enter(pool, at, to, end, start, stop, d0, d1):
    """Write the edges of a lifetime behind those at `at` and `to`; all that follow move, and those between change."""
    for x in range(end - 1, to, -1):
        pool[x + 2, 0] = pool[x, 0]
        pool[x + 2, 1] = pool[x, 1]
        pool[x + 2, 2] = pool[x, 2]
    pool[to + 2, 0] = stop
    pool[to + 2, 1] = pool[to, 1]
    pool[to + 2, 2] = pool[to, 2]
    for x in range(to, at, -1):
        pool[x + 1, 0] = pool[x, 0]
        pool[x + 1, 1] = pool[x, 1] + d0
        pool[x + 1, 2] = pool[x, 2] + d1
    pool[at + 1, 0] = start
    pool[at + 1, 1] = pool[at, 1] + d0
    pool[at + 1, 2] = pool[at, 2] + d1


@njit(cache=True, inline="always")
def _same(a0, a1, b0, b1, tests):
    """Whether lanes say the same; of the first `tests` lanes all that counts is whether they are positive."""
    same0 = (a0 > 0) == (b0 > 0) if tests > 0 else a0 == b0
    same1 = (a1 > 0) == (b1 > 0) if tests > 1 else a1 == b1
    return same0 and same1


@njit(cache=True, inline="always")
def _put(out, n, first, v, lo, hi, c0, c1, tests):
    """Append a piece, or lengthen the one before it if it says the same."""
    if n > first and out[n - 1, 2] == lo and _same(out[n - 1, 3], out[n - 1, 4], c0, c1, tests):
        out[n - 1, 2] = hi
        return n
    out[n, 0] = v
    out[n, 1] = lo
    out[n, 2] = hi
    out[n, 3] = c0
    out[n, 4] = c1
    return n + 1


@njit(cache=True, inline="always")
def say_now(v, pool, x, end, then, now, entered, tests, taken, nt, said, ns):
    """Append the pieces that change when τ goes on from `then` to `now` and a lifetime has added something to the edges
    from behind `x` to its end (`Entered`).  Returns also the position of the first edge after `now`."""
    stop, d0, d1 = entered.stop, entered.to_count, entered.to_sum
    first_taken = nt
    first_said = ns
    o0 = pool[x, 1]
    o1 = pool[x, 2]
    x += 1
    t = pool[x, 0] if x < end else _INF
    while t <= now and x < end:
        n0 = pool[x, 1]
        n1 = pool[x, 2]
        if t <= then:
            o0 = n0 - d0 if t < stop else n0
            o1 = n1 - d1 if t < stop else n1
        x += 1
        after = pool[x, 0] if x < end else _INF
        until = after if after <= now else _INF
        was = (o0 | o1) != 0
        to_be = (n0 | n1) != 0
        if was != to_be or not _same(o0, o1, n0, n1, tests):
            if was:
                nt = _put(taken, nt, first_taken, v, t, until, o0, o1, tests)
            if to_be:
                ns = _put(said, ns, first_said, v, t, until, n0, n1, tests)
        t = after
    return nt, ns, x
