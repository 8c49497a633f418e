"""SQL's names for column types, as Arrow types.

INT and REAL are 64 bits wide here, so that numbers read from JSON lose nothing; the narrow types have names of their
own (TINYINT, SMALLINT, INT32, FLOAT32); a number in PostgreSQL's names counts bytes (INT2, INT4, INT8, FLOAT4, FLOAT8).
A name whose digits would be guessed is refused: DECIMAL alone has other digits in every system.  A length given with a
text type (VARCHAR(20)) is a remark in a declaration, and cuts the text in a cast.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

import pyarrow as pa

from everwhen.core.kinds import MAX_DIGITS
from everwhen.errors import QueryError

TYPES: Final = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int2": pa.int16(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int4": pa.int32(),
    "int": pa.int64(),
    "integer": pa.int64(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int64": pa.int64(),
    "int8": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float4": pa.float32(),
    "real": pa.float64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "double precision": pa.float64(),
    "float64": pa.float64(),
    "float8": pa.float64(),
    "char": pa.string(),
    "bpchar": pa.string(),
    "varchar": pa.string(),
    "nvarchar": pa.string(),
    "character": pa.string(),
    "character varying": pa.string(),
    "char varying": pa.string(),
    "text": pa.string(),
    "string": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "binary": pa.binary(),
    "varbinary": pa.binary(),
    "blob": pa.binary(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "datetime": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us"),
    "timestamp_ltz": pa.timestamp("us"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp with local time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "time": pa.time64("us"),
    "time without time zone": pa.time64("us"),
    "interval": pa.duration("us"),
}
_REFUSED: Final = {
    "decimal": "a DECIMAL needs its digits, else it would be rounded without a word; write for example DECIMAL(18, 3)",
    "numeric": "a NUMERIC needs its digits, else it would be rounded without a word; write for example NUMERIC(18, 3)",
}
_WITH_DIGITS: Final = re.compile(
    r"(\w+(?: varying)?)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)(?: with(?:out| local)? time zone)?"
)
_TEXTS: Final = ("varchar", "nvarchar", "char", "character", "character varying", "char varying")


def length_named(text: str) -> int | None:
    """The length that a text type is given: 20 for VARCHAR(20).

    >>> length_named("VARCHAR(20)"), length_named("text")
    (20, None)
    """
    match = _WITH_DIGITS.fullmatch(" ".join(text.lower().split()))
    return int(match[2]) if match and match[1] in _TEXTS and match[3] is None else None


def _fields(text: str) -> list[str]:
    """The fields of a structure: what commas part that stand in no parentheses."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found]


def type_named(text: str) -> pa.DataType:
    """The type that SQL calls so.

    >>> type_named("DECIMAL(10, 2)"), type_named("int")
    (Decimal128Type(decimal128(10, 2)), DataType(int64))
    """
    if text.endswith("[]"):
        return pa.list_(type_named(text[:-2]))
    if text.startswith("struct<"):
        pairs = [each.split(" ", 1) for each in _fields(text[7:-1])]
        return pa.struct([pa.field(name, type_named(type_)) for name, type_ in pairs])
    name = " ".join(text.lower().split())
    if name in TYPES:
        return TYPES[name]
    if name in _REFUSED:
        raise QueryError(_REFUSED[name])
    if match := _WITH_DIGITS.fullmatch(name):
        base, first, second = match[1], int(match[2]), match[3]
        if base in ("decimal", "numeric"):
            scale = int(second or 0)
            if not 1 <= first <= MAX_DIGITS or scale > first:
                raise QueryError(f"a decimal has 1 to {MAX_DIGITS} digits, its scale is not larger: {text}")
            return pa.decimal128(first, scale)
        if base in _TEXTS and second is None:
            return pa.string()
        if base in ("timestamp", "datetime", "timestamptz", "timestamp_ltz", "timestamp_ntz") and first in (0, 3, 6, 9):
            return pa.timestamp({0: "s", 3: "ms", 6: "us", 9: "ns"}[first])
    near = difflib.get_close_matches(name, TYPES, n=1)
    common = "BOOLEAN, INT, REAL, DECIMAL(digits, scale), TEXT, DATE, TIMESTAMP, INTERVAL"
    hint = f"did you mean {near[0].upper()}?" if near else f"there are {common} and narrower ones"
    raise QueryError(f"unknown type {text.upper()}; {hint}")
