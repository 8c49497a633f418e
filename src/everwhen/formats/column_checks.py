"""Values that a column of a table may hold but that mean nothing here: bytes that are no text, times without a date.

Other programs write them, and Arrow carries them along unseen until somebody looks at the value.
"""

from __future__ import annotations

from datetime import date
from math import isfinite
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import sql_name

_FIRST_DAY, _LAST_DAY = (each.toordinal() - date(1970, 1, 1).toordinal() for each in (date.min, date.max))
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type as which a column of a table is read."""
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or type_ == pa.string_view():
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(type_) or type_ == pa.binary_view() else type_


def first_odd_value(column: pa.Array) -> tuple[int, str, str] | None:
    """Where the first such value stands, what it is, and what to do; None if there is none."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _not_text(column)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return _no_date(column)
    return None


def misfit(value: object, name: str, type_: pa.DataType, declared: bool = True) -> tuple[str, str]:
    """What is wrong with a value that is not of its column's type, and what to do."""
    problem = f"{value!r} in column {name!r} is not of type {sql_name(type_)}"
    if not declared:
        return problem, "mend the row"
    mend = "write it as 2024-05-01 12:30:00" if pa.types.is_timestamp(type_) else "mend the row"
    return problem, f"declare the column as {fitting_name(str(value))}, or {mend}"


def fitting_name(text: str) -> str:
    """A type as SQL names it that a text is of, where it is not of the one that is declared.

    >>> fitting_name("11.5"), fitting_name("99999999999999999999"), fitting_name("n/a")
    ('DOUBLE', 'DECIMAL(20, 0)', 'TEXT')
    """
    digits = text.strip().lstrip("+-")
    if digits.isdecimal() and len(digits) <= 38:
        return f"DECIMAL({len(digits)}, 0)"
    try:
        return "DOUBLE" if isfinite(float(text)) else "TEXT"
    except ValueError:
        return "TEXT"


def _not_text(column: pa.Array) -> tuple[int, str, str] | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for index in range(len(column)):
            try:
                column.slice(index, 1).validate(full=True)
            except pa.ArrowInvalid:
                return index, "bytes that are not UTF-8", "write text as UTF-8, or as a column of bytes"
        raise
    return None


def _no_date(column: pa.Array) -> tuple[int, str, str] | None:
    """Times beyond the years that text and Python can tell; those in nanoseconds all lie within."""
    type_ = column.type
    if getattr(type_, "unit", "") == "ns":
        return None
    if type_ == pa.date32():
        numbers, per_day = column.cast(pa.int32()).cast(pa.int64()), 1
    else:
        numbers, per_day = column.cast(pa.int64()), _PER_DAY[getattr(type_, "unit", "ms")]
    values = numbers.fill_null(0).to_numpy()
    wrong = (values < _FIRST_DAY * per_day) | (values >= (_LAST_DAY + 1) * per_day)
    if not wrong.any():
        return None
    return int(np.argmax(wrong)), "a time beyond the years 1 to 9999", "correct it, or make it null"
