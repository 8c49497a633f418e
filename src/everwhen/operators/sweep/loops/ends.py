"""When keys of a sweep end: what is forgotten with them lies before that."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import njit
from everwhen.containers.run_pool import LENGTH, START
from everwhen.core.time import INF, NEVER

_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)


@njit(cache=True)
def last_end(keys, until, ids, lo, hi, values, ni, place, pool, slot):
    """The latest instant by which one of the keys has ended or is promised, whichever comes first.

    A key is alive up to its last edge, or that of the segments (`ids`, `lo`, `hi`, `values`) which are about to be
    merged, or somewhat less long; for ever, if one of its `ni` integer lanes is left then.  `slot` is scratch, full of
    -1, and is so again afterwards.
    """
    ends = np.empty(len(keys), np.int64)
    left = np.zeros((len(keys), ni), np.int64)
    for i in range(len(keys)):
        slot[keys[i]] = i
        ends[i] = _NEVER
        n = place[keys[i], LENGTH]
        if n > 0:
            last = place[keys[i], START] + n - 1
            ends[i] = pool[last, 0]
            for c in range(ni):
                left[i, c] = pool[last, 1 + c]
    for j in range(len(ids)):
        i = slot[ids[j]]
        if i < 0:
            continue
        if hi[j] < _INF:
            ends[i] = max(ends[i], hi[j])
            continue
        ends[i] = max(ends[i], lo[j])
        for c in range(ni):
            left[i, c] += values[j, c]
    found = _NEVER
    for i in range(len(keys)):
        slot[keys[i]] = -1
        for c in range(ni):
            if left[i, c] != 0:
                ends[i] = _INF
        found = max(found, min(ends[i], until[i]))
    return found
