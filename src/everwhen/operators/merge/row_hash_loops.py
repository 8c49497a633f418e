"""Hashes of words and of bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop

_SEED: Final = np.uint64(0x243F6A8885A308D3)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)


@loop
def hash_words(words, out):
    for i in range(len(out)):
        h = _SEED
        for j in range(words.shape[1]):
            h = (h ^ words[i, j]) * _MIX
            h ^= h >> np.uint64(29)
        h = h * _LAST
        out[i] = h ^ (h >> np.uint64(32))


@loop
def hash_bytes(bounds, data, out):
    for i in range(len(out)):
        h = _SEED
        for at in range(bounds[i], bounds[i + 1]):
            h = (h ^ np.uint64(data[at])) * _MIX
            h ^= h >> np.uint64(29)
        h = (h ^ np.uint64(bounds[i + 1] - bounds[i])) * _LAST
        out[i] = h ^ (h >> np.uint64(32))
