"""Application time: integer ticks, infinity, durations with units.

A tick is a 64-bit integer; what it means (a millisecond unless told otherwise) is the user's.  Times may be
negative.  `INF` is the end of a lifetime that has no end, `NEVER` (minus infinity) the progress of a stream that
has promised nothing.  Finite times lie strictly within ±2**62, so that a time plus a duration never overflows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from everwhen.errors import QueryError

INF: Final = 2**63 - 1
NEVER: Final = -(2**63)
MAX_TIME: Final = 2**62 - 1
MIN_TIME: Final = -(2**62) + 1

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
    "w": 7 * 86_400 * 1_000_000_000,
}
_NAMES: Final = {
    "nanosecond": "ns",
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "m": "min",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")
UNITS: Final = (*_NANOSECONDS, *_NAMES)
SHOWN: Final[ContextVar[Callable[[int], str]]] = ContextVar("SHOWN", default=str)
"""How messages show a finite time: a number, or what `time_axis.times_shown` sets for a while."""


def in_ticks(length: int) -> str:
    """A span of time as a number of ticks, in words."""
    return f"{length} tick{'s' * (length != 1)}"


SHOWN_SPAN: Final[ContextVar[Callable[[int], str]]] = ContextVar("SHOWN_SPAN", default=in_ticks)
"""How they show a span between two times."""


def next_tick(t: int) -> int:
    """One tick later: behind the largest time comes infinity."""
    return INF if t >= MAX_TIME else max(t + 1, MIN_TIME)


def last_tick(t: int) -> int:
    """One tick earlier: before infinity comes the largest time, before the smallest one minus infinity."""
    return NEVER if t <= MIN_TIME else min(t - 1, MAX_TIME)


def is_time(t: int) -> bool:
    """Whether `t` is a finite time that the system can work with."""
    return MIN_TIME <= t <= MAX_TIME


def require_time(t: object) -> None:
    """QueryError unless `t` is an instant: a time, or either infinity."""
    if isinstance(t, bool) or not isinstance(t, int) or not (is_time(t) or t in (INF, NEVER)):
        raise QueryError(f"an instant is a whole number of ticks, within ±2**62, and not {t!r}")


def unit_nanoseconds(unit: str) -> int:
    """The length of a unit such as `ms`, `minute` or `HOURS`."""
    name = unit.lower().replace("µs", "us")
    name = _NAMES.get(name, name)
    if name not in _NANOSECONDS and name.endswith("s"):
        name = _NAMES.get(name[:-1], name[:-1])
    if name in ("month", "quarter", "year"):
        raise QueryError(f"a {name} has no fixed length; write days or weeks")
    if name not in _NANOSECONDS:
        raise QueryError(f"unknown time unit {unit!r}; there are {', '.join(_NANOSECONDS)} and their full names")
    return _NANOSECONDS[name]


def ticks(duration: int | str, tick: str = "1ms") -> int:
    """A duration as ticks: an integer is ticks already, text is a sum of numbers with units.

    >>> ticks("10 minutes"), ticks("1h 30min", tick="1s"), ticks(7)
    (600000, 5400, 7)
    """
    if isinstance(duration, bool) or not isinstance(duration, int | str):
        raise QueryError(f"a duration is a whole number of ticks or text such as '10 minutes', not {duration!r}")
    if isinstance(duration, int):
        return duration
    length, tick_length = _nanoseconds(duration), _nanoseconds(tick)
    if tick_length == 0 or length % tick_length:
        raise QueryError(f"{duration!r} is not a whole number of ticks of {tick}")
    return length // tick_length


def _nanoseconds(text: str) -> int:
    total, at = 0, 0
    while at < len(text):
        match = _DURATION.match(text, at)
        if not match:
            raise QueryError(f"cannot read the duration {text!r}; write for example '5 s', '10 minutes' or '1h 30min'")
        number, unit = match.groups()
        whole, _, fraction = number.partition(".")
        scale = unit_nanoseconds(unit)
        part = int(whole) * scale
        if fraction:
            if int(fraction) * scale % 10 ** len(fraction):
                raise QueryError(f"the duration {text!r} is finer than a nanosecond")
            part += int(fraction) * scale // 10 ** len(fraction)
        total, at = total + part, match.end()
    if not text.strip():
        raise QueryError("an empty duration; write for example '5 s'")
    return total


def show(t: int) -> str:
    """A time for people: `∞`, `-∞`, or the number; a timestamp within `time_axis.times_shown`.

    >>> show(INF), show(7)
    ('∞', '7')
    """
    return "∞" if t == INF else "-∞" if t == NEVER else SHOWN.get()(t)


def show_span(length: int) -> str:
    """A span of time for people: a number of ticks; within `time_axis.times_shown`, where times are timestamps, a
    duration.

    >>> show_span(7)
    '7 ticks'
    """
    return SHOWN_SPAN.get()(length)


def show_length(length: int) -> str:
    """A length of time in ticks for people: `∞` or the number.

    >>> show_length(INF), show_length(7)
    ('∞', '7')
    """
    return "∞" if length == INF else str(length)
