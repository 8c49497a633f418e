"""How the rows of a DataFrame become elements of a stream: which columns are times, how long events live, who promises.

**Guarantee.**  `normalise` gives, for every row, the element `(op, vs, ve, vnew, payload)` that the outside contract
gives it, computed in the JVM and independent of the session's settings (ANSI mode, time zone, case of names): times are
exact ticks, rounded down; a null end is infinity; the time of a CTI stands in `vs`.  A time that ticks cannot express
becomes `NEVER`, so no row is lost on the way; `problems` says what is wrong with one.

A description is checked when it is built, and against a schema by `resolve`, before anything runs.  Progress, idle
time-outs and late rows are only *described* here; they are carried out where epochs run.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import gcd, isfinite
from typing import Final, Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, ticks
from everwhen.errors import QueryError
from everwhen.formats.parquet import MATCH
from everwhen.spark.translate.expressions import arrow_type
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, OPS, PUNCT
from everwhen.stream.wellformed import IN_RANGE

Late = Literal["error", "adjust", "drop"]
ON_SPARK: Final = OPS[: PUNCT + 1]  # the kinds of elements that a DataFrame's rows can be, the last one with `match`
UNKNOWN_OP: Final = -1

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_STAMPS: Final = (TimestampType, TimestampNTZType)
_MICROS_PER_DAY: Final = 86_400_000_000
_ALWAYS_IN_RANGE: Final = 3000
"""Of ticks of so many nanoseconds, every timestamp has fewer than there are: it is 64 bits of microseconds."""


@dataclass(frozen=True, slots=True)
class CtiRows:
    """The frontier comes from rows: where `op` is `cti`, nothing before the time of that row changes any more.

    >>> SparkSource("at", op="op").progress
    CtiRows()
    """


@dataclass(frozen=True, slots=True)
class Disorder:
    """Rows are late by at most `bound` (ticks, or text like '5 s'): the frontier is the largest start minus the bound.

    >>> SparkSource("at", progress=Disorder("5 s")).progress.bound
    '5 s'
    """

    bound: int | str

    def __post_init__(self) -> None:
        if isinstance(self.bound, int) and self.bound < 0:
            raise QueryError(f"Disorder: a bound is 0 or more, not {self.bound}; 0 means that rows come in order")


@dataclass(frozen=True, slots=True)
class NoProgress:
    """The frontier never moves: no result becomes final because of this source, and its state is kept.

    >>> SparkSource("at").progress
    NoProgress()
    """


Progress = CtiRows | Disorder | NoProgress


@dataclass(frozen=True)
class SparkSource:
    """What the columns of a DataFrame mean.

    `time` (timestamp, date or whole number) is the start of the lifetime; it ends at `end`, or `lifetime` later (one
    tick if neither is given).  `op` holds `insert`, `adjust` or `cti` (or their codes 0, 1, 2; null: insert), and
    `vnew` the new end of an adjust; without `op` all rows are inserts.  The payload is `columns`, by default all
    others.  Timestamps become ticks of length `tick`, rounded down; whole numbers are ticks already.  With `match`, a
    column of text, `op` may be `punct` (code 3): a punctuation with the pattern in `match` (JSON), up to the
    time of the row (null: for ever).

    Rows with `op = cti` move the frontier under every `progress`; by default nothing else does.  `idle`: after so many
    seconds without rows the source no longer holds others back.  `late`: what happens to a row behind the frontier.

    >>> source = SparkSource("at", lifetime="10 s", progress=Disorder("5 s"), late="drop")
    >>> source.late, source.tick
    ('drop', '1ms')
    """

    time: str
    end: str | None = None
    lifetime: int | str | None = None
    op: str | None = None
    vnew: str | None = None
    columns: Sequence[str] | None = None
    tick: str = "1ms"
    progress: Progress | None = None
    idle: float | None = None
    late: Late = "error"
    match: str | None = None

    def __post_init__(self) -> None:
        if self.progress is None:
            object.__setattr__(self, "progress", NoProgress() if self.op is None else CtiRows())
        if self.columns is not None:
            if isinstance(self.columns, str):
                raise QueryError(f"SparkSource: columns is a list of names, not the text {self.columns!r}")
            object.__setattr__(self, "columns", tuple(self.columns))
        roles = [name for name in (self.time, self.end, self.op, self.vnew, self.match) if name is not None]
        twice = sorted({name for name in roles if roles.count(name) > 1})
        if twice:
            raise QueryError(
                f"SparkSource: the column {twice[0]!r} cannot be two of time, end, op, vnew and match at once"
            )
        if self.vnew is not None and self.op is None:
            raise QueryError(
                "SparkSource: vnew is the new end of adjusts, and without op there are no adjusts; name op"
            )
        if self.match is not None and self.op is None:
            raise QueryError("SparkSource: match is read where op is 'punct', and there is no op; name op")
        if isinstance(self.progress, CtiRows) and self.op is None:
            raise QueryError("SparkSource: CtiRows needs op, the column that says which rows are 'cti'")
        self._check_times()
        self._check_policies()

    def _check_times(self) -> None:
        if self.nanoseconds == 0:
            raise QueryError(f"SparkSource: a tick is longer than nothing, not {self.tick!r}")
        if self.nanoseconds >= MAX_TIME // 1000:
            raise QueryError(f"SparkSource: a tick is shorter than fifty years, not {self.tick!r}")
        if self.end is not None and self.lifetime is not None:
            raise QueryError("SparkSource: an event ends at end or after lifetime; give one of the two")
        if not 1 <= self.lifetime_ticks <= MAX_TIME:
            raise QueryError(f"SparkSource: a lifetime is one tick or more, not {self.lifetime!r}")
        if self.disorder is not None and self.disorder > MAX_TIME:
            raise QueryError(f"SparkSource: a disorder of {self.disorder} ticks is more than times can express")

    def _check_policies(self) -> None:
        if self.idle is not None and (isinstance(self.idle, bool) or not isfinite(self.idle) or self.idle <= 0):
            raise QueryError(f"SparkSource: idle is a number of seconds greater than 0, not {self.idle!r}")
        if self.late not in get_args(Late):
            raise QueryError(f"SparkSource: late is one of {', '.join(get_args(Late))}, not {self.late!r}")
        if self.late == "adjust" and self.op is not None:
            raise QueryError(
                "SparkSource: late='adjust' starts a late event at the promise it broke, and an adjust must name its "
                "event as it was, so a source with op cannot have it; use late='drop' or late='error'"
            )

    @property
    def nanoseconds(self) -> int:
        """The length of a tick."""
        return ticks(self.tick, "1ns")

    @property
    def lifetime_ticks(self) -> int:
        return 1 if self.lifetime is None else ticks(self.lifetime, self.tick)

    @property
    def disorder(self) -> int | None:
        """The bound of the disorder in ticks, if that is how progress is made."""
        return ticks(self.progress.bound, self.tick) if isinstance(self.progress, Disorder) else None

    @property
    def insert_only(self) -> bool:
        """Whether no adjust can come."""
        return self.op is None

    @property
    def chronons(self) -> bool:
        """Whether every event lives for one tick."""
        return self.insert_only and self.end is None and self.lifetime_ticks == 1


@dataclass(frozen=True)
class ResolvedSource:
    """A description that fits a schema: the payload's schema, and where each column stands in the frame."""

    name: str
    source: SparkSource
    schema: Schema
    types: tuple[DataType, ...]  # of all columns of the frame
    time: int
    end: int | None
    op: int | None
    vnew: int | None
    payload: tuple[int, ...]
    match: int | None = None
    insert_only: bool = False  # these two: what the query declares, see `declarations`
    chronons: bool = False


# -- from a description to columns -----------------------------------------------------------------------------------


def describe(schema: StructType, name: str) -> SparkSource:
    """The description of a frame for which none is given: the contract's columns, or its only timestamp."""
    names = schema.names
    if "vs" in names:
        end, op, vnew, match = (column if column in names else None for column in ("ve", "op", "vnew", MATCH))
        return SparkSource("vs", end=end, op=op, vnew=vnew if op else None, match=match if op else None)
    stamps = [field.name for field in schema.fields if isinstance(field.dataType, _STAMPS)]
    if len(stamps) == 1:
        return SparkSource(stamps[0])
    found = f"the timestamps {', '.join(stamps)}" if stamps else "no timestamp"
    raise QueryError(
        f"source {name!r}: which column is the time? Expected is a column 'vs' (ticks), or one timestamp; there is "
        f"{found} in {_shown(schema)}. Remedy: give SparkSource(time=...)"
    )


def resolve(schema: StructType, name: str, source: SparkSource | None = None) -> ResolvedSource:
    """The description (or the derived one) checked against a frame's schema."""
    source = describe(schema, name) if source is None else source
    time = _place(schema, name, "time", source.time)
    end, op, vnew, match = (
        None if column is None else _place(schema, name, role, column)
        for role, column in (("end", source.end), ("op", source.op), ("vnew", source.vnew), ("match", source.match))
    )
    for role, place in (("time", time), ("end", end), ("vnew", vnew)):
        if place is not None:
            _check_time(schema, name, role, place, time)
    if op is not None and not isinstance(schema.fields[op].dataType, (StringType, *_INTEGERS)):
        raise QueryError(
            f"source {name!r}: op is text ({', '.join(_kinds(source))}) or its code (0, 1, 2), and the column "
            f"{source.op!r} is {_type(schema, op)}"
        )
    if match is not None and not isinstance(schema.fields[match].dataType, StringType):
        raise QueryError(
            f"source {name!r}: match is the text of a JSON object, and the column {source.match!r} is "
            f"{_type(schema, match)}"
        )
    if source.columns is None:
        used = {time, end, op, vnew, match}
        payload = tuple(i for i in range(len(schema.fields)) if i not in used)
    else:
        payload = tuple(_place(schema, name, "columns", column) for column in source.columns)
    fields = []
    for i in payload:
        arrow = arrow_type(schema.fields[i].dataType)
        if arrow is None:
            raise QueryError(
                f"source {name!r}: the column {schema.names[i]!r} is {_type(schema, i)}, which a payload cannot carry. "
                f"Remedy: cast it or take its parts, or list in columns those that the query needs"
            )
        fields.append((schema.names[i], arrow))
    types = tuple(field.dataType for field in schema.fields)
    return ResolvedSource(name, source, Schema.of(fields), types, time, end, op, vnew, payload, match)


def _kinds(source: SparkSource) -> tuple[str, ...]:
    """The kinds of elements that a frame may hold."""
    return ON_SPARK if source.match is not None else ON_SPARK[:PUNCT]


def _place(schema: StructType, name: str, role: str, column: str) -> int:
    names = schema.names
    if names.count(column) == 1:
        return names.index(column)
    if column in names:
        raise QueryError(f"source {name!r}: the column {column!r} ({role}) is there twice; rename one of them")
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise QueryError(f"source {name!r}: there is no column {column!r} ({role}){hint} There is {_shown(schema)}")


def _check_time(schema: StructType, name: str, role: str, place: int, time: int) -> None:
    column, type_ = schema.names[place], _type(schema, place)
    if not isinstance(schema.fields[place].dataType, (*_INTEGERS, *_STAMPS, DateType)):
        raise QueryError(
            f"source {name!r}: {role} is a timestamp, a date or a whole number of ticks, and the column {column!r} is "
            f"{type_}. Remedy: cast it, for example with to_timestamp({column})"
        )
    if _is_ticks(schema, place) != _is_ticks(schema, time):
        raise QueryError(
            f"source {name!r}: time and {role} are both ticks or both timestamps or dates, and {schema.names[time]!r} "
            f"is {_type(schema, time)} but {column!r} is {type_}. Remedy: cast one of them"
        )


def _is_ticks(schema: StructType, place: int) -> bool:
    return isinstance(schema.fields[place].dataType, _INTEGERS)


def _type(schema: StructType, place: int) -> str:
    return schema.fields[place].dataType.simpleString()


def _shown(schema: StructType) -> str:
    return "(" + ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields) + ")"


# -- rows to elements ------------------------------------------------------------------------------------------------


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
    """A time as ticks of so many nanoseconds, rounded down; `NEVER` where that is out of range."""
    found = _ticks(column, type_, nanoseconds)
    if isinstance(type_, TimestampType) and nanoseconds >= _ALWAYS_IN_RANGE:
        return found
    legal = found.between(F.lit(MIN_TIME), F.lit(MAX_TIME))
    return F.when(legal, found).when(column.isNotNull(), F.lit(NEVER))


def _ticks(column: Column, type_: DataType, nanoseconds: int) -> Column:
    """The ticks themselves; null where the number is too large for 64 bits."""
    if isinstance(type_, _INTEGERS):
        return column.cast(LongType())
    if isinstance(type_, TimestampType):
        if nanoseconds == 1_000_000:
            return F.unix_millis(column)
        micros = F.unix_micros(column)
    else:
        # Neither a date nor a timestamp without a zone may pass through the session's zone: it can lack their hour.
        days = F.unix_date(column.cast(DateType()))
        micros = F.try_multiply(days, _long(_MICROS_PER_DAY))
        if isinstance(type_, TimestampNTZType):
            minutes = F.hour(column) * F.lit(60) + F.minute(column)
            seconds = (F.extract(F.lit("SECOND"), column) * F.lit(1_000_000)).cast(LongType())
            micros = F.try_add(micros, minutes * _long(60_000_000) + seconds)
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
