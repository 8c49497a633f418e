"""Finalize, one element after the other: what is late against a progress that moves with every element.

`progress` holds what moves: the CTI, the largest start, how many events and broken adjusts there are (and how many of
those still wait), the next announced interval, and whether anything was said in another way than it came.  Entries of
`events` are (start, end by name, end as said, -); those of `broken` (start, end, new end, line).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF, MIN_TIME, NEVER
from everwhen.operators.ingress.event_index_loops import GONE, add, find

CTI_AT: Final = 0
TAU_AT: Final = 1
EVENTS_AT: Final = 2
BROKEN_AT: Final = 3
WAITING_AT: Final = 4
NEXT_AT: Final = 5
CHANGED_AT: Final = 6
FLOOR_AT: Final = 7

LATE: Final = 1
CUT: Final = 2
UNKNOWN: Final = 3
IN_VAIN: Final = 4

_NOTHING: Final = 2
_NEVER: Final = np.int64(NEVER)
_INF: Final = np.int64(INF)
_LOWEST: Final = np.int64(MIN_TIME)


class Admission(NamedTuple):
    """What becomes of elements; there is room for all."""

    said: np.ndarray
    """Gets (op, start, end, new end) of each element that is said."""
    which: np.ndarray
    """Gets the number of its row."""
    reason: np.ndarray
    """Gets per element why it was given up (0: it was not)."""


@njit(cache=True)
def _repaired(progress, broken, start, end, row):
    """The end of an event after the adjusts that had come before it."""
    heads, after, fields, held = broken
    while progress[WAITING_AT] > 0 and start >= progress[CTI_AT] and end > start:
        at = find(heads, after, fields, held, start, end, row, _NEVER)
        if at < 0:
            break
        end = fields[at, 2]
        fields[at, 1] = GONE
        progress[WAITING_AT] -= 1
        progress[CHANGED_AT] = 1
    return end


@njit(cache=True)
def fire(progress, announced):
    """Announced intervals (start, end, elements to come), in their order, that follow the CTI and are complete."""
    at = progress[NEXT_AT]
    while at < len(announced):
        if announced[at, 1] > progress[CTI_AT]:
            if announced[at, 2] > 0 or announced[at, 0] > max(progress[CTI_AT], 0):
                break
            progress[CTI_AT] = announced[at, 1]
        at += 1
    progress[NEXT_AT] = at


@njit(cache=True)
def admit(elements, first, lines, remember, keep, progress, events, broken, announced, admission):
    """Take elements in arrival order; how many are said.

    Rows are those of the elements with data; that of the first one stands at `first`.
    """
    op, vs, ve, vnew, rows = elements.op, elements.vs, elements.ve, elements.vnew, elements.rows
    out, which, reason = admission.said, admission.which, admission.reason
    heads, after, fields, held = events
    b_heads, b_after, b_fields, b_held = broken
    n = 0
    k = first
    for i in range(len(op)):
        reason[i] = 0
        o = op[i]
        if o == 2:
            progress[CTI_AT] = max(progress[CTI_AT], vs[i])
        elif o <= 1:
            row = rows[k]
            cti = progress[CTI_AT]
            kind = _NOTHING
            if o == 0:
                if vs[i] < cti:
                    reason[i] = LATE
                else:
                    end = _repaired(progress, broken, vs[i], ve[i], row)
                    if end > vs[i]:
                        kind = 0
                        out[n, 2] = end
                        out[n, 3] = 0
                        if keep:
                            at = progress[EVENTS_AT]
                            add(heads, after, fields, held, at, vs[i], end, end, 0, row)
                            progress[EVENTS_AT] = at + 1
                progress[TAU_AT] = max(progress[TAU_AT], vs[i])
            else:
                at = find(heads, after, fields, held, vs[i], ve[i], row, cti)
                if at >= 0:
                    said = fields[at, 2]
                    fields[at, 1] = GONE
                    if vnew[i] < cti:
                        reason[i] = CUT
                    name = _repaired(progress, broken, vs[i], vnew[i], row)
                    end = max(name, cti) if vs[i] < cti else name
                    if name > vs[i]:
                        at = progress[EVENTS_AT]
                        add(heads, after, fields, held, at, vs[i], name, end, 0, row)
                        progress[EVENTS_AT] = at + 1
                    if end != said:
                        kind = 1
                        out[n, 2] = said
                        out[n, 3] = end
                elif cti <= ve[i] and ve[i] <= progress[FLOOR_AT]:
                    if vnew[i] > progress[FLOOR_AT]:  # what it names is over, and not known any more
                        kind = 1
                        out[n, 2] = ve[i]
                        out[n, 3] = vnew[i]
                        at = progress[EVENTS_AT]
                        add(heads, after, fields, held, at, vs[i], vnew[i], vnew[i], 0, row)
                        progress[EVENTS_AT] = at + 1
                elif vs[i] >= cti:
                    at = progress[BROKEN_AT]
                    add(b_heads, b_after, b_fields, b_held, at, vs[i], ve[i], vnew[i], lines[i], row)
                    progress[BROKEN_AT] = at + 1
                    progress[WAITING_AT] += 1
                else:
                    reason[i] = UNKNOWN
            if kind == _NOTHING or (kind == 1 and (out[n, 2] != ve[i] or out[n, 3] != vnew[i])):
                progress[CHANGED_AT] = 1
            if kind != _NOTHING:
                out[n, 0] = kind
                out[n, 1] = vs[i]
                which[n] = k
                n += 1
            if progress[NEXT_AT] < len(announced):
                sync = vs[i] if o == 0 else min(ve[i], vnew[i])
                for j in range(progress[NEXT_AT], len(announced)):
                    if announced[j, 0] <= sync and sync < announced[j, 1]:
                        announced[j, 2] -= 1
            k += 1
            if remember != _INF and progress[TAU_AT] != _NEVER:
                forced = progress[TAU_AT] - remember
                if forced > progress[CTI_AT] and forced >= _LOWEST:
                    progress[CTI_AT] = forced
        if progress[NEXT_AT] < len(announced):
            fire(progress, announced)
    return n


@njit(cache=True)
def glance(op, vs, remember, progress):
    """Whether no insert of a batch without adjusts is late; then progress has moved on, else nothing has changed."""
    cti = progress[CTI_AT]
    tau = progress[TAU_AT]
    for i in range(len(op)):
        if op[i] == 2:
            cti = max(cti, vs[i])
        elif op[i] == 0:
            if vs[i] < cti:
                return False
            tau = max(tau, vs[i])
            if remember != _INF:
                forced = tau - remember
                if forced > cti and forced >= _LOWEST:
                    cti = forced
    progress[CTI_AT] = cti
    progress[TAU_AT] = tau
    return True
