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

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.casts import compile_cast
from everwhen.algebra.expressions.compute import Compiled, Datum, apply, row_by_row
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require
from everwhen.errors import EvaluationError


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
    return apply(type_, row_by_row(lambda value: from_utc(value, name), type_), [moment], where)


def _to_utc(args: Sequence[Compiled], where: str) -> Compiled:
    moment, name = _arguments(args, where)
    return apply(moment.type, row_by_row(lambda value: to_utc(value, name), moment.type), [moment], where)


ZONE_FUNCTIONS: Final = (
    ScalarFunction("from_utc_timestamp(timestamp, zone)", _from_utc, from_utc, 2, 2),
    ScalarFunction("to_utc_timestamp(timestamp, zone)", _to_utc, to_utc, 2, 2),
)
