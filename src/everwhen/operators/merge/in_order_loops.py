"""Which elements of the present instant are new: by their number (R1), or by their row (R2)."""

from __future__ import annotations

from everwhen.compiled.njit import loop


@loop
def by_count(counts, port, new):
    """Elements of an input, of which so many were said and (last) emitted: those beyond what was emitted are new."""
    last = len(counts) - 1
    for i in range(len(new)):
        counts[port] += 1
        new[i] = counts[port] > counts[last]
        if new[i]:
            counts[last] += 1


@loop
def by_row(times, port, ids, new):
    """The same per row: `times` has a line for each id."""
    last = times.shape[1] - 1
    for i in range(len(ids)):
        line = times[ids[i]]
        line[port] += 1
        new[i] = line[port] > line[last]
        if new[i]:
            line[last] += 1
