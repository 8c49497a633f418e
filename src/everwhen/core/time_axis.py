"""The axis of time: how long a tick is, and whether its times are shown as timestamps or as numbers.

Inside, a time is a whole number of ticks.  Where a query's sources tell their times as timestamps, a tick counts from
1970-01-01 in UTC, and the axis is `dated`: then files, tables and messages have timestamps.  Formats take the axis as
a value; messages, which are made far below, ask `everwhen.core.time.show`, which shows times as `times_shown` says.

    >>> axis = TimeAxis(dated=True)
    >>> axis.text(1424984400000), axis.text(1424984400123), axis.shown(1424984400000)
    ('2015-02-26T21:00:00Z', '2015-02-26T21:00:00.123Z', '2015-02-26 21:00:00')

Text has the years 1 to 9999 only; a time beyond them is a number of ticks on any axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF, SHOWN, SHOWN_SPAN, in_ticks, ticks
from everwhen.errors import QueryError

Times = Literal["ticks", "iso", "auto"]
TIMES: Final[tuple[Times, ...]] = ("auto", "iso", "ticks")
"""How times may be asked for: as the sources tell them, as timestamps, as numbers of ticks."""

_UNITS: Final = (("ms", 10**6), ("us", 10**3), ("ns", 1))
"""Those of Parquet's timestamps."""
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """`tick`: the length of a tick in nanoseconds.  `dated`: whether times are timestamps to people."""

    tick: int = 10**6
    dated: bool = False

    def __post_init__(self) -> None:
        if self.tick < 1:
            raise QueryError("a tick is longer than nothing")

    @property
    def tick_text(self) -> str:
        """The length of a tick as `ticks` reads it.

        >>> TimeAxis().tick_text, TimeAxis(10**7).tick_text, TimeAxis(60 * 10**9).tick_text
        ('1ms', '10ms', '60s')
        """
        unit, length = next(each for each in (("s", 10**9), *_UNITS) if self.tick % each[1] == 0)
        return f"{self.tick // length}{unit}"

    @property
    def unit(self) -> str:
        """The unit in which timestamps are counted: the longest of Parquet's of which a tick is a whole number."""
        return self._unit[0]

    @property
    def scale(self) -> int:
        """How many of these units a tick has."""
        return self.tick // self._unit[1]

    @property
    def _unit(self) -> tuple[str, int]:
        return next(each for each in _UNITS if self.tick % each[1] == 0)

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of a column of times."""
        return pa.timestamp(self.unit, "UTC") if self.dated else pa.int64()

    # -- to text --------------------------------------------------------------------------------------------------

    def texts(self, times: np.ndarray) -> list[str]:
        """Finite times as ISO 8601 in UTC; without a fraction where it is zero."""
        scale, per_second = self.scale, 10**9 // self._unit[1]
        first, last = -(-_FIRST_SECOND * 10**9 // self.tick), min(_LAST_SECOND * 10**9 // self.tick, INF // scale)
        has_text = (times >= max(first, -last)) & (times <= last)
        numbers = np.where(has_text, times, 0) * scale
        fine = numbers % per_second != 0
        found = np.datetime_as_string((numbers // per_second).astype("M8[s]")).tolist()
        if fine.any():
            exact = np.datetime_as_string(numbers[fine].astype(f"M8[{self.unit}]")).tolist()
            for at, text in zip(np.flatnonzero(fine).tolist(), exact, strict=True):
                found[at] = text
        if has_text.all():
            return [f"{text}Z" for text in found]
        told = zip(found, has_text.tolist(), times.tolist(), strict=True)
        return [f"{text}Z" if is_text else str(t) for text, is_text, t in told]

    def text(self, t: int) -> str:
        """A finite time as text: a timestamp, or on an axis of plain numbers the number."""
        return self.texts(np.array([t], np.int64))[0] if self.dated else str(t)

    def shown(self, t: int) -> str:
        """A finite time for people, in UTC."""
        return self.text(t).replace("T", " ").removesuffix("Z")

    def span(self, length: int) -> str:
        """A span of time for people, with units where times are timestamps.

        >>> TimeAxis(dated=True).span(599_000), TimeAxis(dated=True).span(90_061_005), TimeAxis().span(7)
        ('9m59s', '1d1h1m1.005s', '7 ticks')
        """
        if not self.dated:
            return in_ticks(length)
        seconds, rest = divmod(length * self.tick, 10**9)
        found = ""
        for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
            count, seconds = divmod(seconds, size)
            found += f"{count}{unit}" if count else ""
        if seconds or rest or not found:
            found += str(seconds) + (f".{rest:09d}".rstrip("0") if rest else "") + "s"
        return found

    # -- to Arrow -------------------------------------------------------------------------------------------------

    def array(self, times: np.ndarray, missing: np.ndarray | bool = False) -> pa.Array:
        """Times as a column; `missing` ones, and infinity, are null."""
        missing = missing | (times == INF)
        if not self.dated:
            return pa.array(times, mask=missing)
        numbers = np.where(missing, 0, times)
        if self.scale > 1 and (np.abs(numbers) > INF // self.scale).any():
            raise QueryError(
                f"a time is too large for a timestamp in {self.unit}; ask for numbers of ticks (--times ticks, or "
                "times='ticks')"
            )
        return pa.array(numbers * self.scale, mask=missing).cast(self.arrow_type)


TICKS: Final = TimeAxis()
"""Plain numbers."""


def tick_length(tick: str) -> int:
    """The length of a tick, given as text, in nanoseconds."""
    return ticks(tick, "1ns")


def common_axis(axes: Iterable[TimeAxis]) -> TimeAxis:
    """The axis of several sources: if one has timestamps so has the answer, and then plain numbers are its ticks.

    >>> common_axis([TimeAxis(), TimeAxis(10**3, dated=True)]).tick_text
    '1us'
    """
    given = list(axes)
    dated = [axis for axis in given if axis.dated] or given
    return TimeAxis(gcd(*(axis.tick for axis in dated)), dated[0].dated) if dated else TICKS


def asked_axis(axis: TimeAxis, asked: Times) -> TimeAxis:
    """The axis on which times are written: as `--times` asks for."""
    return axis if asked == "auto" else TimeAxis(axis.tick, asked == "iso")


@contextmanager
def times_shown(axis: TimeAxis) -> Iterator[None]:
    """Within it messages show times on this axis (`everwhen.core.time.show`).

    >>> from everwhen.core.time import show
    >>> with times_shown(TimeAxis(10**9, dated=True)): show(86400)
    '1970-01-02 00:00:00'
    """
    before, span_before = SHOWN.set(axis.shown), SHOWN_SPAN.set(axis.span)
    try:
        yield
    finally:
        SHOWN.reset(before)
        SHOWN_SPAN.reset(span_before)
