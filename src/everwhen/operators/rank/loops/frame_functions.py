"""Functions over frames at one instant, for rows that stand in order."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.operators.rank.loops.order import FLOATS, compare_column

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

EXCEEDED: Final = 1
"""The code of a null that stands for a sum that exceeds 64 bits; the code of other nulls of sums is 0."""

_MOST: Final = np.int64(2**63 - 1)
_LEAST: Final = np.int64(-(2**63))
_NAN: Final = np.array([np.nan]).view(np.int64)[0]


@loop
def _value(pool, row, f):
    return pool[row, f[WORD]]


@loop
def _is_null(pool, row, f):
    return (pool[row, f[NULL_WORD]] >> f[NULL_BIT]) & 1 == 1


@loop
def own_number(pool, floats, row, order):
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
    return 0.0, (~code if column[4] == 1 else code), True


@loop
def distance(is_float, one_f, one_i, two_f, two_i, bound_f, bound_i):
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
def _bounds(pool, pool_floats, found, live, n, q, f, bound_floats, order, peers):
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
    own_f, own_i, number = own_number(pool, pool_floats, found[live[q]], order)
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
            a = peer_first
            low_f = bound_floats[0]
            low_i = f[START + 1]
            backwards = low_f < 0.0 if is_float else low_i < 0
            while backwards and a > 0:
                other_f, other_i, fine = own_number(pool, pool_floats, found[live[a - 1]], order)
                if not fine or distance(is_float, own_f, own_i, other_f, other_i, low_f, low_i) < 0:
                    break
                a -= 1
            while not backwards and a < n:
                other_f, other_i, fine = own_number(pool, pool_floats, found[live[a]], order)
                if not fine or distance(is_float, own_f, own_i, other_f, other_i, low_f, low_i) >= 0:
                    break
                a += 1
    if f[END] == 1:
        if f[END + 1] == 0:
            b = peer_stop
        else:
            b = peer_stop
            high_f = bound_floats[1]
            high_i = f[END + 1]
            forwards = high_f > 0.0 if is_float else high_i > 0
            while forwards and b < n:
                other_f, other_i, fine = own_number(pool, pool_floats, found[live[b]], order)
                if not fine or distance(is_float, own_f, own_i, other_f, other_i, high_f, high_i) > 0:
                    break
                b += 1
            while not forwards and b > 0:
                other_f, other_i, fine = own_number(pool, pool_floats, found[live[b - 1]], order)
                if not fine or distance(is_float, own_f, own_i, other_f, other_i, high_f, high_i) <= 0:
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
def compute(pool, pool_floats, found, live, first, stop, f, bound_floats, peers, order, results, result_floats):
    """A function of the rows at places `first` … `stop - 1` of the live ones, which are places of `found`, all in
    order; `peers` has per place where its equals begin and end.  A sum that exceeds 64 bits is a null whose code is
    `EXCEEDED`."""
    op = f[OP]
    n = len(live)
    codes = results[0]
    floats = result_floats[0]
    nulls = results[1]
    pa = np.int64(0)
    pb = np.int64(0)
    count = np.int64(0)
    total = np.int64(0)
    exceeds = False
    plain = 0.0
    rest = 0.0
    exact = 0.0
    best = np.int64(-1)
    for q in range(first, stop):
        nulls[q] = 0
        if op == SHIFT:
            at = q + f[COUNTED]
            if 0 <= at < n:
                nulls[q] = 1 if _is_null(pool, found[live[at]], f) else 0
                codes[q] = 0 if nulls[q] == 1 else _value(pool, found[live[at]], f)
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
        a, b = _bounds(pool, pool_floats, found, live, n, q, f, bound_floats, order, peers)
        b = max(a, b)
        if op == COUNT_ALL:
            codes[q] = b - a
            continue
        if op in (FIRST, LAST):
            if a >= b:
                nulls[q] = 1
                codes[q] = 0
            else:
                at = found[live[a]] if op == FIRST else found[live[b - 1]]
                nulls[q] = 1 if _is_null(pool, at, f) else 0
                codes[q] = 0 if nulls[q] == 1 else _value(pool, at, f)
            continue
        if a != pa or b < pb or q == first:
            pa = a
            pb = a
            count = np.int64(0)
            total = np.int64(0)
            exceeds = False
            plain = 0.0
            rest = 0.0
            exact = 0.0
            best = np.int64(-1)
        for at in range(pb, b):
            row = found[live[at]]
            if _is_null(pool, row, f):
                continue
            count += 1
            if op in (SUM_I, AVG_I):
                value = _value(pool, row, f)
                if op == SUM_I:
                    if (value > 0 and total > _MOST - value) or (value < 0 and total < _LEAST - value):
                        exceeds = True
                    else:
                        total += value
                exact += value
            elif op in (SUM_F, AVG_F):
                number = pool_floats[row, f[WORD]]
                plain += number
                more = exact + number
                if abs(exact) >= abs(number):
                    rest += (exact - more) + number
                else:
                    rest += (number - more) + exact
                exact = more
            elif op in (MIN, MAX):
                if best < 0:
                    best = row
                elif f[PLACE] >= 0:
                    by = compare_column(pool, row, pool, best, order, f[PLACE])
                    if order.columns[f[PLACE], 4] == 1:
                        by = -by
                    if (by < 0 and op == MIN) or (by > 0 and op == MAX):
                        best = row
        pb = b
        if op == COUNT:
            codes[q] = count
            continue
        nulls[q] = 1 if count == 0 else 0
        if count == 0:
            codes[q] = 0
        elif op == SUM_I:
            nulls[q] = 1 if exceeds else 0
            codes[q] = EXCEEDED if exceeds else total
        elif op == AVG_I:
            _put_float(codes, floats, q, exact / count)
        elif op in (SUM_F, AVG_F):
            number = exact + rest
            if not np.isfinite(number):
                number = plain
            _put_float(codes, floats, q, number if op == SUM_F else number / count)
        else:
            codes[q] = _value(pool, best, f)
