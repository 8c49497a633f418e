"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np


def grown(array: np.ndarray, size: int, fill: Any) -> np.ndarray:
    """The array enlarged to `size` rows, new ones filled.

    Memory that is not written to costs nothing, and the first write to a page of it costs more than a thousand others:
    so zeros are left to the system.
    """
    if len(array) >= size:
        return array
    shape = (size, *array.shape[1:])
    if fill:
        out = np.empty(shape, array.dtype)
        out[len(array) :] = fill
    else:
        out = np.zeros(shape, array.dtype)
    out[: len(array)] = array
    return out
