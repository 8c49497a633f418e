"""Functions over frames: a walk along the edges of a partition's rows, in the order of time.

At each edge the functions of all rows whose frames may hold a row that came or went are computed anew: with frames of
a few rows those near it, else those of the whole partition.  With frames of a few rows the walk may be along some of
the rows only (`near.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.operators.rank.loops.candidates import first_rows
from everwhen.operators.rank.loops.frame_functions import compute
from everwhen.operators.rank.loops.near import walked, with_room
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.row_tree import alive_rows
from everwhen.operators.rank.loops.tree import DEEPEST, HI, LO

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


@njit(cache=True)
def _arrays(m, nf):
    """What a walk along so many rows writes to."""
    alive = np.empty(m, np.int64)
    live = np.empty(m, np.int64)
    rows = np.empty(m, np.int64)
    group = np.empty(m, np.int64)
    peers = np.empty((m, 2), np.int64)
    said = np.empty((m, nf), np.int64)
    said_nulls = np.empty(m, np.int64)
    since = np.empty(m, np.int64)
    results = np.empty((nf, 2, m), np.int64)
    return alive, live, rows, group, peers, said, said_nulls, since, results


@njit(cache=True, nogil=True)
def framed(keys, offsets, spans, near, root, count, pool, pool_floats, order, frames):
    """The rows of keys with the functions of their frames within spans of time: record, start, end, null bits, codes;
    and along how many rows the walks went.  Frames of a few rows take partitions in the order of rows, others in that
    of ends."""
    functions = frames.functions
    nf = len(functions)
    reach = frames.reach
    heap = np.empty(0, np.int64)
    found = np.empty(0, np.int64)
    stack = np.empty(DEEPEST, np.int64)
    room = 0
    alive, live, rows, group, peers, said, said_nulls, since, results = _arrays(room, nf)
    result_floats = results.view(np.float64)
    fresh = np.empty(nf, np.int64)
    out = np.empty((256, OUT + nf), np.int64)
    n = 0
    met = 0
    for g in range(len(keys)):
        k = keys[g]
        for x in range(offsets[g], offsets[g + 1]):
            if root[k] < 0:
                continue
            low = spans[x, 0]
            high = spans[x, 1]
            if not near.whole[x]:
                m, heap, found = walked(near, g, x, low, high, pool, root[k], count[k], order, heap, found)
            else:
                found = with_room(found, count[k])
                if reach >= 0:
                    m = alive_rows(pool, root[k], low, high, stack, found)
                else:
                    heap = with_room(heap, 3 * count[k] + 2048)
                    m, _, _ = first_rows(pool, root[k], low, high, count[k], -1, 0, order, heap, found)
            met += m
            if m > room:
                room = 2 * m
                alive, live, rows, group, peers, said, said_nulls, since, results = _arrays(room, nf)
                result_floats = results.view(np.float64)
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
                    compute(
                        pool, pool_floats, rows, size, first - left, stop - left, functions[c], frames.floats[c], peers,
                        order, results[c], result_floats[c],
                    )  # fmt: skip
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
    return out[:n], met
