"""Scalar functions of the calendar: months and days added, dates made and compared, parts of a moment.

A month later is the same day of the next month, or its last day where that has fewer days.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.casts import compile_cast
from everwhen.algebra.expressions.compute import Compiled, Datum, Kernel, Rule, apply, coerce, row_by_row
from everwhen.algebra.expressions.definition import EPOCH
from everwhen.algebra.expressions.scalar_function import ScalarFunction, require
from everwhen.errors import EvaluationError

_DAY: Final = timedelta(days=1)
_MOST: Final = 12 * 10_000


def _moment(arg: Compiled, where: str, *kinds: str) -> Compiled:
    wanted = "a date or a timestamp" if "timestamp" in kinds else "a date"
    require([arg], where, "a date, a timestamp or an interval" if "duration" in kinds else wanted, *kinds)
    if arg.kind != "null":
        return arg
    return compile_cast(arg, pa.date32() if kinds == ("date",) else pa.timestamp("us"), where)


def _whole(arg: Compiled, where: str, wanted: str) -> Compiled:
    require([arg], where, wanted, "integer")
    return coerce(arg, pa.int64())


# -- months ------------------------------------------------------------------------------------------------------------


def add_months(moment: Any, months: int) -> Any:
    """The moment so many months later, at the end of the month if that is shorter.

    >>> add_months(date(2024, 1, 31), 1)
    datetime.date(2024, 2, 29)
    """
    at = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(at, 12)
    if not 1 <= year <= 9999:
        raise EvaluationError(f"{moment} and {months} months give a time out of range")
    return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))


def _add_months(args: Sequence[Compiled], where: str) -> Compiled:
    moment = _moment(args[0], where, "date", "timestamp")
    months = _whole(args[1], where, "a whole number of months")
    type_: Any = moment.type

    def kernel(given: Datum, by: Datum) -> pa.Array:
        times, none = _numpy_times(given, type_)
        count, no_count = _numpy_numbers(by)
        missing = none | no_count
        if np.any((np.abs(count) > _MOST) & ~missing):
            raise EvaluationError(f"a number of months out of range in {where}")
        begin = times.astype("M8[M]")
        day = times.astype("M8[D]") - begin.astype("M8[D]")
        target = begin + count.astype("m8[M]")
        length = (target + np.timedelta64(1, "M")).astype("M8[D]") - target.astype("M8[D]")
        days = target.astype("M8[D]") + np.minimum(day, length - np.timedelta64(1, "D"))
        result = days.astype(times.dtype) + (times - times.astype("M8[D]").astype(times.dtype))
        years = target.astype("M8[Y]").astype(np.int64) + 1970
        if np.any(((years < 1) | (years > 9999)) & ~missing):
            raise EvaluationError(f"a time out of range in {where}")
        return pa.array(result, type_, mask=np.broadcast_to(missing, result.shape))

    return apply(type_, kernel, [moment, months], where)


def _numpy_times(datum: Datum, type_: Any) -> tuple[np.ndarray, np.ndarray]:
    array = datum if isinstance(datum, pa.Array) else pa.array([datum.as_py()], type_)
    unit = "D" if pa.types.is_date(type_) else type_.unit
    none = array.is_null().to_numpy(zero_copy_only=False)
    filled = array.fill_null(pa.scalar(date(1970, 1, 1), pa.date32()).cast(type_)) if array.null_count else array
    numbers = filled.cast(pa.int32()).cast(pa.int64()) if unit == "D" else filled.cast(pa.int64())
    return numbers.to_numpy(zero_copy_only=False).astype(f"M8[{unit}]"), none


def _numpy_numbers(datum: Datum) -> tuple[np.ndarray, np.ndarray]:
    array = datum if isinstance(datum, pa.Array) else pa.array([datum.as_py()], pa.int64())
    none = array.is_null().to_numpy(zero_copy_only=False)
    return array.fill_null(0).to_numpy(zero_copy_only=False), none


# -- days --------------------------------------------------------------------------------------------------------------


def add_days(day: date, days: int) -> date:
    """The day so many days later."""
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise EvaluationError(f"{day} and {days} days give a day out of range") from None


def _add_days(args: Sequence[Compiled], where: str) -> Compiled:
    day = _moment(args[0], where, "date")
    days = _whole(args[1], where, "a whole number of days")
    least, most = date.min.toordinal() - EPOCH.toordinal(), date.max.toordinal() - EPOCH.toordinal()

    def kernel(given: Datum, by: Datum) -> Datum:
        number = pc.cast(pc.cast(given, pa.int32()), pa.int64())
        total = pc.add_checked(number, by)
        if pc.any(pc.or_(pc.less(total, least), pc.greater(total, most))).as_py():
            raise EvaluationError(f"a day out of range in {where}")
        return pc.cast(pc.cast(total, pa.int32()), pa.date32())

    return apply(pa.date32(), kernel, [day, days], where)


def _date_diff(args: Sequence[Compiled], where: str) -> Compiled:
    days = [compile_cast(_moment(arg, where, "date", "timestamp"), pa.date32(), where) for arg in args]
    whole = [apply(pa.int64(), lambda x: pc.cast(pc.cast(x, pa.int32()), pa.int64()), [day], where) for day in days]
    return apply(pa.int64(), pc.subtract, whole, where)


def _day(moment: Any) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def make_date(year: int, month: int, day: int) -> date:
    """The day of a year, a month and a day of it; EvaluationError if there is none."""
    try:
        return date(year, month, day)
    except ValueError:
        raise EvaluationError(f"there is no day {day} in month {month} of the year {year}") from None


def _make_date(args: Sequence[Compiled], where: str) -> Compiled:
    found = [_whole(arg, where, "whole numbers") for arg in args]
    return apply(pa.date32(), row_by_row(make_date, pa.date32()), found, where)


def last_day(moment: Any) -> date:
    """The last day of the month."""
    return date(moment.year, moment.month, monthrange(moment.year, moment.month)[1])


def _last_day(args: Sequence[Compiled], where: str) -> Compiled:
    day = compile_cast(_moment(args[0], where, "date", "timestamp"), pa.date32(), where)

    def kernel(given: Datum) -> pa.Array:
        times, none = _numpy_times(given, pa.date32())
        following = times.astype("M8[M]") + np.timedelta64(1, "M")
        return pa.array(following.astype("M8[D]") - np.timedelta64(1, "D"), pa.date32(), mask=none)

    return apply(pa.date32(), kernel, [day], where)


# -- parts -------------------------------------------------------------------------------------------------------------


def _part(kernel: Kernel, type_: pa.DataType, *kinds: str) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        moment = _moment(args[0], where, *kinds)
        return apply(type_, kernel, [moment], where)

    return rule


def _of_seconds(per_second: int) -> Kernel:
    """Seconds of the minute with their fraction, in units of which a second has so many."""

    def kernel(given: Datum) -> Datum:
        micros = pc.cast(pc.cast(given, pa.timestamp("us"), safe=False), pa.int64())
        minute = pc.subtract(micros, pc.multiply(_floored(micros, 60_000_000), 60_000_000))
        return pc.divide(minute, 1_000_000 // per_second)

    return kernel


def _floored(number: Datum, by: int) -> Datum:
    quotient = pc.divide(number, by)
    return pc.subtract(quotient, pc.cast(pc.greater(pc.multiply(quotient, by), number), pa.int64()))


def epoch(moment: Any) -> float:
    """Seconds since 1970, or of a length of time, with their fraction."""
    if isinstance(moment, timedelta):
        return (moment // timedelta(microseconds=1)) / 1_000_000
    if not isinstance(moment, datetime):
        return float((moment - EPOCH.date()) // _DAY * 86_400)
    return ((moment - EPOCH.replace(tzinfo=moment.tzinfo)) // timedelta(microseconds=1)) / 1_000_000


def _epoch(given: Datum) -> Datum:
    wanted = pa.duration("us") if pa.types.is_duration(given.type) else pa.timestamp("us")
    micros = pc.cast(pc.cast(given, wanted, safe=False), pa.int64())
    return pc.divide(pc.cast(micros, pa.float64(), safe=False), 1_000_000.0)


def _subsecond(factor: int) -> Callable[[datetime], int]:
    return lambda moment: (moment.second * 1_000_000 + moment.microsecond) // (1_000_000 // factor)


CALENDAR_FUNCTIONS: Final = (
    ScalarFunction("add_months(date, months)", _add_months, add_months, 2, 2),
    ScalarFunction("date_add(date, days)", _add_days, add_days, 2, 2),
    ScalarFunction("datediff(end, start)", _date_diff, lambda a, b: (_day(a) - _day(b)).days, 2, 2),
    ScalarFunction("make_date(year, month, day)", _make_date, make_date, 3, 3),
    ScalarFunction("last_day(date)", _last_day, last_day),
    ScalarFunction("epoch(timestamp)", _part(_epoch, pa.float64(), "timestamp", "date", "duration"), epoch),
    ScalarFunction(
        "iso_year(timestamp)",
        _part(pc.iso_year, pa.int64(), "timestamp", "date"),
        lambda moment: moment.isocalendar().year,
    ),
    ScalarFunction("millisecond(timestamp)", _part(_of_seconds(1000), pa.int64(), "timestamp"), _subsecond(1000)),
    ScalarFunction(
        "microsecond(timestamp)", _part(_of_seconds(1_000_000), pa.int64(), "timestamp"), _subsecond(1_000_000)
    ),
)
