"""Which types fit together: kinds of Arrow types, their common type, the names users may write for them.

The rules, once for operators, functions, CASE and set membership: two integers meet in int64, anything with a float
in float64, decimals stay exact with decimals and integers, times meet in the finer unit, null meets everything.
A uint64 meets no signed integer, since no integer type holds both: the user casts.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import pyarrow as pa

from everwhen.errors import QueryError

Kind = Literal[
    "null",
    "boolean",
    "integer",
    "float",
    "decimal",
    "string",
    "binary",
    "timestamp",
    "date",
    "duration",
    "time",
    "other",
]

UNITS: Final = ("s", "ms", "us", "ns")
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
MAX_DIGITS: Final = 38

_ALIASES: Final = {
    "int": pa.int64(),
    "integer": pa.int64(),
    "bigint": pa.int64(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "float": pa.float64(),
    "double": pa.float64(),
    "real": pa.float32(),
    "text": pa.string(),
    "str": pa.string(),
    "varchar": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "duration": pa.duration("us"),
    "interval": pa.duration("us"),
    "bytes": pa.binary(),
}
_PYTHON: Final[dict[type, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}
_DECIMAL: Final = re.compile(r"(?:decimal|numeric|decimal128)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def type_of(description: str | type | pa.DataType) -> pa.DataType:
    """A type from an Arrow type, a Python class or a name.

    >>> type_of("decimal(10, 2)"), type_of("bigint"), type_of(str), type_of("timestamp[ms]")
    (Decimal128Type(decimal128(10, 2)), DataType(int64), DataType(string), TimestampType(timestamp[ms]))
    """
    if isinstance(description, pa.DataType):
        return description
    if isinstance(description, type):
        if description in _PYTHON:
            return _PYTHON[description]
        raise QueryError(f"no column type for the Python class {description.__name__}; give an Arrow type or its name")
    if not isinstance(description, str):
        raise QueryError(f"a type is an Arrow type or a name such as 'int64' or 'decimal(10, 2)', not {description!r}")
    name = description.strip().lower()
    if name in _ALIASES:
        return _ALIASES[name]
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2] or 0)
        if not 1 <= precision <= MAX_DIGITS or scale > precision:
            raise QueryError(f"a decimal has 1 to {MAX_DIGITS} digits, its scale is not larger: {description!r}")
        return pa.decimal128(precision, scale)
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise QueryError(
            f"unknown type {description!r}; there are int64, float64, decimal(p, s), string, bool, date, timestamp[ms]…"
        ) from None


def kind(type_: pa.DataType) -> Kind:
    """The family of a type; everything in one family behaves alike up to its width or unit."""
    is_ = pa.types
    if is_.is_integer(type_):
        return "integer"
    if is_.is_floating(type_):
        return "float"
    if is_.is_decimal(type_):
        return "decimal"
    if is_.is_string(type_) or is_.is_large_string(type_):
        return "string"
    if is_.is_boolean(type_):
        return "boolean"
    if is_.is_timestamp(type_):
        return "timestamp"
    if is_.is_date(type_):
        return "date"
    if is_.is_duration(type_):
        return "duration"
    if is_.is_time(type_):
        return "time"
    if is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_fixed_size_binary(type_):
        return "binary"
    return "null" if is_.is_null(type_) else "other"


def is_number(type_: pa.DataType) -> bool:
    return kind(type_) in ("integer", "float", "decimal")


def is_orderable(type_: pa.DataType) -> bool:
    """Whether values of the type can be compared: all but lists, structs and the like."""
    return kind(type_) != "other"


def as_decimal(type_: pa.DataType) -> tuple[int, int]:
    """(digits before the point, digits after it) of a decimal or integer type."""
    if kind(type_) == "decimal":
        return type_.precision - type_.scale, type_.scale
    digits = _DIGITS[type_.bit_width]
    return (20 if type_ == pa.uint64() else digits), 0


def decimal(digits: int, scale: int, *, wide: bool = False) -> pa.DataType:
    """A decimal type with room for `digits` before and `scale` after the point, or for as many as there may be."""
    if wide and digits + scale > MAX_DIGITS:
        return pa.decimal256(min(digits + scale, 76), scale)
    return pa.decimal128(max(1, min(digits + scale, MAX_DIGITS)), scale)


def common(left: pa.DataType, right: pa.DataType, where: str, *, wide: bool = False) -> pa.DataType:
    """The type in which values of both can be compared or stand in one column; QueryError if there is none.

    `wide` permits a 76-digit decimal, for results that are not stored.
    """
    if left == right:
        return left
    kinds = (a, b) = (kind(left), kind(right))
    if a == "null" or b == "null":
        return right if a == "null" else left
    if kinds == ("integer", "integer"):
        return _common_integer(left, right, where)
    if is_number(left) and is_number(right):
        if "float" in kinds:
            return pa.float64()
        (d1, s1), (d2, s2) = as_decimal(left), as_decimal(right)
        return decimal(max(d1, d2), max(s1, s2), wide=wide)
    if a != b:
        raise mismatch(left, right, where)
    match a:
        case "string":
            return pa.large_string()
        case "binary":
            return pa.large_binary()
        case "date":
            return pa.date32()
        case "duration":
            return pa.duration(finer(left, right))
        case "timestamp" if (left.tz is None) == (right.tz is None):
            return pa.timestamp(finer(left, right), left.tz)
        case _:
            raise mismatch(left, right, where)


def finer(left: Any, right: Any) -> str:
    """The finer unit of two times or durations."""
    return UNITS[max(UNITS.index(left.unit), UNITS.index(right.unit))]


_CAST_TO: Final = {
    "timestamp": "timestamp",
    "date": "date",
    "integer": "int",
    "float": "double",
    "decimal": "decimal(18, 3)",
    "boolean": "boolean",
}


def mismatch(left: pa.DataType, right: pa.DataType, where: str) -> QueryError:
    hint = "cast one of them"
    other = {kind(left), kind(right)} - {"string"}
    if len(other) == 1:
        to = _CAST_TO.get(other.pop(), "") if "string" in (kind(left), kind(right)) else ""
        hint = f"cast the text, for example CAST(x AS {to.upper()}), in Python .cast('{to}')" if to else hint
    return QueryError(f"{left} and {right} do not fit together in {where}; {hint}")


def _common_integer(left: pa.DataType, right: pa.DataType, where: str) -> pa.DataType:
    if pa.uint64() not in (left, right):
        return pa.int64()
    if pa.types.is_unsigned_integer(left) and pa.types.is_unsigned_integer(right):
        return pa.uint64()
    raise QueryError(
        f"{left} and {right} have no common integer type in {where}; cast the uint64 to int64 or to decimal(20, 0)"
    )
