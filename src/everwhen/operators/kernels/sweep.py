"""The sweep over edges: piecewise constant state per key, changed by signed segments, emitted by policy.

Per key the state is a sorted run of *edges*: a time and the accumulated lanes that hold from then to the next edge.
The first is the *base*: the last edge at or before the CTI (nothing, at -∞, to begin with).  An edge is one row of
64-bit words: the time, then integers (exact), then floats in twice the precision (a high and a low part each, so
that sums hardly depend on batching), then *evaluated* lanes that someone else fills in (min, max, quantiles …).
Integers and floats are two views of the same memory.

A step is two passes.  `merge` writes the new edges of each touched key beside the old ones.  `emit` then compares what
had been said with what is to be said now, clipped by the emission policy on both sides, and reports only the pieces
that differ; `fold` then drops edges before the last one at or before the CTI, which becomes the base.

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
def _add(hi, lo, dh, dl):
    """(hi, lo) + (dh, dl) in twice the precision."""
    s = hi + dh
    b = s - hi
    e = (hi - (s - b)) + (dh - b) + lo + dl
    h = s + e
    return h, e - (h - s)


@njit(cache=True)
def group_edges(kid, lo, hi, values, values_f, ni, na, slot):
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
                        ef[out, j], ef[out, j + 1] = _add(
                            ef[out, j], ef[out, j + 1], values_f[r, j], values_f[r, j + 1]
                        )
                else:
                    refs -= 1
                    r = ~r
                    for j in range(ni):
                        ed[out, j] -= values[r, j]
                    for j in range(ni, na, 2):
                        ef[out, j], ef[out, j + 1] = _add(
                            ef[out, j], ef[out, j + 1], -values_f[r, j], -values_f[r, j + 1]
                        )
                x += 1
            er[out] = refs
            open_ += refs
            out += 1
        first[g] = time[a]
        last[g] = _INF if open_ != 0 else time[b - 1]
    offsets[ng] = out
    return keys[:ng], offsets, et[:out], ed[:out], er[:out], first, last


@njit(cache=True)
def _sort(time, ref, a, b):
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
def merge(keys, offsets, et, ed, ef, er, ni, na, start, length, pool, pool_f, known, end, new_start, new_length, prune):
    """Write the new edges of each key behind `end`; the old ones stay where they are.  Returns the new end."""
    width = pool.shape[1]
    delta = np.empty(na, np.int64)
    delta_f = delta.view(np.float64)
    for g in range(len(keys)):
        k = keys[g]
        i = start[k]
        i1 = i + length[k]
        here = end
        if i == i1:
            # a new key: nothing, since ever; its old region is the same
            for c in range(width):
                pool[end, c] = 0
            pool[end, 0] = _NEVER
            known[end] = 0
            start[k] = end
            length[k] = 1
            i = end
            i1 = end + 1
            end += 1
            here = end
        for c in range(width):
            pool[end, c] = pool[i, c]
        known[end] = known[i]
        cur = i
        i += 1
        end += 1
        j = offsets[g]
        j1 = offsets[g + 1]
        delta[:] = 0
        refs = 0
        while i < i1 or j < j1:
            t = pool[i, 0] if j >= j1 or (i < i1 and pool[i, 0] <= et[j]) else et[j]
            if i < i1 and pool[i, 0] == t:
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
            same = prune
            empty = True
            for c in range(ni):
                v = pool[cur, 1 + c] + delta[c]
                if v != 0:
                    empty = False
                if v != pool[end - 1, 1 + c]:
                    same = False
                pool[end, 1 + c] = v
            for c in range(ni, na, 2):
                h = 0.0
                low = 0.0
                if not empty:  # where nothing is alive, sums are exactly zero
                    h, low = _add(pool_f[cur, 1 + c], pool_f[cur, 2 + c], delta_f[c], delta_f[c + 1])
                if h != pool_f[end - 1, 1 + c] or low != pool_f[end - 1, 2 + c]:
                    same = False
                pool_f[end, 1 + c] = h
                pool_f[end, 2 + c] = low
            if same:
                continue
            for c in range(1 + na, width):
                pool[end, c] = pool[cur, c]
            pool[end, 0] = t
            known[end] = known[cur] if refs == 0 else 0
            end += 1
        new_start[g] = here
        new_length[g] = end - here
    return end


@njit(cache=True, inline="always")
def _after(pool, s, n, t):
    """The position of the first of the sorted edges that is later than `t`; at least one is not."""
    a = s + 1
    b = s + n
    while a < b:
        mid = (a + b) >> 1
        if pool[mid, 0] <= t:
            a = mid + 1
        else:
            b = mid
    return a


@njit(cache=True, inline="always")
def _frontier(pool, s, n, mode, tau, m):
    if mode == CUT:
        return tau
    if mode == INFINITE:
        return _INF
    at = _after(pool, s, n, tau)
    if mode == ENDED:
        return max(m, pool[at - 1, 0])
    return pool[at, 0] if at < s + n else _INF


@njit(cache=True)
def pending(keys, s, n, mode, tau, m, c, pool, known):
    """The pieces to be said now whose evaluated lanes are not known: records key, edge, instant."""
    out = np.empty((64, 3), np.int64)
    count = 0
    for v in range(len(keys)):
        F = _frontier(pool, s[v], n[v], mode, tau, m)
        L = tau if mode == INFINITE else _INF
        for at in range(s[v], s[v] + n[v]):
            t = max(pool[at, 0], c)
            if t >= F or t > L:
                break
            if pool[at, 1] == 0 or known[at] != 0:
                continue
            if count == len(out):
                out = _bigger(out, 2 * count)
            out[count, 0] = keys[v]
            out[count, 1] = at
            out[count, 2] = t
            count += 1
    return out[:count]


@njit(cache=True)
def _bigger(a, size):
    b = np.empty((size, a.shape[1]), np.int64)
    b[: len(a)] = a
    return b


@njit(cache=True, inline="always")
def _alive(pool, at, ni):
    for c in range(1, 1 + ni):
        if pool[at, c] != 0:
            return True
    return False


@njit(cache=True)
def emit(keys, os, on, ns, nn, first, last, mode, tau0, m0, tau1, m1, ni, pool, expected):
    """The pieces in which what was said differs from what is to be said.

    Per piece: `head` = key, lo, hi, 1 if something was said + 2 if something is to be said; and the old and the new
    lanes.
    """
    width = pool.shape[1] - 1
    cap = expected
    head = np.empty((cap, 4), np.int64)
    old = np.empty((cap, width), np.int64)
    new = np.empty((cap, width), np.int64)
    count = 0
    L0 = tau0 if mode == INFINITE else _INF
    L1 = tau1 if mode == INFINITE else _INF
    for v in range(len(keys)):
        F0 = _frontier(pool, os[v], on[v], mode, tau0, m0)
        F1 = _frontier(pool, ns[v], nn[v], mode, tau1, m1)
        p = first[v]
        if mode == INFINITE:
            if L1 > L0:
                at = _after(pool, ns[v], nn[v], L0)
                if at < ns[v] + nn[v] and pool[at, 0] <= L1:
                    p = min(p, pool[at, 0])
        elif F0 != F1:
            p = min(p, min(F0, F1))
        if p == _INF:
            continue
        o_end = os[v] + on[v]
        n_end = ns[v] + nn[v]
        o = _after(pool, os[v], on[v], min(p, L0))  # the next old edge; the one in force stands before it
        w = _after(pool, ns[v], nn[v], min(p, L1))
        o_next = pool[o, 0] if o < o_end and pool[o, 0] <= L0 else _INF
        w_next = pool[w, 0] if w < n_end and pool[w, 0] <= L1 else _INF
        top = max(F0, F1)
        mine = count
        while p < top:
            q = min(min(o_next, w_next), top)
            if p < F0:
                q = min(q, F0)
            if p < F1:
                q = min(q, F1)
            said = p < F0 and _alive(pool, o - 1, ni)
            to_say = p < F1 and _alive(pool, w - 1, ni)
            differ = said != to_say
            if said and to_say:
                for c in range(1, 1 + width):
                    if pool[o - 1, c] != pool[w - 1, c]:
                        differ = True
                        break
            if differ:
                flags = (1 if said else 0) + (2 if to_say else 0)
                extend = count > mine and head[count - 1, 2] == p and head[count - 1, 3] == flags
                if extend:
                    for c in range(width):
                        if (said and pool[o - 1, 1 + c] != old[count - 1, c]) or (
                            to_say and pool[w - 1, 1 + c] != new[count - 1, c]
                        ):
                            extend = False
                            break
                if extend:
                    head[count - 1, 2] = q
                else:
                    if count == cap:
                        cap *= 2
                        head = _bigger(head, cap)
                        old = _bigger(old, cap)
                        new = _bigger(new, cap)
                    head[count, 0] = keys[v]
                    head[count, 1] = p
                    head[count, 2] = q
                    head[count, 3] = flags
                    for c in range(width):
                        old[count, c] = pool[o - 1, 1 + c] if said else 0
                        new[count, c] = pool[w - 1, 1 + c] if to_say else 0
                    count += 1
            p = q
            if o_next == p:
                o += 1
                o_next = pool[o, 0] if o < o_end and pool[o, 0] <= L0 else _INF
            if w_next == p:
                w += 1
                w_next = pool[w, 0] if w < n_end and pool[w, 0] <= L1 else _INF
            if p >= last[v] and L0 == L1 and (F0 == F1 or p >= top):
                break
    return head[:count], old[:count], new[:count]


@njit(cache=True)
def fold(keys, ns, nn, c, mode, tau, m, ni, start, length, pool, due):
    """Drop edges before the last one at or before `c`, and say when each key is due again.

    `due` gets, per key, a time to compare with τ (θ for CUT), one with the promise (ENDED only) and one with the CTI.
    Returns which keys are empty for good.
    """
    dead = np.zeros(len(keys), np.bool_)
    for v in range(len(keys)):
        k = keys[v]
        s = ns[v]
        n = nn[v]
        F = _frontier(pool, s, n, mode, tau, m)
        at = _after(pool, s, n, tau if mode != ENDED else F)
        after = pool[at, 0] if at < s + n else _INF
        due[v, 0] = after
        due[v, 1] = _INF
        if mode == CUT:
            due[v, 0] = tau if _alive(pool, at - 1, ni) else after
        elif mode == ENDED:
            due[v, 1] = F if _alive(pool, at - 1, ni) else after
        gone = _after(pool, s, n, c) - s - 1
        s += gone
        n -= gone
        start[k] = s
        length[k] = n
        due[v, 2] = pool[s + 1, 0] if n > 1 else _INF
        if n == 1 and not _alive(pool, s, ni):
            dead[v] = True
            length[k] = 0
    return dead


@njit(cache=True)
def compact(ids, start, length, pool, known, new_pool, new_known):
    """Copy the edges of ids, in the order of their places, to the front of the same or of other arrays."""
    end = 0
    for i in range(len(ids)):
        k = ids[i]
        s = start[k]
        n = length[k]
        for j in range(n):
            for c in range(pool.shape[1]):
                new_pool[end + j, c] = pool[s + j, c]
            new_known[end + j] = known[s + j]
        start[k] = end
        end += n
    return end
