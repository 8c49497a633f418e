"""Idle sources: after so many seconds without an element, a source no longer holds the others back.

Its progress is then what all sources that are not idle have promised.  The source itself has not given that promise, so
Finalize stands on every input: what comes behind it later is dropped or cut, and counted, never lost in silence.  A
source that declares itself after how many seconds it is idle (IDLE AFTER) also says what becomes of its late rows.
Sources that have ended are ignored.  If all sources are idle, none is forced.  The clock is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from everwhen.core.time import INF
from everwhen.errors import QueryError


@dataclass
class NotedClock:
    """A clock that is set from outside, and noted whenever it is: so what follows from it is the same again."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class IdleSources:
    """When each of the inputs spoke last.  Without `seconds`, here or of their own, nobody ever rests."""

    def __init__(self, clock: Callable[[], float], seconds: float | None, inputs: Iterable[str] = ()) -> None:
        if seconds is not None and not seconds > 0:
            raise QueryError(f"an input cannot count as idle after {seconds} seconds: more than 0, or None for never")
        self.seconds = seconds
        self._clock = clock
        self._spoke = dict.fromkeys(inputs, clock())
        self._own: dict[str, float] = {}

    @property
    def may_rest(self) -> bool:
        """Whether any input can come to rest."""
        return self.seconds is not None or bool(self._own)

    def read(self, inputs: Mapping[str, float | None] | Iterable[str]) -> None:
        """These inputs are there now, with seconds of their own where they have some; one that is new counts as
        heard."""
        self._spoke = {name: self._spoke.get(name, self._clock()) for name in inputs}
        own = inputs if isinstance(inputs, Mapping) else {}
        self._own = {name: seconds for name, seconds in own.items() if seconds is not None}

    def heard(self, inputs: Iterable[str]) -> None:
        """These inputs have spoken now; before a noted clock is set for the first time nobody has rested."""
        if self.may_rest:
            if isinstance(self._clock, NotedClock):
                self._spoke = {name: at or self._clock() for name, at in self._spoke.items()}
            self._spoke |= dict.fromkeys(self._spoke.keys() & set(inputs), self._clock())

    @property
    def spoke(self) -> dict[str, float]:
        """When each input spoke last, by the clock."""
        return dict(self._spoke)

    @property
    def noted(self) -> dict[str, float]:
        """The same, where the clock is noted: else that means nothing to others."""
        return self.spoke if isinstance(self._clock, NotedClock) else {}

    def restore(self, noted: Mapping[str, float]) -> None:
        """Go on from what was noted."""
        if isinstance(self._clock, NotedClock):
            self.resume(noted)

    def resume(self, spoke: Mapping[str, float]) -> None:
        """Go on from what others know by the same clock."""
        self._spoke |= {name: at for name, at in spoke.items() if name in self._spoke}

    def rests(self, name: str) -> bool:
        """Whether an input has been silent for too long to hold others back."""
        after = self._own.get(name, self.seconds)
        return after is not None and name in self._spoke and self._spoke[name] <= self._clock() - after

    def forced(self, promised: Mapping[str, int]) -> dict[str, int]:
        """How far the inputs that rest have to be taken to have come, given what each has promised; those of which
        nothing is given do not count."""
        if not self.may_rest:
            return {}
        now = self._clock()
        seconds = {name: self._own.get(name, self.seconds) for name in self._spoke}
        resting = {
            name
            for name, at in self._spoke.items()
            if name in promised and (after := seconds[name]) is not None and at <= now - after
        }
        awake = [promised[name] for name in self._spoke if name not in resting and promised.get(name, INF) < INF]
        if not awake:
            return {}
        reached = min(awake)
        return {name: reached for name in sorted(resting) if promised[name] < reached}


def linked(groups: Iterable[Set[str]]) -> list[set[str]]:
    """Groups that have a member in common, directly or by way of others, as one."""
    found: list[set[str]] = []
    for group in groups:
        apart = [each for each in found if each.isdisjoint(group)]
        found = [*apart, set(group).union(*(each for each in found if not each.isdisjoint(group)))]
    return found
