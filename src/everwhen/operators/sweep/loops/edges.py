"""Segments as edges: what changes at each instant, grouped by key and sorted by time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.core.time import INF
from everwhen.operators.sweep.loops.arguments import Edges
from everwhen.operators.sweep.loops.group_keys import group_keys

_INF: Final = np.int64(INF)
_SHORT: Final = 48
"""Runs of so many are sorted by insertion."""


class Sums(NamedTuple):
    """Lanes of segments, or their sums: one record each."""

    integers: np.ndarray
    """All words as integers."""
    floats: np.ndarray
    """The same memory as floats."""


class Grid(NamedTuple):
    """Starts and ends of a few different lifetimes, in the order of time."""

    times: np.ndarray
    """When each start or end is."""
    of: np.ndarray
    """Of which lifetime it is the start; `~` of which it is the end."""
    lifetimes: int
    """How many different lifetimes there are."""


class Ends(NamedTuple):
    """The starts of each key's segments, then its finite ends, either in the order of time."""

    bounds: np.ndarray
    """Where those of each key begin, and behind the last where they end."""
    middle: np.ndarray
    """Where the starts of each key end."""
    time: np.ndarray
    """When each start or end is."""
    of: np.ndarray
    """The position of its segment."""


@njit(cache=True, inline="always")
def added(hi, lo, dh, dl):
    """(hi, lo) + (dh, dl) in twice the precision."""
    s = hi + dh
    b = s - hi
    e = (hi - (s - b)) + (dh - b) + lo + dl
    h = s + e
    return h, e - (h - s)


@loop
def summed(rows, words, weight, columns, out, bounds):
    """The lanes of rows that are counted and whose columns are added up as integers, into `out`.

    `bounds` gets the least and the greatest value of each column.  Returns whether no row has a null: else a value may
    be missing; and how many rows come or go.
    """
    most = np.int64(0)
    nulls = np.int64(0)
    for j in range(words):
        for i in range(len(rows)):
            nulls |= rows[i, j]
    for i in range(len(rows)):
        out[i, 0] = weight[i]
        most += abs(weight[i])
    for j in range(len(columns)):
        c = columns[j]
        low = high = rows[0, c]
        for i in range(len(rows)):
            value = rows[i, c]
            low = min(low, value)
            high = max(high, value)
            out[i, 1 + j] = value * weight[i]
        bounds[j, 0] = low
        bounds[j, 1] = high
    return nulls == 0, most


@njit(cache=True, nogil=True)
def lifetimes(lo, hi, most):
    """The different lifetimes, and which of them each segment has; none if there are more than `most`."""
    n = len(lo)
    which = np.empty(n, np.int64)
    starts = np.empty(most, np.int64)
    ends = np.empty(most, np.int64)
    count = 0
    p = 0
    for i in range(n):
        if count == 0 or lo[i] != starts[p] or hi[i] != ends[p]:
            p = 0
            while p < count and (lo[i] != starts[p] or hi[i] != ends[p]):
                p += 1
            if p == count:
                if count == most:
                    return which, starts[:0], ends[:0]
                starts[p] = lo[i]
                ends[p] = hi[i]
                count += 1
        which[i] = p
    return which, starts[:count], ends[:count]


@njit(cache=True, inline="always")
def _add(to, to_f, i, values, values_f, j, sign, ni):
    """Add lanes, or take them away."""
    if ni == 2 and to.shape[1] == 2:  # the usual case, without loops
        to[i, 0] += sign * values[j, 0]
        to[i, 1] += sign * values[j, 1]
        return
    for c in range(ni):
        to[i, c] += sign * values[j, c]
    for c in range(ni, to.shape[1], 2):
        to_f[i, c], to_f[i, c + 1] = added(to_f[i, c], to_f[i, c + 1], sign * values_f[j, c], sign * values_f[j, c + 1])


@njit(cache=True, nogil=True)
def edges_on_grid(group, keys, which, starts, ends, values, values_f, ni):
    """Edges where there are few lifetimes: one sum per key and lifetime, no sorting."""
    na = values.shape[1]
    ng = len(keys)
    np_ = len(starts)
    cells = np.zeros((ng * np_, na), np.int64)
    cells_f = cells.view(np.float64)
    there = np.zeros(ng * np_, np.bool_)
    _add_cells(group, which, np_, Sums(cells, cells_f), there, Sums(values, values_f), ni)
    # each lifetime's start and end, in the order of time
    finite = 0
    for p in range(np_):
        finite += ends[p] != _INF
    times = np.empty(np_ + finite, np.int64)
    of = np.empty(np_ + finite, np.int64)
    at = 0
    for p in range(np_):
        times[at] = starts[p]
        of[at] = p
        at += 1
        if ends[p] != _INF:
            times[at] = ends[p]
            of[at] = ~p
            at += 1
    _sort(times, of, 0, at)
    total = ng * at
    et = np.empty(total, np.int64)
    ed = np.zeros((total, na), np.int64)
    ed_f = ed.view(np.float64)
    er = np.zeros(total, np.int64)
    offsets = np.empty(ng + 1, np.int64)
    first = np.empty(ng, np.int64)
    last = np.empty(ng, np.int64)
    edges = Edges(offsets, et, ed, er, first, last)
    out = _edges_of_cells(Grid(times, of, np_), there, Sums(cells, cells_f), edges, ed_f, ni)
    return keys, Edges(offsets, et[:out], ed[:out], er[:out], first, last)


@loop
def _add_cells(group, which, np_, cells, there, values, ni):
    sums, sums_f, items, items_f = cells.integers, cells.floats, values.integers, values.floats
    for i in range(len(group)):
        at = group[i] * np_ + which[i]
        there[at] = True
        _add(sums, sums_f, at, items, items_f, i, 1, ni)


@loop
def _edges_of_cells(grid, there, cells, edges, floats, ni):
    """Write the edges of each key, from its sums per lifetime, if any are `there`.  Returns how many there are.

    `floats` are the deltas of the edges, seen as floats.
    """
    times, of, np_ = grid.times, grid.of, grid.lifetimes
    sums, sums_f = cells.integers, cells.floats
    offsets, et, ed, er, first, last = edges.offsets, edges.time, edges.delta, edges.open, edges.first, edges.last
    ng = len(first)
    at = len(times)
    out = 0
    for g in range(ng):
        offsets[g] = out
        open_ = 0
        e = 0
        while e < at:
            t = times[e]
            some = False
            while e < at and times[e] == t:
                p = of[e]
                sign = 1 if p >= 0 else -1
                cell = g * np_ + (p if p >= 0 else ~p)
                if there[cell]:
                    some = True
                    er[out] += sign
                    _add(ed, floats, out, sums, sums_f, cell, sign, ni)
                e += 1
            if some:
                et[out] = t
                open_ += er[out]
                out += 1
        first[g] = et[offsets[g]]
        last[g] = _INF if open_ != 0 else et[out - 1]
    offsets[ng] = out
    return out


@njit(cache=True, nogil=True)
def edges_in_order(group, keys, lo, hi, values, values_f, ni):
    """Edges in general: each key's starts and ends are sorted, and merged."""
    na = values.shape[1]
    ng = len(keys)
    bounds = np.zeros(ng + 1, np.int64)
    start = np.zeros(ng, np.int64)
    end = np.empty(ng, np.int64)
    total = _count_ends(group, hi, bounds, start)
    time = np.empty(total, np.int64)
    ref = np.empty(total, np.int64)
    if _spread(group, lo, hi, bounds, start, end, time, ref):
        # NumPy's sort makes an array, so long runs are put in order here
        for g in range(ng):
            if bounds[g + 1] - bounds[g] > _SHORT:
                _sort(time, ref, bounds[g], start[g])
                _sort(time, ref, start[g], bounds[g + 1])
    et = np.empty(total, np.int64)
    ed = np.zeros((total, na), np.int64)
    ed_f = ed.view(np.float64)
    er = np.zeros(total, np.int64)
    offsets = np.empty(ng + 1, np.int64)
    first = np.empty(ng, np.int64)
    last = np.empty(ng, np.int64)
    edges = Edges(offsets, et, ed, er, first, last)
    out = _edges_of_ends(Ends(bounds, start, time, ref), Sums(values, values_f), edges, ed_f, ni)
    return keys, Edges(offsets, et[:out], ed[:out], er[:out], first, last)


@loop
def _count_ends(group, hi, bounds, n_starts):
    """How many starts each key has, and where its starts and finite ends begin in all.  Returns how many there are."""
    for i in range(len(group)):
        n_starts[group[i]] += 1
        bounds[group[i] + 1] += 1 + (hi[i] != _INF)
    for g in range(len(n_starts)):
        bounds[g + 1] += bounds[g]
    return bounds[len(n_starts)]


@loop
def _spread(group, lo, hi, bounds, start, end, time, ref):
    """Write each key's starts, then its finite ends, and sort both where they are few.  Returns whether some are not.

    `start` has the number of starts at first, in the end where the starts of each key end.
    """
    for g in range(len(start)):
        end[g] = bounds[g] + start[g]
        start[g] = bounds[g]
    for i in range(len(group)):
        g = group[i]
        time[start[g]] = lo[i]
        ref[start[g]] = i
        start[g] += 1
        if hi[i] != _INF:
            time[end[g]] = hi[i]
            ref[end[g]] = i
            end[g] += 1
    many = False
    for g in range(len(start)):
        if bounds[g + 1] - bounds[g] > _SHORT:
            many = True
        else:
            insertion_sort(time, ref, bounds[g], start[g])
            insertion_sort(time, ref, start[g], bounds[g + 1])
    return many


@loop
def _edges_of_ends(ends, lanes, edges, floats, ni):
    """Write the edges of each key, from its starts and its ends.  Returns how many there are.

    `floats` are the deltas of the edges, seen as floats.
    """
    bounds, start, time, ref = ends.bounds, ends.middle, ends.time, ends.of
    values, values_f = lanes.integers, lanes.floats
    offsets, et, ed, er, first, last = edges.offsets, edges.time, edges.delta, edges.open, edges.first, edges.last
    ng = len(start)
    out = 0
    for g in range(ng):
        x = bounds[g]
        y = start[g]  # behind the last start
        x1 = y
        y1 = bounds[g + 1]
        offsets[g] = out
        first[g] = time[x]
        last[g] = _INF if y1 - y < x1 - x else time[y1 - 1]
        if x1 - x == 1 and y1 - y == 1:  # one segment: mostly, if there are many keys
            et[out] = time[x]
            er[out] = 1
            _add(ed, floats, out, values, values_f, ref[x], 1, ni)
            et[out + 1] = time[y]
            er[out + 1] = -1
            _add(ed, floats, out + 1, values, values_f, ref[x], -1, ni)
            out += 2
            continue
        while x < x1 or y < y1:
            t = time[x] if y >= y1 or (x < x1 and time[x] <= time[y]) else time[y]
            while x < x1 and time[x] == t:
                er[out] += 1
                _add(ed, floats, out, values, values_f, ref[x], 1, ni)
                x += 1
            while y < y1 and time[y] == t:
                er[out] -= 1
                _add(ed, floats, out, values, values_f, ref[y], -1, ni)
                y += 1
            et[out] = t
            out += 1
    offsets[ng] = out
    return out


@njit(cache=True, inline="always")
def insertion_sort(time, ref, a, b):
    """Sort a short run by time."""
    for x in range(a + 1, b):
        t = time[x]
        r = ref[x]
        y = x - 1
        while y >= a and time[y] > t:
            time[y + 1] = time[y]
            ref[y + 1] = ref[y]
            y -= 1
        time[y + 1] = t
        ref[y + 1] = r


@njit(cache=True, nogil=True)
def _sort(time, ref, a, b):
    """Sort a run by time, however long."""
    if b - a <= _SHORT:
        insertion_sort(time, ref, a, b)
    else:
        order = np.argsort(time[a:b])
        time[a:b] = time[a:b][order]
        ref[a:b] = ref[a:b][order]


@njit(cache=True, nogil=True)
def grouped(kid, lo, hi, values, ints, slot, grid):
    """Segments as consolidated edge deltas, grouped by key and sorted by time: the keys, and their `Edges`.

    The first `ints` lanes are integers, floats follow.  `slot` is scratch, one entry per key id, all -1 (and left so).
    Where there are no more than `grid` lifetimes, as in windows that tumble, each key's segments of a lifetime are
    added up first, and nothing is sorted.
    """
    group, keys = group_keys(kid, slot)
    floats = values.view(np.float64)
    if grid > 0:
        which, starts, ends = lifetimes(lo, hi, grid)
        if 0 < len(starts) * len(keys) <= 2 * len(kid):
            return edges_on_grid(group, keys, which, starts, ends, values, floats, ints)
    return edges_in_order(group, keys, lo, hi, values, floats, ints)
