"""Functions over frames: a walk along the edges of a partition's rows, in the order of time.

At each edge the functions of all rows whose frames may hold a row that came or went are computed anew: with frames of
a few rows those near it, else those of the whole partition.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.operators.rank.loops.candidates import first_rows
from everwhen.operators.rank.loops.order import FLOATS, compare, compare_column
from everwhen.operators.rank.loops.tree import HI, LO

# functions
COUNT_ALL: Final = 0
COUNT: Final = 1
SUM_I: Final = 2
SUM_F: Final = 3
AVG_I: Final = 4
AVG_F: Final = 5
MIN: Final = 6
MAX: Final = 7
FIRST: Final = 8
LAST: Final = 9
SHIFT: Final = 10
NTILE: Final = 11
PERCENT: Final = 12
CUME: Final = 13

# a function's numbers
OP: Final = 0
WORD: Final = 1
NULL_WORD: Final = 2
NULL_BIT: Final = 3
PLACE: Final = 4
"""The column's place in the order (min, max); -1: it is the same in the whole partition."""
RANGE: Final = 5
START: Final = 6
"""Whether there is a bound, and which."""
END: Final = 8
COUNTED: Final = 10
"""Places of a shift, or parts."""
DEFAULT: Final = 11
"""Whether there is one, and which."""
NUMBERS: Final = 13

OUT: Final = 4
"""A piece: record, start, end, null bits; the codes begin here."""

_MOST: Final = np.int64(2**63 - 1)
_LEAST: Final = np.int64(-(2**63))
_NAN: Final = np.array([np.nan]).view(np.int64)[0]


class Frames(NamedTuple):
    """What is computed: functions, their float bounds, how many columns of the order tell peers, and how many rows away
    a row may matter (-1: all do)."""

    functions: np.ndarray
    floats: np.ndarray
    peers: int
    reach: int


@loop
def _value(pool, row, f):
    return pool[row, f[WORD]]


@loop
def _is_null(pool, row, f):
    return (pool[row, f[NULL_WORD]] >> f[NULL_BIT]) & 1 == 1


@loop
def _own(pool, floats, row, order):
    """The value of the first column of the order as a float, turned round if it falls, and whether it is a number."""
    column = order.columns[0]
    if (pool[row, column[1]] >> column[2]) & 1 == 1:
        return 0.0, np.int64(0), False
    code = pool[row, column[0]]
    if column[3] == FLOATS:
        number = floats[row, column[0]]
        if np.isnan(number):
            return 0.0, np.int64(0), False
        return (-number if column[4] == 1 else number), np.int64(0), True
    if column[4] == 1:
        code = _MOST if code == _LEAST else -code
    return 0.0, code, True


@loop
def _distance(is_float, one_f, one_i, two_f, two_i, bound_f, bound_i):
    """-1, 0 or 1: whether two is less than, at, or more than a distance from one."""
    if is_float:
        limit = one_f + bound_f
        return -1 if two_f < limit else 1 if two_f > limit else 0
    if bound_i > 0 and one_i > _MOST - bound_i:
        return -1
    if bound_i < 0 and one_i < _LEAST - bound_i:
        return 1
    limit_i = one_i + bound_i
    return -1 if two_i < limit_i else 1 if two_i > limit_i else 0


@loop
def _bounds(pool, pool_floats, rows, n, q, f, bound_floats, order, peers):
    """The first place of a frame, and the place behind its last."""
    a = np.int64(0)
    b = np.int64(n)
    if f[RANGE] == 0:
        if f[START] == 1:
            a = max(np.int64(0), min(np.int64(n), q + f[START + 1]))
        if f[END] == 1:
            b = max(np.int64(0), min(np.int64(n), q + f[END + 1] + 1))
        return a, b
    peer_first = peers[q, 0]
    peer_stop = peers[q, 1]
    plain = (f[START] == 0 or f[START + 1] == 0) and (f[END] == 0 or f[END + 1] == 0)
    if plain:
        if f[START] == 1:
            a = peer_first
        if f[END] == 1:
            b = peer_stop
        return a, b
    is_float = order.columns[0, 3] == FLOATS
    own_f, own_i, number = _own(pool, pool_floats, rows[q], order)
    if not number:
        if f[START] == 1:
            a = peer_first
        if f[END] == 1:
            b = peer_stop
        return a, b
    if f[START] == 1:
        if f[START + 1] == 0:
            a = peer_first
        else:
            a = np.int64(q)
            low_f = bound_floats[0]
            low_i = f[START + 1]
            backwards = low_f < 0.0 if is_float else low_i < 0
            while backwards and a > 0:
                other_f, other_i, fine = _own(pool, pool_floats, rows[a - 1], order)
                if not fine or _distance(is_float, own_f, own_i, other_f, other_i, low_f, low_i) < 0:
                    break
                a -= 1
            while not backwards and a < n:
                other_f, other_i, fine = _own(pool, pool_floats, rows[a], order)
                if not fine or _distance(is_float, own_f, own_i, other_f, other_i, low_f, low_i) >= 0:
                    break
                a += 1
    if f[END] == 1:
        if f[END + 1] == 0:
            b = peer_stop
        else:
            b = np.int64(q + 1)
            high_f = bound_floats[1]
            high_i = f[END + 1]
            forwards = high_f > 0.0 if is_float else high_i > 0
            while forwards and b < n:
                other_f, other_i, fine = _own(pool, pool_floats, rows[b], order)
                if not fine or _distance(is_float, own_f, own_i, other_f, other_i, high_f, high_i) > 0:
                    break
                b += 1
            while not forwards and b > 0:
                other_f, other_i, fine = _own(pool, pool_floats, rows[b - 1], order)
                if not fine or _distance(is_float, own_f, own_i, other_f, other_i, high_f, high_i) <= 0:
                    break
                b -= 1
    return a, b


@loop
def _put_float(codes, floats, q, number):
    """Write the code of a float: one for zero, one for NaN."""
    if np.isnan(number):
        codes[q] = _NAN
    else:
        floats[q] = number + 0.0


@loop
def compute(pool, pool_floats, rows, n, first, stop, f, bound_floats, peers, order, results, result_floats):
    """A function of the rows at places `first` … `stop - 1` of `rows`, all `n` in order; `peers` has per place where its
    equals begin and end.  Returns whether a sum has exceeded 64 bits."""
    op = f[OP]
    codes = results[0]
    floats = result_floats[0]
    nulls = results[1]
    pa = np.int64(0)
    pb = np.int64(0)
    count = np.int64(0)
    total = np.int64(0)
    plain = 0.0
    rest = 0.0
    exact = 0.0
    best = np.int64(-1)
    for q in range(first, stop):
        nulls[q] = 0
        if op == SHIFT:
            at = q + f[COUNTED]
            if 0 <= at < n:
                nulls[q] = 1 if _is_null(pool, rows[at], f) else 0
                codes[q] = 0 if nulls[q] == 1 else _value(pool, rows[at], f)
            else:
                nulls[q] = 1 - f[DEFAULT]
                codes[q] = f[DEFAULT + 1]
            continue
        if op == NTILE:
            size = n // f[COUNTED]
            larger = n - size * f[COUNTED]
            if q < larger * (size + 1):
                codes[q] = q // (size + 1) + 1
            else:
                codes[q] = larger + (q - larger * (size + 1)) // size + 1
            continue
        if op == PERCENT:
            _put_float(codes, floats, q, peers[q, 0] / (n - 1) if n > 1 else 0.0)
            continue
        if op == CUME:
            _put_float(codes, floats, q, peers[q, 1] / n)
            continue
        a, b = _bounds(pool, pool_floats, rows, n, q, f, bound_floats, order, peers)
        b = max(a, b)
        if op == COUNT_ALL:
            codes[q] = b - a
            continue
        if op == FIRST or op == LAST:
            if a >= b:
                nulls[q] = 1
                codes[q] = 0
            else:
                at = rows[a] if op == FIRST else rows[b - 1]
                nulls[q] = 1 if _is_null(pool, at, f) else 0
                codes[q] = 0 if nulls[q] == 1 else _value(pool, at, f)
            continue
        if a != pa or b < pb or q == first:
            pa = a
            pb = a
            count = np.int64(0)
            total = np.int64(0)
            plain = 0.0
            rest = 0.0
            exact = 0.0
            best = np.int64(-1)
        for at in range(pb, b):
            row = rows[at]
            if _is_null(pool, row, f):
                continue
            count += 1
            if op == SUM_I or op == AVG_I:
                value = _value(pool, row, f)
                if (value > 0 and total > _MOST - value) or (value < 0 and total < _LEAST - value):
                    if op == SUM_I:
                        return True
                total += value
                exact += value
            elif op == SUM_F or op == AVG_F:
                number = pool_floats[row, f[WORD]]
                plain += number
                more = exact + number
                if abs(exact) >= abs(number):
                    rest += (exact - more) + number
                else:
                    rest += (number - more) + exact
                exact = more
            elif op == MIN or op == MAX:
                if best < 0:
                    best = row
                elif f[PLACE] >= 0:
                    found = compare_column(pool, row, pool, best, order, f[PLACE])
                    if order.columns[f[PLACE], 4] == 1:
                        found = -found
                    if (found < 0 and op == MIN) or (found > 0 and op == MAX):
                        best = row
        pb = b
        if op == COUNT:
            codes[q] = count
            continue
        nulls[q] = 1 if count == 0 else 0
        if count == 0:
            codes[q] = 0
        elif op == SUM_I:
            codes[q] = total
        elif op == AVG_I:
            _put_float(codes, floats, q, exact / count)
        elif op == SUM_F or op == AVG_F:
            number = exact + rest
            if not np.isfinite(number):
                number = plain
            _put_float(codes, floats, q, number if op == SUM_F else number / count)
        else:
            codes[q] = _value(pool, best, f)
    return False


@njit(cache=True)
def _with_room(out, n):
    if n < len(out):
        return out
    longer = np.empty((2 * n + 64, out.shape[1]), np.int64)
    longer[:n] = out[:n]
    return longer


@njit(cache=True)
def _said(out, n, record, lo, hi, codes, nulls):
    """The array with one more piece, and how many it has then."""
    if lo >= hi:
        return out, n
    out = _with_room(out, n)
    out[n, 0] = record
    out[n, 1] = lo
    out[n, 2] = hi
    out[n, 3] = nulls
    for c in range(len(codes)):
        out[n, OUT + c] = codes[c]
    return out, n + 1


@njit(cache=True, nogil=True)
def framed(keys, offsets, spans, root, count, pool, pool_floats, order, frames):
    """The rows of keys with the functions of their frames within spans of time: record, start, end, null bits, codes.
    Returns also whether a sum has exceeded 64 bits."""
    functions = frames.functions
    nf = len(functions)
    reach = frames.reach
    largest = 1
    for g in range(len(keys)):
        largest = max(largest, count[keys[g]])
    heap = np.empty(3 * largest + 2048, np.int64)
    found = np.empty(largest, np.int64)
    alive = np.empty(largest, np.int64)
    live = np.empty(largest, np.int64)
    rows = np.empty(largest, np.int64)
    group = np.empty(largest, np.int64)
    peers = np.empty((largest, 2), np.int64)
    said = np.empty((largest, nf), np.int64)
    said_nulls = np.empty(largest, np.int64)
    since = np.empty(largest, np.int64)
    results = np.empty((nf, 2, largest), np.int64)
    result_floats = results.view(np.float64)
    fresh = np.empty(nf, np.int64)
    out = np.empty((256, OUT + nf), np.int64)
    n = 0
    for g in range(len(keys)):
        k = keys[g]
        for x in range(offsets[g], offsets[g + 1]):
            if root[k] < 0:
                continue
            low = spans[x, 0]
            high = spans[x, 1]
            m, _ = first_rows(pool, root[k], low, high, count[k], -1, order, heap, found)
            times = np.empty(2 * m, np.int64)
            changed = np.empty(2 * m, np.int64)
            edges = 0
            for r in range(m):
                alive[r] = 0
                group[r] = r
                if r > 0 and compare(pool, found[r - 1], pool, found[r], order, frames.peers) == 0:
                    group[r] = group[r - 1]
                times[edges] = max(pool[found[r], LO], low)
                changed[edges] = r
                edges += 1
                if pool[found[r], HI] < high:
                    times[edges] = pool[found[r], HI]
                    changed[edges] = -r - 1
                    edges += 1
            by = np.argsort(times[:edges])
            n_live = 0  # places of live rows, in order
            e = 0
            while e < edges:
                t = times[by[e]]
                least = np.int64(m)
                most = np.int64(-1)
                while e < edges and times[by[e]] == t:
                    r = changed[by[e]]
                    if r < 0:
                        r = -r - 1
                        out, n = _said(out, n, found[r], since[r], t, said[r], said_nulls[r])
                        alive[r] = 0
                        at = np.searchsorted(live[:n_live], r)
                        for y in range(at, n_live - 1):
                            live[y] = live[y + 1]
                        n_live -= 1
                    else:
                        alive[r] = 2  # nothing is said of it yet
                        since[r] = t
                        at = np.searchsorted(live[:n_live], r)
                        for y in range(n_live, at, -1):
                            live[y] = live[y - 1]
                        live[at] = r
                        n_live += 1
                    least = min(least, r)
                    most = max(most, r)
                    e += 1
                first = 0
                stop = n_live
                if reach >= 0:
                    first = max(0, np.searchsorted(live[:n_live], least) - reach)
                    stop = min(n_live, np.searchsorted(live[:n_live], most) + 1 + reach)
                left = max(0, first - reach) if reach >= 0 else 0
                right = min(n_live, stop + reach) if reach >= 0 else n_live
                size = right - left
                for y in range(size):
                    rows[y] = found[live[left + y]]
                if reach < 0:
                    y = 0
                    while y < size:
                        z = y + 1
                        while z < size and group[live[z]] == group[live[y]]:
                            z += 1
                        for w in range(y, z):
                            peers[w, 0] = y
                            peers[w, 1] = z
                        y = z
                for c in range(nf):
                    if compute(
                        pool, pool_floats, rows, size, first - left, stop - left, functions[c], frames.floats[c], peers,
                        order, results[c], result_floats[c],
                    ):  # fmt: skip
                        return out[:n], True
                for y in range(first - left, stop - left):
                    r = live[left + y]
                    mask = np.int64(0)
                    same = alive[r] == 1
                    for c in range(nf):
                        mask |= results[c, 1, y] << c
                        fresh[c] = results[c, 0, y]
                        if same and said[r, c] != results[c, 0, y]:
                            same = False
                    if same and said_nulls[r] == mask:
                        continue
                    if alive[r] == 1:
                        out, n = _said(out, n, found[r], since[r], t, said[r], said_nulls[r])
                    alive[r] = 1
                    since[r] = t
                    said_nulls[r] = mask
                    for c in range(nf):
                        said[r, c] = fresh[c]
            for y in range(n_live):
                r = live[y]
                out, n = _said(out, n, found[r], since[r], high, said[r], said_nulls[r])
    return out[:n], False
