"""When a run that goes on leaves out what its readers have passed.

Readers leave word from when on they care (`formats/changelog/readers.py`).  A run that has not promised for a while what
they have passed is fast-forwarded to there.  `EVERWHEN_LAG` is that while, in seconds; `inf`: it never is.
"""

from __future__ import annotations

import os
from typing import Final

from everwhen.core.time import INF
from everwhen.errors import QueryError

_LAG: Final = 0.5


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


class Lag:
    """How long a run has been behind its readers."""

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self._since: tuple[float, int] | None = None

    def skip_to(self, cares: int, promise: int, right_from: int, now: float) -> int | None:
        """The instant to fast-forward to, if any.  `cares`: where the readers are; `promise`: where the run is;
        `right_from`: where it was fast-forwarded to before."""
        if not promise < cares < INF or cares <= right_from:
            self._since = None
            return None
        if self._since is None or self._since[1] <= promise:
            self._since = now, cares
        return cares if now - self._since[0] >= self.allowed else None
