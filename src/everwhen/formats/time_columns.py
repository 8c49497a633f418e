"""Times as people write them, read as ticks: whole numbers, ISO text, timestamps and dates.

A whole number is ticks already.  A timestamp without a zone is in UTC.  One between two ticks is refused, with the
tick that it needs: nothing is cut or rounded.  Columns are read as a whole; single values are looked at only to say
which of them is wrong.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import gcd
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.scalars import Unfit, describe
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.core.time_axis import TimeAxis
from everwhen.stream.element_batch import IN_RANGE

WANTED: Final = "a whole number of ticks, or a timestamp such as 2024-05-01T12:30:00"
FINER: Final = (10**6, 10**3, 1)
"""The lengths of tick that are tried where a time is too fine."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9
_FRACTION: Final = re.compile(r"[.,](\d+)")
_DIGITS: Final = 20  # more than a time has
_NUMBER: Final = r"^-?[0-9]{1,18}$"
_ZONED: Final = r"(Z|[+-][0-9]{2}:?[0-9]{2})$"


def is_text(type_: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or type_ == pa.string_view())


def is_dated(type_: pa.DataType) -> bool:
    """Whether a column of this type tells times that are no plain numbers."""
    return is_text(type_) or bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def ticks_of_array(column: pa.Array, name: str, tick: int) -> pa.Array:
    """A column of times in ticks of so many nanoseconds, nulls kept; `Unfit` tells which value is wrong."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    type_ = column.type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):  # pandas has numbers with gaps as floats
        return _whole(column, name)
    if pa.types.is_null(type_):
        return column.cast(pa.int64())
    if is_text(type_):
        return _of_texts(column.cast(pa.string()), name, tick)
    if pa.types.is_timestamp(type_):
        return _scaled(column.cast(pa.int64()), _UNITS[type_.unit], name, tick)
    if pa.types.is_date(type_):
        return _scaled(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY, name, tick)
    raise Unfit(f"the column {name!r} of times is of type {type_}", WANTED)


def _whole(column: pa.Array, name: str) -> pa.Array:
    """Numbers as ticks; one with a fraction, or too large, is an error."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        for i, value in enumerate(column):
            try:
                value.cast(pa.int64())
            except pa.ArrowInvalid:
                raise Unfit(f"the time in {name!r} is {value.as_py()!r}", WANTED, i) from None
        raise


def texts_as_ticks(column: pa.Array, tick: int, numbers: bool = True) -> pa.Array | None:
    """Text as ticks, all of it at once; None if some of it needs a closer look.  `numbers`: it may be ticks."""
    if pc.any(found := pc.match_substring_regex(column, _NUMBER)).as_py():
        return column.cast(pa.int64()) if numbers and _all(found) else None
    zoned = pc.match_substring_regex(column, _ZONED)
    if not _all(zoned) and pc.any(zoned).as_py():
        return None
    axis = TimeAxis(tick, dated=True)
    try:
        stamps = column.cast(pa.timestamp(axis.unit, "UTC" if pc.any(zoned).as_py() else None))
    except pa.ArrowInvalid:
        return None
    units = stamps.cast(pa.int64())
    if axis.scale == 1:
        return units
    values = units.fill_null(0).to_numpy()
    if (values % axis.scale != 0).any():
        return None
    return pa.array(values // axis.scale, mask=units.is_null().to_numpy(zero_copy_only=False))


def _all(truths: pa.Array) -> bool:
    return bool(pc.all(truths, min_count=0).as_py())


def _of_texts(column: pa.Array, name: str, tick: int) -> pa.Array:
    found = texts_as_ticks(column, tick)
    if found is not None:
        return found
    careful: list[int | None] = []
    for i, text in enumerate(column.to_pylist()):  # times of several forms, or a wrong one
        try:
            careful.append(None if text is None else ticks_of_text(text, name, tick))
        except Unfit as bad:
            raise Unfit(bad.problem, bad.remedy, i) from None
    return pa.array(careful, pa.int64())


def _scaled(numbers: pa.Array, unit: int, name: str, tick: int) -> pa.Array:
    """Numbers of a unit (in nanoseconds) as ticks; one that is no whole number of them is an error."""
    common = gcd(unit, tick)
    times, by = unit // common, tick // common
    values = numbers.fill_null(0).to_numpy()
    largest = min(INF // times, MAX_TIME * by // times)
    wrong = (values > largest) | (values < -largest)
    if wrong.any():
        raise Unfit(f"the time in {name!r} is out of range", IN_RANGE, int(np.argmax(wrong)))
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    cut = (values * times % by != 0) & ~missing
    if cut.any():
        at = int(np.argmax(cut))
        shown = TimeAxis(unit, dated=True).text(int(values[at]))
        bad = _too_fine(name, shown, int(values[at]) * unit, tick)
        raise Unfit(bad.problem, bad.remedy, at)
    return pa.array(values * times // by, mask=missing)


def ticks_of_text(text: str, name: str, tick: int) -> int:
    """A timestamp, or a whole number, written as text, in ticks of so many nanoseconds; never cut or rounded."""
    plain = text.strip()
    if plain.removeprefix("-").isdecimal():
        number = int(plain) if len(plain) <= _DIGITS else MAX_TIME + 1
        if not MIN_TIME <= number <= MAX_TIME:
            raise Unfit(f"the time in {name!r} is out of range: {describe(text)}", IN_RANGE)
        return number
    nanoseconds = nanoseconds_of_text(plain)
    if nanoseconds is None:
        raise Unfit(f"the time in {name!r} is {describe(text)}", WANTED)
    if nanoseconds % tick:
        raise _too_fine(name, describe(text), nanoseconds, tick)
    found = int(nanoseconds // tick)
    if not MIN_TIME <= found <= MAX_TIME:
        raise Unfit(f"the time in {name!r} is out of range: {describe(text)}", IN_RANGE)
    return found


def nanoseconds_of_text(text: str) -> int | Fraction | None:
    """A date, or a date and a time, in nanoseconds since 1970, in UTC where no zone is given; None if it is neither.

    Digits beyond nanoseconds are not lost: then it is no whole number.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    fraction = _FRACTION.search(text)  # Python reads six digits and passes over the rest
    rest = fraction[1].rstrip("0")[6:] if fraction else ""
    found = (moment - _EPOCH) // _MICROSECOND * 1000 + int(rest[:3].ljust(3, "0"))
    return found if len(rest) <= 3 else found + Fraction(1, 2)


def _too_fine(name: str, shown: str, nanoseconds: int | Fraction, tick: int) -> Unfit:
    """A time between two ticks: which one it belongs to is not ours to guess."""
    finer = next((TimeAxis(length).tick_text for length in FINER if nanoseconds % length == 0), None)
    remedy = f"run with --tick {finer}, in Python tick='{finer}', or round the times" if finer else "round the times"
    length = re.sub(r"(?<=\d)(?=[a-z])", " ", TimeAxis(tick).tick_text)
    return Unfit(f"the time in {name!r} is no whole number of ticks of {length}: {shown}", remedy)


def tick_needed(column: pa.Array, known: int) -> int:
    """The longest tick, of at most `known`, at which all of some text is times; text that is no time is passed over."""
    if not len(column):
        return known
    for length in FINER:
        if length <= known:
            found = texts_as_ticks(column, length)
            if found is not None:
                return length
    told = (nanoseconds_of_text(text.strip()) for text in column.to_pylist() if text is not None)
    finest = [max((length for length in FINER if found % length == 0), default=known) for found in told if found]
    return min([known, *finest])
