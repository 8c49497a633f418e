"""Idle sources: after so many seconds without an element, a source no longer holds the others back.

Its progress is then what all sources that are not idle have promised.  The source itself has not given that promise, so
Finalize stands on every input: what comes behind it later is dropped or cut, and counted, never lost in silence.
Sources that have ended are ignored.  If all sources are idle, none is forced.  The clock is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from everwhen.core.time import INF
from everwhen.errors import QueryError


class IdleSources:
    """When each of the inputs spoke last.  Without `seconds` nobody ever rests."""

    def __init__(self, clock: Callable[[], float], seconds: float | None, inputs: Iterable[str] = ()) -> None:
        if seconds is not None and not seconds > 0:
            raise QueryError(f"an input cannot count as idle after {seconds} seconds: more than 0, or None for never")
        self.seconds = seconds
        self._clock = clock
        self._spoke = dict.fromkeys(inputs, clock())

    def read(self, inputs: Iterable[str]) -> None:
        """These inputs are there now; one that is new counts as heard."""
        self._spoke = {name: self._spoke.get(name, self._clock()) for name in inputs}

    def heard(self, inputs: Iterable[str]) -> None:
        """These inputs have spoken now."""
        if self.seconds is not None:
            self._spoke |= dict.fromkeys(self._spoke.keys() & set(inputs), self._clock())

    def forced(self, promised: Mapping[str, int]) -> dict[str, int]:
        """How far the inputs that rest have to be taken to have come, given what each has promised; those of which
        nothing is given do not count."""
        if self.seconds is None:
            return {}
        since = self._clock() - self.seconds
        resting = {name for name, at in self._spoke.items() if at <= since and name in promised}
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
