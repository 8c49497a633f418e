"""Multisets of values as they change over time, and a cursor in each.

Per key there are the *changes* after the CTI: a run of records `[time, weight, labels…]` in the order of times
and labels, one per instant and value, and the counted tree of what is alive at the cursor.  The cursor goes to the
instants that are asked for, forwards and backwards, and each change that it passes is added to the tree, or taken out
again.  So an answer costs the changes since the last one, times log n, and not what is alive.

A loop stops where the trees need more nodes, or the runs more room, and is called again from there: `(reached, why,
how much)`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.containers.calendar import BLOCK
from everwhen.containers.run_pool import LENGTH, START, growth, make_room
from everwhen.core.time import INF, NEVER
from everwhen.operators.sweep.loops.counted_tree import (
    APPLIED,
    DISTINCT,
    FANOUT,
    LABELS,
    TIME,
    TOTAL,
    add,
    at_position,
    position_of,
    room,
    walk,
)

_INF: Final = np.int64(INF)
_FEW: Final = 32
"""So many positions are sorted by insertion."""
_FIRST: Final = np.int64(NEVER + 1)

DONE: Final = 0
NODES: Final = 1
RUNS: Final = 2
MISSING: Final = 3
SCRATCH: Final = 4


@loop
def _after(pool, s, n, t):
    """How many of `n` changes stand before the first that is later than `t`."""
    a = 0
    while a < n:
        mid = (a + n) >> 1
        if pool[s + mid, 0] <= t:
            a = mid + 1
        else:
            n = mid
    return a


@loop
def _go(k, t, place, pool, forest):
    """Let the cursor of a key go to `t`: the tree is what is alive there."""
    trees = forest[0]
    s = place[k, START]
    n = place[k, LENGTH]
    at = trees[k, APPLIED]
    while at < n and pool[s + at, 0] <= t:
        if not room(forest, k):
            trees[k, APPLIED] = at
            return NODES
        if not add(forest, k, pool, s + at, pool[s + at, 1]):
            return MISSING
        at += 1
    while at > 0 and pool[s + at - 1, 0] > t:
        if not room(forest, k):
            trees[k, APPLIED] = at
            return NODES
        at -= 1
        if not add(forest, k, pool, s + at, -pool[s + at, 1]):
            return MISSING
    trees[k, APPLIED] = at
    trees[k, TIME] = t
    return DONE


@loop
def _before(x, y, times, labels):
    """Whether the segment `x` comes before `y`, by these times and their labels."""
    if times[x] != times[y]:
        return times[x] < times[y]
    for c in range(labels.shape[1]):
        if labels[x, c] != labels[y, c]:
            return labels[x, c] < labels[y, c]
    return False


@loop
def _sort(order, a, b, times, labels, scratch):
    """Sort positions of segments; mostly they are in order."""
    p = a + 1
    while p < b and not _before(order[p], order[p - 1], times, labels):
        p += 1
    if b - a <= _FEW:
        for x in range(p, b):
            moved = order[x]
            y = x - 1
            while y >= a and _before(moved, order[y], times, labels):
                order[y + 1] = order[y]
                y -= 1
            order[y + 1] = moved
        return
    if p >= b:
        return
    width = 1
    while width < b - a:
        for left in range(a, b, 2 * width):
            mid = min(left + width, b)
            stop = min(left + 2 * width, b)
            i = left
            j = mid
            for to in range(left, stop):
                if i < mid and (j >= stop or not _before(order[j], order[i], times, labels)):
                    scratch[to] = order[i]
                    i += 1
                else:
                    scratch[to] = order[j]
                    j += 1
        for to in range(a, b):
            order[to] = scratch[to]
        width *= 2


@loop
def _put(pool, first, w, time, weight, source, i, column):
    """Write a change behind those of a run from `first` to `w`, or add it to the last one if it is of the same value at
    the same time.  Returns the position behind the last."""
    same = w > first and pool[w - 1, 0] == time
    c = LABELS
    while same and c < pool.shape[1]:
        same = pool[w - 1, c] == source[i, column + c - LABELS]
        c += 1
    if same:
        pool[w - 1, 1] += weight
        return w - 1 if pool[w - 1, 1] == 0 else w
    pool[w, 0] = time
    pool[w, 1] = weight
    for c in range(LABELS, pool.shape[1]):
        pool[w, c] = source[i, column + c - LABELS]
    return w + 1


@loop
def _first(old, o, there, labels, x, y):
    """Which of three at the same time comes first: an old change (0), if it is `there`, the start of the segment `x`
    (1), or the end of `y` (2); -1: there is none."""
    best = 0 if there else 1
    if there and x >= 0:
        for c in range(labels.shape[1]):
            if old[o, LABELS + c] != labels[x, c]:
                best = 1 if labels[x, c] < old[o, LABELS + c] else 0
                break
    if y >= 0:
        for c in range(labels.shape[1]):
            label = old[o, LABELS + c] if best == 0 else labels[x, c]
            if label != labels[y, c]:
                return 2 if labels[y, c] < label else best
    return best


@loop
def take(first, keys, offsets, starts, ends, segments, runs, end, forest, old, calendar):
    """Take segments of keys over, from the `first`th key on.  `starts` and `ends` are both the positions of segments,
    grouped by key; they are put into the order of their times.  Returns also the end of the pool."""
    place, pool, free, due, block = runs.place, runs.pool, runs.free, calendar.due, calendar.block
    lo, hi, weight, labels, scratch = segments
    trees = forest[0]
    width = pool.shape[1]
    for g in range(first, len(keys)):
        k = keys[g]
        a = offsets[g]
        b = offsets[g + 1]
        soonest = _INF
        for x in range(a, b):
            soonest = min(soonest, lo[starts[x]])
        soonest = max(soonest, _FIRST)
        if trees[k, TIME] >= soonest:
            why = _go(k, soonest - 1, place, pool, forest)
            if why != DONE:
                return g, why, 0, end
        more = 2 * (b - a)
        if end + growth(place, k, more) > len(pool):
            return g, RUNS, growth(place, k, more), end
        end = make_room(place, pool, free, end, k, more)
        s = place[k, START]
        n = place[k, LENGTH]
        w = s + _after(pool, s, n, soonest - 1)
        stop = s + n - w
        if stop > len(old):
            return g, SCRATCH, stop, end
        for o in range(stop):
            for c in range(width):
                old[o, c] = pool[w + o, c]
        b1 = b
        b = a
        for x in range(a, b1):
            ends[b] = ends[x]
            b += hi[ends[x]] < _INF  # what never ends does not change
        _sort(starts, a, b1, lo, labels, scratch)
        _sort(ends, a, b, hi, labels, scratch)
        o = 0
        i = a
        j = a
        while o < stop or i < b1 or j < b:
            t_old = old[o, 0] if o < stop else _INF
            t_lo = lo[starts[i]] if i < b1 else _INF
            t_hi = hi[ends[j]] if j < b else _INF
            time = min(t_old, min(t_lo, t_hi))
            which = 0 if t_old == time else 1 if t_lo == time else 2
            if np.int64(t_old == time) + np.int64(t_lo == time) + np.int64(t_hi == time) > 1:
                x = starts[i] if t_lo == time else np.int64(-1)
                which = _first(old, o, t_old == time, labels, x, ends[j] if t_hi == time else np.int64(-1))
            if which == 0:
                w = _put(pool, s, w, time, old[o, 1], old, o, LABELS)
                o += 1
            elif which == 1:
                w = _put(pool, s, w, time, weight[starts[i]], labels, starts[i], 0)
                i += 1
            else:
                w = _put(pool, s, w, time, -weight[ends[j]], labels, ends[j], 0)
                j += 1
        place[k, LENGTH] = w - s
        soonest = pool[s, 0] if w > s else _INF
        due[k, 0] = soonest
        block[k // BLOCK, 0] = min(block[k // BLOCK, 0], soonest)
    return len(keys), DONE, 0, end


@loop
def ask(first, keys, times, quantiles, newest, top, place, pool, forest, out):
    """Fill in what is asked for at instants, from the `first`th on; those of a key come in the order of time.

    Per instant: how many values there are, and how many different ones.  Then for each quantile the labels at its
    position, rounded down, and the last label at the next position; a negative one is that of the first value at or
    behind which a share of all has come.  If `newest`, the labels of the first one of those
    with the largest first label.  Then so many last labels of the largest values, from the `top`.  What there is not is
    left as it is."""
    trees, labels, weights, _, fill, _, _ = forest
    width = labels.shape[1]
    for r in range(first, len(keys)):
        k = keys[r]
        why = _go(k, times[r], place, pool, forest)
        if why != DONE:
            return r, why, 0
        total = trees[k, TOTAL]
        out[r, 0] = total
        out[r, 1] = trees[k, DISTINCT]
        if total == 0:
            continue
        to = 2
        for q in range(len(quantiles)):
            exact = quantiles[q] * (total - 1)
            low = np.int64(np.floor(exact))
            if quantiles[q] < 0.0:
                low = max(np.int64(0), total - np.int64(np.floor(total + quantiles[q] * total)) - 1)
                exact = np.float64(low)
            row, rest = at_position(forest, k, low)
            for c in range(width):
                out[r, to + c] = labels[row, c]
            if exact > low and rest + 1 >= weights[row]:
                node = row // FANOUT
                if row + 1 < node * FANOUT + fill[node]:
                    row += 1
                else:
                    row, rest = at_position(forest, k, low + 1)
            out[r, to + width] = labels[row, width - 1]
            to += width + 1
        if newest:
            row, rest = at_position(forest, k, total - 1)
            row, rest = at_position(forest, k, position_of(forest, k, labels[row, 0]))
            for c in range(width):
                out[r, to + c] = labels[row, c]
            to += width
        for i in range(min(top, total)):
            row, rest = at_position(forest, k, total - 1 - i)
            out[r, to + i] = labels[row, width - 1]
    return len(keys), DONE, 0


@loop
def fold(first, keys, cti, until, place, pool, forest, due, block):
    """Drop the changes up to the CTI, or up to a time of their key's own (`until`, if there are any): what they led to
    stands in the tree.  What is promised for ever is forgotten."""
    trees = forest[0]
    for g in range(first, len(keys)):
        k = keys[g]
        c = max(cti, until[g]) if len(until) else cti
        if c == _INF:
            walk(forest, k, pool, -1, True)
            gone = place[k, LENGTH]
            trees[k, APPLIED] = gone
        else:
            if trees[k, TIME] < c:
                why = _go(k, c, place, pool, forest)
                if why != DONE:
                    return g, why, 0
            gone = _after(pool, place[k, START], place[k, LENGTH], c)
        place[k, START] += gone
        place[k, LENGTH] -= gone
        trees[k, APPLIED] -= gone
        soonest = pool[place[k, START], 0] if place[k, LENGTH] > 0 else _INF
        due[k, 0] = soonest
        block[k // BLOCK, 0] = min(block[k // BLOCK, 0], soonest)
    return len(keys), DONE, 0


@loop
def rows(keys, place, pool, trees):
    """How many values are kept: alive at the cursor, to come, or over by then."""
    found = 0
    for g in range(len(keys)):
        k = keys[g]
        s = place[k, START]
        found += trees[k, DISTINCT]
        for at in range(place[k, LENGTH]):
            found += (pool[s + at, 1] > 0) != (at < trees[k, APPLIED])
    return found


@loop
def dump(keys, forest, out):
    """All values of keys, one key's after the other."""
    n = 0
    for g in range(len(keys)):
        n = walk(forest, keys[g], out, n, False)
    return n


@loop
def load(first, keys, offsets, values, forest):
    """Give values to keys that have none, from the `first` value on."""
    g = 0
    for i in range(first, len(values)):
        while offsets[g + 1] <= i:
            g += 1
        if not room(forest, keys[g]):
            return i, NODES, 0
        add(forest, keys[g], values, i, values[i, 0])
    return len(values), DONE, 0


@loop
def caught_up(keys, place, pool, trees):
    """Note how many changes of keys their cursors have passed."""
    for g in range(len(keys)):
        k = keys[g]
        trees[k, APPLIED] = _after(pool, place[k, START], place[k, LENGTH], trees[k, TIME])
