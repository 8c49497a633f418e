"""Times as Spark columns: parts of dates and timestamps, truncation, shifts.

None of it reads the session's time zone: timestamps in UTC are counted in microseconds, and for dates and timestamps
without a zone Spark's own functions do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen.spark.translate.terms import UTC_MICROS, Rule, Term, as_type, attempt, literal, strict

_DAY: Final = 86_400_000_000  # microseconds


def day_of(arg: Term) -> Column:
    """The date of a date or a timestamp."""
    if arg.type == UTC_MICROS:
        micros = F.unix_micros(arg.column)
        return F.date_from_unix_date(_floored(micros, _DAY).cast("int"))
    return arg.column.cast("date")


def _floored(count: Column, unit: int) -> Column:
    """`count // unit` for a positive unit."""
    return F.call_function("div", count - F.pmod(count, F.lit(unit)), F.lit(unit))


def _of_day(part: Callable[[Column], Column], most: int) -> Rule:
    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        return strict(type_, as_type(part(day_of(args[0])), type_), args, copies=2, bounds=(-most, most))

    return rule


def _of_clock(part: Callable[[Column], Column], unit: int, count: int) -> Rule:
    """A part of the time of day: units of so many microseconds, counted up to `count`."""

    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        (arg,) = args
        if arg.type == UTC_MICROS:
            column = F.pmod(_floored(F.unix_micros(arg.column), unit), F.lit(count))
        else:
            column = part(arg.column)
        return strict(type_, as_type(column, type_), args, copies=2, bounds=(0, count - 1))

    return rule


_CLOCK: Final = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY}


def _date_trunc(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    unit, arg = args[0].value.lower(), args[1]
    if arg.kind == "date":
        return arg if unit in _CLOCK else strict(type_, F.trunc(arg.column, unit), [arg])
    day = day_of(arg) if unit in _CLOCK else F.trunc(day_of(arg), unit)
    if arg.type == UTC_MICROS:
        micros = F.unix_micros(arg.column)
        begin = (
            micros - F.pmod(micros, F.lit(_CLOCK[unit]))
            if unit in _CLOCK
            else F.unix_date(day) * literal(_DAY, pa.int64())
        )
        return strict(type_, F.timestamp_micros(begin), [arg], copies=2)
    parts = {"hour": 1, "minute": 2, "second": 3}.get(unit, 0)
    clock = [F.hour(arg.column), F.minute(arg.column), F.second(arg.column)][:parts]
    begin = day.cast("timestamp_ntz")
    if clock:
        begin = begin + F.make_dt_interval(F.lit(0), *clock)
    return strict(type_, begin, [arg], copies=4)


def _epoch_ms(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    (arg,) = args
    if arg.type == UTC_MICROS:
        return strict(type_, F.unix_millis(arg.column), args)
    x = arg.column
    millis = (F.hour(x) * 60 + F.minute(x)) * 60000 + F.date_part(F.lit("SECOND"), x) * 1000
    return strict(
        type_, F.unix_date(day_of(arg)) * literal(_DAY // 1000, type_) + as_type(F.floor(millis), type_), args, copies=4
    )


def shifted(symbol: str, moment: Term, microseconds: int) -> Term:
    """A timestamp plus or minus a constant duration."""
    by = microseconds if symbol == "+" else -microseconds
    if moment.type == UTC_MICROS:
        later = F.try_add(F.unix_micros(moment.column), literal(by, pa.int64()))
        return attempt(moment.type, F.timestamp_micros(later), [moment])
    seconds, rest = divmod(by, 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    second = F.lit(f"{seconds}.{rest:06}").cast("decimal(18,6)")
    return strict(moment.type, moment.column + F.make_dt_interval(F.lit(days), F.lit(0), F.lit(0), second), [moment])


TIME_RULES: Final[dict[str, Rule]] = {
    "year": _of_day(F.year, 300_000),
    "quarter": _of_day(F.quarter, 4),
    "month": _of_day(F.month, 12),
    "week": _of_day(F.weekofyear, 53),
    "day": _of_day(F.day, 31),
    "day_of_week": _of_day(lambda day: F.weekday(day) + 1, 7),
    "day_of_year": _of_day(F.dayofyear, 366),
    "hour": _of_clock(F.hour, 3_600_000_000, 24),
    "minute": _of_clock(F.minute, 60_000_000, 60),
    "second": _of_clock(F.second, 1_000_000, 60),
    "date_trunc": _date_trunc,
    "epoch_ms": _epoch_ms,
}
