"""Functions over frames: a walk along the edges of a partition's rows, in the order of time.

At each edge the functions of all rows whose frames may hold a row that came or went are computed anew: with frames of
a few rows those near it, else those of the whole partition.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.operators.rank.loops.candidates import first_rows
from everwhen.operators.rank.loops.frame_functions import compute
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.tree import HI, LO

OUT: Final = 4
"""A piece: record, start, end, null bits; the codes begin here."""


class Frames(NamedTuple):
    """What is computed: functions, their float bounds, how many columns of the order tell peers, and how many rows away
    a row may matter (-1: all do)."""

    functions: np.ndarray
    floats: np.ndarray
    peers: int
    reach: int


@njit(cache=True)
def _with_room(out, n):
    if n < len(out):
        return out
    longer = np.empty((2 * n + 64, out.shape[1]), np.int64)
    longer[:n] = out[:n]
    return longer


@njit(cache=True)
def _said(out, n, record, lo, hi, codes, nulls):
    """The array with one more piece, and how many it has then."""
    if lo >= hi:
        return out, n
    out = _with_room(out, n)
    out[n, 0] = record
    out[n, 1] = lo
    out[n, 2] = hi
    out[n, 3] = nulls
    for c in range(len(codes)):
        out[n, OUT + c] = codes[c]
    return out, n + 1


@njit(cache=True, nogil=True)
def framed(keys, offsets, spans, root, count, pool, pool_floats, order, frames):
    """The rows of keys with the functions of their frames within spans of time: record, start, end, null bits, codes.
    Returns also whether a sum has exceeded 64 bits."""
    functions = frames.functions
    nf = len(functions)
    reach = frames.reach
    largest = 1
    for g in range(len(keys)):
        largest = max(largest, count[keys[g]])
    heap = np.empty(3 * largest + 2048, np.int64)
    found = np.empty(largest, np.int64)
    alive = np.empty(largest, np.int64)
    live = np.empty(largest, np.int64)
    rows = np.empty(largest, np.int64)
    group = np.empty(largest, np.int64)
    peers = np.empty((largest, 2), np.int64)
    said = np.empty((largest, nf), np.int64)
    said_nulls = np.empty(largest, np.int64)
    since = np.empty(largest, np.int64)
    results = np.empty((nf, 2, largest), np.int64)
    result_floats = results.view(np.float64)
    fresh = np.empty(nf, np.int64)
    out = np.empty((256, OUT + nf), np.int64)
    n = 0
    for g in range(len(keys)):
        k = keys[g]
        for x in range(offsets[g], offsets[g + 1]):
            if root[k] < 0:
                continue
            low = spans[x, 0]
            high = spans[x, 1]
            m, _, _ = first_rows(pool, root[k], low, high, count[k], -1, 0, order, heap, found)
            times = np.empty(2 * m, np.int64)
            changed = np.empty(2 * m, np.int64)
            edges = 0
            for r in range(m):
                alive[r] = 0
                group[r] = r
                if r > 0 and compare(pool, found[r - 1], pool, found[r], order, frames.peers) == 0:
                    group[r] = group[r - 1]
                times[edges] = max(pool[found[r], LO], low)
                changed[edges] = r
                edges += 1
                if pool[found[r], HI] < high:
                    times[edges] = pool[found[r], HI]
                    changed[edges] = -r - 1
                    edges += 1
            by = np.argsort(times[:edges])
            n_live = 0  # places of live rows, in order
            e = 0
            while e < edges:
                t = times[by[e]]
                least = np.int64(m)
                most = np.int64(-1)
                while e < edges and times[by[e]] == t:
                    r = changed[by[e]]
                    if r < 0:
                        r = -r - 1
                        out, n = _said(out, n, found[r], since[r], t, said[r], said_nulls[r])
                        alive[r] = 0
                        at = np.searchsorted(live[:n_live], r)
                        for y in range(at, n_live - 1):
                            live[y] = live[y + 1]
                        n_live -= 1
                    else:
                        alive[r] = 2  # nothing is said of it yet
                        since[r] = t
                        at = np.searchsorted(live[:n_live], r)
                        for y in range(n_live, at, -1):
                            live[y] = live[y - 1]
                        live[at] = r
                        n_live += 1
                    least = min(least, r)
                    most = max(most, r)
                    e += 1
                first = 0
                stop = n_live
                if reach >= 0:
                    first = max(0, np.searchsorted(live[:n_live], least) - reach)
                    stop = min(n_live, np.searchsorted(live[:n_live], most) + 1 + reach)
                left = max(0, first - reach) if reach >= 0 else 0
                right = min(n_live, stop + reach) if reach >= 0 else n_live
                size = right - left
                for y in range(size):
                    rows[y] = found[live[left + y]]
                if reach < 0:
                    y = 0
                    while y < size:
                        z = y + 1
                        while z < size and group[live[z]] == group[live[y]]:
                            z += 1
                        for w in range(y, z):
                            peers[w, 0] = y
                            peers[w, 1] = z
                        y = z
                for c in range(nf):
                    if compute(
                        pool, pool_floats, rows, size, first - left, stop - left, functions[c], frames.floats[c], peers,
                        order, results[c], result_floats[c],
                    ):  # fmt: skip
                        return out[:n], True
                for y in range(first - left, stop - left):
                    r = live[left + y]
                    mask = np.int64(0)
                    same = alive[r] == 1
                    for c in range(nf):
                        mask |= results[c, 1, y] << c
                        fresh[c] = results[c, 0, y]
                        if same and said[r, c] != results[c, 0, y]:
                            same = False
                    if same and said_nulls[r] == mask:
                        continue
                    if alive[r] == 1:
                        out, n = _said(out, n, found[r], since[r], t, said[r], said_nulls[r])
                    alive[r] = 1
                    since[r] = t
                    said_nulls[r] = mask
                    for c in range(nf):
                        said[r, c] = fresh[c]
            for y in range(n_live):
                r = live[y]
                out, n = _said(out, n, found[r], since[r], high, said[r], said_nulls[r])
    return out[:n], False
