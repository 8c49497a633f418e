"""New edges merged into the run of a key: the first part of a visit of the sweep."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF
from everwhen.operators.sweep.loops.edges import added

_INF: Final = np.int64(INF)


@njit(cache=True, inline="always")
def _clear(delta):
    for c in range(len(delta)):
        delta[c] = 0


@njit(cache=True, inline="always")
def merge(old, i, i1, j, j1, edges, ni, na, pool, w, prune, delta):
    """Write the edges behind the one at `w`, which is that of `old` at `i`: those of `old` up to `i1`, and the new ones
    from `j` to `j1`.  Returns the position behind the last."""
    et, ed, er = edges.time, edges.delta, edges.open
    width = pool.shape[1]
    _clear(delta)
    cur = i
    i += 1
    w += 1
    refs = 0
    while i < i1 or j < j1:
        t = old[i, 0] if j >= j1 or (i < i1 and old[i, 0] <= et[j]) else et[j]
        if i < i1 and old[i, 0] == t:
            cur = i
            i += 1
        if j < j1 and et[j] == t:
            refs += er[j]
            if refs == 0:
                _clear(delta)
            else:
                for c in range(ni):
                    delta[c] += ed[j, c]
                if na > ni:
                    _add_floats(delta, ed, j, ni, na)
            j += 1
        same = prune
        empty = True
        for c in range(ni):
            value = old[cur, 1 + c] + delta[c]
            if value != 0:
                empty = False
            if value != pool[w - 1, 1 + c]:
                same = False
            pool[w, 1 + c] = value
        if na > ni:
            for c in range(1 + ni, 1 + na):
                pool[w, c] = 0 if empty else old[cur, c]  # where nothing is alive, sums are exactly zero
            if not empty:
                _add_lanes(pool, w, delta, ni, na)
            for c in range(1 + ni, 1 + na):
                if pool[w, c] != pool[w - 1, c]:
                    same = False
        if same:
            continue
        for c in range(1 + na, width):
            pool[w, c] = old[cur, c]
        if width > 1 + na and refs != 0:
            pool[w, width - 1] = 0
        pool[w, 0] = t
        w += 1
    return w


@njit(cache=True, inline="always")
def merge_two(old, i, i1, j, j1, et, ed, pool, w, prune):
    """The same for two integer lanes and nothing else, the usual case: a count and a sum."""
    d0 = d1 = np.int64(0)
    c0 = before0 = old[i, 1]
    c1 = before1 = old[i, 2]
    i += 1
    w += 1
    t_old = old[i, 0] if i < i1 else _INF
    t_new = et[j] if j < j1 else _INF
    while t_old < _INF or t_new < _INF:
        t = min(t_old, t_new)
        if t_old == t:
            c0 = old[i, 1]
            c1 = old[i, 2]
            i += 1
            t_old = old[i, 0] if i < i1 else _INF
        if t_new == t:
            d0 += ed[j, 0]
            d1 += ed[j, 1]
            j += 1
            t_new = et[j] if j < j1 else _INF
        v0 = c0 + d0
        v1 = c1 + d1
        pool[w, 0] = t
        pool[w, 1] = v0
        pool[w, 2] = v1
        w += 0 if prune and v0 == before0 and v1 == before1 else 1
        before0 = v0
        before1 = v1
    return w


@njit(cache=True)
def _add_floats(delta, ed, j, ni, na):
    """Add the float lanes of an edge to a running sum."""
    to = delta.view(np.float64)
    more = ed[j].view(np.float64)
    for c in range(ni, na, 2):
        to[c], to[c + 1] = added(to[c], to[c + 1], more[c], more[c + 1])


@njit(cache=True)
def _add_lanes(pool, w, delta, ni, na):
    """Add float deltas to the lanes of an edge."""
    to = pool[w].view(np.float64)
    more = delta.view(np.float64)
    for c in range(ni, na, 2):
        to[1 + c], to[2 + c] = added(to[1 + c], to[2 + c], more[c], more[c + 1])
