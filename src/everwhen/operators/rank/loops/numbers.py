"""Numbers of rows in spans of time: a walk along the edges of the first rows, in the order of time.

For a span the first few rows alive in it are taken (`candidates`), until as many as are numbered are alive throughout:
no row behind these has a number.  Wherever enough of them are alive at an instant, the rows that have a number there
are among them.  What is left is done again with twice as many rows; by then it is shorter, so fewer rows are alive in
it.  So rows far behind the limit are not looked at, however many there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.operators.rank.loops.candidates import first_rows
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.tree import HI, LO

ROW_NUMBER: Final = 0
RANK: Final = 1
DENSE: Final = 2

_NOWHERE: Final = np.int64(-(2**63))
_NEAR: Final = 5
_FAR: Final = 10
"""Counts of live rows are kept by 32 and by 1,024 places."""


class Numbering(NamedTuple):
    """Which numbers are said, and how."""

    kind: int
    peers: int
    """How many columns of the order tell ranks."""
    named: bool
    """Whether numbers are said; else only that a row has one."""
    offset: int
    """The largest number that is left out."""
    last: int
    """The largest number that is said, at least 1."""


@loop
def _next(alive, near, far, r, m):
    """The first live place from `r` on (-1: none)."""
    while r < m:
        if r & 1023 == 0 and far[r >> _FAR] == 0:
            r += 1024
        elif r & 31 == 0 and near[r >> _NEAR] == 0:
            r += 32
        elif alive[r] == 1:
            return np.int64(r)
        else:
            r += 1
    return np.int64(-1)


@loop
def _place(found, n, r):
    """How many of the first `n` places are before `r`."""
    a = 0
    b = n
    while a < b:
        middle = (a + b) >> 1
        if found[middle] < r:
            a = middle + 1
        else:
            b = middle
    return a


@njit(cache=True)
def _with_room(out, n, more):
    """The array, or a longer copy, with room behind the first `n`."""
    if n + more <= len(out):
        return out
    longer = np.empty((2 * (n + more), out.shape[1]), np.int64)
    longer[:n] = out[:n]
    return longer


@njit(cache=True)
def _said(out, n, record, lo, hi, value):
    """The array with one more piece, and how many it has then."""
    if lo >= hi or value == 0:
        return out, n
    out = _with_room(out, n, 1)
    out[n, 0] = record
    out[n, 1] = lo
    out[n, 2] = hi
    out[n, 3] = value
    return out, n + 1


@njit(cache=True)
def _put_off(todo, depth, lo, hi, most):
    """The array with one more span to be done, and how many it has then."""
    if lo >= hi:
        return todo, depth
    todo = _with_room(todo, depth, 1)
    todo[depth, 0] = lo
    todo[depth, 1] = hi
    todo[depth, 2] = most
    return todo, depth + 1


@njit(cache=True, nogil=True)
def numbered(keys, offsets, spans, changes, root, count, pool, order, how):
    """The rows of keys with their numbers within spans of time: record, start, end, number (1 if it has no name); and
    the bar of each key with one span: no row behind this record has a number there (-1: none is known).
    `changes`: of how many changes the spans of each key are made."""
    bars = np.full(len(keys), -1, np.int64)
    kind = how.kind
    peers = how.peers
    last = how.last
    largest = 1
    for g in range(len(keys)):
        largest = max(largest, count[keys[g]])
    heap = np.empty(3 * largest + 2048, np.int64)
    found = np.empty(largest, np.int64)
    group = np.empty(largest + 1, np.int64)
    alive = np.empty(largest, np.int8)
    near = np.empty((largest >> _NEAR) + 1, np.int64)
    far = np.empty((largest >> _FAR) + 1, np.int64)
    value = np.empty(largest, np.int64)
    number = np.empty(largest, np.int64)
    since = np.empty(largest, np.int64)
    stamp = np.empty(largest, np.int64)
    current = np.empty(largest, np.int64)
    fresh = np.empty(largest, np.int64)
    out = np.empty((256, 4), np.int64)
    todo = np.empty((64, 3), np.int64)
    n = 0
    for g in range(len(keys)):
        k = keys[g]
        if root[k] < 0:
            continue
        depth = 0
        few = max(4 * min(last, largest) + 16, 2 * changes[g])
        for x in range(offsets[g], offsets[g + 1]):
            todo, depth = _put_off(todo, depth, spans[x, 0], spans[x, 1], few)
        while depth > 0:
            depth -= 1
            low = todo[depth, 0]
            high = todo[depth, 1]
            most = todo[depth, 2]
            m, whole, bar = first_rows(
                pool, root[k], low, high, min(most, count[k]), peers if kind != ROW_NUMBER else -1,
                -last if kind == DENSE else last, order, heap, found,
            )  # fmt: skip
            if offsets[g + 1] - offsets[g] == 1 and low == spans[offsets[g], 0] and high == spans[offsets[g], 1]:
                bars[g] = bar
            # edges in order
            times = np.empty(2 * m, np.int64)
            rows = np.empty(2 * m, np.int64)
            edges = 0
            for r in range(m):
                alive[r] = 0
                value[r] = 0
                number[r] = 0
                since[r] = low
                stamp[r] = 0
                group[r] = r
                if kind != ROW_NUMBER and r > 0 and compare(pool, found[r - 1], pool, found[r], order, peers) == 0:
                    group[r] = group[r - 1]
                times[edges] = max(pool[found[r], LO], low)
                rows[edges] = r
                edges += 1
                if pool[found[r], HI] < high:
                    times[edges] = pool[found[r], HI]
                    rows[edges] = -r - 1
                    edges += 1
            for b in range((m >> _NEAR) + 1):
                near[b] = 0
            for b in range((m >> _FAR) + 1):
                far[b] = 0
            by = np.argsort(times[:edges])
            in_use = 0
            total = 0
            tick = 0
            hole = _NOWHERE if whole else low  # since when rows are missing
            missing = not whole
            e = 0
            while e < edges:
                t = times[by[e]]
                least = np.int64(m)
                most_r = np.int64(-1)
                while e < edges and times[by[e]] == t:
                    r = rows[by[e]]
                    step = 1
                    if r < 0:
                        r = -r - 1
                        step = -1
                    alive[r] += step
                    near[r >> _NEAR] += step
                    far[r >> _FAR] += step
                    total += step
                    least = min(least, r)
                    most_r = max(most_r, r)
                    e += 1
                if kind == ROW_NUMBER and in_use >= last and least > current[in_use - 1]:
                    continue  # behind all that are said
                tick += 1
                start = group[least]
                first = _place(current, in_use, start)
                place = np.int64(first)
                said = number[current[first - 1]] if first > 0 else 0
                of = np.int64(-1)
                n_fresh = 0
                unchanged = False
                r = _next(alive, near, far, start, m)
                while r >= 0:
                    place += 1
                    if kind == ROW_NUMBER:
                        said = place
                    elif group[r] != of:
                        of = group[r]
                        said = place if kind == RANK else said + 1
                    if said > last:
                        break
                    if kind == ROW_NUMBER and r > most_r and number[r] == said:
                        unchanged = True
                        break
                    stamp[r] = tick
                    fresh[n_fresh] = r
                    n_fresh += 1
                    number[r] = said
                    says = np.int64(0)
                    if said > how.offset:
                        says = said if how.named else np.int64(1)
                    if says != value[r]:
                        if not missing:
                            out, n = _said(out, n, found[r], since[r], t, value[r])
                        value[r] = says
                        since[r] = t
                    r = _next(alive, near, far, r + 1, m)
                stop = first + n_fresh if unchanged else in_use
                for x in range(first, stop):
                    r = current[x]
                    if stamp[r] != tick:
                        if not missing:
                            out, n = _said(out, n, found[r], since[r], t, value[r])
                        value[r] = 0
                        number[r] = 0
                for x in range(n_fresh):
                    current[first + x] = fresh[x]
                if not unchanged:
                    in_use = first + n_fresh
                if whole:
                    continue
                enough = total >= last
                if kind == DENSE:
                    enough = in_use > 0 and number[current[in_use - 1]] >= last
                if enough and missing:
                    todo, depth = _put_off(todo, depth, hole, t, 2 * most)
                    for x in range(in_use):
                        since[current[x]] = t
                    missing = False
                elif not enough and not missing:
                    for x in range(in_use):
                        r = current[x]
                        out, n = _said(out, n, found[r], since[r], t, value[r])
                    hole = t
                    missing = True
            if missing:
                todo, depth = _put_off(todo, depth, hole, high, 2 * most)
                continue
            for x in range(in_use):
                r = current[x]
                out, n = _said(out, n, found[r], since[r], high, value[r])
    return out[:n], bars
