"""Payload values as JSON values, and back, by Arrow type: what a row of a JSON-lines file can hold.

Guarantee: `read_values(json_values(column), column.type)` is the column again, for every type below.

| type                     | in JSON                                                                    |
|--------------------------|----------------------------------------------------------------------------|
| integers, text, booleans | themselves; integers are exact however large                               |
| floats                   | a number; not-a-number and the infinities as "NaN", "Infinity", "-Infinity" |
| timestamps, dates, times | ISO text; timestamps with a zone in UTC with a Z                           |
| durations                | a whole number of the type's unit                                          |
| decimals                 | text such as "12.50" (a short JSON number is read, too)                    |
| binaries                 | base64 text                                                                |
| lists                    | an array of such values                                                    |
| structures               | an object                                                                  |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from math import inf, isfinite
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.errors import EverwhenError, QueryError

NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_ZONED: Final = r":[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_SAFE_DIGITS: Final = 15
"""So many digits of a decimal survive the way through a 64-bit float."""
_FAILURES: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, InvalidOperation)


class Unfit(EverwhenError):
    """A value that its place does not allow; the reader that knows the line turns it into an `InputError`."""

    def __init__(self, problem: str, remedy: str = "", index: int = 0) -> None:
        self.problem = problem
        self.remedy = remedy
        self.index = index
        super().__init__(problem)


def read_values(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """JSON values as a column; `Unfit` names the first value that is not of the type."""
    try:
        return _read(values, type_)
    except _FAILURES:
        for i, value in enumerate(values):
            try:
                _read([value], type_)
            except _FAILURES:
                raise Unfit(
                    f"{describe(value)} is not of type {sql_name(type_)}", f"expected {expected(type_)}", i
                ) from None
        raise


def _read(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    allowed, read = _form(type_)
    kinds = set(map(type, values)) - {NoneType}
    if not kinds <= allowed:  # by type, not by isinstance: true is no whole number here
        raise TypeError(kinds)
    return read(values, type_)


def _form(type_: pa.DataType) -> tuple[set[type], Callable[[Sequence[Any], pa.DataType], pa.Array]]:
    """The Python types that the JSON form of an Arrow type has, and how they are read."""
    is_ = pa.types
    if is_.is_integer(type_):
        return {int}, pa.array
    if is_.is_floating(type_):
        return {float, int, str}, _read_floats
    if is_.is_boolean(type_):
        return {bool}, pa.array
    if is_.is_string(type_) or is_.is_large_string(type_):
        return {str}, pa.array
    if is_.is_duration(type_):
        return {int}, lambda values, type_: pa.array(values, pa.int64()).cast(type_)
    if is_.is_temporal(type_):
        return {str}, _read_temporal
    if is_.is_decimal(type_):
        return {str, int, float}, _read_decimals
    if _is_binary(type_):
        return {str}, _read_binaries
    if is_.is_null(type_):
        return set(), pa.array
    if _is_list(type_):
        return {list}, _read_lists
    if is_.is_struct(type_):
        return {dict}, _read_structs
    raise _no_form(type_)


def _read_floats(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    try:
        column = pa.array(values, type_)  # refuses text, and whole numbers that a float may not hold exactly
    except _FAILURES:
        return pa.array([_float(value) for value in values], type_)
    # The decoder refuses the literals, so a value that is not finite here was a number too large for a float.
    if not all(map(isfinite, filter(None, values))):
        raise OverflowError
    return column


def _float(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value in NOT_FINITE:
            return NOT_FINITE[value]
    elif isfinite(value) and float(value) == value:  # else digits would be lost without a word
        return float(value)
    raise ValueError(value)


def _read_binaries(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else base64.b64decode(value, validate=True) for value in values], type_)


def _read_decimals(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else _decimal(value) for value in values], type_)


def _decimal(value: str | int | float) -> Decimal:
    number = Decimal(repr(value) if isinstance(value, float) else value)
    if not number.is_finite() or (isinstance(value, float) and len(number.as_tuple().digits) > _SAFE_DIGITS):
        raise ValueError(value)
    return number


def _read_temporal(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_time(type_):
        # Arrow reads times of the day only as part of a timestamp.
        full = pa.array([None if value is None else f"1970-01-01T{value}" for value in values], pa.string())
        ticks = full.cast(pa.timestamp(type_.unit)).cast(pa.int64())
        return (ticks.cast(pa.int32()) if type_.bit_width == 32 else ticks).cast(type_)
    return typed_texts(pa.array(values, pa.string()), type_)


def typed_texts(texts: pa.Array, type_: Any) -> pa.Array:
    """Text as another type, timestamps with a zone in UTC; ArrowInvalid if some of it is none.

    >>> typed_texts(pa.array(["2024-05-01T12:30:00+02:00", "2024-05-01 12:30:00"]), pa.timestamp("s")).to_pylist()
    [datetime.datetime(2024, 5, 1, 10, 30), datetime.datetime(2024, 5, 1, 12, 30)]
    """
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(type_) or type_.tz is not None:
            raise
    zoned = pc.match_substring_regex(texts, _ZONED)
    moments = pc.if_else(zoned, texts, None).cast(pa.timestamp(type_.unit, "UTC")).cast(type_)
    return pc.coalesce(moments, pc.if_else(zoned, None, texts).cast(type_))


def _read_lists(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    offsets: list[int | None] = []
    flat: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(flat))
        flat.extend(value or ())
    items = _read(flat, type_.value_type)
    lists = pa.ListArray.from_arrays(pa.array([*offsets, len(flat)], pa.int32()), items)
    return lists.cast(type_)


def _read_structs(values: Sequence[Any], type_: Any) -> pa.Array:
    """Objects; fields that are not declared are left alone, missing ones are null."""
    parts = [_read([None if v is None else v.get(field.name) for v in values], field.type) for field in type_]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(type_), mask=absent)


def json_values(column: pa.Array) -> list[Any]:
    """A column as values that `json` can write; see the table above."""
    type_ = column.type
    is_ = pa.types
    if is_.is_dictionary(type_):
        return json_values(column.dictionary_decode())
    if is_.is_floating(type_):
        return [v if v is None or -inf < v < inf else _not_finite(v) for v in column.to_pylist()]
    if is_.is_duration(type_):
        return column.cast(pa.int64()).to_pylist()
    if is_.is_timestamp(type_):
        if type_.tz is not None:
            column = column.cast(pa.timestamp(type_.unit, "UTC"))
        return [None if text is None else text.replace(" ", "T") for text in column.cast(pa.string()).to_pylist()]
    if is_.is_temporal(type_) or is_.is_decimal(type_):
        return column.cast(pa.string()).to_pylist()
    if _is_binary(type_):
        return [None if v is None else base64.b64encode(v).decode("ascii") for v in column.to_pylist()]
    if _is_list(type_):
        return [None if not item.is_valid else json_values(item.values) for item in column]
    if is_.is_struct(type_):
        parts = [json_values(part) for part in column.flatten()]
        rows = zip(*parts, strict=True) if parts else ((),) * len(column)
        names = [field.name for field in type_]
        known = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, known, strict=True)]
    if is_.is_nested(type_):
        raise _no_form(type_)
    return column.to_pylist()


def json_texts(column: pa.Array) -> list[str]:
    """A column as JSON text, value by value."""
    type_ = column.type
    if pa.types.is_floating(type_) and np.isfinite(column.drop_null().to_numpy(zero_copy_only=False)).all():
        # Arrow finds the shortest text several times as fast as Python, but writes 1.0 as 1.
        texts = column.cast(pa.float64()).cast(pa.string()).to_pylist()
        return ["null" if t is None else t if "." in t or "e" in t else f"{t}.0" for t in texts]
    write: Callable[[Any], str]
    if pa.types.is_integer(type_):
        write = str
    elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
        write = encode_basestring
    else:
        return [_dumps(value) for value in json_values(column)]
    if column.null_count:
        return ["null" if value is None else write(value) for value in column.to_pylist()]
    return list(map(write, column.to_pylist()))


def python_values(column: pa.Array) -> list[Any]:
    """A column as hashable Python values.

    Lists become tuples.  Temporal values that Python's own types cannot hold (nanoseconds always) stay what they are
    in JSON: text, or whole numbers for durations.
    """
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return python_values(column.dictionary_decode())
    if pa.types.is_temporal(type_):
        if getattr(type_, "unit", "") == "ns":
            return json_values(column)
        try:
            return column.to_pylist()
        except (ValueError, OverflowError):
            return json_values(column)
    if pa.types.is_nested(type_):
        return [_hashable(value) for value in column.to_pylist()]
    return column.to_pylist()


def from_python(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """What `python_values` gave, as a column again."""
    if pa.types.is_temporal(type_) and any(isinstance(value, str | int) for value in values):
        return read_values(values, type_)
    if pa.types.is_nested(type_):
        return pa.array([_thawed(value, type_) for value in values], type_)
    return pa.array(values, type_)


def _thawed(value: Any, type_: pa.DataType) -> Any:
    """A nested value as pyarrow takes it, from the tuples of `_hashable`."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {name: _thawed(item, type_.field(name).type) for name, item in value}
    if pa.types.is_map(type_):
        return [(_thawed(key, type_.key_type), _thawed(item, type_.item_type)) for key, item in value]
    return [_thawed(item, type_.value_type) for item in value] if _is_list(type_) else value


def describe(value: Any) -> str:
    """A JSON value for an error message, cut where it is long."""
    names = {bool: "", NoneType: "", str: "the text ", int: "the number ", float: "the number ", list: "the array "}
    text = _dumps(value)
    return names.get(type(value), "the object ") + (text if len(text) <= 60 else text[:57] + "...")


def show_value(value: Any) -> str:
    """A value for people, as they write it.

    >>> show_value(None), show_value(True), show_value(Decimal("1.50")), show_value(date(2024, 5, 1)), show_value("a")
    ('null', 'true', '1.50', "'2024-05-01'", "'a'")
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return str(value)
        case date() | time():
            return f"'{value.isoformat()}'"
        case timedelta():
            return f"'{value}'"
        case list():
            return f"[{', '.join(map(show_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {show_value(each)}' for name, each in value.items())}}}"
    return repr(value)


def expected(type_: pa.DataType) -> str:
    """The JSON form of a type, in words."""
    is_ = pa.types
    if is_.is_integer(type_):
        sign = 0 if is_.is_unsigned_integer(type_) else 1
        lowest, highest = -sign * 2 ** (type_.bit_width - 1), 2 ** (type_.bit_width - sign) - 1
        return f"a whole number from {lowest} to {highest}, without quotes"
    if is_.is_floating(type_):
        return 'a number that 64 bits can hold, or "NaN", "Infinity", "-Infinity"'
    if is_.is_boolean(type_):
        return "true or false"
    if is_.is_timestamp(type_):
        return f'text such as "2024-05-01T12:30:00{"Z" if type_.tz else ""}", no finer than {type_.unit}'
    if is_.is_date(type_):
        return 'text such as "2024-05-01"'
    if is_.is_time(type_):
        return f'text such as "12:30:00", no finer than {type_.unit}'
    if is_.is_duration(type_):
        return f"a whole number of {type_.unit}"
    if is_.is_decimal(type_):
        return f'text such as "12.5" with at most {type_.scale} digits after the point and {type_.precision} in all'
    if _is_binary(type_):
        width = getattr(type_, "byte_width", None) if is_.is_fixed_size_binary(type_) else None
        return "base64 text" + (f" of {width} bytes" if width else "")
    if is_.is_null(type_):
        return "null"
    if is_.is_struct(type_):
        return f"an object with {', '.join(field.name for field in type_)}"
    if is_.is_nested(type_):
        return f"an array of {type_.value_type}"
    return "text in quotes"


_SQL_NAMES: Final = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT32", pa.uint64(): "UINT64",
    pa.float32(): "FLOAT32", pa.float64(): "DOUBLE", pa.binary(): "BINARY",
}  # fmt: skip


def sql_name(type_: pa.DataType) -> str:
    """A type as a declaration in SQL names it; what SQL has no name for has Arrow's.

    >>> sql_name(pa.int64()), sql_name(pa.timestamp("us")), sql_name(pa.decimal128(10, 2))
    ('INT', 'TIMESTAMP', 'DECIMAL(10, 2)')
    """
    is_ = pa.types
    if is_.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    families = (
        (is_.is_timestamp, "TIMESTAMP"), (is_.is_date, "DATE"), (is_.is_time, "TIME"), (is_.is_duration, "INTERVAL"),
        (is_.is_string, "TEXT"), (is_.is_large_string, "TEXT"), (is_.is_integer, "INT"),
    )  # fmt: skip
    return _SQL_NAMES.get(type_) or next((name for fits, name in families if fits(type_)), str(type_))


def has_form(type_: pa.DataType) -> bool:
    """Whether values of the type can be written as JSON."""
    if pa.types.is_dictionary(type_) or _is_list(type_):
        return has_form(type_.value_type)
    if pa.types.is_struct(type_):
        return all(has_form(field.type) for field in type_)
    return not pa.types.is_nested(type_)


def _no_form(type_: pa.DataType) -> QueryError:
    return QueryError(f"values of type {type_} have no form in JSON lines; drop the column, or split it into scalars")


def _is_binary(type_: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_fixed_size_binary(type_)


def _is_list(type_: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_)


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):  # a map is a list of pairs
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
