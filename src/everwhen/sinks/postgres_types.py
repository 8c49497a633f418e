"""Payload columns in PostgreSQL: which type an Arrow type becomes, and how its values are written for COPY.

Guarantee: two values are equal in the database exactly when they are equal as payloads (one NaN, one zero, null equals
null), and the text of equal values is equal, so that a digest of the text identifies a row.  Types that PostgreSQL
would round (nanoseconds) are refused.

| Arrow                               | PostgreSQL                                                             |
|-------------------------------------|------------------------------------------------------------------------|
| bool, text, binary, date            | boolean, text, bytea, date                                             |
| int8, int16, uint8 · int32, uint16  | smallint · integer                                                     |
| int64, uint32 · uint64              | bigint · numeric(20,0)                                                 |
| float16, float32 · float64          | real · double precision                                                |
| decimal(p, s)                       | numeric(p, s)                                                          |
| timestamp, with a zone · time       | timestamp, timestamptz · time: to the microsecond                      |
| duration                            | bigint, in the type's unit                                             |
| lists, structures                   | jsonb, as in JSON lines                                                |
| dictionary · null                   | as its values · text                                                   |
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.kinds import kind
from everwhen.core.scalars import json_texts
from everwhen.core.schema import Field
from everwhen.errors import QueryError, SinkError


def sql_type(field: Field) -> str:
    """The PostgreSQL type of a payload column, as the catalogue spells it; one that has none is a `SinkError`."""
    type_ = field.type
    found = _sql_type(type_)
    if found is None:
        finer = getattr(type_, "unit", "") == "ns"
        remedy = "cast it to microseconds" if finer else "cast it to text, or leave it out"
        raise SinkError(f"the column {field.name!r} of type {type_} has no exact form in PostgreSQL ({remedy})")
    return found


def _sql_type(type_: pa.DataType) -> str | None:
    is_ = pa.types
    if is_.is_dictionary(type_):
        return _sql_type(type_.value_type)
    if is_.is_integer(type_):
        bits = type_.bit_width - is_.is_signed_integer(type_)
        return "smallint" if bits <= 15 else "integer" if bits <= 31 else "bigint" if bits <= 63 else "numeric(20,0)"
    if is_.is_floating(type_):
        return "double precision" if type_.bit_width == 64 else "real"
    if is_.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})" if 0 <= type_.scale <= type_.precision else "numeric"
    if is_.is_boolean(type_):
        return "boolean"
    if is_.is_string(type_) or is_.is_large_string(type_) or is_.is_null(type_):
        return "text"
    if kind(type_) == "binary":
        return "bytea"
    if is_.is_duration(type_):
        return "bigint"
    if getattr(type_, "unit", "") == "ns":
        return None
    if is_.is_timestamp(type_):
        return f"timestamp {'with' if type_.tz else 'without'} time zone"
    if is_.is_date(type_):
        return "date"
    if is_.is_time(type_):
        return "time without time zone"
    try:
        json_texts(pa.array([], type_))
    except (QueryError, pa.ArrowException):
        return None
    return "jsonb"


def text_column(column: pa.Array) -> pa.Array:
    """The values as text that PostgreSQL reads as the column's type; null stays null."""
    type_, is_ = column.type, pa.types
    if is_.is_dictionary(type_):
        return text_column(column.dictionary_decode())
    if is_.is_floating(type_):
        return pc.add(column.cast(pa.float32()) if type_.bit_width == 16 else column, 0.0).cast(pa.string())
    if is_.is_timestamp(type_) and type_.tz is not None:
        return column.cast(pa.timestamp(type_.unit, "UTC")).cast(pa.string())
    if is_.is_duration(type_):
        return column.cast(pa.int64()).cast(pa.string())
    if kind(type_) == "binary":
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if is_.is_nested(type_):
        return pc.if_else(column.is_null(), None, pa.array(json_texts(column), pa.string()))
    return column.cast(pa.string())
