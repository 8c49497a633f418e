"""Scalar functions of timestamps and dates.  Weeks begin on Monday, as in ISO 8601; days of the week count from 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.casts import compile_cast
from everwhen.algebra.expressions.compute import Compiled, Kernel, apply
from everwhen.algebra.expressions.definition import EPOCH
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require

_TRUNCATE: Final = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


def _part(name: str, kernel: Kernel, meaning: Callable[[Any], int], *kinds: str) -> ScalarFunction:
    wanted = " or ".join(f"a {each}" for each in kinds)

    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        require(args, where, wanted, *kinds)
        if args[0].kind == "null":
            args = [compile_cast(args[0], pa.timestamp("us"), where)]
        return apply(pa.int64(), kernel, args, where)

    return ScalarFunction(f"{name}({kinds[0]})", rule, meaning)


def _of_day(name: str, kernel: Kernel, meaning: Callable[[Any], int]) -> ScalarFunction:
    return _part(name, kernel, meaning, "timestamp", "date")


def _date_trunc(args: Sequence[Compiled], where: str) -> Compiled:
    wanted = f"one of {', '.join(_TRUNCATE)}"
    require(args[:1], where, wanted, "string")
    require(args[1:], where, "a timestamp or a date", "timestamp", "date")
    unit = constant_value(args[0], where, wanted, lambda name: name.lower() in _TRUNCATE).lower()
    arg = compile_cast(args[1], pa.timestamp("us"), where) if args[1].kind == "null" else args[1]
    if arg.kind == "date" and unit in ("second", "minute", "hour"):
        return arg
    options = pc.RoundTemporalOptions(unit=unit)
    return apply(arg.type, lambda x: pc.call_function("floor_temporal", [x], options), [arg], where)


def date_trunc(unit: str, moment: Any) -> Any:
    """The last beginning of a `unit` at or before the moment."""
    day = moment.date() if isinstance(moment, datetime) else moment
    match unit.lower():
        case "second" | "minute" | "hour" if not isinstance(moment, datetime):
            return moment
        case "second":
            return moment.replace(microsecond=0)
        case "minute":
            return moment.replace(second=0, microsecond=0)
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "week":
            day -= timedelta(days=day.weekday())
        case "month":
            day = day.replace(day=1)
        case "quarter":
            day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            day = day.replace(month=1, day=1)
    return datetime(day.year, day.month, day.day, tzinfo=moment.tzinfo) if isinstance(moment, datetime) else day


def _epoch_ms(args: Sequence[Compiled], where: str) -> Compiled:
    require(args, where, "a timestamp", "timestamp")
    millis = compile_cast(args[0], pa.timestamp("ms", getattr(args[0].type, "tz", None)), where)
    options = pc.CastOptions(target_type=pa.int64())
    return apply(pa.int64(), lambda x: pc.cast(x, options=options), [millis], where)


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (moment - EPOCH.replace(tzinfo=moment.tzinfo)) // timedelta(milliseconds=1)


def _strftime(args: Sequence[Compiled], where: str) -> Compiled:
    require(args[:1], where, "a timestamp or a date", "timestamp", "date")
    require(args[1:], where, "a format such as '%Y-%m-%d'", "string")
    pattern = constant_value(args[1], where, "a format such as '%Y-%m-%d'", lambda _: True)
    seconds = compile_cast(args[0], pa.timestamp("s", getattr(args[0].type, "tz", None)), where)
    options = pc.StrftimeOptions(pattern)
    return apply(pa.string(), lambda x: pc.call_function("strftime", [x], options), [seconds], where)


def _strftime_value(moment: date, pattern: str) -> str:
    return moment.strftime(pattern.replace("%Y", f"{moment.year:04}"))


TIME_FUNCTIONS: Final = (
    _of_day("year", pc.year, lambda moment: moment.year),
    _of_day("quarter", pc.quarter, lambda moment: (moment.month + 2) // 3),
    _of_day("month", pc.month, lambda moment: moment.month),
    _of_day("week", pc.iso_week, lambda moment: moment.isocalendar().week),
    _of_day("day", pc.day, lambda moment: moment.day),
    _of_day("day_of_week", lambda x: pc.day_of_week(x, count_from_zero=False), lambda moment: moment.isoweekday()),
    _of_day("day_of_year", pc.day_of_year, lambda moment: moment.timetuple().tm_yday),
    _part("hour", pc.hour, lambda moment: moment.hour, "timestamp", "time"),
    _part("minute", pc.minute, lambda moment: moment.minute, "timestamp", "time"),
    _part("second", pc.second, lambda moment: moment.second, "timestamp", "time"),
    ScalarFunction("date_trunc(unit, timestamp)", _date_trunc, date_trunc, 2, 2),
    ScalarFunction("epoch_ms(timestamp)", _epoch_ms, epoch_ms),
    ScalarFunction("strftime(timestamp, format)", _strftime, _strftime_value, 2, 2),
)
