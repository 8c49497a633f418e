"""Disjoint closed intervals of 64-bit integers, each with a time: the largest time given at every point.

Intervals that touch and have the same time are one.  They are kept in a few sorted runs, each at least four times as
long as the next, so that adding `k` intervals to `n` costs O(k log n) amortised and a look-up one search in each run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from everwhen.core.time import NEVER
from everwhen.punctuation.columns.box_loops import envelope, least, merge_pieces, overlaps, raise_to
from everwhen.punctuation.columns.loops import apart, prolonged

_RATIO: Final = 4
NO_PIECES: Final = np.empty((0, 3), np.int64)


class IntervalSet:
    """Pieces `(lo, hi, t)` as rows of matrices."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    def add(self, pieces: np.ndarray) -> None:
        """Intervals in any order; they may overlap."""
        if not len(pieces) or (len(self._runs) == 1 and prolonged(self._runs[0], pieces)):
            return
        new = _normal(pieces)
        while self._runs and len(self._runs[-1]) < _RATIO * len(new):
            new = _merged(self._runs.pop(), new)
        self._runs.append(new)

    def raise_to(self, points: np.ndarray, out: np.ndarray) -> None:
        """Raises `out` to what is said at each point."""
        for run in self._runs:
            raise_to(run, points, out)

    def at(self, points: np.ndarray) -> np.ndarray:
        out = np.full(len(points), NEVER, np.int64)
        self.raise_to(points, out)
        return out

    def apart(self, points: np.ndarray) -> bool:
        """Whether no point lies in an interval or beside one."""
        return all(apart(run, points) for run in self._runs)

    def least(self, lo: int, hi: int) -> int:
        """The smallest time on all of [lo, hi], `NEVER` where a point has none."""
        return max((int(least(run, lo, hi)) for run in self._settled()), default=NEVER)

    def pieces(self) -> np.ndarray:
        """All pieces, in order."""
        runs = self._settled()
        return runs[0] if runs else NO_PIECES

    def overlap(self, pieces: np.ndarray) -> np.ndarray:
        """What lies in these intervals, too, with the smaller time."""
        ours, theirs = self.pieces(), _normal(pieces)
        out = np.empty((len(ours) + len(theirs), 3), np.int64)
        return out[: overlaps(ours, theirs, out)].copy()

    def forget(self, c: int) -> None:
        """Drops the pieces with a time up to `c`."""
        kept = [run[run[:, 2] > c] for run in self._runs]
        self._runs = [run for run in kept if len(run)]

    def move(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        """The same pieces with other numbers in the same order."""
        self._runs = [change(run) for run in self._runs]

    def _settled(self) -> list[np.ndarray]:
        while len(self._runs) > 1:
            last = self._runs.pop()
            self._runs[-1] = _merged(self._runs[-1], last)
        return self._runs


def _normal(pieces: np.ndarray) -> np.ndarray:
    if len(pieces) == 1:
        return pieces.copy()
    return envelope(np.ascontiguousarray(pieces[np.argsort(pieces[:, 0], kind="stable")]))


def _merged(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty((2 * (len(a) + len(b)), 3), np.int64)
    return out[: merge_pieces(a, 0, len(a), b, 0, len(b), out, 0)].copy()
