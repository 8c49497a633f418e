"""The sweep over edges: piecewise constant state per key, changed by signed segments, emitted by policy.

Per key the state is a sorted run of *edges*: a time and the accumulated lanes that hold from then to the next edge;
what holds before the first edge is the key's *base*.  Lanes are 64-bit integers (exact) and floats in twice the
precision (a high and a low part each, so that sums hardly depend on batching), plus *evaluated* lanes that someone
else fills in (min, max, quantiles …).

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
def group_edges(kid, lo, hi, vi, vf, slot):  # type: ignore[no-untyped-def]
    """Segments as consolidated edge deltas, grouped by key and sorted by time.

    `slot` is scratch, one entry per key id, all -1 (and left so).  Returns the keys, the offsets of their edges, per
    edge its time, lane deltas and the change in the number of open segments, and per key the first and last time.
    """
    n = len(kid)
    ni = vi.shape[1]
    nf = vf.shape[1]
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
    ei = np.zeros((total, ni), np.int64)
    ef = np.zeros((total, nf), np.float64)
    er = np.zeros(total, np.int64)
    offsets = np.empty(ng + 1, np.int64)
    first = np.empty(ng, np.int64)
    last = np.empty(ng, np.int64)
    out = 0
    for g in range(ng):
        a = counts[g]
        b = counts[g + 1]
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
                        ei[out, j] += vi[r, j]
                    for j in range(0, nf, 2):
                        ef[out, j], ef[out, j + 1] = _add(ef[out, j], ef[out, j + 1], vf[r, j], vf[r, j + 1])
                else:
                    refs -= 1
                    for j in range(ni):
                        ei[out, j] -= vi[~r, j]
                    for j in range(0, nf, 2):
                        ef[out, j], ef[out, j + 1] = _add(ef[out, j], ef[out, j + 1], -vf[~r, j], -vf[~r, j + 1])
                x += 1
            er[out] = refs
            open_ += refs
            out += 1
        first[g] = time[a]
        last[g] = _INF if open_ != 0 else time[b - 1]
    offsets[ng] = out
    return keys[:ng], offsets, et[:out], ei[:out], ef[:out], er[:out], first, last


@njit(cache=True)
def merge(keys, offsets, et, ei, ef, er, start, length, pt, pi, pf, px, pv, end, bi, bf, bx, bv, new_start, new_length, prune):  # type: ignore[no-untyped-def]
    """Write the new edges of each key behind `end`; the old ones stay where they are.  Returns the new end."""
    ni = pi.shape[1]
    nf = pf.shape[1]
    nx = px.shape[1]
    di = np.empty(ni, np.int64)
    df = np.empty(nf, np.float64)
    for g in range(len(keys)):
        k = keys[g]
        i = start[k]
        i1 = i + length[k]
        j = offsets[g]
        j1 = offsets[g + 1]
        here = end
        cur = np.int64(-1)  # the old edge in force, -1: the base
        di[:] = 0
        df[:] = 0.0
        refs = 0
        while i < i1 or j < j1:
            if j >= j1 or (i < i1 and pt[i] <= et[j]):
                t = pt[i]
            else:
                t = et[j]
            if i < i1 and pt[i] == t:
                cur = i
                i += 1
            if j < j1 and et[j] == t:
                refs += er[j]
                if refs == 0:
                    di[:] = 0
                    df[:] = 0.0
                else:
                    for c in range(ni):
                        di[c] += ei[j, c]
                    for c in range(0, nf, 2):
                        df[c], df[c + 1] = _add(df[c], df[c + 1], ef[j, c], ef[j, c + 1])
                j += 1
            pt[end] = t
            if cur >= 0:
                for c in range(ni):
                    pi[end, c] = pi[cur, c] + di[c]
                for c in range(0, nf, 2):
                    pf[end, c], pf[end, c + 1] = _add(pf[cur, c], pf[cur, c + 1], df[c], df[c + 1])
                for c in range(nx):
                    px[end, c] = px[cur, c]
                pv[end] = pv[cur] if refs == 0 else 0
            else:
                for c in range(ni):
                    pi[end, c] = bi[k, c] + di[c]
                for c in range(0, nf, 2):
                    pf[end, c], pf[end, c + 1] = _add(bf[k, c], bf[k, c + 1], df[c], df[c + 1])
                for c in range(nx):
                    px[end, c] = bx[k, c]
                pv[end] = bv[k] if refs == 0 else 0
            empty = True
            for c in range(ni):
                if pi[end, c] != 0:
                    empty = False
                    break
            if empty:
                for c in range(nf):
                    pf[end, c] = 0.0
            if prune:
                same = True
                if end > here:
                    for c in range(ni):
                        if pi[end, c] != pi[end - 1, c]:
                            same = False
                            break
                    if same:
                        for c in range(nf):
                            if pf[end, c] != pf[end - 1, c]:
                                same = False
                                break
                else:
                    for c in range(ni):
                        if pi[end, c] != bi[k, c]:
                            same = False
                            break
                    if same:
                        for c in range(nf):
                            if pf[end, c] != bf[k, c]:
                                same = False
                                break
                if not same:
                    end += 1
            else:
                end += 1
        new_start[g] = here
        new_length[g] = end - here
    return end


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
def pending(keys, s, n, mode, tau, m, c, pt, pi, pv, bi, bv):  # type: ignore[no-untyped-def]
    """The pieces that are to be said now and whose evaluated lanes are not known: (key, edge or -1 for the base, time)."""
    out_key = np.empty(64, np.int64)
    out_at = np.empty(64, np.int64)
    out_time = np.empty(64, np.int64)
    count = 0
    for v in range(len(keys)):
        k = keys[v]
        F = _frontier(pt, s[v], n[v], mode, tau, m)
        L = tau if mode == INFINITE else _INF
        for at in range(s[v] - 1, s[v] + n[v]):
            if at < s[v]:
                if bi[k, 0] == 0 or bv[k] != 0 or F <= c:
                    continue
                t = c
                edge = np.int64(-1)
            else:
                t = pt[at]
                if t >= F or t > L:
                    break
                if pi[at, 0] == 0 or pv[at] != 0:
                    continue
                edge = np.int64(at)
            if count == len(out_key):
                size = 2 * count
                grown_key = np.empty(size, np.int64)
                grown_key[:count] = out_key
                out_key = grown_key
                grown_at = np.empty(size, np.int64)
                grown_at[:count] = out_at
                out_at = grown_at
                grown_time = np.empty(size, np.int64)
                grown_time[:count] = out_time
                out_time = grown_time
            out_key[count] = k
            out_at[count] = edge
            out_time[count] = t
            count += 1
    return out_key[:count], out_at[:count], out_time[:count]


@njit(cache=True)
def _bigger_int(a, size):  # type: ignore[no-untyped-def]
    b = np.empty((size, a.shape[1]), np.int64)
    b[: len(a)] = a
    return b


@njit(cache=True)
def _bigger_float(a, size):  # type: ignore[no-untyped-def]
    b = np.empty((size, a.shape[1]), np.float64)
    b[: len(a)] = a
    return b


@njit(cache=True)
def emit(keys, os, on, ns, nn, first, last, mode, tau0, m0, tau1, m1, pt, pi, pf, px, bi, bf, bx):  # type: ignore[no-untyped-def]
    """The pieces in which what was said differs from what is to be said.

    Per piece: `head` = key, lo, hi, 1 if something was said + 2 if something is to be said; and the old and the new lanes.
    """
    ni = pi.shape[1]
    nf = pf.shape[1]
    nx = px.shape[1]
    cap = 2 * len(keys) + 64
    head = np.empty((cap, 4), np.int64)
    oi = np.empty((cap, ni), np.int64)
    of = np.empty((cap, nf), np.float64)
    ox = np.empty((cap, nx), np.int64)
    wi = np.empty((cap, ni), np.int64)
    wf = np.empty((cap, nf), np.float64)
    wx = np.empty((cap, nx), np.int64)
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
            said = False
            if p < F0:
                for c in range(ni):
                    if (pi[o - 1, c] if o > os[v] else bi[k, c]) != 0:
                        said = True
                        break
            to_say = False
            if p < F1:
                for c in range(ni):
                    if (pi[w - 1, c] if w > ns[v] else bi[k, c]) != 0:
                        to_say = True
                        break
            differ = said != to_say
            if said and to_say:
                for c in range(ni):
                    if (pi[o - 1, c] if o > os[v] else bi[k, c]) != (pi[w - 1, c] if w > ns[v] else bi[k, c]):
                        differ = True
                        break
                if not differ:
                    for c in range(nf):
                        if (pf[o - 1, c] if o > os[v] else bf[k, c]) != (pf[w - 1, c] if w > ns[v] else bf[k, c]):
                            differ = True
                            break
                if not differ:
                    for c in range(nx):
                        if (px[o - 1, c] if o > os[v] else bx[k, c]) != (px[w - 1, c] if w > ns[v] else bx[k, c]):
                            differ = True
                            break
            if differ:
                if count == cap:
                    cap *= 2
                    head = _bigger_int(head, cap)
                    oi = _bigger_int(oi, cap)
                    wi = _bigger_int(wi, cap)
                    of = _bigger_float(of, cap)
                    wf = _bigger_float(wf, cap)
                    ox = _bigger_int(ox, cap)
                    wx = _bigger_int(wx, cap)
                head[count, 0] = k
                head[count, 1] = p
                head[count, 2] = q
                head[count, 3] = (1 if said else 0) + (2 if to_say else 0)
                for c in range(ni):
                    oi[count, c] = (pi[o - 1, c] if o > os[v] else bi[k, c]) if said else 0
                    wi[count, c] = (pi[w - 1, c] if w > ns[v] else bi[k, c]) if to_say else 0
                for c in range(nf):
                    of[count, c] = (pf[o - 1, c] if o > os[v] else bf[k, c]) if said else 0.0
                    wf[count, c] = (pf[w - 1, c] if w > ns[v] else bf[k, c]) if to_say else 0.0
                for c in range(nx):
                    ox[count, c] = (px[o - 1, c] if o > os[v] else bx[k, c]) if said else 0
                    wx[count, c] = (px[w - 1, c] if w > ns[v] else bx[k, c]) if to_say else 0
                extend = mine and head[count - 1, 2] == p and head[count - 1, 3] == head[count, 3]
                if extend:
                    for c in range(ni):
                        if oi[count, c] != oi[count - 1, c] or wi[count, c] != wi[count - 1, c]:
                            extend = False
                    for c in range(nf):
                        if of[count, c] != of[count - 1, c] or wf[count, c] != wf[count - 1, c]:
                            extend = False
                    for c in range(nx):
                        if ox[count, c] != ox[count - 1, c] or wx[count, c] != wx[count - 1, c]:
                            extend = False
                if extend:
                    head[count - 1, 2] = q
                else:
                    count += 1
                    mine = True
            p = q
            if o < o_end and pt[o] == p and p <= L0:
                o += 1
            if w < n_end and pt[w] == p and p <= L1:
                w += 1
            if p >= last[v] and L0 == L1 and (F0 == F1 or p >= top):
                break
    return head[:count], oi[:count], of[:count], ox[:count], wi[:count], wf[:count], wx[:count]


@njit(cache=True)
def fold(keys, ns, nn, c, mode, tau, m, start, length, pt, pi, pf, px, pv, bi, bf, bx, bv, next_data, next_cut, next_fold):  # type: ignore[no-untyped-def]
    """Fold edges at or before `c` into the base, and say when each key is due again.

    `next_data` is compared with τ (θ for CUT), `next_cut` with the promise (ENDED only), `next_fold` with the CTI.
    Returns which keys are empty for good.
    """
    ni = pi.shape[1]
    nf = pf.shape[1]
    nx = px.shape[1]
    dead = np.zeros(len(keys), np.bool_)
    for v in range(len(keys)):
        k = keys[v]
        s = ns[v]
        n = nn[v]
        F = _frontier(pt, s, n, mode, tau, m)
        at = _after(pt, s, n, tau if mode != ENDED else F)
        after = pt[at] if at < s + n else _INF
        next_data[v] = after
        next_cut[v] = _INF
        if mode == CUT or mode == ENDED:
            live = False
            for j in range(ni):
                if (pi[at - 1, j] if at > s else bi[k, j]) != 0:
                    live = True
                    break
            if mode == CUT:
                next_data[v] = tau if live else after
            else:
                next_cut[v] = F if live else after
        gone = _after(pt, s, n, c) - s
        if gone > 0:
            e = s + gone - 1
            for j in range(ni):
                bi[k, j] = pi[e, j]
            for j in range(nf):
                bf[k, j] = pf[e, j]
            for j in range(nx):
                bx[k, j] = px[e, j]
            bv[k] = pv[e]
            s += gone
            n -= gone
        start[k] = s
        length[k] = n
        next_fold[v] = pt[s] if n > 0 else _INF
        if n == 0:
            empty = True
            for j in range(ni):
                if bi[k, j] != 0:
                    empty = False
                    break
            dead[v] = empty
    return dead


@njit(cache=True)
def compact(ids, start, length, pt, pi, pf, px, pv, qt, qi, qf, qx, qv):  # type: ignore[no-untyped-def]
    """Copy the edges of the ids to the front of other arrays."""
    end = 0
    for i in range(len(ids)):
        k = ids[i]
        s = start[k]
        n = length[k]
        qt[end : end + n] = pt[s : s + n]
        qi[end : end + n] = pi[s : s + n]
        qf[end : end + n] = pf[s : s + n]
        qx[end : end + n] = px[s : s + n]
        qv[end : end + n] = pv[s : s + n]
        start[k] = end
        end += n
    return end
