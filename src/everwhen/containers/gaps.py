"""Loops over columns from which some rows are left out: the places of promises among rows of data.

`gaps` are places in rising order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everwhen.compiled.njit import loop, njit


@loop
def fill(rows, j, codes, gaps):
    """Column `j` of a matrix from the codes without the gaps."""
    start, to = 0, 0
    for g in range(len(gaps) + 1):
        part = codes[start : gaps[g] if g < len(gaps) else len(codes)]
        into = rows[to : to + len(part), j]
        for i in range(len(part)):
            into[i] = part[i]
        start, to = start + len(part) + 1, to + len(part)


@njit(cache=True)
def without(column, gaps):
    """An array without the gaps."""
    out = np.empty(len(column) - len(gaps), column.dtype)
    start, to = 0, 0
    for g in range(len(gaps) + 1):
        part = column[start : gaps[g] if g < len(gaps) else len(column)]
        out[to : to + len(part)] = part
        start, to = start + len(part) + 1, to + len(part)
    return out


@loop
def spans_without(vs, ve, gaps, starts, ends):
    """Copy starts and ends without the gaps."""
    start, to = 0, 0
    for g in range(len(gaps) + 1):
        stop = gaps[g] if g < len(gaps) else len(vs)
        n = stop - start
        first, last, from_, until = vs[start:stop], ve[start:stop], starts[to : to + n], ends[to : to + n]
        for i in range(n):
            from_[i] = first[i]
        for i in range(n):
            until[i] = last[i]
        start, to = stop + 1, to + n


def only_gaps(column: pa.Array, gaps: np.ndarray) -> bool:
    """Whether the gaps are null, and nothing else is."""
    if column.null_count != len(gaps) or not len(gaps) or pa.types.is_null(column.type):
        return False
    return bool(_all_null(np.frombuffer(column.buffers()[0], np.uint8), column.offset, gaps))


@loop
def _all_null(bits, offset, gaps):
    """Whether all gaps are marked as null in Arrow's bits of validity."""
    for g in range(len(gaps)):
        at = offset + gaps[g]
        if (bits[at >> 3] >> (at & 7)) & 1:
            return False
    return True
