"""What a connector reads: a log, from which a stretch can be read again exactly.

A log has *parts* (partitions), each of which is in order.  A position says how far each part was read.  Whatever is
read between two positions is given in one order, that of the parts, so the stretch is a function of the two positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from everwhen.core.time import NEVER

Plain = Mapping[str, Any]
Records = TypeVar("Records", covariant=True)


class Log(Protocol, Generic[Records]):
    """A log of another system.  Nothing is held before the first look at it, so it can be pickled until then."""

    @property
    def shown(self) -> str:
        """What messages call it."""

    @property
    def is_there(self) -> bool:
        """Whether it is there at all."""

    @property
    def position(self) -> dict[str, Any]:
        """How far it was read, as plain data."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that it has; progress is what all of them have reached."""

    def begin(self) -> None:
        """Go to where this log is read from at first."""

    def seek(self, position: Plain) -> None:
        """Go on from a position."""

    def take(self, most: int) -> Records | None:
        """What is there, about so many records at most; None if there is nothing new."""

    def take_to(self, position: Plain) -> Records | None:
        """All records up to a position; an error says if they are gone."""

    def passed(self, position: Plain) -> None:
        """What is before a position will not be asked for again."""

    def close(self) -> None:
        """Give back what is held."""


class Reached:
    """How far each part of a log has come in application time, and what was promised from it."""

    def __init__(self, disorder: int | None) -> None:
        self.disorder = disorder
        self.seen: dict[str, int] = {}
        self.said = NEVER

    def to_plain(self) -> dict[str, Any]:
        return {"seen": dict(self.seen), "said": None if self.said == NEVER else self.said}

    def of_plain(self, plain: Plain) -> None:
        self.seen = dict(plain["seen"])
        self.said = NEVER if plain["said"] is None else plain["said"]

    def see(self, part: str, times: np.ndarray) -> None:
        """Times that came in a part."""
        if len(times):
            self.seen[part] = max(self.seen.get(part, NEVER), int(times.max()))

    def reach(self, part: str, t: int) -> None:
        """A part has come to an instant, whether anything came in it or not."""
        self.seen[part] = max(self.seen.get(part, NEVER), t)

    def kept_up(self, part: str, times: np.ndarray) -> np.ndarray:
        """The times of changes, none further behind those before it in its part than the disorder allows."""
        if not len(times):
            return times
        latest = np.maximum.accumulate(np.maximum(times, self.seen.get(part, NEVER)))
        self.seen[part] = int(latest[-1])
        return np.maximum(times, latest - (self.disorder or 0))

    def promise(self, parts: tuple[str, ...]) -> int | None:
        """What can be promised now, if that is more than before."""
        if self.disorder is None or not parts:
            return None
        least = min(self.seen.get(part, NEVER) for part in parts)
        return None if least == NEVER else self.say(least - self.disorder)

    def say(self, t: int) -> int | None:
        """Promise an instant, if that is more than before."""
        if t <= self.said:
            return None
        self.said = t
        return t
