"""Time zones: a moment in UTC as the clocks of a zone show it, and back.

Clocks that are set back show an hour twice: it is read as the first one.  What they leave out when they are set
forward is read as if they had not been.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.casts import compile_cast
from everwhen.algebra.expressions.compute import Compiled, Datum, Kernel, apply
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require
from everwhen.errors import EvaluationError

FIRST_DAY: Final = np.datetime64("1970-01-01")
LAST_DAY: Final = np.datetime64("2200-01-01")
"""The days whose lengths are known by zone; others are taken for ordinary ones."""


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo | None:
    """The zone of that name, or of an offset such as +02:00; None if there is none."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if len(name) == 6 and name[0] in "+-" and name[3] == ":" and (name[1:3] + name[4:]).isdecimal():
        hours, minutes = int(name[1:3]), int(name[4:])
        if hours < 24 and minutes < 60:
            sign = -1 if name[0] == "-" else 1
            return timezone(sign * timedelta(hours=hours, minutes=minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return None


def from_utc(moment: datetime, name: str) -> datetime:
    """What the clocks of the zone show at a moment in UTC."""
    zone = zone_named(name)
    assert zone is not None, "checked before"
    try:
        return moment.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        raise EvaluationError(f"{moment} in the zone {name} is out of range") from None


def to_utc(moment: datetime, name: str) -> datetime:
    """The moment in UTC at which the clocks of the zone show this."""
    zone = zone_named(name)
    assert zone is not None, "checked before"
    try:
        return moment.replace(tzinfo=zone, fold=0).astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise EvaluationError(f"{moment} of the zone {name} is out of range") from None


def _arguments(args: Sequence[Compiled], where: str) -> tuple[Compiled, str]:
    require(args[:1], where, "a timestamp", "timestamp")
    require(args[1:], where, "a time zone", "string")
    wanted = "the name of a time zone, such as 'Europe/Berlin', 'UTC' or '+02:00',"
    name = constant_value(args[1], where, wanted, lambda given: zone_named(given) is not None)
    moment = compile_cast(args[0], pa.timestamp("us"), where) if args[0].kind == "null" else args[0]
    return moment, name


def _from_utc(args: Sequence[Compiled], where: str) -> Compiled:
    moment, name = _arguments(args, where)
    type_: Any = moment.type
    zone = zone_named(name)
    if isinstance(zone, ZoneInfo):
        there, here = pa.timestamp(type_.unit, name), pa.timestamp(type_.unit, "UTC")

        def kernel(given: Datum) -> Datum:
            stamped = pc.cast(pc.cast(given, pa.int64()), here)
            return pc.cast(pc.local_timestamp(pc.cast(stamped, there)), type_)

        return apply(type_, kernel, [moment], where)
    return apply(type_, _moved(zone, type_, 1), [moment], where)


def _to_utc(args: Sequence[Compiled], where: str) -> Compiled:
    moment, name = _arguments(args, where)
    type_, zone = moment.type, zone_named(name)
    if not isinstance(zone, ZoneInfo):
        return apply(type_, _moved(zone, type_, -1), [moment], where)
    return apply(type_, lambda given: _in_utc(given, name), [moment], where)


def _in_utc(moments: Datum, name: str) -> Datum:
    """Moments of a zone that sets its clocks, in UTC."""
    ways = [pc.assume_timezone(moments, name, ambiguous="earliest", nonexistent=way) for way in ("earliest", "latest")]
    found = pc.cast(pc.cast(ways[0], pa.int64()), moments.type)
    left_out = pc.fill_null(pc.not_equal(*ways), False)  # clocks never show these
    if not pc.any(left_out).as_py():
        return found
    slowly = [to_utc(moment, name) for moment in moments.filter(left_out).to_pylist()]
    return pc.replace_with_mask(found, left_out, pa.array(slowly, moments.type))


def _moved(zone: tzinfo | None, type_: Any, sign: int) -> Kernel:
    """The kernel of a zone whose clocks are always as far ahead of UTC."""
    assert zone is not None, "checked before"
    ahead = pa.scalar(sign * (zone.utcoffset(None) or timedelta()), pa.duration(type_.unit))
    return lambda given: pc.add_checked(given, ahead)


@lru_cache(maxsize=64)
def kinds_of_days(name: str) -> tuple[tuple[timedelta, timedelta], ...]:
    """How far ahead of UTC clocks are when a day of the zone begins, and how long the day is: all pairs of these from
    1970 to 2199, an ordinary one of the last days first."""
    days = pa.array(np.arange(FIRST_DAY, LAST_DAY + 1).astype("datetime64[us]"))
    begins = _first_instants(days, name).to_numpy()
    ahead, lengths = days.to_numpy()[:-1] - begins[:-1], np.diff(begins)
    found = dict.fromkeys(zip(ahead[::-1].tolist(), lengths[::-1].tolist(), strict=True))
    return tuple(sorted(found, key=lambda kind: kind[1] != timedelta(days=1)))


def _first_instants(days: pa.Array, name: str) -> pa.Array:
    """When days of the zone begin, in UTC."""
    zone = zone_named(name)
    if not isinstance(zone, ZoneInfo):
        return _moved(zone, days.type, -1)(days)
    return _in_utc(days, name)


ZONE_FUNCTIONS: Final = (
    ScalarFunction("from_utc_timestamp(timestamp, zone)", _from_utc, from_utc, 2, 2),
    ScalarFunction("to_utc_timestamp(timestamp, zone)", _to_utc, to_utc, 2, 2),
)
