"""Elements that wait for their turn: merged by name while they wait, let through by sync time.

An entry is (start, end, end said before or -∞ for an insert, sync time).  Entries that are due stand first in a queue
or in a heap of (sync time, position): what comes in order goes to the queue's end, the rest to the heap, so order costs
nothing.  One that was merged into another is gone, and its places are passed over.  `sizes` are the heap's, and where
the queue begins and ends.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.event_index_loops import GONE, add, find

_NEVER: Final = np.int64(NEVER)
_INF: Final = np.int64(INF)


@njit(cache=True)
def _push(heap, size, sync, at):
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if heap[up, 0] < sync or (heap[up, 0] == sync and heap[up, 1] < at):
            break
        heap[i, 0] = heap[up, 0]
        heap[i, 1] = heap[up, 1]
        i = up
    heap[i, 0] = sync
    heap[i, 1] = at
    return size + 1


@njit(cache=True)
def _pop(heap, size):
    size -= 1
    sync = heap[size, 0]
    at = heap[size, 1]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        other = down + 1
        if other < size and (
            heap[other, 0] < heap[down, 0] or (heap[other, 0] == heap[down, 0] and heap[other, 1] < heap[down, 1])
        ):
            down = other
        if sync < heap[down, 0] or (sync == heap[down, 0] and at < heap[down, 1]):
            break
        heap[i, 0] = heap[down, 0]
        heap[i, 1] = heap[down, 1]
        i = down
    heap[i, 0] = sync
    heap[i, 1] = at
    return size


@njit(cache=True)
def wait(op, vs, ve, vnew, rows, which, searched, entries, count, heap, queue, sizes):
    """Let elements wait, each merged with the one it follows; how many entries there are then.

    `searched`: whether there are adjusts among them, which look for what they follow.
    """
    heads, after, fields, held = entries
    for w in range(len(which)):
        i = which[w]
        row = rows[i]
        before = _NEVER
        end = ve[i]
        sync = vs[i]
        if op[i] != 0:
            before = ve[i]
            end = vnew[i]
            at = find(heads, after, fields, held, vs[i], ve[i], row, _NEVER)
            if at >= 0:
                before = fields[at, 2]
                fields[at, 1] = GONE
            if (before == _NEVER and end == vs[i]) or end == before:
                continue
            if before != _NEVER:
                sync = min(before, end)
        if searched:
            add(heads, after, fields, held, count, vs[i], end, before, sync, row)
        else:
            fields[count, 0] = vs[i]
            fields[count, 1] = end
            fields[count, 2] = before
            fields[count, 3] = sync
            for j in range(len(row)):
                held[count, j] = row[j]
        last = sizes[2]
        if last == sizes[1] or queue[last - 1, 0] <= sync:
            queue[last, 0] = sync
            queue[last, 1] = count
            sizes[2] = last + 1
        else:
            sizes[0] = _push(heap, sizes[0], sync, count)
        count += 1
    return count


@njit(cache=True)
def release(limit, entries, heap, queue, sizes, out):
    """Take out what has a sync time of at most `limit`, in that order: how many, and the lowest that still waits (∞:
    nothing does)."""
    fields = entries[2]
    n = 0
    while True:
        while sizes[0] > 0 and fields[heap[0, 1], 1] == GONE:
            sizes[0] = _pop(heap, sizes[0])
        while sizes[1] < sizes[2] and fields[queue[sizes[1], 1], 1] == GONE:
            sizes[1] += 1
        head = sizes[1]
        queued = head < sizes[2]
        if sizes[0] == 0 and not queued:
            return n, _INF
        first = queued
        if queued and sizes[0] > 0:
            first = queue[head, 0] < heap[0, 0] or (queue[head, 0] == heap[0, 0] and queue[head, 1] < heap[0, 1])
        sync = queue[head, 0] if first else heap[0, 0]
        if sync > limit:
            return n, sync
        if first:
            out[n] = queue[head, 1]
            sizes[1] += 1
        else:
            out[n] = heap[0, 1]
            sizes[0] = _pop(heap, sizes[0])
        n += 1


@njit(cache=True)
def take(entries, at, op, vs, ve, vnew, rows):
    """Write out entries that are let through, and let them go; how many of them are adjusts."""
    fields = entries[2]
    held = entries[3]
    adjusts = 0
    for i in range(len(at)):
        a = at[i]
        vs[i] = fields[a, 0]
        if fields[a, 2] == _NEVER:
            op[i] = 0
            ve[i] = fields[a, 1]
            vnew[i] = 0
        else:
            op[i] = 1
            ve[i] = fields[a, 2]
            vnew[i] = fields[a, 1]
            adjusts += 1
        for j in range(held.shape[1]):
            rows[i, j] = held[a, j]
        fields[a, 1] = GONE
    return adjusts
