"""Rows that are no elements by themselves, made elements by what is declared of their input.

A constant row lives from 0 for ever; a row of a temporal relation from one of its columns to another; a row of a stream
that is ordered by a column for one tick from there.  An element that brings its own times keeps them.  A column that
only tells a time is dropped, unless the payload has it.

An object is an element if it has an object named `row`, or an `op` and the payload has no column of that name; any
other is a bare row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import gcd
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import Unfit, describe
from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import MAX_TIME, MIN_TIME
from everwhen.errors import InputError
from everwhen.formats.parquet import AT, COUNT, MATCH, elements_of_table
from everwhen.stream.element_batch import CTI, IN_RANGE, OPS, ElementBatch

_SPECIAL: Final = (*RESERVED, MATCH, COUNT, AT)
_OWN_TIMES: Final = ("vs", "ve", "vnew")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9
_LENGTHS: Final = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
_FINER: Final = (("1ms", 10**6), ("1us", 10**3), ("1ns", 1))
_FRACTION: Final = re.compile(r"[.,](\d+)")
_DIGITS: Final = 20  # more than a time has
_WANTED: Final = "a whole number of ticks, or a timestamp such as 2024-05-01T12:30:00"
_CONSTANT: Final = "a constant relation holds plain rows; declare it TEMPORAL or VARYING if they come and go"


@dataclass(frozen=True, slots=True)
class RowsAsElements:
    """How rows become elements: `start` and `end` are columns of times; without both, rows are constant if `constant`.

    `tick` is the length of a tick in nanoseconds.
    """

    schema: Schema
    start: str | None
    end: str | None
    constant: bool
    numbered: bool
    tick: int

    # -- objects of JSON lines ----------------------------------------------------------------------------------

    def of_object(self, found: dict[str, Any]) -> dict[str, Any]:
        """The element that an object stands for; what is wrong with it beyond that is found when it is read."""
        element: dict[str, Any] = dict(found) if self._is_element(found) else {"row": found}
        if not self.numbered and "row" in element:
            element.pop("at", None)
        op = element.get("op", OPS[0])
        if self.constant:
            times = [name for name in ("vs", "ve", "vnew", "t") if name in element]
            if times or op != OPS[0]:
                raise Unfit(f"a row with {times[0]!r}" if times else f"an element {describe(op)}", _CONSTANT)
            return {**element, "vs": 0, "ve": None}
        row = element.get("row")
        if op not in OPS[:CTI] or not isinstance(row, dict):
            return element
        if "vs" not in element:
            if self.start is None:
                return element
            element["vs"] = self._time(row, self.start)
            if self.end is not None and "ve" not in element:
                element["ve"] = None if row.get(self.end) is None else self._time(row, self.end)
        dropped = {name for name in (self.start, self.end) if name is not None and name not in self.schema}
        if dropped & row.keys():
            element["row"] = {name: value for name, value in row.items() if name not in dropped}
        return element

    def _is_element(self, found: dict[str, Any]) -> bool:
        if isinstance(found.get("row"), dict):
            return True
        return "op" not in self.schema and isinstance(found.get("op"), str) and found["op"] in OPS

    def _time(self, row: dict[str, Any], name: str) -> int:
        value = row.get(name)
        if value is None:
            what = f"its column {name!r} is null" if name in row else f"no column {name!r}"
            raise Unfit(f'the row has no time: neither "vs" nor a value in {name!r}, {what}', _WANTED)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Unfit(f"the time in {name!r} is {describe(value)}", _WANTED)
        if isinstance(value, int):
            return value
        return ticks_of_text(value, name, self.tick)

    # -- tables -------------------------------------------------------------------------------------------------

    def of_table(self, piece: pa.RecordBatch, source: str, first: int) -> Iterator[ElementBatch]:
        """The elements of a table whose first row has the number `first`."""
        names = piece.schema.names
        columns: dict[str, pa.Array] = {name: piece.column(name) for name in names}
        for own in _OWN_TIMES:
            if own in columns and _told(columns[own].type):
                columns[own] = self._times(columns[own], own, source, first, nulls=True)
        if self.constant:
            timed = [name for name in RESERVED if name in columns]
            if timed:
                remedy = "give the rows as JSON lines" if timed[0] in self.schema else _CONSTANT
                raise InputError(f"there is a column {timed[0]!r}", source=source, remedy=remedy)
            columns["vs"] = pa.array(np.zeros(len(piece), np.int64))
            columns["ve"] = pa.nulls(len(piece), pa.int64())
        elif "vs" not in columns and self.start in columns:
            assert self.start is not None
            columns["vs"] = self._times(columns[self.start], self.start, source, first, nulls=False)
            if self.end is not None and "ve" not in columns:
                if self.end not in columns:
                    raise InputError(f"there is no column {self.end!r}", source=source, remedy=_there(names))
                columns["ve"] = self._times(columns[self.end], self.end, source, first, nulls=True)
        elif "vs" not in columns and self.start is not None:
            raise InputError(f"there is neither a column 'vs' nor {self.start!r}", source=source, remedy=_there(names))
        if not self.numbered:
            columns.pop(AT, None)
        for name in (self.start, self.end):
            if name is not None and name not in self.schema and name not in _SPECIAL:
                columns.pop(name, None)
        missing = next((name for name in self.schema.names if name not in columns), None)
        if missing is not None:
            remedy = f"{_there(names)}; rename the column, or leave it out of the declaration"
            raise InputError(f"the declared column {missing!r} is not in the file", source=source, remedy=remedy)
        columns = {name: column for name, column in columns.items() if name in _SPECIAL or name in self.schema}
        yield from elements_of_table(pa.RecordBatch.from_pydict(columns), self.schema, source, first)

    def _times(self, column: pa.Array, name: str, source: str, first: int, nulls: bool) -> pa.Array:
        """A column of times as ticks."""
        type_ = column.type
        if not nulls and column.null_count:
            at = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InputError(f"the time in column {name!r} is null", source=source, line=first + at, remedy=_WANTED)
        if pa.types.is_integer(type_) or pa.types.is_floating(type_):  # pandas has numbers with gaps as floats
            return self._whole(column, name, source, first)
        if pa.types.is_null(type_):
            return column.cast(pa.int64())
        if _is_text(type_):
            if (stamps := _stamps(column)) is not None:
                with suppress(InputError):  # the text itself makes the better message
                    return self._times(stamps, name, source, first, nulls)
            found = []
            for i, text in enumerate(column.to_pylist()):
                try:
                    found.append(None if text is None else ticks_of_text(str(text), name, self.tick))
                except Unfit as bad:
                    raise InputError(bad.problem, source=source, line=first + i, remedy=bad.remedy) from None
            return pa.array(found, pa.int64())
        if pa.types.is_timestamp(type_):
            return self._scaled(column.cast(pa.int64()), _UNITS[type_.unit], name, source, first)
        if pa.types.is_date(type_):
            return self._scaled(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY, name, source, first)
        raise InputError(f"the column {name!r} of times is of type {type_}", source=source, remedy=_WANTED)

    def _whole(self, column: pa.Array, name: str, source: str, first: int) -> pa.Array:
        """Numbers as ticks; one with a fraction, or too large, is an error."""
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            for i, value in enumerate(column):
                try:
                    value.cast(pa.int64())
                except pa.ArrowInvalid:
                    problem = f"the time in {name!r} is {value.as_py()!r}"
                    raise InputError(problem, source=source, line=first + i, remedy=_WANTED) from None
            raise

    def _scaled(self, numbers: pa.Array, unit: int, name: str, source: str, first: int) -> pa.Array:
        """Numbers of a unit (in nanoseconds) as ticks; one that is no whole number of them is an error."""
        common = gcd(unit, self.tick)
        times, by = unit // common, self.tick // common
        values = numbers.fill_null(0).to_numpy()
        wrong = np.abs(values) > MAX_TIME // times
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(f"the time in {name!r} is out of range", source=source, line=first + at, remedy=IN_RANGE)
        missing = numbers.is_null().to_numpy(zero_copy_only=False)
        cut = (values * times % by != 0) & ~missing
        if cut.any():
            at = int(np.argmax(cut))
            bad = _too_fine(name, f"{int(values[at])} times {_length(unit)}", int(values[at]) * unit, self.tick)
            raise InputError(bad.problem, source=source, line=first + at, remedy=bad.remedy)
        return pa.array(values * times // by, mask=missing)


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_dictionary(type_) or type_ in (pa.string(), pa.large_string(), pa.string_view())


def _told(type_: pa.DataType) -> bool:
    """Whether a column of lifetimes has timestamps, or whole numbers as pandas has them beside gaps."""
    return pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_floating(type_)


def _stamps(column: pa.Array) -> pa.Array | None:
    """Text as timestamps, if all of it is in the common form, with a zone or without; as `ticks_of_text` reads it."""
    plain = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    for zone in (None, "UTC"):
        with suppress(pa.ArrowException):
            return plain.cast(pa.string()).cast(pa.timestamp("us", zone))
    return None


def ticks_of_text(text: str, name: str, tick: int) -> int:
    """A timestamp, or a whole number, written as text, in ticks of so many nanoseconds; never cut or rounded."""
    plain = text.strip()
    if plain.removeprefix("-").isdecimal():
        number = int(plain) if len(plain) <= _DIGITS else MAX_TIME + 1
        if not MIN_TIME <= number <= MAX_TIME:
            raise Unfit(f"the time in {name!r} is out of range: {describe(text)}", IN_RANGE)
        return number
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise Unfit(f"the time in {name!r} is {describe(text)}", _WANTED) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    fraction = _FRACTION.search(plain)  # Python reads six digits and passes over the rest
    rest = fraction[1].rstrip("0")[6:] if fraction else ""
    nanoseconds = (moment - _EPOCH) // _MICROSECOND * 1000 + int(rest[:3].ljust(3, "0"))
    if nanoseconds % tick or len(rest) > 3:
        raise _too_fine(name, describe(text), nanoseconds if len(rest) <= 3 else None, tick)
    found = nanoseconds // tick
    if not MIN_TIME <= found <= MAX_TIME:
        raise Unfit(f"the time in {name!r} is out of range: {describe(text)}", IN_RANGE)
    return found


def _too_fine(name: str, shown: str, nanoseconds: int | None, tick: int) -> Unfit:
    """A time between two ticks: which one it belongs to is not ours to guess."""
    fitting = (unit for unit, length in _FINER if nanoseconds is not None and nanoseconds % length == 0)
    finer = next(fitting, None)
    remedy = f"run with --tick {finer}, in Python tick='{finer}', or round the times" if finer else "round the times"
    return Unfit(f"the time in {name!r} is no whole number of ticks of {_length(tick)}: {shown}", remedy)


def _length(nanoseconds: int) -> str:
    unit, length = next((unit, length) for unit, length in _LENGTHS if nanoseconds % length == 0)
    return f"{nanoseconds // length} {unit}"


def _there(names: list[str]) -> str:
    return f"there is {', '.join(names) or 'none'}"
