"""Rows of one stream as they cross an exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Rows:
    """Rows of one stream: the four numbers of the layout and the payload."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    w: np.ndarray
    columns: tuple[pa.Array, ...]
