"""Rows of a DataFrame as elements: times as ticks, operations as numbers, wrong rows named."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import gcd
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from everwhen.core.schema import RESERVED
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.spark.sources.source import _INTEGERS, ON_SPARK, ResolvedSource, SparkSource, _kinds
from everwhen.stream.element_batch import ADJUST, CTI, IN_RANGE, INSERT, PUNCT

UNKNOWN_OP: Final = -1
CUT: Final = NEVER + 1
"""A time between two ticks."""


_MICROS_PER_DAY: Final = 86_400_000_000


_ALWAYS_IN_RANGE: Final = 3000
"""Of ticks of so many nanoseconds, every timestamp has fewer than there are: it is 64 bits of microseconds."""


def normalise(df: DataFrame, resolved: ResolvedSource) -> DataFrame:
    """The elements of a frame: `op` tinyint, `vs`, `ve`, `vnew` bigint, then the payload as `p0`, `p1`, ..., and
    `match` where there may be promises about data.

    An `op` that is none of ours is -1, a time out of range is `NEVER`, the `vnew` of an adjust without such a column is
    null, and so is the `vs` of an event without a time: see `problems`.
    """
    return elements(numbered(df, resolved), resolved)


def numbered(df: DataFrame, resolved: ResolvedSource, only: Collection[int] | None = None) -> DataFrame:
    """The frame with its columns (or those that are of use, if only some of the payload are) as `c0`, `c1`, ..."""
    # By position: the names may hold dots, or differ in case only.
    plain = df.toDF(*(f"c{i}" for i in range(len(resolved.types))))
    if only is None:
        return plain
    roles = (resolved.time, resolved.end, resolved.op, resolved.vnew, resolved.match)
    used = {place for place in roles if place is not None} | {resolved.payload[i] for i in only}
    return plain.select(*(f"c{place}" for place in sorted(used)))


def elements(plain: DataFrame, resolved: ResolvedSource) -> DataFrame:
    """What `normalise` gives, of a frame with numbered columns."""
    infinity = F.lit(INF)

    def at(place: int) -> Column:
        return _time(F.col(f"c{place}"), resolved.types[place], resolved.source.nanoseconds)

    op, start = _op(resolved), at(resolved.time)
    if resolved.end is None:
        end = start + F.lit(resolved.source.lifetime_ticks)  # no start is so large that this leaves 64 bits
    else:
        end = F.coalesce(at(resolved.end), infinity)
    if resolved.op is None:
        vs, ve, vnew = start, end, _long(0)
    else:
        cti, adjust = op >= F.lit(CTI), op == F.lit(ADJUST)
        vs = F.when(cti, F.coalesce(start, infinity)).otherwise(start)
        ve = F.when(cti, vs).otherwise(end)
        moved = F.lit(None).cast(LongType()) if resolved.vnew is None else F.coalesce(at(resolved.vnew), infinity)
        vnew = F.when(adjust, moved).otherwise(_long(0))
    there = set(plain.columns)
    payload = [F.col(f"c{at}").alias(f"p{i}") for i, at in enumerate(resolved.payload) if f"c{at}" in there]
    if resolved.match is not None:
        payload.append(F.col(f"c{resolved.match}").alias("match"))
    times = zip((op.cast(ByteType()), vs, ve, vnew), RESERVED, strict=True)
    return plain.select(*(column.alias(name) for column, name in times), *payload)


def problems(resolved: ResolvedSource) -> Column:
    """What is wrong with a row of the normalised frame, as text; null if nothing is."""
    source = resolved.source
    op, vs, ve, vnew = (F.col(name) for name in RESERVED)
    infinity = F.lit(INF)
    event = op < F.lit(CTI)
    no_match = F.lit(False) if resolved.match is None else F.col("match").isNull()

    def bad(time: Column) -> Column:
        return ~time.between(F.lit(MIN_TIME), F.lit(MAX_TIME))

    def said(*parts: str | Column) -> Column:
        return F.concat(*(F.lit(part) if isinstance(part, str) else _time_text(part) for part in parts))

    def out(role: str, column: str | None) -> Column:
        return F.lit(f"the {role} in column {column!r} is out of range ({IN_RANGE})")

    end_role = "end" if source.end is not None else "end, lifetime after the time"
    return (
        F.when(
            op == F.lit(UNKNOWN_OP),
            F.lit(f"unknown op in column {source.op!r} (on Spark there are {', '.join(_kinds(source))})"),
        )
        .when(vs.isNull(), F.lit(f"the time in column {source.time!r} is null (only a cti may stand at infinity)"))
        .when((vs == F.lit(CUT)) | (event & ((ve == F.lit(CUT)) | (vnew == F.lit(CUT)))), F.lit(_too_fine(source)))
        .when(bad(vs) & (event | (vs != infinity)), out("time", source.time))
        .when(event & bad(ve) & (ve != infinity), out(end_role, source.end or source.time))
        .when(event & (vs >= ve), said("the lifetime [", vs, ", ", ve, ") is empty (the end must be after the time)"))
        .when(
            (op == F.lit(ADJUST)) & vnew.isNull(),
            F.lit("an adjust has no new end (name its column: SparkSource(vnew=...))"),
        )
        .when((op == F.lit(ADJUST)) & bad(vnew) & (vnew != infinity), out("new end", source.vnew))
        .when(
            (op == F.lit(ADJUST)) & (vnew < vs),
            said("the new end ", vnew, " is before the time ", vs, " (the time itself removes the event)"),
        )
        .when((op == F.lit(PUNCT)) & no_match, F.lit(f"a punct without a pattern in column {source.match!r}"))
    )


def _too_fine(source: SparkSource) -> str:
    return (
        f"the time in column {source.time!r}, or an end, is no whole number of ticks of {source.tick} (give "
        "SparkSource(tick='1us'), or round the times, for example with date_trunc)"
    )


def _time_text(time: Column) -> Column:
    return F.when(time == F.lit(INF), F.lit("∞")).otherwise(time.cast(StringType()))


def _op(resolved: ResolvedSource) -> Column:
    if resolved.op is None:
        return F.lit(INSERT)
    op = F.col(f"c{resolved.op}")
    names: Sequence[str | int] = ON_SPARK
    if not isinstance(resolved.types[resolved.op], StringType):
        op, names = op.cast(LongType()), range(len(ON_SPARK))
    known = F.when(op.isNull() | (op == F.lit(names[INSERT])), F.lit(INSERT))
    for code in range(ADJUST, len(_kinds(resolved.source))):
        known = known.when(op == F.lit(names[code]), F.lit(code))
    return known.otherwise(F.lit(UNKNOWN_OP))


def _time(column: Column, type_: DataType, nanoseconds: int) -> Column:
    """A time as ticks of so many nanoseconds; `NEVER` where that is out of range, `CUT` between two ticks."""
    if isinstance(type_, _INTEGERS):
        return _in_range(column, column.cast(LongType()))
    micros = _micros(column, type_)
    millis = isinstance(type_, TimestampType) and nanoseconds == 1_000_000
    found = F.unix_millis(column) if millis else _ticks(micros, nanoseconds)
    if not isinstance(type_, TimestampType) or nanoseconds < _ALWAYS_IN_RANGE:
        found = _in_range(column, found)
    cut = nanoseconds // gcd(1000, nanoseconds)
    return found if cut == 1 else F.when(micros % _long(cut) != 0, F.lit(CUT)).otherwise(found)


def _in_range(column: Column, found: Column) -> Column:
    legal = found.between(F.lit(MIN_TIME), F.lit(MAX_TIME))
    return F.when(legal, found).when(column.isNotNull(), F.lit(NEVER))


def _micros(column: Column, type_: DataType) -> Column:
    """A timestamp or a date in microseconds; null where the number is too large for 64 bits."""
    if isinstance(type_, TimestampType):
        micros = F.unix_micros(column)
    else:
        # Neither a date nor a timestamp without a zone may pass through the session's zone: it can lack their hour.
        days = F.unix_date(column.cast(DateType()))
        micros = F.try_multiply(days, _long(_MICROS_PER_DAY))
        if isinstance(type_, TimestampNTZType):
            minutes = F.hour(column) * F.lit(60) + F.minute(column)
            seconds = (F.extract(F.lit("SECOND"), column) * F.lit(1_000_000)).cast(LongType())
            micros = F.try_add(micros, minutes * _long(60_000_000) + seconds)
    return micros


def _ticks(micros: Column, nanoseconds: int) -> Column:
    """The ticks themselves, rounded down; null where the number is too large for 64 bits."""
    common = gcd(1000, nanoseconds)
    times, by = 1000 // common, nanoseconds // common
    found = micros if by == 1 else _floor(micros, by)
    if times > 1:
        found = F.try_multiply(found, _long(times))
        if by > 1:
            found = F.try_add(found, _floor(F.pmod(micros, _long(by)) * _long(times), by))
    return found


def _floor(number: Column, by: int) -> Column:
    """A whole number divided by a positive one, rounded down."""
    down = F.when(number % _long(by) < 0, _long(1)).otherwise(_long(0))
    return F.call_function("div", number, _long(by)) - down


def _long(number: int) -> Column:
    return F.lit(number).cast(LongType())
