"""Compiled loops of promise sets: intervals with a time, boxes in chains, text between cuts.

Nothing here knows of patterns; the classes that own the arrays are `interval_set`, `box_table` and `value_codes`.  A
time of `NEVER` marks a box that is gone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit

_NEVER: Final = np.int64(-(2**63))


# Disjoint closed intervals in order, each with a time.


@njit(cache=True, inline="always")
def _emit(lo, hi, t, outs, k, first):
    """Appends a piece, or makes the last one longer; the new length."""
    if k > first and outs[k - 1, 2] == t and outs[k - 1, 1] + 1 == lo:
        outs[k - 1, 1] = hi
        return k
    outs[k, 0] = lo
    outs[k, 1] = hi
    outs[k, 2] = t
    return k + 1


@njit(cache=True)
def merge_pieces(a, i, n, b, j, m, outs, first):
    """The larger time at each point of `a[i:n]` and `b[j:m]`, written from `first` on; where the output ends."""
    k = first
    la = a[i, 0] if i < n else 0
    lb = b[j, 0] if j < m else 0
    while i < n or j < m:
        if j == m or (i < n and a[i, 1] < lb):
            k = _emit(la, a[i, 1], a[i, 2], outs, k, first)
            i += 1
            la = a[i, 0] if i < n else 0
        elif i == n or b[j, 1] < la:
            k = _emit(lb, b[j, 1], b[j, 2], outs, k, first)
            j += 1
            lb = b[j, 0] if j < m else 0
        elif la < lb:
            k = _emit(la, lb - 1, a[i, 2], outs, k, first)
            la = lb
        elif lb < la:
            k = _emit(lb, la - 1, b[j, 2], outs, k, first)
            lb = la
        else:
            h = min(a[i, 1], b[j, 1])
            k = _emit(la, h, max(a[i, 2], b[j, 2]), outs, k, first)
            if a[i, 1] == h:
                i += 1
                la = a[i, 0] if i < n else 0
            else:
                la = h + 1
            if b[j, 1] == h:
                j += 1
                lb = b[j, 0] if j < m else 0
            else:
                lb = h + 1
    return k


@njit(cache=True)
def envelope(pieces):
    """The largest time at each point of any intervals (sorted by their start), by merging neighbours of twice the size.

    `n` intervals have at most `2 n - 1` pieces.
    """
    n = len(pieces)
    here, there = np.empty((2 * n, 3), np.int64), np.empty((2 * n, 3), np.int64)
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        here[2 * i] = pieces[i]
        starts[i], ends[i] = 2 * i, 2 * i + 1
    runs = n
    while runs > 1:
        out = 0
        for r in range(0, runs, 2):
            first = starts[r]
            if r + 1 < runs:
                end = merge_pieces(here, starts[r], ends[r], here, starts[r + 1], ends[r + 1], there, first)
            else:
                end = merge_pieces(here, starts[r], ends[r], here, 0, 0, there, first)
            starts[out], ends[out] = first, end
            out += 1
        runs = out
        here, there = there, here
    return here[starts[0] : ends[0]].copy() if n else pieces


@njit(cache=True, inline="always")
def last_at_or_before(pieces, x):
    """The last piece that starts at or before x, -1 if there is none."""
    base, size = 0, len(pieces)
    while size > 1:
        half = size >> 1
        base = base + half if pieces[base + half, 0] <= x else base
        size -= half
    return base if size and pieces[base, 0] <= x else -1


@njit(cache=True)
def raise_to(pieces, points, out):
    """Raises `out` to the time of the piece that each point lies in."""
    for i in range(len(points)):
        at = last_at_or_before(pieces, points[i])
        if at >= 0 and points[i] <= pieces[at, 1] and pieces[at, 2] > out[i]:
            out[i] = pieces[at, 2]


@njit(cache=True)
def least(pieces, lo, hi):
    """The smallest time on [lo, hi], `NEVER` if some point is in no piece."""
    at = last_at_or_before(pieces, lo)
    if at < 0 or pieces[at, 1] < lo:
        return _NEVER
    t = pieces[at, 2]
    while pieces[at, 1] < hi:
        at += 1
        if at == len(pieces) or pieces[at, 0] != pieces[at - 1, 1] + 1:
            return _NEVER
        t = min(t, pieces[at, 2])
    return t


@njit(cache=True)
def overlaps(a, b, outs):
    """The pieces that lie in both, with the smaller time; how many (at most `len(a) + len(b)`)."""
    i, j, k = 0, 0, 0
    while i < len(a) and j < len(b):
        lo, hi = max(a[i, 0], b[j, 0]), min(a[i, 1], b[j, 1])
        if lo <= hi:
            k = _emit(lo, hi, min(a[i, 2], b[j, 2]), outs, k, 0)
        if a[i, 1] < b[j, 1]:
            i += 1
        else:
            j += 1
    return k


# Boxes: a closed interval in each dimension and a time, in chains by the number of their key.


@njit(cache=True, inline="always")
def _unlink(heads, links, boxes, key, before, at):
    if before < 0:
        heads[key] = links[at]
    else:
        links[before] = links[at]
    boxes[at, -1] = _NEVER


@njit(cache=True)
def add_boxes(heads, links, boxes, keys, new, count):
    """Links boxes to the chains of their keys.  A box within another that says as much is dropped; two of one time that
    touch or meet in one dimension and agree in the others become one.  How many boxes there are now.
    """
    width = boxes.shape[1] - 1
    dims = width // 2
    for i in range(len(new)):
        box = new[i].copy()
        key = keys[i]
        before, at = -1, heads[key]
        while at >= 0:
            inside = outside = True
            differing, touching = 0, True
            for d in range(dims):
                lo, hi, l2, h2 = box[2 * d], box[2 * d + 1], boxes[at, 2 * d], boxes[at, 2 * d + 1]
                inside = inside and l2 <= lo and hi <= h2
                outside = outside and lo <= l2 and h2 <= hi
                if lo != l2 or hi != h2:
                    differing += 1
                    apart = (hi < l2 and hi + 1 < l2) or (h2 < lo and h2 + 1 < lo)
                    touching = touching and not apart
            if inside and boxes[at, width] >= box[width]:
                box[width] = _NEVER
                break
            following = links[at]
            if outside and boxes[at, width] <= box[width]:
                _unlink(heads, links, boxes, key, before, at)
                at = following
            elif differing == 1 and touching and boxes[at, width] == box[width]:
                for d in range(dims):
                    box[2 * d] = min(box[2 * d], boxes[at, 2 * d])
                    box[2 * d + 1] = max(box[2 * d + 1], boxes[at, 2 * d + 1])
                _unlink(heads, links, boxes, key, before, at)
                before, at = -1, heads[key]  # the larger one may meet others
            else:
                before, at = at, following
        if box[width] != _NEVER:
            boxes[count] = box
            links[count] = heads[key]
            heads[key] = count
            count += 1
    return count


@njit(cache=True)
def raise_in_boxes(heads, links, boxes, keys, points, out):
    """Raises `out` to the largest time of a box of the row's chain (key -1: none) that holds its point."""
    dims = points.shape[1]
    for i in range(len(keys)):
        if keys[i] < 0:
            continue
        at = heads[keys[i]]
        while at >= 0:
            if boxes[at, 2 * dims] > out[i]:
                inside = True
                for d in range(dims):
                    if points[i, d] < boxes[at, 2 * d] or points[i, d] > boxes[at, 2 * d + 1]:
                        inside = False
                        break
                if inside:
                    out[i] = boxes[at, 2 * dims]
            at = links[at]


@njit(cache=True)
def most_around(heads, links, boxes, key, box):
    """The largest time of a box of the chain that holds all of another."""
    dims = boxes.shape[1] // 2
    t, at = _NEVER, heads[key]
    while at >= 0:
        inside = True
        for d in range(dims):
            inside = inside and boxes[at, 2 * d] <= box[2 * d] and box[2 * d + 1] <= boxes[at, 2 * d + 1]
        if inside and boxes[at, 2 * dims] > t:
            t = boxes[at, 2 * dims]
        at = links[at]
    return t


# Byte strings between cuts.


@njit(cache=True)
def positions(offsets, first, data, cut_offsets, cut_data, out):
    """How many cuts are at or before each byte string."""
    for i in range(len(out)):
        a, b = offsets[first + i], offsets[first + i + 1]
        low, high = 0, len(cut_offsets) - 1
        while low < high:
            mid = (low + high) // 2
            c, d = cut_offsets[mid], cut_offsets[mid + 1]
            size = min(b - a, d - c)
            j = 0
            while j < size and data[a + j] == cut_data[c + j]:
                j += 1
            if (data[a + j] < cut_data[c + j]) if j < size else b - a < d - c:
                high = mid
            else:
                low = mid + 1
        out[i] = low
