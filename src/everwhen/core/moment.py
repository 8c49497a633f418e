"""A time that shows itself as a timestamp: the number of ticks that it is, and a text for people.

Elements and reports have times as whole numbers of ticks, which can be compared and added.  Where a query reads
timestamps, the numbers that leave it are moments: the same numbers, that print as what they mean.

    >>> from everwhen.core.time_axis import TimeAxis
    >>> at = moment(1424984400000, TimeAxis(dated=True))
    >>> at, f"{at}", at == 1424984400000, at + 1
    (2015-02-26 21:00:00, '2015-02-26 21:00:00', True, 1424984400001)
    >>> at.datetime.year
    2015
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from everwhen.core.time import is_time
from everwhen.core.time_axis import TimeAxis

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(int):
    """A finite time on a dated axis, whose ticks are `tick` nanoseconds long."""

    tick: int

    def __new__(cls, t: int, tick: int) -> Moment:
        made = super().__new__(cls, t)
        made.tick = tick
        return made

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.tick

    @property
    def datetime(self) -> datetime:
        """The same as Python has it, in UTC; what is finer than a microsecond is cut."""
        return _EPOCH + timedelta(microseconds=int(self) * self.tick // 1_000)

    def __repr__(self) -> str:
        return TimeAxis(self.tick, dated=True).shown(int(self))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


def moment(t: int, axis: TimeAxis) -> int:
    """A time as a moment where the axis is dated; the infinite ones stay as they are."""
    return Moment(t, axis.tick) if axis.dated and is_time(t) else t


def moments(times: Mapping[str, int], axes: Mapping[str, TimeAxis]) -> dict[str, int]:
    """Times by name, each on the axis of that name; without one they stay numbers."""
    return {name: moment(t, axes.get(name, TimeAxis())) for name, t in times.items()}
