"""How the rows of a DataFrame become elements of a stream: which columns are times, how long events live, who promises.

**Guarantee.**  `normalise` gives, for every row, the element `(op, vs, ve, vnew, payload)` that the outside contract
gives it, computed in the JVM and independent of the session's settings (ANSI mode, time zone, case of names): times are
exact ticks; a null end is infinity; the time of a CTI stands in `vs`.  A time that ticks cannot express
becomes `NEVER`, so no row is lost on the way; `problems` says what is wrong with one.

A description is checked when it is built, and against a schema by `resolve`, before anything runs.  Progress, idle
time-outs and late rows are only *described* here; they are carried out where epochs run.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, get_args

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

from everwhen.core.schema import Schema
from everwhen.core.time import MAX_TIME, ticks
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import QueryError
from everwhen.formats.parquet import MATCH
from everwhen.spark.translate.expressions import arrow_type
from everwhen.stream.element_batch import OPS, PUNCT

Late = Literal["error", "adjust", "drop"]
ON_SPARK: Final = OPS[: PUNCT + 1]  # the kinds of elements that a DataFrame's rows can be, the last one with `match`

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_STAMPS: Final = (TimestampType, TimestampNTZType)


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
    others.  Timestamps become ticks of length `tick`; whole numbers are ticks already.  With `match`, a
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

    @property
    def axis(self) -> TimeAxis:
        """How its frame tells times."""
        return TimeAxis(self.source.nanoseconds, not isinstance(self.types[self.time], _INTEGERS))


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


def frame_axis(schema: StructType, source: SparkSource | None) -> TimeAxis:
    """The axis of a frame: dated where its time is a timestamp or a date."""
    name = source.time if source is not None else "vs" if "vs" in schema.names else None
    tick = TICKS.tick if source is None else source.nanoseconds
    if name is None:
        return TimeAxis(tick, any(isinstance(field.dataType, _STAMPS) for field in schema.fields))
    return TimeAxis(tick, name in schema.names and isinstance(schema[name].dataType, (*_STAMPS, DateType)))


def resolve(
    schema: StructType, name: str, source: SparkSource | None = None, wanted: Collection[str] | None = None
) -> ResolvedSource:
    """The description (or the derived one) checked against a frame's schema.  Columns that cannot be carried are left
    out if they are not `wanted`."""
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
        rest = (i for i in range(len(schema.fields)) if i not in used)
        payload = tuple(i for i in rest if _carried(schema, i) or wanted is None or schema.names[i] in wanted)
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


def _carried(schema: StructType, place: int) -> bool:
    return arrow_type(schema.fields[place].dataType) is not None


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
