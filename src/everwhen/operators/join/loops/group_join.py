"""Groups that are computed only where they are read: the loops of `GroupJoinOperator`.

The rows of the groups stand in the log of a join side (`kernels.join`).  A *read* is an instant of one group; in its
side's log its entry goes on behind the row with two things: a mark, and the *lanes* of the group at that instant.  Of a
lane `how` says what it is: the number of rows, the number of values in a column, their sum, or the largest order code
(`kernels.live`), and `at` in which column.  Integers are exact, so a lane that is kept up to date equals one that is
computed anew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.compiled.prefetch import prefetch
from everwhen.operators.join.loops.lifetimes import (
    DEPTH,
    END,
    HI,
    LAST,
    LINKS,
    LO,
    NEWEST,
    ROW,
    START,
    WEIGHT,
    earlier,
    on_spine,
    other,
    settle,
)
from everwhen.operators.sweep.loops.extremes import order_code

ROWS: Final = 0
VALID: Final = 1
SUM: Final = 2
EXTREME: Final = 3
EXTREME_KIND_0: Final = 6
"""An extreme by the order code of kind 0; kinds go from -3 to 2."""
BITS: Final = 63
NOTHING: Final = np.int64(-0x8000000000000000)
"""The lane of an extreme of no values."""
_SIDE_BY_SIDE: Final = 16
_UNMARKED: Final = np.int64(-1)


class Lanes(NamedTuple):
    """What each lane of a group is."""

    how: np.ndarray
    """ROWS, VALID, SUM, or an extreme by its kind of order code."""
    at: np.ndarray
    """The column that it reads."""


class Revised(NamedTuple):
    """The reads that changes have met; there is room for all."""

    reads: np.ndarray
    """Gets each read once."""
    old: np.ndarray
    """Gets its lanes before."""
    lost: np.ndarray
    """Gets whether an extreme of it must be looked for again."""


@njit(cache=True, inline="always")
def _value(rows, i, first, words, how, at):
    """Whether the row that begins at `first` has a value in column `at`, and its code (order code for an extreme)."""
    if (rows[i, first + at // BITS] >> (at % BITS)) & 1:
        return False, np.int64(0)
    code = rows[i, first + words + at]
    return True, order_code(code, how - EXTREME_KIND_0) if how >= EXTREME else code


@njit(cache=True, inline="always")
def _add(lanes, r, to, rows, i, first, words, weight, how, at):
    """Let a row count in the lanes that begin at `to`.  Returns whether an extreme may have gone with it."""
    lost = False
    for c in range(len(how)):
        if how[c] == ROWS:
            lanes[r, to + c] += weight
            continue
        there, value = _value(rows, i, first, words, how[c], at[c])
        if not there:
            continue
        if how[c] == VALID:
            lanes[r, to + c] += weight
        elif how[c] == SUM:
            lanes[r, to + c] += weight * value
        elif weight < 0:
            lost |= value >= lanes[r, to + c]
        elif value > lanes[r, to + c]:
            lanes[r, to + c] = value
    return lost


@njit(cache=True, nogil=True)
def evaluate(ids, times, heads, log, touched, words, lanes):
    """The lanes of groups at instants, from the rows that are alive then.

    Several groups are gone through side by side: the next row of each is asked for while the others have their turn.
    """
    how, at = lanes.how, lanes.at
    n = len(ids)
    out = np.empty((n, len(how)), np.int64)
    request = np.empty(_SIDE_BY_SIDE, np.int64)
    cursor = np.empty(_SIDE_BY_SIDE, np.int64)
    slot = np.arange(_SIDE_BY_SIDE)  # which stack a request has; free ones stand behind
    depth = np.empty(_SIDE_BY_SIDE, np.int64)
    stack = np.empty((_SIDE_BY_SIDE, DEPTH), np.int64)
    active = 0
    r = 0
    while r < n or active > 0:
        while r < n and active < _SIDE_BY_SIDE:
            for c in range(len(how)):
                out[r, c] = NOTHING if how[c] >= EXTREME else 0
            if heads[ids[r], END] > times[r]:
                if heads[ids[r], START] > times[r]:
                    settle(heads, log, ids[r], touched)
                request[active] = r
                cursor[active] = heads[ids[r], NEWEST]
                depth[active] = 0
                prefetch(log, cursor[active])
                active += 1
            r += 1
        x = 0
        while x < active:
            entry = cursor[x]
            q = request[x]
            s = slot[x]
            following = np.int64(-1)
            if log[entry, LAST] > times[q]:
                links = log[entry, LINKS]
                starts = log[entry, LO] <= times[q]
                if starts and times[q] < log[entry, HI]:
                    _add(out, q, 0, log, entry, ROW, words, log[entry, WEIGHT], how, at)
                following = earlier(links)
                then = other(links) if starts or on_spine(links) else np.int64(-1)
                if then >= 0 and following >= 0:
                    prefetch(log, then)
                    if depth[x] == stack.shape[1]:
                        stack = _deeper(stack)
                    stack[s, depth[x]] = then
                    depth[x] += 1
                elif then >= 0:
                    following = then
            if following >= 0:
                prefetch(log, following)
            elif depth[x] > 0:
                depth[x] -= 1
                following = stack[s, depth[x]]
            if following >= 0:
                cursor[x] = following
                x += 1
            else:
                active -= 1
                request[x] = request[active]
                cursor[x] = cursor[active]
                depth[x] = depth[active]
                slot[x] = slot[active]
                slot[active] = s
    return out


@njit(cache=True, nogil=True)
def _deeper(stack):
    more = np.empty((stack.shape[0], 2 * stack.shape[1]), np.int64)
    more[:, : stack.shape[1]] = stack
    return more


@njit(cache=True, nogil=True)
def revise(mine, entry, weight, rows, words, reads, mark, lanes, revised, count):
    """Let changes count in the reads that they meet.

    The changes `mine` meet the reads `entry`, whose marks and lanes stand from `mark` on.  Of `revised` so many as
    `count` are there already.  Returns how many are there then.
    """
    how, at = lanes.how, lanes.at
    touched, old, lost = revised.reads, revised.old, revised.lost
    for p in range(len(mine)):
        e = entry[p]
        if reads[e, mark] == _UNMARKED:
            reads[e, mark] = count
            touched[count] = e
            for c in range(len(how)):
                old[count, c] = reads[e, mark + 1 + c]
            lost[count] = False
            count += 1
        if _add(reads, e, mark + 1, rows, mine[p], 0, words, weight[mine[p]], how, at):
            lost[reads[e, mark]] = True
    return count
