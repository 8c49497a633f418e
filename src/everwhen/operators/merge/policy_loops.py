"""What a policy says where inputs differ: the largest, or the k-th largest, of what they say, at every instant."""

from __future__ import annotations

import numpy as np

from everwhen.compiled.njit import njit


@njit(cache=True, nogil=True)
def kth_largest(offsets, order, port, lo, hi, weight, ports, k):
    """Per group of segments (`order` by `offsets`) the k-th largest (1: the largest) of the sums of each of so many
    ports, as segments: group, lo, hi, value; nothing where it is zero."""
    n = len(order)
    out = np.empty((2 * n, 4), np.int64)
    count = 0
    times = np.empty(2 * n, np.int64)
    kind = np.empty(2 * n, np.int64)
    lanes = np.zeros(ports, np.int64)
    sorted_lanes = np.empty(ports, np.int64)
    for g in range(len(offsets) - 1):
        m = 0
        for x in range(offsets[g], offsets[g + 1]):
            times[m] = lo[order[x]]
            kind[m] = order[x] * 2
            times[m + 1] = hi[order[x]]
            kind[m + 1] = order[x] * 2 + 1
            m += 2
        at = np.argsort(times[:m])
        lanes[:] = 0
        value = 0
        start = np.int64(0)
        x = 0
        while x < m:
            t = times[at[x]]
            while x < m and times[at[x]] == t:
                i = kind[at[x]] >> 1
                lanes[port[i]] += weight[i] if kind[at[x]] & 1 == 0 else -weight[i]
                x += 1
            sorted_lanes[:] = lanes
            sorted_lanes.sort()
            now = sorted_lanes[ports - k]
            if now != value:
                if value != 0:
                    out[count, 0] = g
                    out[count, 1] = start
                    out[count, 2] = t
                    out[count, 3] = value
                    count += 1
                value = now
                start = t
    return out[:count]
