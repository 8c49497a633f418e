"""The pace of a run that goes on: how much it takes at a time, when it leaves out what its readers have passed.

Readers leave word from when on they care (`formats/changelog/readers.py`).  A run that has not promised for a while
what they have passed is fast-forwarded to there.  `EVERWHEN_LAG` is that while, in seconds; `inf`: it never is.  What
is taken at a time cannot be interrupted, so a run that is behind takes little, to hear in time that it need not.
"""

from __future__ import annotations

import os
from typing import Final

from everwhen.core.time import INF
from everwhen.errors import QueryError

_LAG: Final = 0.1
_SHORT: Final = 0.05
"""Seconds of a step of a run that is behind, if it can be cut so."""
_FEWEST: Final = 10


def lag_allowed() -> float:
    """Seconds for which a run may be behind its readers before it is fast-forwarded."""
    given = os.environ.get("EVERWHEN_LAG")
    try:
        found = _LAG if not given else float(given)
    except ValueError:
        found = -1.0
    if not found >= 0:
        raise QueryError(f"EVERWHEN_LAG is {given!r}; it must be a number of seconds, or inf")
    return found


class Pace:
    """How long a run has been behind its readers, and how many elements it takes at a time."""

    def __init__(self, most: int, allowed: float) -> None:
        self.most = self.size = most
        self.allowed = allowed
        self._behind: tuple[float, int] | None = None

    def skip_to(self, cares: int, promise: int, right_from: int, now: float) -> int | None:
        """The instant to fast-forward to, if any.  `cares`: where the readers are; `promise`: where the run is;
        `right_from`: where it was fast-forwarded to before."""
        if not promise < cares < INF or cares <= right_from:
            self._behind = None
            return None
        if self._behind is None or self._behind[1] <= promise:
            self._behind = now, cares
        return cares if now - self._behind[0] >= self.allowed else None

    def took(self, elements: int, seconds: float) -> None:
        """A step is done.  Who is behind takes short ones, because word may come between two of them."""
        if self._behind is None or self.allowed == float("inf"):
            self.size = self.most
        elif elements:
            self.size = min(self.most, max(_FEWEST, int(elements * _SHORT / max(seconds, 1e-6))))
