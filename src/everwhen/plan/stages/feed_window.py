"""The lifetimes that a feed gives to events of one tick: what they promise, and from when on they are right."""

from __future__ import annotations

from dataclasses import dataclass

from everwhen.core.time import INF, NEVER
from everwhen.operators.stateless.linear import least_rounded_up, rounded_up_time


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """WINDOW(RANGE size SLIDE slide)."""

    size: int
    slide: int

    @property
    def never_empty(self) -> bool:
        """Whether rounding cannot make a lifetime an empty one."""
        return self.size >= self.slide

    def promised(self, cti: int) -> int:
        """What the events promise if their source has promised `cti`."""
        return rounded_up_time(cti, self.slide, -1)

    def needs(self, t: int) -> int:
        """The least that the source has to promise so that the events promise all before `t`."""
        return least_rounded_up(t, self.slide, -1)

    def exact_from(self, since: int) -> int:
        """From when on the lifetimes are right if the source is known from `since` on."""
        return INF if self.size == INF else rounded_up_time(since + self.size, self.slide, 0) - 1

    def __str__(self) -> str:
        return f"window {'unbounded' if self.size == INF else f'range {self.size}'} slide {self.slide}"


@dataclass(frozen=True, slots=True)
class HopWindow:
    """An event lives from its start, rounded down to a multiple of `hop` and moved by `shift`, for `length`: the
    windows of TUMBLE."""

    hop: int
    shift: int
    length: int

    @property
    def never_empty(self) -> bool:
        return True

    def promised(self, cti: int) -> int:
        return cti if cti in (INF, NEVER) else self.start(cti)

    def needs(self, t: int) -> int:
        return t if t in (INF, NEVER) else rounded_up_time(t - self.shift, self.hop, 0)

    def exact_from(self, since: int) -> int:
        return INF if self.length == INF else self.start(since) + self.length

    def start(self, at: int) -> int:
        """Where the lifetime of an event begins."""
        return at // self.hop * self.hop + self.shift

    def __str__(self) -> str:
        length = "for ever" if self.length == INF else f"for {self.length}"
        return f"lifetime from vs rounded down to {self.hop}{f' + {self.shift}' if self.shift else ''} {length}"


FeedWindow = SlidingWindow | HopWindow
