"""Rows by key: numbered as they come, and added up."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.hashing import lowest_bit
from everwhen.compiled.njit import loop, njit
from everwhen.compiled.prefetch import prefetch

_NEAR: Final = 1 << 12
"""What is kept of so many keys is near the processor, in whatever order they come."""


@njit(cache=True, nogil=True)
def group_keys(kid, slot):
    """Number the keys: the number of each segment's, and the keys.

    Keys are numbered in the order in which they come.  If there are many, and a good part of them has come, it is the
    order of their ids: who visits them then walks over what is kept per id from its front to its end, not to and fro.
    """
    n = len(kid)
    keys = np.empty(n, np.int64)
    group = np.empty(n, np.int64)
    largest = _largest(kid)
    if _NEAR < largest <= 64 * n:
        ng = _number_by_id(kid, np.zeros((largest >> 6) + 1, np.uint64), slot, keys, group)
    else:
        ng = _number_as_they_come(kid, slot, keys, group)
    return group, keys[:ng]


@loop
def _largest(ids):
    most = np.int64(0)
    for i in range(len(ids)):
        most = max(most, ids[i])
    return most


@loop
def _number_as_they_come(kid, slot, keys, group):
    n = len(kid)
    ng = 0
    for i in range(n):
        if i + 16 < n:
            prefetch(slot, kid[i + 16])
        k = kid[i]
        g = slot[k]
        if g < 0:
            g = ng
            slot[k] = g
            keys[g] = k
            ng += 1
        group[i] = g
    for g in range(ng):
        slot[keys[g]] = -1
    return ng


@loop
def _number_by_id(kid, words, slot, keys, group):
    """The same in the order of ids; `words` has a bit for each, all zero at first."""
    for i in range(len(kid)):
        words[kid[i] >> 6] |= np.uint64(1) << np.uint64(kid[i] & 63)
    ng = 0
    for w in range(len(words)):
        word = words[w]
        while word != 0:
            k = 64 * w + lowest_bit(word)
            word &= word - np.uint64(1)
            slot[k] = ng
            keys[ng] = k
            ng += 1
    for i in range(len(kid)):
        group[i] = slot[kid[i]]
    for g in range(ng):
        slot[keys[g]] = -1
    return ng
