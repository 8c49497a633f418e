"""How much of a large switch an epoch does: as much work as makes a multiple of its usual work.

Work is counted in rows that operators take and say, and in rows that are looked at when answers go over.  A number of
rows of the past would be a poor measure: one may have a thousand partners, and plans are long or short.  Time would be
a better one, but a run that is repeated from a snapshot has to say the same in the same epochs (sinks know the epochs
that they have), so what is done in an epoch may depend on the data only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

LOADING: Final = 1.4
"""With slices of the past an epoch may do so many times its usual work."""
SWITCHING: Final = 2.1
"""The same with rows that go over: by then both plans run."""


class Pace:
    """Measures epochs, and what slices may add to each; `count` tells how many rows operators took and said."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._usual: deque[int] = deque(maxlen=9)
        self._looked = 0
        self._began = self.done()

    def done(self) -> int:
        """All work so far."""
        return self._count() + self._looked

    def looked_at(self, rows: int) -> None:
        """So many rows were looked at."""
        self._looked += rows

    def begin(self) -> None:
        """An epoch begins."""
        self._began = self.done()

    def usual(self) -> None:
        """All is done that an epoch does without slices."""
        self._usual.append(self.done() - self._began)

    def left(self, times: float) -> float:
        """How much an epoch has left, if it may do so many times its usual work."""
        return times * median(self._usual) - (self.done() - self._began) if self._usual else 0.0


class Rate:
    """How much work one of many like things is, measured as they are done."""

    def __init__(self) -> None:
        self._each = 0.0

    def took(self, work: float, count: int) -> None:
        """So many took so much.  What is dear is remembered for a while."""
        each = work / max(count, 1)
        self._each = each if each > self._each else (self._each + each) / 2

    def fits(self, work: float, least: int, most: int) -> int:
        """How many fit."""
        if not self._each:
            return least
        return max(least, min(most, int(work / self._each)))
