"""The guard's log of events: appended in arrival order, found again by hash, forgotten in bulk.

An event is an entry (vs, ve, row); entries with the same hash form a chain, the newest first.  An entry that is gone
has `ve` = -∞.  Nothing is searched on insert, so an insert costs a few sequential writes and one random one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.time import NEVER

_GONE: Final = np.int64(NEVER)


@njit(cache=True, inline="always")
def _hash(vs, ve, row):
    h = (np.uint64(vs) ^ np.uint64(0x243F6A8885A308D3)) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h = (h ^ np.uint64(ve)) * np.uint64(0x9E3779B97F4A7C15)
    for j in range(len(row)):
        h ^= h >> np.uint64(29)
        h = (h ^ np.uint64(row[j])) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(32))


@njit(cache=True)
def undo(op, vs, ve, vnew, rows, heads, after, log_ve, count, killed):
    """Take the elements out again that `apply` took, the last first."""
    mask = np.uint64(len(heads) - 1)
    i = len(op) - 1
    while i >= 0:
        if op[i] == 0 or vnew[i] > vs[i]:
            count -= 1
            end = ve[i] if op[i] == 0 else vnew[i]
            heads[_hash(vs[i], end, rows[i]) & mask] = after[count]
        if killed[i] >= 0:
            log_ve[killed[i]] = ve[i]
        i -= 1


@njit(cache=True)
def apply(op, vs, ve, vnew, rows, heads, after, log_vs, log_ve, log_rows, count, killed):
    """Append inserts and move adjusted events.  Returns the new count and the first adjust without its event (-1:
    none).

    On such an error everything is as it was before.  `killed` is scratch, one entry per element.
    """
    mask = np.uint64(len(heads) - 1)
    width = log_rows.shape[1]
    first = count
    wrong = np.int64(-1)
    for i in range(len(op)):
        killed[i] = -1
        end = ve[i]
        if op[i] != 0:
            at = heads[_hash(vs[i], ve[i], rows[i]) & mask]
            while at >= 0:
                if log_vs[at] == vs[i] and log_ve[at] == ve[i]:
                    same = True
                    for j in range(width):
                        if log_rows[at, j] != rows[i, j]:
                            same = False
                            break
                    if same:
                        break
                at = after[at]
            if at < 0:
                wrong = i
                break
            log_ve[at] = _GONE
            killed[i] = at
            end = vnew[i]
            if end <= vs[i]:
                continue
        slot = _hash(vs[i], end, rows[i]) & mask
        log_vs[count] = vs[i]
        log_ve[count] = end
        for j in range(width):
            log_rows[count, j] = rows[i, j]
        after[count] = heads[slot]
        heads[slot] = count
        count += 1
    if wrong >= 0:
        undo(op[:wrong], vs, ve, vnew, rows, heads, after, log_ve, count, killed)
        count = first
    return count, wrong


@njit(cache=True)
def compact(cti, heads, after, log_vs, log_ve, log_rows, count):
    """Drop what is gone or ended before `cti`, in place, and chain the rest anew.  Returns how many are left."""
    mask = np.uint64(len(heads) - 1)
    heads[:] = -1
    n = 0
    for i in range(count):
        if log_ve[i] >= cti and log_ve[i] != _GONE:
            if n != i:
                log_vs[n] = log_vs[i]
                log_ve[n] = log_ve[i]
                log_rows[n] = log_rows[i]
            slot = _hash(log_vs[n], log_ve[n], log_rows[n]) & mask
            after[n] = heads[slot]
            heads[slot] = n
            n += 1
    return n


@njit(cache=True)
def look(op, vs, ve, vnew, cti, tau, lowest, highest, inf):
    """Times in range, lifetimes not empty, nothing behind a CTI: the first element that is wrong (-1: none).

    Also its sync time and the CTI in force; else the CTI and the largest start after the batch, how many elements carry
    data, how many of these come before the first that does not, and how many are adjusts.
    """
    data = 0
    leading = 0
    adjusts = 0
    for i in range(len(op)):
        o = op[i]
        if o <= 1:
            sync = vs[i] if o == 0 else min(ve[i], vnew[i])
            bad = sync < cti or vs[i] >= ve[i] or vs[i] < lowest or vs[i] > highest
            bad = bad or (ve[i] > highest and ve[i] != inf)
            if o == 1:
                bad = bad or vnew[i] < vs[i] or (vnew[i] > highest and vnew[i] != inf)
                adjusts += 1
            elif vs[i] > tau:
                tau = vs[i]
            if bad:
                return i, sync, cti, tau, data, leading, adjusts
            if leading == data and data == i:
                leading += 1
            data += 1
        elif o == 2:
            if vs[i] != inf and (vs[i] < lowest or vs[i] > highest):
                return i, vs[i], cti, tau, data, leading, adjusts
            cti = max(cti, vs[i])
        elif o > 4:
            return i, np.int64(0), cti, tau, data, leading, adjusts
    return np.int64(-1), np.int64(0), cti, tau, data, leading, adjusts
