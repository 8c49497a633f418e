"""Loops of the head of a MIN or MAX loop: per key the candidates and what is said, over time.

Values are ranks: integers in an order in which the smallest is the best (`best.py`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF, NEVER
from everwhen.operators.loop.support_loops import DELETE, INSERT

LO: Final = 0
HI: Final = 1
RANK: Final = 2
BIRTH: Final = 3
"""Of a candidate, that of its youngest premise; of what is said, its own."""
COUNT: Final = 4
CANDIDATE: Final = 5
SAID: Final = 4

LEGAL: Final = 0
NOT_THERE: Final = 1
"""A candidate is taken back that is not there."""
WORSE: Final = 2
"""A value got worse while rows only came: the step is not monotone in it."""

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)


@njit(cache=True, nogil=True)
def take(old, offsets, said, said_offsets, given, order, derived, phase, birth, floor):
    """Add candidates to keys, and let values go or come.

    `derived` has the candidates that come, and with a negative count those that go; `order[given[i]:given[i + 1]]` are
    the positions of those of key i.  Nothing is decided anew before `floor`.

    Returns the new candidates and the new said pieces with their offsets, what goes or comes as (key, lo, hi, weight,
    rank, birth), which keys are still due, and whether all of it was legal.
    """
    n = len(offsets) - 1
    most = 3 * (len(old) + len(order)) + 1
    new = np.empty((most, CANDIDATE), np.int64)
    new_offsets = np.zeros(n + 1, np.int64)
    pieces = 3 * (len(old) + len(order)) * 2 + 4 * len(said) + 4 * n + 4
    tell = np.empty((pieces, SAID), np.int64)
    tell_offsets = np.zeros(n + 1, np.int64)
    sent = np.empty((2 * pieces, 6), np.int64)
    due = np.zeros(n, np.bool_)
    verdict = LEGAL
    end = 0
    m = 0
    told = 0
    for i in range(n):
        first = end
        d = given[i + 1] - given[i]
        if d == 0:
            start, stop = floor, _INF
            for at in range(offsets[i], offsets[i + 1]):
                new[end] = old[at]
                end += 1
        else:
            start, stop = _INF, _NEVER
            for j in range(given[i], given[i + 1]):
                start = min(start, derived[order[j], LO])
                stop = max(stop, derived[order[j], HI])
            mine, changed = old[offsets[i] : offsets[i + 1]], order[given[i] : given[i + 1]]
            end, legal = _netted(mine, changed, derived, new, end)
            if not legal:
                verdict = max(verdict, NOT_THERE)
        new_offsets[i + 1] = end
        before = said[said_offsets[i] : said_offsets[i + 1]]
        m, told, waits, worse = _decided(new[first:end], before, start, stop, phase, birth, i, sent, m, tell, told)
        due[i] = waits
        if worse:
            verdict = max(verdict, WORSE)
        tell_offsets[i + 1] = told
    return new[:end].copy(), new_offsets, tell[:told].copy(), tell_offsets, sent[:m].copy(), due, verdict


@njit(cache=True, nogil=True)
def _netted(old, order, derived, new, end):
    """Candidates and changes of them in one, by rank, premise and time; behind the end of `new`."""
    k = len(old)
    n = k + len(order)
    part = np.empty((n, CANDIDATE), np.int64)
    part[:k] = old
    for j in range(len(order)):
        part[k + j] = derived[order[j]]
    by = _sorted(part)
    legal = True
    at = 0
    while at < n:
        last = at + 1
        while last < n and part[by[last], RANK] == part[by[at], RANK] and part[by[last], BIRTH] == part[by[at], BIRTH]:
            last += 1
        if last - at == 1:
            if part[by[at], COUNT] > 0:
                new[end] = part[by[at]]
                end += 1
            else:
                legal = False
        else:
            end, fine = _summed(part, by[at:last], new, end)
            legal = legal and fine
        at = last
    return end, legal


@njit(cache=True, nogil=True)
def _sorted(part):
    """Positions by rank, premise, start."""
    n = len(part)
    by = np.arange(n)
    if n > 24:
        by = by[np.argsort(part[by, LO], kind="mergesort")]
        by = by[np.argsort(part[by, BIRTH], kind="mergesort")]
        return by[np.argsort(part[by, RANK], kind="mergesort")]
    for i in range(1, n):
        x = by[i]
        j = i - 1
        while j >= 0 and _after(part, by[j], x):
            by[j + 1] = by[j]
            j -= 1
        by[j + 1] = x
    return by


@njit(cache=True, nogil=True, inline="always")
def _after(part, a, b):
    if part[a, RANK] != part[b, RANK]:
        return part[a, RANK] > part[b, RANK]
    if part[a, BIRTH] != part[b, BIRTH]:
        return part[a, BIRTH] > part[b, BIRTH]
    return part[a, LO] > part[b, LO]


@njit(cache=True, nogil=True)
def _summed(part, some, new, end):
    """Candidates of one rank and premise as disjoint pieces with a positive count."""
    n = 2 * len(some)
    time = np.empty(n, np.int64)
    count = np.empty(n, np.int64)
    for j in range(len(some)):
        time[2 * j] = part[some[j], LO]
        count[2 * j] = part[some[j], COUNT]
        time[2 * j + 1] = part[some[j], HI]
        count[2 * j + 1] = -part[some[j], COUNT]
    by = np.argsort(time, kind="mergesort")
    legal = True
    total = np.int64(0)
    first = end
    for j in range(n - 1):
        total += count[by[j]]
        here = time[by[j]]
        then = time[by[j + 1]]
        if then == here or total == 0:
            continue
        if total < 0:
            legal = False
            continue
        if end > first and new[end - 1, HI] == here and new[end - 1, COUNT] == total:
            new[end - 1, HI] = then
        else:
            new[end] = part[some[0]]
            new[end, LO] = here
            new[end, HI] = then
            new[end, COUNT] = total
            end += 1
    return end, legal


@njit(cache=True, nogil=True)
def _decided(candidates, said, start, stop, phase, birth, key, sent, m, tell, told):
    """What is said of a key, anew between two instants; appends to `sent` and `tell`."""
    first = told
    waits = False
    worse = False
    edges = np.empty(2 * (len(candidates) + len(said)) + 2, np.int64)
    k = 0
    for at in range(len(candidates)):
        k = _edge(edges, k, candidates[at, LO], start, stop)
        k = _edge(edges, k, candidates[at, HI], start, stop)
    for at in range(len(said)):
        k = _edge(edges, k, said[at, LO], start, stop)
        k = _edge(edges, k, said[at, HI], start, stop)
        if said[at, LO] < start:  # what lies before stays
            told = _tell(tell, told, first, said[at, LO], min(said[at, HI], start), said[at, RANK], said[at, BIRTH])
    times = np.unique(edges[:k])
    at = 0
    for j in range(len(times) - 1):
        here = times[j]
        then = times[j + 1]
        while at < len(said) and said[at, HI] <= here:
            at += 1
        present = at < len(said) and said[at, LO] <= here
        rank = said[at, RANK] if present else np.int64(0)
        born = said[at, BIRTH] if present else np.int64(0)
        known, best, supported = _looked_up(candidates, here, present, rank, born)
        if phase == DELETE and present and not supported:
            m = _send(sent, m, key, here, then, -1, rank, born)
            present = False
        elif phase == INSERT and known and (not present or best < rank or not supported):
            if present:
                worse = worse or best > rank
                m = _send(sent, m, key, here, then, -1, rank, born)
            m = _send(sent, m, key, here, then, 1, best, birth)
            present, rank, born = True, best, birth
        elif phase == INSERT and present and not known:
            worse = True
        if known and (not present or best < rank):
            waits = True
        if present:
            told = _tell(tell, told, first, here, then, rank, born)
    for at in range(len(said)):
        if said[at, HI] > stop:
            told = _tell(tell, told, first, max(said[at, LO], stop), said[at, HI], said[at, RANK], said[at, BIRTH])
    return m, told, waits, worse


@njit(cache=True, nogil=True, inline="always")
def _edge(edges, k, t, start, stop):
    edges[k] = min(max(t, start), stop)
    return k + 1


@njit(cache=True, nogil=True)
def _looked_up(candidates, here, present, rank, born):
    """Whether there is a candidate at an instant, the best one's rank, and whether what is said has older support."""
    known = False
    best = np.int64(0)
    for at in range(len(candidates)):
        if candidates[at, LO] <= here < candidates[at, HI]:
            if not known:
                known = True
                best = candidates[at, RANK]
                if not present:
                    return known, best, False
            if candidates[at, RANK] == rank and candidates[at, BIRTH] < born:
                return known, best, True
        if known and candidates[at, RANK] > rank:
            return known, best, False
    return known, best, False


@njit(cache=True, nogil=True, inline="always")
def _send(sent, m, key, here, then, weight, rank, born):
    """Append what goes or comes; a piece that goes on is made longer."""
    for back in range(1, 3):
        at = m - back
        if at < 0 or sent[at, 0] != key:
            break
        if sent[at, 2] == here and sent[at, 3] == weight and sent[at, 4] == rank and sent[at, 5] == born:
            sent[at, 2] = then
            return m
    sent[m, 0] = key
    sent[m, 1] = here
    sent[m, 2] = then
    sent[m, 3] = weight
    sent[m, 4] = rank
    sent[m, 5] = born
    return m + 1


@njit(cache=True, nogil=True, inline="always")
def _tell(tell, told, first, here, then, rank, born):
    """Append a said piece; one that goes on is made longer."""
    if told > first and tell[told - 1, HI] == here and tell[told - 1, RANK] == rank and tell[told - 1, BIRTH] == born:
        tell[told - 1, HI] = then
        return told
    tell[told, LO] = here
    tell[told, HI] = then
    tell[told, RANK] = rank
    tell[told, BIRTH] = born
    return told + 1
