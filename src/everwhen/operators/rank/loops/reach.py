"""How far a row matters: which rows have it in their frames, and which rows these frames hold.

With `start` the least and `end` the largest bound of all ranges, and 0 between them, a row with the value `w` may have
one with the value `v` in its range if `w + start ≤ v ≤ w + end`: then it is *told* of a change of that row.  All that
such ranges hold is *around* `v`: from `v - end + start` to `v - start + end`.  Rows without a number have their equals
as ranges, and so have all rows where no range has another bound than the row itself.

What is told is found by the comparison that finds frames, so it is right where a float is rounded and where a whole
number would exceed 64 bits.  What is around may be more than what frames hold, and is not less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.operators.rank.loops.frame_functions import distance, own_number
from everwhen.operators.rank.loops.order import FLOATS, compare


class Reach(NamedTuple):
    """How far the frames of some functions reach."""

    places: int
    """How many rows away; -1: all rows of the partition matter."""
    ranged: bool = False
    """Whether there are ranges."""
    numbers: bool = False
    """Whether these may hold more than equal rows."""
    peers: int = 0
    """How many columns of the order tell equal rows."""
    start: int = 0
    end: int = 0
    """The bounds of all ranges together, for whole numbers and for floats; `end - start` has 64 bits."""
    float_start: float = 0.0
    float_end: float = 0.0


@loop
def is_told(pool, floats, row, others, other_floats, other, order, reach):
    """Whether the range of a row may hold another one."""
    if not reach.numbers:
        return compare(pool, row, others, other, order, reach.peers) == 0
    one_f, one_i, one = own_number(pool, floats, row, order)
    two_f, two_i, two = own_number(others, other_floats, other, order)
    if not (one and two):
        return one == two and compare(pool, row, others, other, order, 1) == 0
    is_float = order.columns[0, 3] == FLOATS
    return (
        distance(is_float, one_f, one_i, two_f, two_i, reach.float_start, reach.start) >= 0
        and distance(is_float, one_f, one_i, two_f, two_i, reach.float_end, reach.end) <= 0
    )


@loop
def is_around(pool, floats, row, others, other_floats, other, order, reach):
    """Whether a row may be in the range of one that is told of another one, or is told itself."""
    if not reach.numbers:
        return compare(pool, row, others, other, order, reach.peers) == 0
    one_f, one_i, one = own_number(pool, floats, row, order)
    two_f, two_i, two = own_number(others, other_floats, other, order)
    if not (one and two):
        return one == two and compare(pool, row, others, other, order, 1) == 0
    if order.columns[0, 3] == FLOATS:
        # whose sum is rounded to a value is less than the next one would be, and more than the one before
        low = (np.nextafter(two_f, -np.inf) - reach.float_end) + reach.float_start
        high = (np.nextafter(two_f, np.inf) - reach.float_start) + reach.float_end
        return low <= one_f <= high
    width = reach.end - reach.start
    return (
        distance(False, 0.0, two_i, 0.0, one_i, 0.0, -width) >= 0
        and distance(False, 0.0, two_i, 0.0, one_i, 0.0, width) <= 0
    )


@loop
def told_parts(pool, floats, found, live, others, other_floats, which, places, moved, order, reach, parts):
    """Which live rows may have others in their frames: `[first, stop)` of places each, in order, with others
    between them.  `live` are places in `found`, which has records in order; the first `moved` of `which` are the
    others, in order, and `places` where among the live rows they are or would be.  Returns how many parts there are."""
    k = 0
    n = len(live)
    beyond = reach.places if reach.places > 0 or not reach.ranged else -1  # a range tells what is at the place, too
    for z in range(moved):
        place = places[z]
        i = which[z]
        behind = parts[k - 1, 1] if k > 0 else np.int64(0)
        if k == 0 or place > behind:
            first = place
            while first > behind and (
                place - first < reach.places
                or (
                    reach.ranged
                    and is_told(pool, floats, found[live[first - 1]], others, other_floats, i, order, reach)
                )
            ):
                first -= 1
            if k == 0 or first > behind:
                parts[k, 0] = first
                k += 1
            behind = place
        while behind < n and (
            behind <= place + beyond
            or (reach.ranged and is_told(pool, floats, found[live[behind]], others, other_floats, i, order, reach))
        ):
            behind += 1
        parts[k - 1, 1] = behind
    return k
