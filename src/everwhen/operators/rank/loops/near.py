"""The rows of a partition that matter to a change where frames reach a few rows only.

Take the rows that a batch does not change, on each side of a changed row, the nearest first.  At each instant the first
`2 · reach` of them that are alive are near: the functions of a row within reach see the change, and rows as far from
that one.  Whatever is farther off sees the same rows before the change and after it.  So it is enough to walk along
near rows and changed ones as if there were no others: what is said of a row within reach is right, what is said of
others is the same before and after, right or not, and goes away in the difference.

Going outwards, a row is near if it is alive at an instant at which not enough nearer ones are.  These instants are
bounded from both ends: lanes of rows that follow upon each other from the start of the span on, as many as rows are
wanted, have all got to some instant; others from its end backwards.  Subtrees without a row alive between the two are
passed by.  Rows that leave one after the other, as those of a window, fill lanes as well as rows that stay.

Equal rows of changed ones are no neighbours, since their records are cut and put together: they all are walked along.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.operators.rank.loops.candidates import pop, push
from everwhen.operators.rank.loops.order import compare
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
    """The rows of each key that the batch changes, as records, and where they begin."""


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
def _beside(pool, root, lo, hi, row, outwards, skipped, order, lanes, stack, out, most):
    """Put rows near a row on one side of it into `out`, as long as they are fewer than `most`.  Returns how many there
    are."""
    wanted = lanes.shape[1]
    forwards = lanes[0]
    backwards = lanes[1]
    for lane in range(wanted):
        forwards[lane] = lo
        backwards[lane] = ~hi  # so later comes before earlier
    inwards = LEFT + RIGHT - outwards
    n = 0
    depth = 0
    v = root
    while v >= 0 and pool[v, EARLIEST] < hi and pool[v, LATEST] > lo:
        by = compare(pool, v, row, 0, order, len(order.columns))
        if (by > 0) if outwards == RIGHT else (by < 0):
            stack[depth] = v
            depth += 1
            v = pool[v, inwards]
        else:
            v = pool[v, outwards]
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
        v = pool[v, outwards]
        while v >= 0 and pool[v, EARLIEST] < hi and pool[v, LATEST] > lo:
            stack[depth] = v
            depth += 1
            v = pool[v, inwards]
    return n


@njit(cache=True)
def with_room(array, n):
    """The array, or a longer copy, with room for `n`."""
    if n <= len(array):
        return array
    longer = np.empty(2 * n + 64, np.int64)
    longer[: len(array)] = array
    return longer


@njit(cache=True)
def _equals(pool, root, count, lo, hi, batch, first, stop, order, stack, out, n):
    """`equal_rows` of several records, and the array, which may be a longer one."""
    for i in range(first, stop):
        out = with_room(out, n + count)
        n = equal_rows(pool, root, lo, hi, batch, i, order, stack, out, n)
    return out, n


@njit(cache=True, nogil=True)
def near_rows(keys, offsets, spans, changed, changed_offsets, reach, share, root, count, pool, order):
    """What is near to changes within spans of keys.  Where it may come to a `share` of the partition (one in so many;
    0: whatever it comes to is fine), all rows are walked along."""
    wanted = 2 * reach
    lanes = np.empty((2, wanted), np.int64)
    stack = np.empty(DEEPEST, np.int64)
    whole = np.zeros(len(spans), np.bool_)
    out = np.empty(64, np.int64)
    out_offsets = np.zeros(len(spans) + 1, np.int64)
    skipped = np.empty(64, np.int64)
    n = 0
    for g in range(len(keys)):
        k = keys[g]
        first = changed_offsets[g]
        stop = changed_offsets[g + 1]
        most = _MOST if share == 0 else count[k] // share
        for x in range(offsets[g], offsets[g + 1]):
            low = spans[x, 0]
            high = spans[x, 1]
            since = n
            if (stop - first) * (1 + 2 * wanted) >= most:
                whole[x] = True
            elif wanted > 0:
                skipped, found = _equals(
                    pool, root[k], count[k], low, high, changed, first, stop, order, stack, skipped, 0
                )
                same = np.sort(skipped[:found])
                for i in range(first, stop):
                    if changed[i, LO] < low or changed[i, HI] > high:
                        continue  # of another span
                    for side in range(LEFT, RIGHT + 1):
                        out = with_room(out, n + count[k])
                        n += _beside(
                            pool, root[k], low, high, changed[i : i + 1], side, same, order, lanes, stack, out[n:],
                            since + most - found - n,
                        )  # fmt: skip
                if n >= since + most - found:
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
def walked(near, g, x, lo, hi, pool, root, count, order, heap, out):
    """The records to walk along in a span where not all rows are, in order.  Returns how many there are, and the
    arrays, which may be longer ones."""
    n = near.offsets[x + 1] - near.offsets[x]
    out = with_room(out, n)
    out[:n] = near.records[near.offsets[x] : near.offsets[x + 1]]
    first = near.changed_offsets[g]
    stop = near.changed_offsets[g + 1]
    stack = np.empty(DEEPEST, np.int64)
    out, n = _equals(pool, root, count, lo, hi, near.changed, first, stop, order, stack, out, n)
    heap = with_room(heap, n)
    ids = np.sort(out[:n])
    size = 0
    for y in range(n):
        if y == 0 or ids[y] != ids[y - 1]:
            size = push(pool, heap, size, 2 * ids[y] + 1, order)
    n = size
    for y in range(n):
        out[y] = heap[0] >> 1
        size = pop(pool, heap, size, order)
    return n, heap, out
