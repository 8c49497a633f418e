"""Rows of a join that are over: found, taken out, put together again."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.operators.join.loops.join import GONE
from everwhen.operators.join.loops.lifetimes import (
    DEPTH,
    END,
    HI,
    KEY,
    LAST,
    LINKS,
    LO,
    NEWEST,
    clear,
    doubled,
    earlier,
    on_spine,
    other,
    put,
)

_AHEAD: Final = 16
"""So many entries ahead the heads of keys are asked for."""


@njit(cache=True, nogil=True)
def expire(ids, until, heads, log, cti):
    """Entries of keys that end by the time promised for their key are dead.  Returns the largest end among them, or
    `GONE` if there was none."""
    last = GONE
    stack = np.empty(DEPTH, np.int64)
    for i in range(len(ids)):
        depth = 0
        at = heads[ids[i], NEWEST]
        while at >= 0:
            following = np.int64(-1)
            if log[at, LAST] > cti:
                if cti < log[at, HI] <= until[i]:
                    last = max(last, log[at, HI])
                    log[at, HI] = GONE
                if earlier(log[at, LINKS]) >= 0:
                    if depth == len(stack):
                        stack = doubled(stack)
                    stack[depth] = earlier(log[at, LINKS])
                    depth += 1
                following = other(log[at, LINKS])
            if following < 0 and depth > 0:
                depth -= 1
                following = stack[depth]
            at = following
        if heads[ids[i], END] <= until[i]:
            clear(heads, ids[i])
    return last


@njit(cache=True, nogil=True)
def occupied(ids, before, heads, log, cti):
    """Whether keys (-1: unknown) have an entry that lives before a time."""
    found = np.zeros(len(ids), np.bool_)
    stack = np.empty(DEPTH, np.int64)
    for i in range(len(ids)):
        if ids[i] < 0:
            continue
        depth = 0
        at = heads[ids[i], NEWEST]
        while at >= 0 and not found[i]:
            following = np.int64(-1)
            if log[at, LAST] > cti:
                if log[at, LO] < before[i]:
                    found[i] = log[at, HI] > cti
                if log[at, LO] < before[i] or on_spine(log[at, LINKS]):
                    following = other(log[at, LINKS])
                if earlier(log[at, LINKS]) >= 0:
                    if depth == len(stack):
                        stack = doubled(stack)
                    stack[depth] = earlier(log[at, LINKS])
                    depth += 1
            if following < 0 and depth > 0:
                depth -= 1
                following = stack[depth]
            at = following
    return found


@njit(cache=True, nogil=True)
def tidy(heads, log, count, cti, touched):
    """Drop the dead entries, in place, and build the trees of the rest anew.  Returns how many are left."""
    path = np.empty(DEPTH, np.int64)
    return _tidy(heads, log, count, cti, path, touched)


@loop
def _tidy(heads, log, count, cti, path, touched):
    width = log.shape[1]
    n = 0
    for at in range(count):
        if at + _AHEAD < count:
            prefetch(heads, log[at + _AHEAD, KEY])
        # a head that names an entry from here on is from before: what is put has moved to the front
        if heads[log[at, KEY], NEWEST] >= at:
            clear(heads, log[at, KEY])
        if log[at, HI] > cti:
            if n != at:
                for j in range(width):
                    log[n, j] = log[at, j]
            put(heads, log, log[n, KEY], n, path, touched)
            n += 1
    return n
