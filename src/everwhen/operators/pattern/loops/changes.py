"""Changes of the rows of partitions: which searches they concern, how rows come, are cut, and go."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.containers.calendar import BLOCK, DueTimes
from everwhen.containers.run_pool import LENGTH, START, RunArrays, copy_row, make_room
from everwhen.core.time import INF, NEVER
from everwhen.operators.pattern.loops.layout import (
    BACK,
    BACK_OPEN,
    DIRTY,
    DISTANCE,
    DONE,
    HI,
    LO,
    NOT_THERE,
    OPEN,
    ROW,
)

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)
_FEW: Final = 8
"""With so many equal rows of a batch lifetimes are compared."""


@loop_of(runs=RunArrays)
def mark(keys, offsets, positions, batch, before, behind, runs, looks_back, spans, room):
    """Make rows dirty from which a search may find something else when the sorted records of a batch come or go.

    `spans[:, 1:]` gets the instants between which anything changes; `room` is two columns of scratch.  Returns how many
    rows are dirty.
    """
    place, pool = runs.place, runs.pool
    dirty = 0
    for g in range(len(keys)):
        first = offsets[g]
        stop = offsets[g + 1]
        s = place[keys[g], START]
        n = place[keys[g], LENGTH]
        low = _INF
        high = _NEVER
        for x in range(first, stop):  # the largest end up to here
            high = max(high, batch[positions[x], HI])
            room[x, 1] = high
        for x in range(stop - 1, first - 1, -1):  # the least start from here on
            low = min(low, batch[positions[x], LO])
            room[x, 0] = low
        spans[g, 1] = low
        spans[g, 2] = high
        x = first
        for p in range(n):
            row = s + p
            while x < stop and before[x] <= p:
                x += 1
            concerned = False
            if x < stop:  # something comes or goes behind the row: at another time it moves what was looked at
                concerned = before[x] - p <= pool[row, DISTANCE] or room[x, 0] < pool[row, OPEN]
            if x > first and not concerned:  # at its place, or before it
                if behind[x - 1] > p:  # an equal row
                    concerned = True
                elif looks_back == 1:
                    concerned = p - behind[x - 1] <= pool[row, BACK] or room[x - 1, 1] > pool[row, BACK_OPEN]
            if concerned and pool[row, DIRTY] == 0:
                pool[row, DIRTY] = 1
                dirty += 1
    return dirty


@loop_of(runs=RunArrays)
def cut(keys, offsets, positions, batch, weight, before, behind, runs, rest, status):
    """Cut the negative records of a sorted batch out of equal ones; what goes whole is dropped, what is left behind a
    cut is written to `rest`, with its key in the word for dirty rows.  Returns how many records went, and how many are
    in `rest`; `status` gets the position of a record that nothing covers."""
    place, pool = runs.place, runs.pool
    width = pool.shape[1]
    gone = 0
    left = 0
    for g in range(len(keys)):
        s = place[keys[g], START]
        n = place[keys[g], LENGTH]
        mine = left
        some = False
        for x in range(offsets[g], offsets[g + 1]):
            i = positions[x]
            for _ in range(-weight[i]):
                some = True
                lo = batch[i, LO]
                while lo < batch[i, HI]:
                    kept = _covering(pool, s + before[x], s + behind[x], lo, batch[i, HI])
                    other = np.int64(-1)
                    if kept < 0:
                        other = _covering_rest(rest, mine, left, batch, i, lo)
                        if other < 0:
                            status[0] = i
                            return NOT_THERE, gone, left
                    hi = pool[kept, HI] if kept >= 0 else rest[other, HI]
                    stop = min(hi, batch[i, HI])
                    if stop < hi:
                        start = pool[kept, LO] if kept >= 0 else rest[other, LO]
                        if start < lo:
                            if kept >= 0:
                                copy_row(rest, left, pool, kept, width)
                            else:
                                copy_row(rest, left, rest, other, width)
                            rest[left, LO] = stop
                            rest[left, DIRTY] = keys[g]
                            left += 1
                            if kept >= 0:
                                pool[kept, HI] = lo
                            else:
                                rest[other, HI] = lo
                        elif kept >= 0:
                            pool[kept, LO] = stop
                        else:
                            rest[other, LO] = stop
                    elif kept >= 0:
                        pool[kept, HI] = lo
                    else:
                        rest[other, HI] = lo
                    lo = stop
        if some:
            to = s
            for row in range(s, s + n):
                if pool[row, LO] < pool[row, HI]:
                    if to < row:
                        copy_row(pool, to, pool, row, width)
                    to += 1
            gone += s + n - to
            place[keys[g], LENGTH] = to - s
    return DONE, gone, left


@loop
def _covering(pool, first, stop, lo, hi):
    """Of equal records one that covers an instant: best one that ends where the change does (-1: none)."""
    found = np.int64(-1)
    for row in range(first, stop):
        if pool[row, LO] <= lo and lo < pool[row, HI]:
            if pool[row, HI] == hi:
                return np.int64(row)
            if found < 0 or pool[row, HI] > pool[found, HI]:
                found = np.int64(row)
    return found


@loop
def _covering_rest(rest, first, stop, batch, i, lo):
    """The same among what was left behind earlier cuts."""
    for row in range(first, stop):
        if rest[row, LO] <= lo and lo < rest[row, HI] and _equal(rest, row, batch, i):
            return np.int64(row)
    return np.int64(-1)


@loop_of(runs=RunArrays)
def extend(keys, offsets, positions, batch, before, behind, runs, comes):
    """Let records of a sorted batch whose lifetimes go on where those of equal rows end, or end where these begin, make
    those longer; `comes` is 0 for them.  Returns how many there are."""
    place, pool = runs.place, runs.pool
    found = 0
    for g in range(len(keys)):
        s = place[keys[g], START]
        for x in range(offsets[g], offsets[g + 1]):
            comes[x] = 1
            i = positions[x]
            for row in range(s + before[x], s + behind[x]):
                if comes[x] == 1 and _joins(pool, row, batch, i):
                    comes[x] = 0
            y = x - 1
            while comes[x] == 1 and y >= max(offsets[g], x - _FEW) and _equal(batch, positions[y], batch, i):
                if comes[y] == 1 and _joins(batch, positions[y], batch, i):
                    comes[x] = 0
                y -= 1
            found += 1 - comes[x]
    return found


@njit(cache=True, inline="always")
def _joins(one, i, two, j):
    """Whether lifetimes touch; the first is then both."""
    if one[i, HI] == two[j, LO]:
        one[i, HI] = two[j, HI]
        return True
    if one[i, LO] == two[j, HI]:
        one[i, LO] = two[j, LO]
        return True
    return False


@njit(cache=True, inline="always")
def _equal(one, i, two, j):
    for c in range(ROW, one.shape[1]):
        if one[i, c] != two[j, c]:
            return False
    return True


@loop
def merge(keys, offsets, positions, batch, behind, place, pool, free, end, due, block):
    """Put the sorted records of a batch into the runs of their keys, for which the pool has room.  Returns its end."""
    width = pool.shape[1]
    for g in range(len(keys)):
        k = keys[g]
        more = offsets[g + 1] - offsets[g]
        end = make_room(place, pool, free, end, k, more)
        s = place[k, START]
        row = s + place[k, LENGTH] - 1
        to = row + more
        soonest = due[k, 0]
        for x in range(offsets[g + 1] - 1, offsets[g] - 1, -1):
            while row >= s + behind[x]:
                copy_row(pool, to, pool, row, width)
                row -= 1
                to -= 1
            copy_row(pool, to, batch, positions[x], width)
            pool[to, DIRTY] = 1
            soonest = min(soonest, batch[positions[x], HI])
            to -= 1
        place[k, LENGTH] += more
        due[k, 0] = soonest
        block[k // BLOCK, 0] = min(block[k // BLOCK, 0], soonest)
    return end


@loop_of(runs=RunArrays, calendar=DueTimes)
def drop(keys, until, runs, calendar, empty):
    """Drop rows that have ended by a time of their key, and note when the next one ends.  Returns how many went, how
    many keys are empty (they stand in `empty`), and the largest end of what went."""
    place, pool = runs.place, runs.pool
    width = pool.shape[1]
    gone = 0
    n_empty = 0
    last = _NEVER
    for g in range(len(keys)):
        k = keys[g]
        s = place[k, START]
        n = place[k, LENGTH]
        head = 0
        while head < n and pool[s + head, HI] <= until[g]:
            last = max(last, pool[s + head, HI])
            head += 1
        s += head
        n -= head
        to = s
        soonest = _INF
        for row in range(s, s + n):
            if pool[row, HI] <= until[g]:
                last = max(last, pool[row, HI])
            else:
                if to < row:
                    copy_row(pool, to, pool, row, width)
                soonest = min(soonest, pool[row, HI])
                to += 1
        gone += head + s + n - to
        place[k, START] = s
        place[k, LENGTH] = to - s
        calendar.due[k, 0] = soonest
        calendar.block[k // BLOCK, 0] = min(calendar.block[k // BLOCK, 0], soonest)
        empty[n_empty] = k
        n_empty += to == s
    return gone, n_empty, last


@loop
def joined(lo, hi, owner, rows, keep):
    """Which pieces, sorted by owner and start, go on where the one before ended with the same row: that one is made
    longer, and `keep` is 0 for them.  Returns how many are kept."""
    n = 0
    last = -1
    for x in range(len(lo)):
        goes_on = last >= 0 and owner[last] == owner[x] and hi[last] == lo[x]
        if goes_on:
            for c in range(rows.shape[1]):
                if rows[last, c] != rows[x, c]:
                    goes_on = False
                    break
        if goes_on:
            hi[last] = hi[x]
            keep[x] = 0
        else:
            keep[x] = 1
            last = x
            n += 1
    return n
