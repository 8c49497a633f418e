"""Disjoint closed intervals of 64-bit integers, each with a time: the largest time given at every point.

Intervals that touch and have the same time are one.  They are kept in a few sorted runs, each at least four times as
long as the next, so that adding `k` intervals to `n` costs O(k log n) amortised and a look-up one search in each run.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.core.time import NEVER
from everwhen.punctuation.columns.loops import envelope, merge_pieces, overlaps, raise_to

_RATIO: Final = 4
NO_PIECES: Final = np.empty((0, 3), np.int64)


class IntervalSet:
    """Pieces `(lo, hi, t)` as rows of matrices, which are never changed."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    def add(self, pieces: np.ndarray) -> None:
        """Pieces in any order; they may overlap."""
        if not len(pieces):
            return
        new = normal(pieces)
        while self._runs and len(self._runs[-1]) < _RATIO * len(new):
            new = _merged(self._runs.pop(), new)
        self._runs.append(new)

    def raise_to(self, points: np.ndarray, out: np.ndarray) -> None:
        """Raises `out` to the time at each point."""
        for run in self._runs:
            raise_to(run, points, out)

    def least(self, lo: int, hi: int) -> int:
        """The smallest time on all of [lo, hi], `NEVER` where a point has none."""
        pieces = self.pieces()
        some = pieces[pieces[:, 1].searchsorted(lo) : pieces[:, 0].searchsorted(hi, "right")]
        if not len(some) or some[0, 0] > lo or some[-1, 1] < hi or (some[1:, 0] != some[:-1, 1] + 1).any():
            return NEVER
        return int(some[:, 2].min())

    def pieces(self) -> np.ndarray:
        """All pieces, in order."""
        while len(self._runs) > 1:
            last = self._runs.pop()
            self._runs[-1] = _merged(self._runs[-1], last)
        return self._runs[0] if self._runs else NO_PIECES

    def overlap(self, other: IntervalSet) -> np.ndarray:
        """What lies in both, with the smaller time."""
        ours, theirs = self.pieces(), other.pieces()
        out = np.empty((len(ours) + len(theirs), 3), np.int64)
        return out[: overlaps(ours, theirs, out)]

    def forget(self, c: int) -> None:
        """Drops the pieces with a time up to `c`."""
        kept = [run[run[:, 2] > c] for run in self._runs]
        self._runs = [run for run in kept if len(run)]


def normal(pieces: np.ndarray) -> np.ndarray:
    """Any pieces as disjoint ones in order, with the largest time at each point."""
    return pieces if len(pieces) == 1 else envelope(pieces)


def _merged(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty((2 * (len(a) + len(b)), 3), np.int64)
    return out[: merge_pieces(a, 0, len(a), b, 0, len(b), out, 0)].copy()
