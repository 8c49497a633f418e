"""The sweep over edges: piecewise constant state per key, changed by signed segments, emitted by policy.

Per key the state is a sorted run of *edges*: a time and the accumulated lanes that hold from then to the next edge;
what holds before the first edge is the key's *base*.  All lanes stand in one row of 64-bit words: first integers (exact),
then floats in twice the precision (a high and a low part each, so that sums hardly depend on batching), then *evaluated*
lanes that someone else fills in (min, max, quantiles …).  Integers and floats are two views of the same memory.

A step is two passes.  `merge` writes the new edges of each touched key beside the old ones.  `emit` then compares what
had been said with what is to be said now, clipped by the emission policy on both sides, and reports only the pieces
that differ; afterwards edges at or before the CTI are folded into the base.

The clip: nothing at or after the frontier F, and edges after the limit L do not count.
  CUT       F = θ                                    everything before θ, cut there
  ENDED     F = max(m, last edge ≤ τ)                pieces that have ended by τ; cut at the promise m
  KNOWN     F = first edge > τ                       also the piece open at τ, as far as it is known
  INFINITE  F = ∞, L = τ                             also the piece open at τ, without an end
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.time import INF, NEVER

CUT: Final = 0
ENDED: Final = 1
KNOWN: Final = 2
INFINITE: Final = 3

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)


@njit(cache=True, inline="always")
def _add(hi, lo, dh, dl):  # type: ignore[no-untyped-def]
    """(hi, lo) + (dh, dl) in twice the precision."""
    s = hi + dh
    b = s - hi
    e = (hi - (s - b)) + (dh - b) + lo + dl
    h = s + e
    return h, e - (h - s)


@njit(cache=True)
def group_edges(kid, lo, hi, values, values_f, ni, na, slot):  # type: ignore[no-untyped-def]
    """Segments as consolidated edge deltas, grouped by key and sorted by time.

    The first `ni` of `na` added lanes are integers.  `slot` is scratch, one entry per key id, all -1 (and left so).
    Returns the keys, the offsets of their edges, per edge its time, lane deltas and the change in the number of open
    segments, and per key the first and last time.
    """
    n = len(kid)
    keys = np.empty(n, np.int64)
    group = np.empty(n, np.int64)
    counts = np.zeros(n + 1, np.int64)
    ng = 0
    for i in range(n):
        k = kid[i]
        g = slot[k]
        if g < 0:
            g = ng
            slot[k] = g
            keys[g] = k
            ng += 1
        group[i] = g
        counts[g + 1] += 2 if hi[i] != _INF else 1
    for g in range(ng):
        slot[keys[g]] = -1
        counts[g + 1] += counts[g]
    total = counts[ng]
    time = np.empty(total, np.int64)
    ref = np.empty(total, np.int64)
    fill = counts[:ng].copy()
    for i in range(n):
        g = group[i]
        at = fill[g]
        time[at] = lo[i]
        ref[at] = i
        if hi[i] != _INF:
            time[at + 1] = hi[i]
            ref[at + 1] = ~i
            fill[g] = at + 2
        else:
            fill[g] = at + 1
    et = np.empty(total, np.int64)
    ed = np.zeros((total, na), np.int64)
    ef = ed.view(np.float64)
    er = np.zeros(total, np.int64)
    offsets = np.empty(ng + 1, np.int64)
    first = np.empty(ng, np.int64)
    last = np.empty(ng, np.int64)
    out = 0
    for g in range(ng):
        a = counts[g]
        b = counts[g + 1]
        _sort(time, ref, a, b)
        offsets[g] = out
        open_ = 0
        x = a
        while x < b:
            t = time[x]
            et[out] = t
            refs = 0
            while x < b and time[x] == t:
                r = ref[x]
                if r >= 0:
                    refs += 1
                    for j in range(ni):
                        ed[out, j] += values[r, j]
                    for j in range(ni, na, 2):
                        ef[out, j], ef[out, j + 1] = _add(ef[out, j], ef[out, j + 1], values_f[r, j], values_f[r, j + 1])
                else:
                    refs -= 1
                    r = ~r
                    for j in range(ni):
                        ed[out, j] -= values[r, j]
                    for j in range(ni, na, 2):
                        ef[out, j], ef[out, j + 1] = _add(ef[out, j], ef[out, j + 1], -values_f[r, j], -values_f[r, j + 1])
                x += 1
            er[out] = refs
            open_ += refs
            out += 1
        first[g] = time[a]
        last[g] = _INF if open_ != 0 else time[b - 1]
    offsets[ng] = out
    return keys[:ng], offsets, et[:out], ed[:out], er[:out], first, last


@njit(cache=True)
def _sort(time, ref, a, b):  # type: ignore[no-untyped-def]
    """Sort a run by time: by insertion if it is short."""
    if b - a <= 48:
        for x in range(a + 1, b):
            t = time[x]
            r = ref[x]
            y = x - 1
            while y >= a and time[y] > t:
                time[y + 1] = time[y]
                ref[y + 1] = ref[y]
                y -= 1
            time[y + 1] = t
            ref[y + 1] = r
    else:
        order = np.argsort(time[a:b])
        time[a:b] = time[a:b][order]
        ref[a:b] = ref[a:b][order]


@njit(cache=True)
def merge(keys, offsets, et, ed, ef, er, ni, na, start, length, pt, pl, pf, pv, end, bl, bf, bv, new_start, new_length, prune):  # type: ignore[no-untyped-def]
    """Write the new edges of each key behind `end`; the old ones stay where they are.  Returns the new end."""
    width = pl.shape[1]
    delta = np.empty(na, np.int64)
    delta_f = delta.view(np.float64)
    for g in range(len(keys)):
        k = keys[g]
        i = start[k]
        i1 = i + length[k]
        j = offsets[g]
        j1 = offsets[g + 1]
        here = end
        cur = np.int64(-1)  # the old edge in force, -1: the base
        delta[:] = 0
        refs = 0
        while i < i1 or j < j1:
            t = pt[i] if j >= j1 or (i < i1 and pt[i] <= et[j]) else et[j]
            if i < i1 and pt[i] == t:
                cur = i
                i += 1
            if j < j1 and et[j] == t:
                refs += er[j]
                if refs == 0:
                    delta[:] = 0
                else:
                    for c in range(ni):
                        delta[c] += ed[j, c]
                    for c in range(ni, na, 2):
                        delta_f[c], delta_f[c + 1] = _add(delta_f[c], delta_f[c + 1], ef[j, c], ef[j, c + 1])
                j += 1
            pt[end] = t
            if cur >= 0:
                _sum(pl, pf, cur, delta, delta_f, ni, na, pl, pf, end)
                pv[end] = pv[cur] if refs == 0 else 0
            else:
                _sum(bl, bf, k, delta, delta_f, ni, na, pl, pf, end)
                pv[end] = bv[k] if refs == 0 else 0
            if prune:
                same = True
                for c in range(width):
                    if pl[end, c] != (pl[end - 1, c] if end > here else bl[k, c]):
                        same = False
                        break
                if same:
                    continue
            end += 1
        new_start[g] = here
        new_length[g] = end - here
    return end


@njit(cache=True, inline="always")
def _sum(al, af, at, delta, delta_f, ni, na, pl, pf, end):  # type: ignore[no-untyped-def]
    """Lanes of an edge plus a delta; where nothing is alive, sums are exactly zero."""
    empty = True
    for c in range(ni):
        v = al[at, c] + delta[c]
        pl[end, c] = v
        if v != 0:
            empty = False
    if empty:
        for c in range(ni, na):
            pl[end, c] = 0
    else:
        for c in range(ni, na, 2):
            h, low = _add(af[at, c], af[at, c + 1], delta_f[c], delta_f[c + 1])
            pf[end, c] = h + 0.0
            pf[end, c + 1] = low + 0.0
    for c in range(na, pl.shape[1]):
        pl[end, c] = al[at, c]


@njit(cache=True, inline="always")
def _after(pt, s, n, t):  # type: ignore[no-untyped-def]
    """The position of the first of the sorted edges that is later than `t`."""
    a = s
    b = s + n
    while a < b:
        mid = (a + b) >> 1
        if pt[mid] <= t:
            a = mid + 1
        else:
            b = mid
    return a


@njit(cache=True, inline="always")
def _frontier(pt, s, n, mode, tau, m):  # type: ignore[no-untyped-def]
    if mode == CUT:
        return tau
    if mode == INFINITE:
        return _INF
    at = _after(pt, s, n, tau)
    if mode == ENDED:
        e = pt[at - 1] if at > s else _NEVER
        return max(m, e)
    return pt[at] if at < s + n else _INF


@njit(cache=True)
def pending(keys, s, n, mode, tau, m, c, pt, pl, pv, bl, bv):  # type: ignore[no-untyped-def]
    """The pieces to be said now whose evaluated lanes are not known: records key, edge (-1: the base), instant."""
    out = np.empty((64, 3), np.int64)
    count = 0
    for v in range(len(keys)):
        k = keys[v]
        F = _frontier(pt, s[v], n[v], mode, tau, m)
        L = tau if mode == INFINITE else _INF
        for at in range(s[v] - 1, s[v] + n[v]):
            if at < s[v]:
                if bl[k, 0] == 0 or bv[k] != 0 or F <= c:
                    continue
                t = c
                edge = np.int64(-1)
            else:
                t = pt[at]
                if t >= F or t > L:
                    break
                if pl[at, 0] == 0 or pv[at] != 0:
                    continue
                edge = np.int64(at)
            if count == len(out):
                out = _bigger(out, 2 * count)
            out[count, 0] = k
            out[count, 1] = edge
            out[count, 2] = t
            count += 1
    return out[:count]


@njit(cache=True)
def _bigger(a, size):  # type: ignore[no-untyped-def]
    b = np.empty((size, a.shape[1]), np.int64)
    b[: len(a)] = a
    return b


@njit(cache=True, inline="always")
def _alive(lanes, ni):  # type: ignore[no-untyped-def]
    for c in range(ni):
        if lanes[c] != 0:
            return True
    return False


@njit(cache=True, inline="always")
def _same(a, b):  # type: ignore[no-untyped-def]
    for c in range(len(a)):
        if a[c] != b[c]:
            return False
    return True


@njit(cache=True)
def emit(keys, os, on, ns, nn, first, last, mode, tau0, m0, tau1, m1, ni, pt, pl, bl, expected):  # type: ignore[no-untyped-def]
    """The pieces in which what was said differs from what is to be said.

    Per piece: `head` = key, lo, hi, 1 if something was said + 2 if something is to be said; and the old and the new lanes.
    """
    width = pl.shape[1]
    cap = expected
    head = np.empty((cap, 4), np.int64)
    old = np.empty((cap, width), np.int64)
    new = np.empty((cap, width), np.int64)
    nothing = np.zeros(width, np.int64)
    count = 0
    L0 = tau0 if mode == INFINITE else _INF
    L1 = tau1 if mode == INFINITE else _INF
    for v in range(len(keys)):
        k = keys[v]
        F0 = _frontier(pt, os[v], on[v], mode, tau0, m0)
        F1 = _frontier(pt, ns[v], nn[v], mode, tau1, m1)
        p = first[v]
        if mode == INFINITE:
            if L1 > L0:
                at = _after(pt, ns[v], nn[v], L0)
                if at < ns[v] + nn[v] and pt[at] <= L1:
                    p = min(p, pt[at])
        elif F0 != F1:
            p = min(p, min(F0, F1))
        if p == _INF:
            continue
        o_end = os[v] + on[v]
        n_end = ns[v] + nn[v]
        o = _after(pt, os[v], on[v], min(p, L0))  # the next old edge; the one in force stands before it
        w = _after(pt, ns[v], nn[v], min(p, L1))
        was = pl[o - 1] if o > os[v] else bl[k]
        now = pl[w - 1] if w > ns[v] else bl[k]
        top = max(F0, F1)
        mine = False
        while p < top:
            q = top
            if o < o_end and pt[o] <= L0:
                q = min(q, pt[o])
            if w < n_end and pt[w] <= L1:
                q = min(q, pt[w])
            if F0 > p:
                q = min(q, F0)
            if F1 > p:
                q = min(q, F1)
            said = p < F0 and _alive(was, ni)
            to_say = p < F1 and _alive(now, ni)
            if said != to_say or (said and not _same(was, now)):
                flags = (1 if said else 0) + (2 if to_say else 0)
                before = was if said else nothing
                after = now if to_say else nothing
                if mine and head[count - 1, 2] == p and head[count - 1, 3] == flags and _same(before, old[count - 1]) and _same(after, new[count - 1]):
                    head[count - 1, 2] = q
                else:
                    if count == cap:
                        cap *= 2
                        head = _bigger(head, cap)
                        old = _bigger(old, cap)
                        new = _bigger(new, cap)
                    head[count, 0] = k
                    head[count, 1] = p
                    head[count, 2] = q
                    head[count, 3] = flags
                    for c in range(width):
                        old[count, c] = before[c]
                        new[count, c] = after[c]
                    count += 1
                    mine = True
            p = q
            if o < o_end and pt[o] == p and p <= L0:
                was = pl[o]
                o += 1
            if w < n_end and pt[w] == p and p <= L1:
                now = pl[w]
                w += 1
            if p >= last[v] and L0 == L1 and (F0 == F1 or p >= top):
                break
    return head[:count], old[:count], new[:count]


@njit(cache=True)
def fold(keys, ns, nn, c, mode, tau, m, ni, start, length, pt, pl, pv, bl, bv, due):  # type: ignore[no-untyped-def]
    """Fold edges at or before `c` into the base, and say when each key is due again.

    `due` gets, per key, a time to compare with τ (θ for CUT), one with the promise (ENDED only) and one with the CTI.
    Returns which keys are empty for good.
    """
    dead = np.zeros(len(keys), np.bool_)
    for v in range(len(keys)):
        k = keys[v]
        s = ns[v]
        n = nn[v]
        F = _frontier(pt, s, n, mode, tau, m)
        at = _after(pt, s, n, tau if mode != ENDED else F)
        after = pt[at] if at < s + n else _INF
        due[v, 0] = after
        due[v, 1] = _INF
        if mode == CUT or mode == ENDED:
            live = _alive(pl[at - 1] if at > s else bl[k], ni)
            if mode == CUT:
                due[v, 0] = tau if live else after
            else:
                due[v, 1] = F if live else after
        gone = _after(pt, s, n, c) - s
        if gone > 0:
            e = s + gone - 1
            bl[k] = pl[e]
            bv[k] = pv[e]
            s += gone
            n -= gone
        start[k] = s
        length[k] = n
        due[v, 2] = pt[s] if n > 0 else _INF
        dead[v] = n == 0 and not _alive(bl[k], ni)
    return dead


@njit(cache=True)
def compact(ids, start, length, pt, pl, pv, qt, ql, qv):  # type: ignore[no-untyped-def]
    """Copy the edges of the ids to the front of other arrays."""
    end = 0
    for i in range(len(ids)):
        k = ids[i]
        s = start[k]
        n = length[k]
        qt[end : end + n] = pt[s : s + n]
        ql[end : end + n] = pl[s : s + n]
        qv[end : end + n] = pv[s : s + n]
        start[k] = end
        end += n
    return end
