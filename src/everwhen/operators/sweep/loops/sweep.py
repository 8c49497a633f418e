"""The sweep over edges: piecewise constant state per key, changed by signed segments, emitted by policy.

Per key the state is a sorted run of *edges*: a time and the accumulated lanes that hold from then to the next edge.
The first is the *base*: the last edge at or before the CTI (nothing, at -∞, to begin with).  An edge is one row of
64-bit words: the time, then integers (exact), then floats in twice the precision (a high and a low part each, so
that sums hardly depend on batching), then *evaluated* lanes that someone else fills in (min, max, quantiles …).
Integers and floats are two views of the same memory.

A visit to a key has three parts.  `merge` copies the edges from the first one that matters aside and writes the new
ones in their place.  `_say` compares what had been said with what is to be said now, clipped by the emission policy on
both sides (`clip`), and reports what is taken back and what is said.  `_settle` notes when the key is due again, and
drops the edges before the base once all are settled; others wait until their room is wanted.  `fast_path.py` has a
shorter way for the usual case.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop_of, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.calendar import BLOCK, DueTimes
from everwhen.containers.run_pool import LENGTH, START, RunArrays, copy_row, fits, make_room
from everwhen.core.time import INF, NEVER
from everwhen.operators.clip import (
    CUT,
    ENDED,
    ENDING,
    INFINITE,
    KNOWN,
    NEW,
    after,
    after_from,
    alive,
    frontier_of,
    raised,
)
from everwhen.operators.sweep.loops.arguments import Clip, Edges, Entered, Lanes, Old, Report, View
from everwhen.operators.sweep.loops.extremes import ExtremeArrays, fill
from everwhen.operators.sweep.loops.fast_path import enter, one_lifetime, say_now
from everwhen.operators.sweep.loops.merge import merge, merge_two

_TAIL: Final = 16
"""Edges at the end of a run that a visit is likely to touch: to ask for all would be to walk over them."""

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)


@njit(cache=True, inline="always")
def _settled(pool, s, n, m):
    """How many edges stand before the last one at or before `m`.  Each is passed once, and then it is dropped."""
    gone = 0
    while gone + 1 < n and pool[s + gone + 1, 0] <= m:
        gone += 1
    return gone


@njit(cache=True, inline="always")
def _same(a, i, first, b, j, tests, lanes):
    """Whether the lanes of an edge of `b` stand from `first` on in a record of `a`; of the first `tests` lanes all that
    counts is whether they are positive."""
    for c in range(tests):
        if (a[i, first + c] > 0) != (b[j, 1 + c] > 0):
            return False
    for c in range(tests, lanes):
        if a[i, first + c] != b[j, 1 + c]:
            return False
    return True


@njit(cache=True, inline="always")
def _ahead(keys, place, due, v):
    """Ask for what the keys after the `v`th will need; returns the one whose edges are to be asked for now, or -1."""
    if v + 16 >= len(keys):
        return np.int64(-1)
    prefetch(place, keys[v + 16])
    prefetch(due, keys[v + 16])
    return keys[v + 8]


@njit(cache=True, inline="always")
def _ask(place, pool, k, edges):
    """Ask for the last edges of a key, and for the place behind them.  A loop of another length for each key would cost
    more than to ask for a few too many."""
    end = place[k, START] + place[k, LENGTH]
    for at in range(0, edges + 1, 2):
        prefetch(pool, end - at)


@njit(cache=True, inline="always")
def _put(out, n, first, v, lo, hi, pool, at, tests, lanes):
    """Append a piece with the lanes of an edge, or lengthen the one before it if it says the same."""
    if n > first and out[n - 1, 2] == lo and _same(out, n - 1, 3, pool, at, tests, lanes):
        out[n - 1, 2] = hi
        return n
    out[n, 0] = v
    out[n, 1] = lo
    out[n, 2] = hi
    out[n, 3] = pool[at, 1]
    if lanes == 2:
        out[n, 4] = pool[at, 2]
    elif lanes == 3:
        out[n, 4] = pool[at, 2]
        out[n, 5] = pool[at, 3]
    else:
        for c in range(1, lanes):
            out[n, 3 + c] = pool[at, 1 + c]
    return n + 1


@njit(cache=True, inline="always")
def _say(v, was, now, first, last, mode, lanes, taken, nt, said, ns):
    """Append the pieces in which what was said differs from what is to be said; both lists have room for them.

    Of the old and the new run (`View`) the positions of the last edge at or before the first change, F0 and L0 count.
    Returns how many pieces there are then.
    """
    old, o, o1, F0, L0 = was.edges, was.at, was.end, was.frontier, was.limit
    pool, w, w1, F1, L1 = now.edges, now.at, now.end, now.frontier, now.limit
    ni, tests, total = lanes.integers, lanes.tests, lanes.total
    p = first
    if mode == INFINITE:
        if p > L0 and w + 1 < w1 and pool[w + 1, 0] <= L1:
            p = min(p, pool[w + 1, 0])
    elif F0 != F1:
        p = min(p, min(F0, F1))
    top = max(F0, F1)
    if p >= top:
        return nt, ns
    o += 1  # the next old edge; the one in force stands before it
    while o < o1 and old[o, 0] <= min(p, L0):
        o += 1
    w += 1
    while w < w1 and pool[w, 0] <= min(p, L1):
        w += 1
    o_next = old[o, 0] if o < o1 and old[o, 0] <= L0 else _INF
    w_next = pool[w, 0] if w < w1 and pool[w, 0] <= L1 else _INF
    first_taken, first_said = nt, ns
    while p < top:
        if p >= F0:  # nothing had been said from here on
            while p < F1:
                q = min(w_next, F1)
                if alive(pool, w - 1, ni):
                    ns = _put(said, ns, first_said, v, p, q, pool, w - 1, tests, total)
                p = q
                w += 1
                w_next = pool[w, 0] if w < w1 and pool[w, 0] <= L1 else _INF
            break
        q = min(min(o_next, w_next), F0)
        if p < F1:
            q = min(q, F1)
        had = alive(old, o - 1, ni)
        to_be = p < F1 and alive(pool, w - 1, ni)
        if had != to_be or (had and not _same(old, o - 1, 1, pool, w - 1, tests, total)):
            if had:
                nt = _put(taken, nt, first_taken, v, p, q, old, o - 1, tests, total)
            if to_be:
                ns = _put(said, ns, first_said, v, p, q, pool, w - 1, tests, total)
        p = q
        if o_next == p:
            o += 1
            o_next = old[o, 0] if o < o1 and old[o, 0] <= L0 else _INF
        if w_next == p:
            w += 1
            w_next = pool[w, 0] if w < w1 and pool[w, 0] <= L1 else _INF
        if p >= last and L0 == L1 and (F0 == F1 or p >= top):
            break
    return nt, ns


@njit(cache=True, inline="always")
def _next_edge(pool, s, n, x, F, mode, tau):
    """The position of the first edge that is later than the clip; `x` is that of the edge that `_say` began with."""
    if mode in (KNOWN, ENDING):
        return after(pool, s, n, tau)
    return after_from(pool, x, s + n, tau if mode != ENDED else F)


@njit(cache=True, inline="always")
def _settle(k, place, pool, at, F, mode, tau, m, ni, due, block):
    """Drop settled edges and note when the key is due again.  Returns whether it is empty for good.

    `at` is the position of its `_next_edge`.  The key is due at a time to compare with τ (θ for CUT and ENDING), at
    one to compare with the promise (ENDED only), and when its last edge is settled.
    """
    s = place[k, START]
    n = place[k, LENGTH]
    upcoming = pool[at, 0] if at < s + n else _INF
    say = upcoming
    cut = _INF
    if mode == CUT:
        say = tau if alive(pool, at - 1, ni) else upcoming
    elif mode == ENDING:
        say = F if alive(pool, s + n - 1, ni) else _INF
    elif mode == ENDED:
        cut = F if alive(pool, at - 1, ni) else upcoming
    fold = pool[s + n - 1, 0]
    if fold <= m:  # otherwise settled edges wait until their room is wanted: they are far from those that are needed
        gone = _settled(pool, s, n, m)
        s += gone
        n -= gone
        place[k, START] = s
        place[k, LENGTH] = n
    if n == 1:
        fold = _INF
    dead = m == _INF or (n == 1 and not alive(pool, s, ni))
    if dead:
        place[k, LENGTH] = 0
        say = cut = fold = _INF
    due[k, 0] = say
    due[k, 1] = cut
    due[k, 2] = fold
    b = k // BLOCK
    block[b, 0] = min(block[b, 0], say)
    block[b, 1] = min(block[b, 1], cut)
    block[b, 2] = min(block[b, 2], fold)
    return dead


@loop_of(
    edges=Edges, lanes=Lanes, clip=Clip, runs=RunArrays, before=Old, calendar=DueTimes, report=Report,
    extremes=ExtremeArrays,
)  # fmt: skip
def visit(keys, edges, lanes, clip, parts, runs, end, before, calendar, report, delta, extremes):
    """Visit keys: merge edges into their runs (`parts` & 1) and say what changes by it (`parts` & 2).

    The arguments are named tuples of `arguments.py`, and the arrays of the runs, whose pool ends at `end`, and of the
    calendar.  Keys without any edges are visited because they are due.  If both parts come at once, the edges `before`
    are scratch; otherwise they are what `_say` needs later.  All arrays have room enough; `delta` is scratch, as long
    as there are added lanes.  If both parts come at once, evaluated lanes are filled in between them, from the live
    rows in `extremes`; else somebody else does it.  Returns the end of the pool and the numbers of pieces.
    """
    place, pool, free, due, block = runs.place, runs.pool, runs.free, calendar.due, calendar.block
    offsets, et, ed, first, last = edges.offsets, edges.time, edges.delta, edges.first, edges.last
    mode, tau_0, m_0, tau_1, m_1 = clip.mode, clip.tau_before, clip.promise_before, clip.tau, clip.promise
    floor0, floor1 = clip.floors_before, clip.floors
    old, old_at, F0, prune = before.edges, before.at, before.frontier, lanes.prune
    nt, ns, visited, dead = report.n_taken, report.n_said, report.visited, report.dead
    ni, na, tests, taken, said = lanes.integers, lanes.added, lanes.tests, report.taken, report.said
    width = pool.shape[1]
    frontier = _INF
    o0 = o1 = 0
    touched = len(offsets) > 0
    two = ni == 2 and width == 3
    for v in range(len(keys)):
        k = _ahead(keys, place, due, v)
        if k >= 0 and mode == INFINITE and touched and first[v + 8] > tau_0:
            _ask(place, pool, k, NEW)  # what is in order changes nothing before τ
        elif k >= 0:
            _ask(place, pool, k, _TAIL)
        k = keys[v]
        tau0, m0 = raised(floor0, k, mode, tau_0, m_0)
        tau1, m1 = raised(floor1, k, mode, tau_1, m_1)
        L0 = tau0 if mode == INFINITE else _INF
        L1 = tau1 if mode == INFINITE else _INF
        start = first[v] if touched else _INF
        stop = last[v] if touched else _NEVER
        if parts & 1:
            if place[k, LENGTH] == 0:  # a new key: nothing, since ever
                end = make_room(place, pool, free, end, k, 1 + (offsets[v + 1] - offsets[v] if touched else 0))
                place[k, LENGTH] = 1
                s = place[k, START]
                for c in range(width):
                    pool[s, c] = 0
                pool[s, 0] = _NEVER
            s = place[k, START]
            n = place[k, LENGTH]
            if parts == 1 or (touched and not fits(place, k, offsets[v + 1] - offsets[v])):
                gone = _settled(pool, s, n, m0)
                s += gone
                n -= gone
                place[k, START] = s
                place[k, LENGTH] = n
                if touched:
                    end = make_room(place, pool, free, end, k, offsets[v + 1] - offsets[v])
                    s = place[k, START]
            frontier = frontier_of(pool, s, n, mode, tau0, m0)
            x = after(pool, s, n, min(start - 1, min(frontier, L0))) - 1
            # an edge at the same time is written anew
            at = after_from(pool, x, s + n, start - 1) - 1 if touched else x
            if two and mode == INFINITE and one_lifetime(offsets[v], offsets[v + 1], et, ed, start, stop):
                to = s + n - 1 if pool[s + n - 1, 0] < stop else after(pool, at, s + n - at, stop - 1) - 1
                alone = (at == s + n - 1 or pool[at + 1, 0] != start) and (to == s + n - 1 or pool[to + 1, 0] != stop)
                if alone:
                    j = offsets[v]
                    enter(pool, at, to, s + n, start, stop, ed[j, 0], ed[j, 1])
                    place[k, LENGTH] = n + 2
                    entered = Entered(stop, ed[j, 0], ed[j, 1])
                    nt, ns, at = say_now(v + visited, pool, x, s + n + 2, L0, L1, entered, tests, taken, nt, said, ns)
                    dead[v] = _settle(k, place, pool, at, _INF, mode, tau1, m1, ni, due, block)
                    continue
            o0 = o1 if parts == 1 else 0
            o1 = o0 + s + n - x
            for i in range(o0, o1):
                copy_row(old, i, pool, x + i - o0, width)
            if touched:
                i = o0 + at - x
                if two:
                    w = merge_two(old, i, o1, offsets[v], offsets[v + 1], et, ed, pool, at, prune)
                else:
                    w = merge(old, i, o1, offsets[v], offsets[v + 1], edges, ni, na, pool, at, prune, delta)
                place[k, LENGTH] = w - s
            if parts == 1:
                old_at[v] = o0
                old_at[v + 1] = o1
                F0[v] = frontier
        if parts & 2:
            if parts == 2:
                frontier = F0[v]
                o0 = old_at[v]
                o1 = old_at[v + 1]
            s = place[k, START]
            n = place[k, LENGTH]
            F1 = frontier_of(pool, s, n, mode, tau1, m1)
            if parts == 3 and width > 1 + na:
                fill(k, pool, x, s + n, F1, L1, m0, na, extremes)
            if parts == 2:
                x = after(pool, s, n, min(min(start - 1, min(frontier, L0)), F1)) - 1
            was = View(old, o0, o1, frontier, L0)
            now = View(pool, x, s + n, F1, L1)
            nt, ns = _say(v + visited, was, now, start, stop, mode, lanes, taken, nt, said, ns)
            at = _next_edge(pool, s, n, x, F1, mode, tau1)
            dead[v] = _settle(k, place, pool, at, F1, mode, tau1, m1, ni, due, block)
    return end, nt, ns


@loop_of(lanes=Lanes, clip=Clip, runs=RunArrays, calendar=DueTimes, report=Report, extremes=ExtremeArrays)
def pass_by(keys, lanes, clip, runs, calendar, report, extremes):
    """Visit keys of which nothing has changed but the clip: the run is its own past.

    Lanes that are filled in from `extremes` have not been said, so they are not part of that past.
    """
    place, pool, due, block = runs.place, runs.pool, calendar.due, calendar.block
    mode, tau_0, m_0, tau_1, m_1 = clip.mode, clip.tau_before, clip.promise_before, clip.tau, clip.promise
    floor0, floor1 = clip.floors_before, clip.floors
    nt, ns, visited, dead = report.n_taken, report.n_said, report.visited, report.dead
    ni, na, tests, taken, said = lanes.integers, lanes.added, lanes.tests, report.taken, report.said
    width = pool.shape[1]
    two = ni == 2 and width == 3
    for v in range(len(keys)):
        k = _ahead(keys, place, due, v)
        if k >= 0:
            _ask(place, pool, k, NEW)
        k = keys[v]
        s = place[k, START]
        n = place[k, LENGTH]
        if n == 0:
            continue
        tau0, m0 = raised(floor0, k, mode, tau_0, m_0)
        tau1, m1 = raised(floor1, k, mode, tau_1, m_1)
        if two and mode == INFINITE:
            x = after(pool, s, n, tau0) - 1
            entered = Entered(_INF, np.int64(0), np.int64(0))
            nt, ns, at = say_now(v + visited, pool, x, s + n, tau0, tau1, entered, tests, taken, nt, said, ns)
            dead[v] = _settle(k, place, pool, at, _INF, mode, tau1, m1, ni, due, block)
            continue
        F0 = frontier_of(pool, s, n, mode, tau0, m0)
        F1 = frontier_of(pool, s, n, mode, tau1, m1)
        L0, L1 = (tau0, tau1) if mode == INFINITE else (_INF, _INF)
        x = after(pool, s, n, min(F0, L0)) - 1
        if width > 1 + na:
            fill(k, pool, x, s + n, F1, L1, m0, na, extremes)
        was = View(pool, x, s + n, F0, L0)
        now = View(pool, x, s + n, F1, L1)
        nt, ns = _say(v + visited, was, now, _INF, _NEVER, mode, lanes, taken, nt, said, ns)
        at = _next_edge(pool, s, n, x, F1, mode, tau1)
        dead[v] = _settle(k, place, pool, at, F1, mode, tau1, m1, ni, due, block)
    return nt, ns


@njit(cache=True, nogil=True)
def endless(ids, place, pool, ni):
    """Which ids are alive after their last edge."""
    found = np.zeros(len(ids), np.bool_)
    for i in range(len(ids)):
        n = place[ids[i], LENGTH]
        found[i] = n > 0 and alive(pool, place[ids[i], START] + n - 1, ni)
    return found


@njit(cache=True, nogil=True)
def settle_all(ids, place, pool, cti, floor, ni):
    """Drop all settled edges of ids.  Returns how many are left, and how many ids have something in force."""
    edges = based = 0
    for i in range(len(ids)):
        k = ids[i]
        s = place[k, START]
        n = place[k, LENGTH]
        c = max(cti, floor[k]) if len(floor) else cti
        gone = after(pool, s, n, c) - s - 1
        place[k, START] = s + gone
        place[k, LENGTH] = n - gone
        edges += n - gone - 1
        based += alive(pool, s + gone, ni)
    return edges, based
