"""What pairs of a join say: the instants that both rows have in common, and both rows side by side."""

from __future__ import annotations

from everwhen.compiled.njit import njit
from everwhen.operators.join.loops.lifetimes import HI, LO, WEIGHT


@njit(cache=True, nogil=True)
def overlap(mine, entry, lo, hi, weight, log, times, first):
    """When both of each pair are alive, and how many of them: lo, hi and weight are the rows of `times`."""
    for p in range(len(mine)):
        i = mine[p]
        at = entry[p]
        times[0, first + p] = max(lo[i], log[at, LO])
        times[1, first + p] = min(hi[i], log[at, HI])
        times[2, first + p] = weight[i] * log[at, WEIGHT]


@njit(cache=True, nogil=True)
def beside(a, a_at, a_column, a_width, b, b_at, b_column, b_width, out, first):
    """Rows of `a` beside rows of `b`, where one null mask word is enough.  A row begins at its matrix's `…_column` with
    the null mask and has `…_width` values."""
    for p in range(len(a_at)):
        i = a_at[p]
        j = b_at[p]
        to = first + p
        out[to, 0] = a[i, a_column] | (b[j, b_column] << a_width)
        for c in range(1, a_width + 1):
            out[to, c] = a[i, a_column + c]
        for c in range(1, b_width + 1):
            out[to, a_width + c] = b[j, b_column + c]
