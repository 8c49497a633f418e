"""Schemes: what is known of a stream beside its rows, from which promises about attributes follow (Tucker, 6.2).

A scheme is a declaration.  Whoever holds it (a source's guard, or `Punctuate` in a plan) derives promises from the
rows that have come, and refuses a row that breaks one.  Where the knowledge comes from, in the paper's words:

| scheme        | the paper's way                       | says                                                       |
|---------------|---------------------------------------|------------------------------------------------------------|
| `SortedBy`    | access order; semantics (monotone)    | behind the value v nothing below v - slack comes           |
| `ClusteredBy` | access order (a scan by an index)     | when the value changes the one before it is over           |
| `Bounds`      | semantics (limits)                    | from the start on: nothing below `low`, nothing above `high` |
| `Unique`      | semantics (a key)                     | behind a row no other one with its key                     |
| `Complete`    | auxiliary information (a list)        | a group is over when all units of a list are through with it |
| `Selection`   | operator semantics (a filter)         | from the start on: no row that fails the filter's condition |
| `Given`       | the source itself                     | nothing: the source itself speaks of these columns |

`Given` changes nothing about a run.  It tells those who look at a plan before it starts (`plan/sanity`) that
state is bounded.  A sort needs no declaration: it passes on what it has said (`everwhen.operators.sort.sort`).

A promise forbids inserts and adjusts alike.  A null stands outside every order: it may always come, and never closes
anything.  As keys and as groups nulls count like any other value.  NaN is above every number, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import pyarrow as pa

from everwhen.core.kinds import kind
from everwhen.core.punctuation import Punctuation
from everwhen.core.scalars import Unfit, expected, from_python, python_values
from everwhen.core.schema import Schema
from everwhen.core.time import ticks
from everwhen.errors import QueryError
from everwhen.values.order import Kind, order_of

_UNITS: Final = {"s": "1s", "ms": "1ms", "us": "1us", "ns": "1ns"}
_TEMPORAL: Final = ("timestamp", "date", "time", "duration")
_NUMBERS: Final = (int, float, Decimal)


@dataclass(frozen=True, slots=True)
class SortedBy:
    """Behind the value v nothing below v - slack comes; descending: nothing above v + slack."""

    column: str
    descending: bool = False
    slack: Any = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def __str__(self) -> str:
        within = f" WITHIN {self.slack}" if self.slack else ""
        return f"SORTED BY {self.column}{' DESC' if self.descending else ''}{within}"


@dataclass(frozen=True, slots=True)
class ClusteredBy:
    """Rows of one value come one after the other: when the value changes, the one before it is over."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def __str__(self) -> str:
        return f"CLUSTERED BY {self.column}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """All values lie within limits that are known from the start; one of them may be missing."""

    column: str
    low: Any = None
    high: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.column} <= {_shown(self.high)}"
        if self.high is None:
            return f"{self.column} >= {_shown(self.low)}"
        return f"{self.column} BETWEEN {_shown(self.low)} AND {_shown(self.high)}"


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values in these columns: behind a row its key is over, also for adjusts."""

    key: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.key

    def __str__(self) -> str:
        return f"UNIQUE ({', '.join(self.key)})"


@dataclass(frozen=True, slots=True)
class Complete:
    """A group is over when every unit of a list is through with it.

    A unit is through with a group when it has reported a later one (each unit goes on in order), or, with `each`, when
    it has reported so many rows of it.  Groups are values of one column or of several, which are then compared one
    after the other.  A unit that is not on the list counts for nothing, and may speak of groups that are not over.
    """

    group: tuple[str, ...]
    unit: str
    units: tuple[Any, ...]
    each: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.group, self.unit)

    def __str__(self) -> str:
        group = self.group[0] if len(self.group) == 1 else f"({', '.join(self.group)})"
        units = ", ".join(map(_shown, self.units[:4])) + (", …" if len(self.units) > 4 else "")
        return f"COMPLETE {group} FOR {self.unit} IN ({units})" + (f" EACH {self.each}" if self.each else "")


@dataclass(frozen=True, slots=True)
class Given:
    """The source sends punctuation that binds these columns and no others; in the end about every value that comes."""

    given: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.given

    def __str__(self) -> str:
        return f"GIVEN {self.given[0]}" if len(self.given) == 1 else f"GIVEN ({', '.join(self.given)})"


@dataclass(frozen=True, slots=True)
class Selection:
    """What a filter promises by what it is; the plan's `Punctuate` fills the promises in from the filter below it."""

    promises: tuple[Punctuation, ...] | None = field(default=None, hash=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for promise in self.promises or () for name in promise.match))

    def __str__(self) -> str:
        return "SELECTION"


Scheme = SortedBy | ClusteredBy | Bounds | Unique | Complete | Given | Selection


def bound(schemes: Iterable[Scheme], schema: Schema, where: str) -> tuple[Scheme, ...]:
    """The schemes with constants of their columns' types; QueryError for what does not fit the schema."""
    found = tuple(_bound(scheme, schema, where) for scheme in schemes)
    for at, scheme in enumerate(found):
        if scheme in found[:at]:
            raise QueryError(f"{where} says {scheme} twice; once is enough")
    return found


def described(schemes: Sequence[Scheme]) -> str:
    """The schemes as the language writes them."""
    return f"PUNCTUATE ({', '.join(map(str, schemes))})"


def slack_of(scheme: SortedBy, type_: pa.DataType) -> Any:
    """The slack as a float, or as a whole number of the column's steps (a decimal's are those of its last digit)."""
    what = f"the slack of {scheme.column} ({type_})"
    slack = scheme.slack
    if kind(type_) in _TEMPORAL:
        return 0 if slack == 0 and not isinstance(slack, bool) else _length(slack, type_, what)
    if isinstance(slack, bool) or not isinstance(slack, _NUMBERS):
        raise QueryError(f"{what} is a number, not {slack!r}")
    if kind(type_) not in ("integer", "float", "decimal"):
        if slack:
            raise QueryError(f"{what}: only numbers and times have differences; leave it out")
        return 0
    if not isfinite(slack) or slack < 0:
        raise QueryError(f"{what} is at least 0, not {slack!r}")
    if kind(type_) == "integer":
        return _constant(slack, pa.uint64(), what)  # as wide as any two may be apart
    if kind(type_) == "float":
        return float(slack)
    if order_of(type_).kind is not Kind.RANK:
        raise QueryError(f"{what}: decimals of more than 18 digits take none; leave it out")
    return int(_constant(slack, type_, what).scaleb(type_.scale))


# -- checks ------------------------------------------------------------------------------------------------------------


def _bound(scheme: Scheme, schema: Schema, where: str) -> Scheme:
    match scheme:
        case SortedBy(column):
            slack_of(scheme, _ordered(column, schema, where))
            return scheme
        case ClusteredBy(column):
            _plain(column, schema, where)
            return scheme
        case Bounds(column, low, high):
            return _limits(scheme, _ordered(column, schema, where), low, high)
        case Unique(key):
            _some(key, "UNIQUE", where)
            for column in key:
                _plain(column, schema, where)
            return scheme
        case Complete():
            return _complete(scheme, schema, where)
        case Given(columns):
            _some(columns, "GIVEN", where)
            for column in columns:
                _plain(column, schema, where)
            return scheme
        case Selection(None):
            raise QueryError(f"selection() in {where} tells what a filter is, so it stands directly behind .where(…)")
        case Selection():
            schema.select(scheme.columns, where)
            return scheme
    raise QueryError(
        f"{scheme!r} is no scheme of punctuation; there are sorted_by, clustered_by, bounds, unique, complete, given, "
        "selection"
    )


def _limits(scheme: Bounds, type_: pa.DataType, low: Any, high: Any) -> Bounds:
    column = scheme.column
    if low is None and high is None:
        raise QueryError(f"the bounds of {column} are both missing; give at least one")
    least = None if low is None else _constant(low, type_, f"the lower bound of {column}")
    most = None if high is None else _constant(high, type_, f"the upper bound of {column}")
    if any(value is not None and value != value for value in (least, most)):
        raise QueryError(f"a bound of {column} is no number: NaN")
    if least is not None and most is not None and least > most:
        raise QueryError(f"the bounds of {column} are empty: {_shown(least)} is above {_shown(most)}")
    return Bounds(column, least, most)


def _complete(scheme: Complete, schema: Schema, where: str) -> Complete:
    _some(scheme.group, "COMPLETE", where)
    for column in scheme.group:
        if scheme.each is None:
            _ordered(column, schema, where)
        else:
            _plain(column, schema, where)
    if scheme.unit in scheme.group:
        raise QueryError(f"COMPLETE in {where}: {scheme.unit} names the units, it cannot be what they report about")
    type_ = _plain(scheme.unit, schema, where)
    if scheme.each is not None and (isinstance(scheme.each, bool) or not isinstance(scheme.each, int)):
        raise QueryError(f"EACH is a whole number of rows, not {scheme.each!r}")
    if scheme.each is not None and scheme.each < 1:
        raise QueryError(f"EACH is at least 1 row, not {scheme.each}")
    if not scheme.units:
        raise QueryError(f"COMPLETE in {where} needs the list of all values of {scheme.unit}; it is empty")
    units = tuple(_constant(unit, type_, f"a value of {scheme.unit}") for unit in scheme.units)
    seen: set[Any] = set()
    for unit in units:
        if unit in seen:
            raise QueryError(f"{_shown(unit)} is twice among the values of {scheme.unit}")
        seen.add(unit)
    return replace(scheme, units=units)


def _some(columns: tuple[str, ...], what: str, where: str) -> None:
    if not columns:
        raise QueryError(f"{what} in {where} names no column")
    for at, column in enumerate(columns):
        if column in columns[:at]:
            raise QueryError(f"{what} in {where} names {column} twice")


def _plain(column: str, schema: Schema, where: str) -> pa.DataType:
    """The type of a column whose values can be compared with constants."""
    type_ = schema.field(column, where).type
    if kind(type_) in ("other", "null"):
        raise QueryError(f"no punctuation can speak of {column}: it is of type {type_}")
    return type_


def _ordered(column: str, schema: Schema, where: str) -> pa.DataType:
    type_ = _plain(column, schema, where)
    if kind(type_) == "boolean":
        raise QueryError(f"{column} is a boolean, which has no order here; write CLUSTERED BY or UNIQUE")
    return type_


def _constant(value: Any, type_: pa.DataType, what: str) -> Any:
    """The value as Python has it for the type."""
    fits = {
        "integer": isinstance(value, int),
        "float": isinstance(value, _NUMBERS),
        "decimal": isinstance(value, _NUMBERS),
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
    }.get(kind(type_), value is not None)
    if isinstance(value, bool) and kind(type_) != "boolean":
        fits = False
    try:
        if not fits:
            raise TypeError
        if kind(type_) == "float":
            value = float(value)
        elif kind(type_) == "decimal":
            value = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return python_values(from_python([value], type_))[0]
    except (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError, Unfit):
        raise QueryError(f"{what} is of type {type_}, not {_shown(value)}; expected {expected(type_)}") from None


def _length(slack: Any, type_: Any, what: str) -> int:
    """A length of time as a whole number of the type's unit."""
    tick = "1d" if kind(type_) == "date" else _UNITS[type_.unit]
    if isinstance(slack, timedelta):
        slack = f"{slack // timedelta(microseconds=1)} us" if slack >= timedelta() else "-"
    if not isinstance(slack, str):
        raise QueryError(f"{what} is a length of time such as '5 minutes', not {slack!r}")
    try:
        return ticks(slack, tick)
    except QueryError:
        raise QueryError(
            f"{what} is a length of time in whole {tick[1:]}, such as '5 minutes', not {slack!r}"
        ) from None


def _shown(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
