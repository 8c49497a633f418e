"""The rows of a partition that matter to a change where frames reach a few rows or a range only.

Take the rows that a batch does not change, on each side of a changed row, the nearest first.  At each instant the first
`2 · reach` of them that are alive are near: the functions of a row within reach see the change, and rows as far from
that one.  Whatever is farther off sees the same rows before the change and after it.  So it is enough to walk along
near rows and changed ones as if there were no others: what is said of a row within reach is right, what is said of
others is the same before and after, right or not, and goes away in the difference.

Going outwards, a row is near if it is alive at an instant at which not enough nearer ones are.  These instants are
bounded from both ends: lanes of rows that follow upon each other from the start of the span on, as many as rows are
wanted, have all got to some instant; others from its end backwards.  Subtrees without a row alive between the two are
passed by.  Rows that leave one after the other, as those of a window, fill lanes as well as rows that stay.

Of ranges, all rows that are alive in the span and around a changed one (`reach.py`) are near.  Changed rows are gone
through in order, and rows that are found already are passed by, so none is met twice.  Where functions of a range stand
beside functions of a few rows, all rows are walked along: what is said of a row is said of all functions together, and
rows that are near by their place have other ranges.

Equal rows of changed ones are no neighbours, since their records are cut and put together: they all are walked along.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.operators.rank.loops.candidates import pop, push
from everwhen.operators.rank.loops.order import Order, compare
from everwhen.operators.rank.loops.reach import Reach, is_around
from everwhen.operators.rank.loops.row_tree import LATEST, equal_rows
from everwhen.operators.rank.loops.tree import DEEPEST, EARLIEST, HI, LEFT, LO, RIGHT

_MOST: Final = 1 << 60


class Near(NamedTuple):
    """Which rows are walked along within spans of keys."""

    whole: np.ndarray
    """Per span whether all rows are."""
    records: np.ndarray
    offsets: np.ndarray
    """The neighbours in each span, which the batch does not change, and where they begin."""
    changed: np.ndarray
    changed_offsets: np.ndarray
    """The rows of each key that the batch changes, as records, in order where there are ranges, and where they
    begin."""


@loop
def _cover(lanes, n, since, until):
    """Let a row go on with the lane that has got least far, which stands first of the `n` in a heap."""
    if since > lanes[0] or until <= lanes[0]:
        return
    at = 0
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and lanes[below + 1] < lanes[below]:
            below += 1
        if lanes[below] >= until:
            break
        lanes[at] = lanes[below]
        at = below
    lanes[at] = until


@loop
def _next(pool, v, lo, hi, outwards, stack, depth):
    """Put a subtree, without what is not alive in a span, onto a stack, the nearest row last.  Returns its depth."""
    inwards = LEFT + RIGHT - outwards
    while v >= 0 and pool[v, EARLIEST] < hi and pool[v, LATEST] > lo:
        stack[depth] = v
        depth += 1
        v = pool[v, inwards]
    return depth


@loop
def _beyond(pool, root, lo, hi, row, i, outwards, order, stack):
    """A stack of what stands on one side of a row, the nearest last.  Returns its depth."""
    inwards = LEFT + RIGHT - outwards
    depth = 0
    v = root
    while v >= 0 and pool[v, EARLIEST] < hi and pool[v, LATEST] > lo:
        by = compare(pool, v, row, i, order, len(order.columns))
        if (by > 0) if outwards == RIGHT else (by < 0):
            stack[depth] = v
            depth += 1
            v = pool[v, inwards]
        else:
            v = pool[v, outwards]
    return depth


@loop
def _beside(pool, root, lo, hi, row, outwards, skipped, order, lanes, stack, out, most):
    """Put rows near a row on one side of it into `out`, as long as they are fewer than `most`.  Returns how many there
    are."""
    wanted = lanes.shape[1]
    forwards = lanes[0]
    backwards = lanes[1]
    for lane in range(wanted):
        forwards[lane] = lo
        backwards[lane] = ~hi  # so later comes before earlier
    n = 0
    depth = _beyond(pool, root, lo, hi, row, 0, outwards, order, stack)
    while depth > 0 and lo < hi and n < most:
        depth -= 1
        v = stack[depth]
        if pool[v, LO] < hi and pool[v, HI] > lo:
            at = np.searchsorted(skipped, v)
            if at == len(skipped) or skipped[at] != v:
                out[n] = v
                n += 1
                _cover(forwards, wanted, pool[v, LO], pool[v, HI])
                _cover(backwards, wanted, ~pool[v, HI], ~pool[v, LO])
                lo = forwards[0]
                hi = ~backwards[0]
        depth = _next(pool, pool[v, outwards], lo, hi, outwards, stack, depth)
    return n


class _Around(NamedTuple):
    """What a search for rows around changed ones goes through, and by what."""

    pool: np.ndarray
    floats: np.ndarray
    changed: np.ndarray
    changed_floats: np.ndarray
    skipped: np.ndarray
    stack: np.ndarray
    order: Order
    reach: Reach


@loop
def _outwards(a, root, lo, hi, starts, start, other, outwards, until, out, most):
    """Put rows that stand on one side of a start, up to some record, and are around a changed row into `out`, the
    nearest first, as long as they are fewer than `most`.  Returns how many there are."""
    n = 0
    depth = _beyond(a.pool, root, lo, hi, starts, start, outwards, a.order, a.stack)
    while depth > 0 and n < most:
        depth -= 1
        v = a.stack[depth]
        if v == until or not is_around(a.pool, a.floats, v, a.changed, a.changed_floats, other, a.order, a.reach):
            break
        if a.pool[v, LO] < hi and a.pool[v, HI] > lo:
            at = np.searchsorted(a.skipped, v)
            if at == len(a.skipped) or a.skipped[at] != v:
                out[n] = v
                n += 1
        depth = _next(a.pool, a.pool[v, outwards], lo, hi, outwards, a.stack, depth)
    return n


@njit(cache=True)
def _around(a, root, count, lo, hi, first, stop, out, n, most):
    """Put rows around changed ones, which are in order, behind the first `n` of `out`, as long as they are fewer than
    `most`.  Returns the array, which may be a longer one, and how many there are then."""
    columns = len(a.order.columns)
    most += n
    last = np.int64(-1)  # of what is found; whatever is around a changed row before it is found, too
    for i in range(first, stop):
        if a.changed[i, LO] < lo or a.changed[i, HI] > hi or n >= most:
            continue
        out = with_room(out, n + 2 * count)
        if last >= 0 and compare(a.pool, last, a.changed, i, a.order, columns) > 0:
            more = _outwards(a, root, lo, hi, a.pool, last, i, RIGHT, -1, out[n:], most - n)
        else:
            more = _outwards(a, root, lo, hi, a.changed, i, i, LEFT, last, out[n:], most - n)
            if more > 0:
                last = out[n]
                n += more
            more = _outwards(a, root, lo, hi, a.changed, i, i, RIGHT, -1, out[n:], most - n)
        if more > 0:
            n += more
            last = out[n - 1]
    return out, n


@njit(cache=True)
def with_room(array, n):
    """The array, or a longer copy, with room for `n`."""
    if n <= len(array):
        return array
    longer = np.empty(2 * n + 64, np.int64)
    longer[: len(array)] = array
    return longer


@njit(cache=True)
def same_rows(pool, root, count, spans, batch, first, stop, order):
    """The records with rows of a batch's records that are alive from the first of some spans to the last."""
    stack = np.empty(DEEPEST, np.int64)
    out = np.empty(64, np.int64)
    n = 0
    for i in range(first, stop):
        out = with_room(out, n + count)
        n = equal_rows(pool, root, spans[0, 0], spans[-1, 1], batch, i, order, stack, out, n)
    return np.sort(out[:n])


@njit(cache=True, nogil=True)
def in_order(batch, offsets, order):
    """Where the records of a batch are, those of each key in order."""
    out = np.empty(len(batch), np.int64)
    heap = np.empty(len(batch), np.int64)
    for g in range(len(offsets) - 1):
        size = 0
        for i in range(offsets[g], offsets[g + 1]):
            size = push(batch, heap, size, 2 * i + 1, order)
        for i in range(offsets[g], offsets[g + 1]):
            out[i] = heap[0] >> 1
            size = pop(batch, heap, size, order)
    return out


@njit(cache=True, nogil=True)
def near_rows(keys, offsets, spans, changed, changed_offsets, reach, share, root, count, pool, order):
    """What is near to changes within spans of keys.  Where it may come to a `share` of the partition (one in so many;
    0: whatever it comes to is fine), all rows are walked along."""
    wanted = 2 * reach.places
    floats = pool.view(np.float64)
    changed_floats = changed.view(np.float64)
    lanes = np.empty((2, wanted), np.int64)
    stack = np.empty(DEEPEST, np.int64)
    whole = np.zeros(len(spans), np.bool_)
    out = np.empty(64, np.int64)
    out_offsets = np.zeros(len(spans) + 1, np.int64)
    n = 0
    for g in range(len(keys)):
        k = keys[g]
        first = changed_offsets[g]
        stop = changed_offsets[g + 1]
        most = _MOST if share == 0 else count[k] // share
        whole[offsets[g] : offsets[g + 1]] = (stop - first) * (1 + 2 * wanted) >= most or (reach.ranged and wanted > 0)
        if whole[offsets[g]]:
            out_offsets[offsets[g] + 1 : offsets[g + 1] + 1] = n
            continue
        same = same_rows(pool, root[k], count[k], spans[offsets[g] : offsets[g + 1]], changed, first, stop, order)
        for x in range(offsets[g], offsets[g + 1]):
            low = spans[x, 0]
            high = spans[x, 1]
            since = n
            if reach.ranged:
                through = _Around(pool, floats, changed, changed_floats, same, stack, order, reach)
                out, n = _around(through, root[k], count[k], low, high, first, stop, out, n, most - len(same))
            for i in range(first, first if reach.ranged else stop):
                if wanted == 0 or changed[i, LO] < low or changed[i, HI] > high:
                    continue  # of another span
                for side in range(LEFT, RIGHT + 1):
                    out = with_room(out, n + count[k])
                    n += _beside(
                        pool, root[k], low, high, changed[i : i + 1], side, same, order, lanes, stack, out[n:],
                        since + most - len(same) - n,
                    )  # fmt: skip
            if n >= since + most - len(same):
                whole[x] = True
                n = since
            else:
                mine = np.sort(out[since:n])
                n = since
                for y in range(len(mine)):
                    if y == 0 or mine[y] != mine[y - 1]:
                        out[n] = mine[y]
                        n += 1
            out_offsets[x + 1] = n
    return whole, out[:n], out_offsets


@njit(cache=True)
def walked(near, x, lo, hi, same, pool, order, heap, out):
    """The records to walk along in a span where not all rows are, in order: near ones, and those of changed rows.
    Returns how many there are, and the arrays, which may be longer ones."""
    near_ones = near.records[near.offsets[x] : near.offsets[x + 1]]
    n = len(near_ones)
    out = with_room(out, n + len(same))
    heap = with_room(heap, n + len(same))
    size = 0
    for y in range(n):
        size = push(pool, heap, size, 2 * near_ones[y] + 1, order)
    for y in range(len(same)):
        if (y == 0 or same[y] != same[y - 1]) and pool[same[y], LO] < hi and pool[same[y], HI] > lo:
            size = push(pool, heap, size, 2 * same[y] + 1, order)
    n = size
    for y in range(n):
        out[y] = heap[0] >> 1
        size = pop(pool, heap, size, order)
    return n, heap, out
