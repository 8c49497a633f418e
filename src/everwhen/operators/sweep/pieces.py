"""Pieces: what a step of a sweep changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where the answer changed: what is taken back and what is said, per key in the order of time.

    `taken` and `said` have a record per piece: the position of its key in `keys`, lo, hi, and the lanes.  They hold
    until the next step.  `closed` are keys that are gone by what is promised of them alone: their pieces may end after
    the CTI, and another key may get their number from the next step on.
    """

    keys: np.ndarray
    taken: np.ndarray
    said: np.ndarray
    closed: np.ndarray | None = None
