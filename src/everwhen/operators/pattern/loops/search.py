"""The search for matches: the automaton over the rows of a partition, for every instant at once.

A search begins at a row, with the piece of time in which that lives, and looks at the rows behind it one by one.  What
is not alive during the piece is passed over.  Where a row is alive during a part of it, the piece is cut: the search
goes on with one part, and the rest waits on a stack with the configurations reached.  So each instant is searched as if
it were the only one, and instants with the same rows are searched once.  Rows that come in the order of time need no
stack: the piece before the next row's start is over, since nothing behind that row starts earlier (`starts`).

A configuration is a mapping of the rows so far to variables: the places of the automaton it may be at, and the
registers, which are functions of it.  They stand in the order of their mappings, so the first of several that can end
is the answer.  Of those with the same registers, as far as conditions read them, a later one need not be at a place of
an earlier one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop_of, njit
from everwhen.containers.run_pool import LENGTH, START, RunArrays
from everwhen.core.time import INF, NEVER
from everwhen.operators.pattern.loops.conditions import FAILED, FALSE, carry, holds
from everwhen.operators.pattern.loops.layout import (
    BACK,
    BACK_OPEN,
    BITS,
    DIRTY,
    DISTANCE,
    DONE,
    HI,
    LO,
    NO_ROOM,
    OPEN,
    OVERFLOW,
    PLACES_PER_WORD,
    TOO_MANY,
    Machine,
    Order,
    Scratch,
    States,
    Task,
)

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)

# a match that is found: lifetime, key, first row, then the registers
FOUND_LO: Final = 0
FOUND_HI: Final = 1
FOUND_KEY: Final = 2
FOUND_ROW: Final = 3
FOUND: Final = 4

# what waits on the stack
_SIZE: Final = 6
"""Piece (2), next place, row before, number of configurations (-1: the row before is yet to be found), whether a match
has been found; then the registers of that, the configurations, and the size of all."""

_NOT_ENOUGH: Final = -1
_FAILED: Final = -2


@njit(cache=True, inline="always")
def _advance(states, machine, pool, pool_floats, row, previous, side, n, scratch, order):
    """Let the first `n` configurations of one side take a row; those that can are on the other side then.  Returns how
    many; -1: there is no room for them, -2: a condition could not be computed."""
    now = scratch.configurations
    to = 1 - side
    words = len(states.accepting)
    width = now.shape[2]
    places = len(states.follow)
    found = 0
    bits = pool[row, BITS]
    reach = scratch.reach
    for c in range(n):
        for w in range(words):
            reach[w] = 0
        for place in range(places):
            if (now[side, c, place // PLACES_PER_WORD] >> (place % PLACES_PER_WORD)) & 1 == 1:
                for w in range(words):
                    reach[w] |= states.follow[place, w]
        for variable in range(len(states.labels)):
            if (bits >> variable) & 1 == 0:
                continue
            some = np.int64(0)
            for w in range(words):
                some |= reach[w] & states.labels[variable, w]
            if some == 0:
                continue
            if found >= now.shape[1]:
                return _NOT_ENOUGH
            for w in range(words):
                now[to, found, w] = reach[w] & states.labels[variable, w]
            for w in range(words, width):
                now[to, found, w] = now[side, c, w]
            if not carry(machine, variable, pool, pool_floats, row, to, found, words, scratch, order):
                return _FAILED
            if machine.code_at[variable] < machine.code_at[variable + 1]:
                met = holds(machine, variable, pool, pool_floats, row, previous, to, found, words, scratch, order)
                if met == FAILED:
                    return _FAILED
                if met == FALSE:
                    continue
            if found == 0 or _is_new(now, to, found, words, machine.carried):
                found += 1
    return found


@njit(cache=True, inline="always")
def _is_new(now, side, at, words, carried):
    """Take away the places that earlier configurations with the same registers have; whether any is left."""
    for c in range(at):
        same = True
        for w in range(words, words + carried):
            if now[side, c, w] != now[side, at, w]:
                same = False
                break
        if same:
            left = np.int64(0)
            for w in range(words):
                now[side, at, w] &= ~now[side, c, w]
                left |= now[side, at, w]
            if left == 0:
                return False
    return True


@njit(cache=True, inline="always")
def _push(scratch, top, a, b, place, previous, side, n, found, registers):
    """Let a piece wait.  Returns the top of the stack; -1: there is no room."""
    stack = scratch.stack
    width = scratch.configurations.shape[2]
    size = _SIZE + registers + max(n, 0) * width + 1
    if top + size + 8 > len(stack):
        return -1
    stack[top] = a
    stack[top + 1] = b
    stack[top + 2] = place
    stack[top + 3] = previous
    stack[top + 4] = n
    stack[top + 5] = found
    at = top + _SIZE
    for w in range(registers):
        stack[at] = scratch.reach[len(scratch.reach) - registers + w]
        at += 1
    for c in range(n):
        for w in range(width):
            stack[at] = scratch.configurations[side, c, w]
            at += 1
    stack[at] = size
    return at + 1


@njit(cache=True, inline="always")
def _begin(scratch, states, machine):
    """The configuration before the first row."""
    now = scratch.configurations
    words = len(states.accepting)
    for w in range(words):
        now[0, 0, w] = 0
    start = len(states.follow) - 1
    now[0, 0, start // PLACES_PER_WORD] = np.int64(1) << (start % PLACES_PER_WORD)
    for w in range(len(machine.initial)):
        now[0, 0, words + w] = machine.initial[w]


@njit(cache=True, inline="always")
def _best(scratch, states, side, n, registers):
    """Note the registers of the first configuration that may end; whether there is one, and whether any may go on."""
    now = scratch.configurations
    words = len(states.accepting)
    ends = False
    goes_on = False
    for c in range(n):
        for w in range(words):
            if now[side, c, w] & states.going[w] != 0:
                goes_on = True
        if not ends:
            for w in range(words):
                if now[side, c, w] & states.accepting[w] != 0:
                    ends = True
            if ends:
                for w in range(registers):
                    scratch.reach[len(scratch.reach) - registers + w] = now[side, c, words + w]
    return ends, goes_on


@njit(cache=True, inline="always")
def _say(out, count, lo, hi, task, scratch, registers):
    """Write a match that is alive from `lo` to `hi`, as far as that is asked for.  Returns how many there are."""
    lo = max(lo, task.low)
    hi = min(hi, task.high)
    if lo >= hi:
        return count
    out[count, FOUND_LO] = lo
    out[count, FOUND_HI] = hi
    out[count, FOUND_KEY] = task.key
    out[count, FOUND_ROW] = task.start + task.place
    for w in range(registers):
        out[count, FOUND + w] = scratch.reach[len(scratch.reach) - registers + w]
    return count + 1


@njit(cache=True, inline="always")
def _search(task, states, machine, pool, pool_floats, order, scratch, out, count):
    """Search from a row.  Returns how many matches there are, a status, how far was looked, until when that may go on,
    and the same before the row."""
    s = task.start
    n = task.length
    p = task.place
    registers = len(machine.initial)
    stack = scratch.stack
    width = scratch.configurations.shape[2]
    distance = np.int64(0)
    open_ = _NEVER
    back = np.int64(0)
    back_open = _INF
    first = s + p
    none = np.int64(-1)
    a = max(pool[first, LO], task.floor)
    b = pool[first, HI]
    if a >= b or pool[first, BITS] & machine.firsts == 0:
        return count, DONE, distance, open_, back, back_open
    top = 0
    at = none
    j = np.int64(p)
    previous = none
    nc = np.int64(1)
    found = np.int64(0)
    if machine.looks_back == 1:
        j -= 1
        nc = none
    else:
        _begin(scratch, states, machine)
    while True:
        if nc < 0:
            while j >= 0:
                if scratch.ends[j] <= a:
                    j = none
                elif pool[s + j, LO] < b and pool[s + j, HI] > a:
                    break
                else:
                    j -= 1
            if j < 0:
                back_open = min(back_open, a)
            else:
                back = max(back, p - j)
                previous = s + j
                if pool[previous, LO] > a:
                    top = _push(scratch, top, a, pool[previous, LO], j - 1, none, 0, none, 0, registers)
                    if top < 0:
                        return count, NO_ROOM, distance, open_, back, back_open
                    a = pool[previous, LO]
                if pool[previous, HI] < b:
                    top = _push(scratch, top, pool[previous, HI], b, j - 1, none, 0, none, 0, registers)
                    if top < 0:
                        return count, NO_ROOM, distance, open_, back, back_open
                    b = pool[previous, HI]
            _begin(scratch, states, machine)
            nc = np.int64(1)
            j = np.int64(p)
            found = np.int64(0)
            at = none
        side = 0
        if at >= 0:
            at += _SIZE
            for w in range(registers):
                scratch.reach[len(scratch.reach) - registers + w] = stack[at]
                at += 1
            for c in range(nc):
                for w in range(width):
                    scratch.configurations[0, c, w] = stack[at]
                    at += 1
        while True:
            if count + 2 > len(out):
                return count, NO_ROOM, distance, open_, back, back_open
            if j >= n or scratch.starts[j] >= b:
                open_ = max(open_, b)
                break
            row = s + j
            lo = pool[row, LO]
            hi = pool[row, HI]
            if hi <= a or lo >= b:
                j += 1
                continue
            if lo > a:
                if scratch.starts[j + 1] >= lo:
                    if found == 1:
                        count = _say(out, count, a, lo, task, scratch, registers)
                    open_ = max(open_, lo)
                    a = lo
                else:
                    top = _push(scratch, top, lo, b, j, previous, side, nc, found, registers)
                    if top < 0:
                        return count, NO_ROOM, distance, open_, back, back_open
                    b = lo
                    j += 1
                    continue
            if hi < b:
                top = _push(scratch, top, hi, b, j + 1, previous, side, nc, found, registers)
                if top < 0:
                    return count, NO_ROOM, distance, open_, back, back_open
                b = hi
            distance = max(distance, j - p)
            nc = np.int64(_advance(states, machine, pool, pool_floats, row, previous, side, nc, scratch, order))
            if nc == _NOT_ENOUGH:
                return count, TOO_MANY, distance, open_, back, back_open
            if nc == _FAILED:
                return count, OVERFLOW, distance, open_, back, back_open
            if nc == 0:
                break
            side = 1 - side
            ends, goes_on = _best(scratch, states, side, nc, registers)
            if ends:
                found = np.int64(1)
            if not goes_on:
                break
            previous = row
            j += 1
        if found == 1:
            count = _say(out, count, a, b, task, scratch, registers)
        if top == 0:
            break
        at = top - stack[top - 1]
        top = at
        a = stack[at]
        b = stack[at + 1]
        j = stack[at + 2]
        previous = stack[at + 3]
        nc = stack[at + 4]
        found = stack[at + 5]
    return count, DONE, distance, open_, back, back_open


@loop_of(runs=RunArrays, states=States, machine=Machine, order=Order, scratch=Scratch)
def search(progress, keys, spans, runs, pool_floats, states, machine, order, scratch, out, settle):
    """Search from all dirty rows of keys; `spans` has, per key, the instant from which on rows are searched, and the
    instants between which matches are asked for.  With `settle`, what was looked at is noted, and rows are dirty no
    more.

    `progress` is the key and the place to go on with, and how many matches were found.  Returns a status.
    """
    place, pool = runs.place, runs.pool
    for g in range(progress[0], len(keys)):
        s = place[keys[g], START]
        n = place[keys[g], LENGTH]
        since = n
        for p in range(progress[1], n):
            if pool[s + p, DIRTY] != 0:
                since = p
                break
        if since < n:
            _extremes(pool, s, n, since, machine.looks_back, scratch)
        for p in range(since, n):
            if pool[s + p, DIRTY] == 0:
                continue
            task = Task(s, n, p, keys[g], spans[g, 0], spans[g, 1], spans[g, 2])
            count, status, distance, open_, back, back_open = _search(
                task, states, machine, pool, pool_floats, order, scratch, out, progress[2]
            )
            if status != DONE:
                progress[0] = g
                progress[1] = p
                return status
            progress[2] = count
            if settle == 1:
                pool[s + p, DISTANCE] = distance
                pool[s + p, OPEN] = open_
                pool[s + p, BACK] = back
                pool[s + p, BACK_OPEN] = back_open
                pool[s + p, DIRTY] = 0
        progress[1] = 0
    progress[0] = len(keys)
    return DONE


@njit(cache=True, inline="always")
def _extremes(pool, s, n, since, looks_back, scratch):
    """The least start from each place on, and the largest end up to it."""
    least = _INF
    scratch.starts[n] = _INF
    for p in range(n - 1, since - 1, -1):
        least = min(least, pool[s + p, LO])
        scratch.starts[p] = least
    if looks_back == 1:
        largest = _NEVER
        for p in range(n):
            largest = max(largest, pool[s + p, HI])
            scratch.ends[p] = largest
