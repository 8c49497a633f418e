"""The declaration to write for a file of plain rows, as text.

>>> import pyarrow as pa
>>> columns = (("timestamp", pa.timestamp("s")), ("symbol", pa.string()), ("value", pa.int64()))
>>> declaration_text("Tweets", columns)
'CREATE STREAM Tweets (timestamp TIMESTAMP, symbol TEXT, value INT) ORDERED BY timestamp WITHIN 30 MINUTES;'
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from everwhen.errors import InputError
from everwhen.formats.input_file import is_folder
from everwhen.formats.plain_rows import Columns, plain_columns, time_column
from everwhen.language.binding.types import TYPES
from everwhen.language.grammar.cursor import RESERVED

_NAMED: Final = re.compile(r"[A-Za-z_]\w*")
_ALSO: Final = frozenset({"KEY", "UNIQUE", "PRIMARY", "PERIOD"})


def declaration_text(name: str, columns: Columns) -> str:
    """CREATE STREAM with these columns, in the order of the one that is the time; a relation if none looks like it."""
    time = time_column(columns)
    listed = ", ".join(f"{_quoted(column)} {text}" for column, type_ in columns if (text := _sql_type(type_)))
    if time is None:
        return f"CREATE RELATION {_quoted(name)} ({listed});"
    return f"CREATE STREAM {_quoted(name)} ({listed}) ORDERED BY {_quoted(time)} WITHIN 30 MINUTES;"


def require_elements(name: str, file: str, shown: str = "") -> None:
    """An error for a file of plain rows that is read without a declaration: it says what to write."""
    columns = None if is_folder(file) else plain_columns(file)
    if columns is None:
        return
    time = time_column(columns)
    there = ", ".join(column for column, _ in columns)
    text = declaration_text(name, columns)
    if time is None:
        words = (
            f"If its rows have no time and hold for ever, write before the query\n\n    {text}\n\n"
            f"if a column is the time, CREATE STREAM … ORDERED BY column, or --ordered-by {name}=COLUMN"
        )
    else:
        words = (
            f"Write before the query\n\n    {text}\n\nor run it with --ordered-by {name}={time} --within {name}=30m. "
            "WITHIN says how far rows may be out of order; without it nothing is final before the input ends"
        )
    raise InputError(
        f"{name} is not declared, and these are plain rows: there is no column 'vs', the start of a lifetime, but "
        f"{there}. {words}",
        source=shown or file,
    )


def _quoted(name: str) -> str:
    """A name as SQL writes it."""
    plain = _NAMED.fullmatch(name) and name.upper() not in RESERVED and name.upper() not in _ALSO
    return name if plain else '"' + name.replace('"', '""') + '"'


def _sql_type(type_: pa.DataType) -> str:
    """What SQL calls a type; "" if a declaration has no name for it."""
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP"
    if pa.types.is_date(type_):
        return "DATE"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if pa.types.is_integer(type_) and type_ not in TYPES.values():
        return "INT"
    if pa.types.is_large_string(type_) or pa.types.is_dictionary(type_):
        return "TEXT"
    first = {pa.int64(): "INT", pa.string(): "TEXT", pa.float64(): "REAL"}
    return first.get(type_) or next((name.upper() for name, known in TYPES.items() if known == type_), "")
