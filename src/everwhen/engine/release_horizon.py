"""How far elements that wait may go on: B behind the largest sync time, or sooner if they have waited by the clock.

The clock is handed in.  A sync time that has been the largest for so many seconds lets all up to it go on, so that an
idle input blocks nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from everwhen.core.time import INF, NEVER


class ReleaseHorizon:
    """The horizon of elements that wait together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()  # when sync times became the largest
        self._overdue = NEVER

    def reached(self, latest: int, block: int, within: float | None) -> int:
        """Up to where elements go on, if the largest sync time is `latest`."""
        if within is not None:
            now = self._clock()
            if latest > (self._seen[-1][1] if self._seen else self._overdue):
                self._seen.append((now, latest))
            while self._seen and self._seen[0][0] <= now - within:
                self._overdue = self._seen.popleft()[1]
        return max(NEVER if latest == NEVER or block == INF else latest - block, self._overdue)

    def snapshot(self) -> list[Any]:
        """Plain data; ages instead of times, because another process may have another clock."""
        now = self._clock()
        return [[[now - at, latest] for at, latest in self._seen], self._overdue]

    def restore(self, state: Sequence[Any]) -> None:
        now = self._clock()
        self._seen, self._overdue = deque((now - age, latest) for age, latest in state[0]), state[1]
