"""Replaying an input that is there already as slowly as it once came, so that its answers can be watched.

>>> Replay(rate=50).steps(10_000), Replay(rate=50).due(100, 0, 0, 1_000_000)
(5, 2.0)
>>> Replay(speed=60).due(100, 0, 120_000, 1_000_000)
2.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from everwhen.core.time import NEVER
from everwhen.errors import QueryError

_EPOCHS: Final = 10
"""So many epochs a second are aimed at."""
_FEW: Final = 20
"""Elements of an epoch where only the times tell how many there are in a second."""
_MOMENT: Final = 0.05


class EpochSize(NamedTuple):
    """How many elements of an input make an epoch: as many as are asked for, fewer while the input is replayed."""

    asked: int
    replayed: int


@dataclass(frozen=True, slots=True)
class Replay:
    """`rate`: so many elements a second.  `speed`: so many seconds of the data's time in a second."""

    rate: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("speed", self.speed)):
            if value is not None and not 0 < value < float("inf"):
                raise QueryError(f"a {name} is more than 0, not {value:g}")
        if self.rate is not None and self.speed is not None:
            raise QueryError("give a rate or a speed, not both: either of them says when an element is due")

    @property
    def is_asked(self) -> bool:
        return self.rate is not None or self.speed is not None

    def steps(self, most: int) -> int:
        """How many elements of an input make an epoch, where as many as `most` would."""
        if not self.is_asked:
            return most
        return max(1, min(most, _FEW if self.rate is None else int(self.rate / _EPOCHS)))

    def due(self, elements: int, first: int, latest: int, tick: int) -> float:
        """After how many seconds so many elements, with starts from `first` to `latest`, are due."""
        if self.rate is not None:
            return elements / self.rate
        if self.speed is None or first == NEVER:
            return 0.0
        return (latest - first) * tick / 1e9 / self.speed


class ReplayClock:
    """Waits until what has come is due; `sleep` and `clock` are the machine's."""

    def __init__(self, replay: Replay, tick: int, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.replay, self.tick = replay, tick
        self._clock, self._sleep = clock, sleep
        self._began: float | None = None
        self._read, self._first = 0, NEVER

    def wait(self, read: int, latest: int, is_over: Callable[[], bool]) -> None:
        """`read` elements have come in all, the latest start is `latest`; `is_over` tells when to wait no more."""
        if not self.replay.is_asked:
            return
        if self._began is None:
            self._began, self._read = self._clock(), read
        if self._first == NEVER:
            self._first = latest
        until = self._began + self.replay.due(read - self._read, self._first, latest, self.tick)
        while (left := until - self._clock()) > 0 and not is_over():
            self._sleep(min(left, _MOMENT))
