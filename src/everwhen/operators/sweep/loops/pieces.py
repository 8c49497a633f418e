"""Pieces of a sweep as changes."""

from __future__ import annotations

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.containers.run_pool import LENGTH, START
from everwhen.core.time import INF
from everwhen.operators.clip import INFINITE, after, alive, frontier_of, raised

_INF = np.int64(INF)


@njit(cache=True, nogil=True)
def standing(ids, place, pool, mode, tau_1, m_1, floor, ni, lanes):
    """What has been said of keys from the promise `m` on: records of a key's position, lo, hi and the lanes."""
    most = 0
    for v in range(len(ids)):
        most += place[ids[v], LENGTH]
    out = np.empty((most, 3 + lanes), np.int64)
    count = 0
    for v in range(len(ids)):
        s = place[ids[v], START]
        n = place[ids[v], LENGTH]
        if n == 0:
            continue
        tau, m = raised(floor, ids[v], mode, tau_1, m_1)
        top = frontier_of(pool, s, n, mode, tau, m)
        limit = tau if mode == INFINITE else _INF
        for at in range(s, s + n):
            if pool[at, 0] > limit:
                break
            lo = max(pool[at, 0], m)
            hi = pool[at + 1, 0] if at + 1 < s + n and pool[at + 1, 0] <= limit else _INF
            hi = min(hi, top)
            if lo < hi and alive(pool, at, ni):
                out[count, 0] = v
                out[count, 1] = lo
                out[count, 2] = hi
                for c in range(lanes):
                    out[count, 3 + c] = pool[at, 1 + c]
                count += 1
    return out[:count]


@njit(cache=True, nogil=True)
def pending(keys, since, place, mode, tau_1, m_1, c_0, floor0, floor1, pool):
    """The pieces to be said now whose evaluated lanes are not known: records key, edge, instant.

    `since`: before that instant a key has been said, and has not changed.
    """
    out = np.empty((64, 3), np.int64)
    known = pool.shape[1] - 1
    count = 0
    for v in range(len(keys)):
        s = place[keys[v], START]
        n = place[keys[v], LENGTH]
        tau, m = raised(floor1, keys[v], mode, tau_1, m_1)
        _, c = raised(floor0, keys[v], mode, tau_1, c_0)
        F = frontier_of(pool, s, n, mode, tau, m)
        L = tau if mode == INFINITE else _INF
        for at in range(after(pool, s, n, max(since[v], pool[s, 0])) - 1, s + n):
            t = max(pool[at, 0], c)
            if t >= F or t > L:
                break
            if pool[at, 1] == 0 or pool[at, known] != 0:
                continue
            if count == len(out):
                more = np.empty((2 * count, 3), np.int64)
                more[:count] = out
                out = more
            out[count, 0] = keys[v]
            out[count, 1] = at
            out[count, 2] = t
            count += 1
    return out[:count]


@njit(cache=True, nogil=True)
def weighted(visited, taken, before, said, after):
    """Pieces with the change of a multiplicity, from what it was and what it is: records key, lo, hi, weight (never
    zero)."""
    out = np.empty((2 * (len(taken) + len(said)), 4), np.int64)
    count = 0
    i = 0
    j = 0
    while i < len(taken) or j < len(said):
        v = min(taken[i, 0] if i < len(taken) else len(visited), said[j, 0] if j < len(said) else len(visited))
        k = visited[v]
        first = count
        p = np.int64(0)
        started = False
        while True:
            old = i < len(taken) and taken[i, 0] == v
            new = j < len(said) and said[j, 0] == v
            if not old and not new:
                break
            a = max(taken[i, 1], p) if old and started else taken[i, 1] if old else np.int64(0)
            b = max(said[j, 1], p) if new and started else said[j, 1] if new else np.int64(0)
            p = min(a, b) if old and new else a if old else b
            started = True
            weight = np.int64(0)
            q = np.int64(0)
            bounded = False
            if old:
                if a == p:
                    weight -= before[i]
                    q = taken[i, 2]
                else:
                    q = a
                bounded = True
            if new:
                if b == p:
                    weight += after[j]
                    q = min(q, said[j, 2]) if bounded else said[j, 2]
                else:
                    q = min(q, b) if bounded else b
            if old and taken[i, 2] == q:
                i += 1
            if new and said[j, 2] == q:
                j += 1
            if weight != 0:
                if count > first and out[count - 1, 2] == p and out[count - 1, 3] == weight:
                    out[count - 1, 2] = q
                else:
                    out[count, 0] = k
                    out[count, 1] = p
                    out[count, 2] = q
                    out[count, 3] = weight
                    count += 1
            p = q
    return out[:count]
