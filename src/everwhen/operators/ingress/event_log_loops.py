"""The guard's log of events: appended in arrival order, found again by hash, forgotten from the oldest on.

An event is an entry (vs, ve, row) with a link to the one before it that has the same hash.  Entries are numbered as
they come and stand in a ring; those before `oldest` are forgotten, so a chain ends where it leads there and nothing is
unlinked.  An entry that is gone has `ve` = -∞.  Nothing is searched on insert.

Events without an end stand in a ring of their own, which these loops call `lasting`: among the others they would keep
all that came later from being forgotten, and a ring that many of them fill is far from the processor.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.core.time import INF, NEVER

_GONE: Final = np.int64(NEVER)
_INF: Final = np.int64(INF)
_C: Final = np.uint64(0x9E3779B97F4A7C15)
_C_END: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_C_MORE: Final = np.uint64(0x61C8864680B583EA)
_C_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)
BEFORE: Final = 0
VS: Final = 1
VE: Final = 2
ROW: Final = 3


class Elements(NamedTuple):
    """Elements of a batch in arrival order."""

    op: np.ndarray
    """0: insert, 1: adjust; others carry no data."""
    vs: np.ndarray
    """Starts."""
    ve: np.ndarray
    """Ends; of an adjust the end by which it names its event."""
    vnew: np.ndarray
    """New ends of adjusts."""
    rows: np.ndarray
    """Coded rows."""


class Ring(NamedTuple):
    """Entries in arrival order, and the last one of each hash."""

    heads: np.ndarray
    """Per hash the number of the last entry."""
    log: np.ndarray
    """The entries: BEFORE, VS, VE, and from ROW on the row."""
    oldest: int
    """The number of the first entry that is not forgotten."""
    end: int
    """The number of the next entry."""


class Taken(NamedTuple):
    """The elements of a batch that the log must know, and what was done with each."""

    todo: np.ndarray
    """Their positions in the batch."""
    killed: np.ndarray
    """The number of the entry that it has taken out (-1: none)."""
    logged: np.ndarray
    """Whether it has an entry."""


@njit(cache=True, inline="always")
def _hash(vs, ve, row):
    """The products do not wait for each other; what they say stands in the high bits, so these are mixed in."""
    c = np.uint64(_C)
    h = np.uint64(vs) * c + np.uint64(ve) * _C_END
    for j in range(len(row)):
        c += _C_MORE
        h += np.uint64(row[j]) * c
    h = (h ^ (h >> np.uint64(32))) * _C_LAST
    return h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _hash_all(vs, ve, rows, hashes):
    """The hashes of many events, word by word: so several are made at once."""
    c = np.uint64(_C)
    for i in range(len(vs)):
        hashes[i] = np.uint64(vs[i]) * c + np.uint64(ve[i]) * _C_END
    for j in range(rows.shape[1]):
        c += _C_MORE
        for i in range(len(vs)):
            hashes[i] += np.uint64(rows[i, j]) * c
    for i in range(len(vs)):
        h = (hashes[i] ^ (hashes[i] >> np.uint64(32))) * _C_LAST
        hashes[i] = h ^ (h >> np.uint64(32))


@njit(cache=True, inline="always")
def _unlink(heads, log, count, vs, end, row):
    """Take the last entry out again.  Returns how many there are then."""
    count -= 1
    heads[_hash(vs, end, row) & np.uint64(len(heads) - 1)] = log[count & (len(log) - 1), BEFORE]
    return count


@loop_of(elements=Elements, ending=Ring, lasting=Ring, taken=Taken)
def undo(elements, ending, lasting, taken):
    """Take the elements out again that `apply` took, the last first."""
    op, vs, ve, vnew, rows = elements.op, elements.vs, elements.ve, elements.vnew, elements.rows
    todo, killed, logged = taken.todo, taken.killed, taken.logged
    count, n_lasting = ending.end, lasting.end
    for x in range(len(todo) - 1, -1, -1):
        i = todo[x]
        if logged[x]:
            end = ve[i] if op[i] == 0 else vnew[i]
            if end == _INF:
                n_lasting = _unlink(lasting.heads, lasting.log, n_lasting, vs[i], end, rows[i])
            else:
                count = _unlink(ending.heads, ending.log, count, vs[i], end, rows[i])
        if killed[x] >= 0:
            if ve[i] == _INF:
                lasting.log[killed[x] & (len(lasting.log) - 1), VE] = _INF
            else:
                ending.log[killed[x] & (len(ending.log) - 1), VE] = ve[i]


@njit(cache=True, inline="always")
def _named(log, at, vs, ve, rows, i):
    if log[at, VS] != vs or log[at, VE] != ve:
        return False
    for j in range(rows.shape[1]):
        if log[at, ROW + j] != rows[i, j]:
            return False
    return True


@njit(cache=True, inline="always")
def _kill(heads, log, oldest, h, vs, ve, rows, i):
    """Mark the event as gone.  Returns its number (-1: it is not there)."""
    ring = len(log) - 1
    at = heads[h & np.uint64(len(heads) - 1)]
    while at >= oldest and not _named(log, at & ring, vs, ve, rows, i):
        at = log[at & ring, BEFORE]
    if at < oldest:
        return np.int64(-1)
    log[at & ring, VE] = _GONE
    return at


@njit(cache=True, inline="always")
def _append(heads, log, count, h, vs, end, rows, i):
    """Append an entry.  Returns how many there are then."""
    slot = h & np.uint64(len(heads) - 1)
    at = count & (len(log) - 1)
    log[at, BEFORE] = heads[slot]
    log[at, VS] = vs
    log[at, VE] = end
    for j in range(rows.shape[1]):
        log[at, ROW + j] = rows[i, j]
    heads[slot] = count
    return count + 1


@loop_of(elements=Elements)
def named(elements, until, marks, todo, hashes):
    """The elements that the log must know, adjusts and inserts that one may name, into `todo`, with their hashes.
    Returns their number, and how many of them may come to last for ever.

    What ends before `until` is forgotten right after this batch, so it counts only if an adjust of the batch may name
    it: `marks` gets a mark for each of those; it is all zero at first.
    """
    op, ve, vnew = elements.op, elements.ve, elements.vnew
    n = len(op)
    mark = np.uint64(len(marks) - 1)
    _hash_all(elements.vs, ve, elements.rows, hashes)
    lasting = np.int64(0)
    for i in range(n):
        lasting += np.int64((vnew[i] if op[i] != 0 else ve[i]) == _INF)
    for i in range(n):
        if op[i] != 0:
            marks[hashes[i] & mark] = 1
    count = 0
    for i in range(n):
        h = hashes[i]
        todo[count] = i
        hashes[count] = h
        count += (op[i] != 0) | (ve[i] >= until) | (marks[h & mark] != 0)
    return count, lasting


@loop_of(elements=Elements, ending=Ring, lasting=Ring, taken=Taken)
def apply(elements, until, marks, hashes, ending, lasting, taken, lenient):
    """Append inserts and move adjusted events: the elements `taken.todo`, with their hashes.  Returns the new ends of
    the rings and the first adjust that has no event (-1: none).

    On such an error everything is as it was before.  Else `taken` gets what `undo` reads.  If `lenient`, an adjust
    without its event is passed over: what it has taken out is then -2.
    """
    op, vs, ve, vnew, rows = elements.op, elements.vs, elements.ve, elements.vnew, elements.rows
    heads, log, count, n_lasting = ending.heads, ending.log, ending.end, lasting.end
    todo, killed, logged = taken.todo, taken.killed, taken.logged
    n = len(todo)
    mask = np.uint64(len(heads) - 1)
    mark = np.uint64(len(marks) - 1)
    for x in range(n):
        if x + 24 < n:
            prefetch(heads, np.int64(hashes[x + 24] & mask))
            if op[todo[x + 12]] != 0:
                prefetch(log, heads[hashes[x + 12] & mask] & (len(log) - 1))
        i = todo[x]
        killed[x] = -1
        logged[x] = 0
        end = ve[i]
        h = hashes[x]
        if op[i] != 0:
            if end == _INF:
                killed[x] = _kill(lasting.heads, lasting.log, lasting.oldest, h, vs[i], end, rows, i)
            else:
                killed[x] = _kill(heads, log, ending.oldest, h, vs[i], end, rows, i)
            if killed[x] < 0 and lenient:
                killed[x] = -2
                continue
            if killed[x] < 0:
                undo(
                    elements,
                    Ring(heads, log, ending.oldest, count),
                    Ring(lasting.heads, lasting.log, lasting.oldest, n_lasting),
                    Taken(todo[:x], killed, logged),
                )
                return ending.end, lasting.end, i
            end = vnew[i]
            if end <= vs[i]:
                continue
            h = _hash(vs[i], end, rows[i])
            if end < until and marks[h & mark] == 0:
                continue
        if end == _INF:
            n_lasting = _append(lasting.heads, lasting.log, n_lasting, h, vs[i], end, rows, i)
        else:
            count = _append(heads, log, count, h, vs[i], end, rows, i)
        logged[x] = 1
    return count, n_lasting, np.int64(-1)


@loop
def forget(cti, log, oldest, count):
    """The first entry that is not gone and does not end before `cti`."""
    ring = len(log) - 1
    while oldest < count and (log[oldest & ring, VE] < cti or log[oldest & ring, VE] == _GONE):
        oldest += 1
    return oldest


@loop
def alive(cti, log, oldest, count):
    """How many entries are not gone and do not end before `cti`."""
    ring = len(log) - 1
    n = 0
    for i in range(oldest, count):
        end = log[i & ring, VE]
        n += end >= cti and end != _GONE
    return n


@loop
def compact(cti, heads, log, oldest, count, out):
    """Write what is not gone and does not end before `cti` to another ring, from 0 on.  Returns how many are left."""
    mask = np.uint64(len(heads) - 1)
    ring = len(log) - 1
    heads[:] = -1
    n = 0
    for i in range(oldest, count):
        at = i & ring
        if log[at, VE] >= cti and log[at, VE] != _GONE:
            slot = _hash(log[at, VS], log[at, VE], log[at, ROW:]) & mask
            for j in range(VS, log.shape[1]):
                out[n, j] = log[at, j]
            out[n, BEFORE] = heads[slot]
            heads[slot] = n
            n += 1
    return n


@njit(cache=True, inline="always")
def _wrong(o, a, b, new, cti, lowest, highest, inf):
    """Whether an insert or adjust is wrong, and its sync time.  Without branches: which elements are adjusts can't be
    foretold, and a loop that only counts can look at several at once."""
    c = new if o == 1 else b
    sync = min(b, c) if o == 1 else a
    bad = np.int64(sync < cti) | np.int64(a >= b) | np.int64(a < lowest) | np.int64(a > highest) | np.int64(c < a)
    far = np.int64(b > highest) & np.int64(b != inf) | np.int64(c > highest) & np.int64(c != inf)
    return bad | far, sync


@njit(cache=True, inline="always")
def _survey(op, vs, ve, vnew, cti, tau, lowest, highest, inf):
    """How many of inserts and adjusts are wrong, how many are adjusts, and the largest start of an insert, or τ."""
    wrong = np.int64(0)
    adjusts = np.int64(0)
    for x in range(len(op)):
        a = vs[x]
        o = np.int64(op[x])
        bad, _ = _wrong(o, a, ve[x], vnew[x], cti, lowest, highest, inf)
        wrong += bad
        adjusts += o
        tau = max(tau, a if o == 0 else _GONE)
    return wrong, adjusts, tau


@njit(cache=True, inline="always")
def _falls(vs):
    """How many start before the one before them."""
    falls = np.int64(0)
    for x in range(1, len(vs)):
        falls += np.int64(vs[x] < vs[x - 1])
    return falls


@loop
def first_fall(op, vs, last, strictly):
    """The first insert that starts before the one before it, or with it if `strictly` (-1: none), and when that starts;
    `last`: when the last one started that came earlier."""
    for x in range(len(op)):
        if op[x] == 0:
            if vs[x] < last or (strictly and vs[x] == last):
                return np.int64(x), last
            last = vs[x]
    return np.int64(-1), last


@loop
def look(op, vs, ve, vnew, cti, tau, lowest, highest, inf, gaps):
    """Times in range, lifetimes not empty, nothing behind a CTI: the first element that is wrong (-1: none).

    Also its sync time and the CTI in force; else the CTI and the largest start after the batch, how many elements carry
    data, how many are adjusts, how many others stand before the last that carries data (their places are written to
    `gaps`, which has room for all), and how many of those with data start before the one before them.
    """
    data = 0
    others = 0
    adjusts = np.int64(0)
    falls = np.int64(0)
    last = lowest
    i = 0
    while i < len(op):
        first = i
        while i < len(op) and op[i] <= 1:
            i += 1
        wrong, changed, tau = _survey(
            op[first:i], vs[first:i], ve[first:i], vnew[first:i], cti, tau, lowest, highest, inf
        )
        adjusts += changed
        for x in range(first, i if wrong else first):
            bad, sync = _wrong(op[x], vs[x], ve[x], vnew[x], cti, lowest, highest, inf)
            if bad:
                return x, sync, cti, tau, data, adjusts, others, falls
        if i > first:
            falls += np.int64(vs[first] < last) + _falls(vs[first:i])
            last = vs[i - 1]
        data += i - first
        while i < len(op) and op[i] > 1:
            gaps[others] = i
            others += 1
            if op[i] == 2:
                if vs[i] != inf and (vs[i] < lowest or vs[i] > highest):
                    return i, vs[i], cti, tau, data, adjusts, others, falls
                cti = max(cti, vs[i])
            elif op[i] > 4:
                return i, np.int64(0), cti, tau, data, adjusts, others, falls
            i += 1
    while others and gaps[others - 1] == data + others - 1:
        others -= 1
    return np.int64(-1), np.int64(0), cti, tau, data, adjusts, others, falls


@njit(cache=True, nogil=True)
def segments(op, vs, ve, vnew):
    """Elements as signed segments: starts, ends and weights; and how many are not empty."""
    n = len(op)
    lo = np.empty(n, np.int64)
    hi = np.empty(n, np.int64)
    weight = np.empty(n, np.int64)
    some = 0
    for i in range(n):
        a = vs[i]
        b = ve[i]
        w = np.int64(1)
        if op[i] != 0:
            a = min(ve[i], vnew[i])
            b = max(ve[i], vnew[i])
            w = -1 if vnew[i] < ve[i] else 1
        lo[i] = a
        hi[i] = b
        weight[i] = w
        some += a < b
    return lo, hi, weight, some
