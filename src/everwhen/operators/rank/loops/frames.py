"""Functions over frames: a walk along the edges of a partition's rows, in the order of time.

At each edge the functions of all rows whose frames may hold a row that came or went are computed anew: with frames of
a few rows those near it, with ranges those that are told of it (`reach.py`), else those of the whole partition.  With
frames of a few rows, or of a range, the walk may be along some of the rows only (`near.py`).  With ranges alone nothing
is said of rows that are told of nothing that the batch changes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.operators.rank.loops.candidates import first_rows
from everwhen.operators.rank.loops.frame_functions import compute
from everwhen.operators.rank.loops.near import same_rows, walked, with_room
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.reach import Reach, told_parts
from everwhen.operators.rank.loops.row_tree import alive_rows
from everwhen.operators.rank.loops.tree import DEEPEST, HI, LO

OUT: Final = 4
"""A piece: record, start, end, null bits; the codes begin here."""


class Frames(NamedTuple):
    """What is computed: functions, their float bounds, and how far these reach."""

    functions: np.ndarray
    floats: np.ndarray
    reach: Reach


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
    group = np.empty(m, np.int64)
    peers = np.empty((m, 2), np.int64)
    said = np.empty((m, nf), np.int64)
    said_nulls = np.empty(m, np.int64)
    since = np.empty(m, np.int64)
    moved = np.empty(m, np.int64)
    which = np.empty(m, np.int64)
    places = np.empty(m, np.int64)
    results = np.empty((nf, 2, m), np.int64)
    return alive, live, group, peers, said, said_nulls, since, moved, which, places, results


@loop
def _find_peers(live, n, group, first, stop, peers):
    """Where the equals of live rows at some places begin and end."""
    while 0 < first < n and group[live[first - 1]] == group[live[first]]:
        first -= 1
    while first < stop:
        behind = first + 1
        while behind < n and group[live[behind]] == group[live[first]]:
            behind += 1
        for y in range(first, behind):
            peers[y, 0] = first
            peers[y, 1] = behind
        first = behind


@njit(cache=True)
def _told(near, g, lo, hi, pool, floats, found, m, order, reach):
    """Which of the rows to walk along in a span may have a changed row in their frames."""
    first = near.changed_offsets[g]
    stop = near.changed_offsets[g + 1]
    if reach.places != 0 or not reach.ranged or first == stop:
        return np.ones(m, np.bool_)
    told = np.zeros(m, np.bool_)
    which = np.empty(stop - first, np.int64)
    places = np.empty(stop - first, np.int64)
    parts = np.empty((m + 1, 2), np.int64)
    changed = 0
    for i in range(first, stop):
        if near.changed[i, LO] < lo or near.changed[i, HI] > hi:
            continue  # of another span
        a = 0
        b = m
        while a < b:
            middle = (a + b) >> 1
            if compare(pool, found[middle], near.changed, i, order, len(order.columns)) < 0:
                a = middle + 1
            else:
                b = middle
        which[changed] = i
        places[changed] = a
        changed += 1
    k = told_parts(
        pool, floats, found, np.arange(m), near.changed, near.changed.view(np.float64), which, places, changed,
        order, reach, parts,
    )  # fmt: skip
    for y in range(k):
        told[parts[y, 0] : parts[y, 1]] = True
    return told


@loop
def _come_and_go(found, moved, n_moved, alive, live, n, which, places):
    """Put rows that come into the live ones, and take out those that go; and note their records, and where among the
    live ones they are or were.  Returns how many live then."""
    for z in range(n_moved):
        r = moved[z]
        at = np.searchsorted(live[:n], r)
        if alive[r] == 0:
            for y in range(at, n - 1):
                live[y] = live[y + 1]
            n -= 1
        else:
            for y in range(n, at, -1):
                live[y] = live[y - 1]
            live[at] = r
            n += 1
        which[z] = found[r]
        places[z] = at  # others that move at the same time stand behind it
    return n


@loop
def _is_same(said, nulls, results, q):
    """Whether what was said of a row is what is to be said of the one at a place."""
    for c in range(len(said)):
        if said[c] != results[c, 0, q] or (nulls >> c) & 1 != results[c, 1, q]:
            return False
    return True


@loop
def _note(said, results, q):
    """Note what is said of the row at a place.  Returns the bits of its nulls."""
    nulls = np.int64(0)
    for c in range(len(said)):
        said[c] = results[c, 0, q]
        nulls |= results[c, 1, q] << c
    return nulls


@njit(cache=True, nogil=True)
def framed(keys, offsets, spans, near, root, count, pool, pool_floats, order, frames):
    """The rows of keys with the functions of their frames within spans of time: record, start, end, null bits, codes;
    and along how many rows the walks went.  Frames that reach something take partitions in the order of rows, others
    in that of ends."""
    functions = frames.functions
    nf = len(functions)
    reach = frames.reach
    ranged = reach.ranged or reach.places < 0
    none = np.empty(0, np.int64)
    heap = np.empty(0, np.int64)
    found = np.empty(0, np.int64)
    stack = np.empty(DEEPEST, np.int64)
    room = 0
    alive, live, group, peers, said, said_nulls, since, moved, which, places, results = _arrays(room, nf)
    result_floats = results.view(np.float64)
    out = np.empty((256, OUT + nf), np.int64)
    n = 0
    met = 0
    for g in range(len(keys)):
        k = keys[g]
        if root[k] < 0:
            continue
        same = none
        if not near.whole[offsets[g] : offsets[g + 1]].all():
            same = same_rows(
                pool, root[k], count[k], spans[offsets[g] : offsets[g + 1]], near.changed, near.changed_offsets[g],
                near.changed_offsets[g + 1], order,
            )  # fmt: skip
        for x in range(offsets[g], offsets[g + 1]):
            low = spans[x, 0]
            high = spans[x, 1]
            if not near.whole[x]:
                m, heap, found = walked(near, x, low, high, same, pool, order, heap, found)
            else:
                found = with_room(found, count[k])
                if reach.places >= 0:
                    m = alive_rows(pool, root[k], low, high, stack, found)
                else:
                    heap = with_room(heap, 3 * count[k] + 2048)
                    m, _, _ = first_rows(pool, root[k], low, high, count[k], -1, 0, order, heap, found)
            met += m
            if m > room:
                room = 2 * m
                alive, live, group, peers, said, said_nulls, since, moved, which, places, results = _arrays(room, nf)
                result_floats = results.view(np.float64)
            told = _told(near, g, low, high, pool, pool_floats, found, m, order, reach)
            parts = np.empty((m + 1, 2), np.int64)
            times = np.empty(2 * m, np.int64)
            changed = np.empty(2 * m, np.int64)
            edges = 0
            for r in range(m):
                alive[r] = 0
                group[r] = r
                if r > 0 and compare(pool, found[r - 1], pool, found[r], order, reach.peers) == 0:
                    group[r] = group[r - 1]
                times[edges] = max(pool[found[r], LO], low)
                changed[edges] = r
                edges += 1
                if pool[found[r], HI] < high:
                    times[edges] = pool[found[r], HI]
                    changed[edges] = -r - 1
                    edges += 1
            by = np.argsort(times[:edges], kind="mergesort")  # at one time in the order of rows
            n_live = 0  # places of live rows, in order
            e = 0
            while e < edges:
                t = times[by[e]]
                first = e
                while e < edges and times[by[e]] == t:
                    r = changed[by[e]]
                    if r < 0:
                        r = -r - 1
                        if told[r]:
                            out, n = _said(out, n, found[r], since[r], t, said[r], said_nulls[r])
                        alive[r] = 0
                    else:
                        alive[r] = 2  # nothing is said of it yet
                        since[r] = t
                    moved[e - first] = r
                    e += 1
                n_moved = e - first
                n_live = _come_and_go(found, moved, n_moved, alive, live, n_live, which, places)
                k_parts = 1
                parts[0, 0] = 0
                parts[0, 1] = n_live
                if reach.places >= 0:
                    k_parts = told_parts(
                        pool, pool_floats, found, live[:n_live], pool, pool_floats, which, places, n_moved, order,
                        reach, parts,
                    )  # fmt: skip
                for z in range(k_parts):
                    y = parts[z, 0]
                    while y < parts[z, 1]:
                        first = y
                        while y < parts[z, 1] and told[live[y]]:
                            y += 1
                        if y == first:
                            y += 1
                            continue
                        if ranged:
                            _find_peers(live, n_live, group, first, y, peers)
                        for c in range(nf):
                            compute(
                                pool, pool_floats, found, live[:n_live], first, y, functions[c], frames.floats[c],
                                peers, order, results[c], result_floats[c],
                            )  # fmt: skip
                        for q in range(first, y):
                            r = live[q]
                            if alive[r] == 1:
                                if _is_same(said[r], said_nulls[r], results, q):
                                    continue
                                out, n = _said(out, n, found[r], since[r], t, said[r], said_nulls[r])
                            alive[r] = 1
                            since[r] = t
                            said_nulls[r] = _note(said[r], results, q)
            for y in range(n_live):
                r = live[y]
                if told[r]:
                    out, n = _said(out, n, found[r], since[r], high, said[r], said_nulls[r])
    return out[:n], met
