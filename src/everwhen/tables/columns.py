"""The columns of a table or a file, before it is read."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from os import PathLike, fspath
from typing import Any, Final

import pyarrow as pa

from everwhen.errors import QueryError, a_type
from everwhen.formats.column_checks import plain_type
from everwhen.formats.csv import csv_names
from everwhen.formats.input_file import is_csv, is_folder, schema_in_file
from everwhen.formats.json.arrow_reader import decode, may_be_deep
from everwhen.formats.parquet import is_parquet, open_parquet
from everwhen.tables.arrow import from_pandas, is_table
from everwhen.tables.optional import is_of

_LOOKED_AT: Final = 1_000
"""So many lines of bare JSON rows tell their columns."""
_OWN: Final = ("op", "vs", "ve", "vnew")


def types_in(given: Any, name: str, only: Collection[str] | None = None) -> dict[str, pa.DataType]:
    """All columns and their types, times and `op` among them; one that is always null is text.  `only`: others may be
    left out, if that is cheaper."""
    if isinstance(given, str | PathLike):
        found = _in_file(fspath(given))
    elif is_table(given):
        found = _in_table(given, name, only)
    else:
        raise QueryError(f"{name}: {a_type(given)} has no columns to take; give a table or a path")
    twice = [column for column in found.names if found.names.count(column) > 1]
    if twice:
        raise QueryError(f"{name}: the column {twice[0]!r} is there twice; rename one of them")
    plain = {field.name: plain_type(field.type) for field in found}
    return {column: pa.string() if pa.types.is_null(type_) else type_ for column, type_ in plain.items()}


def _in_table(given: Any, name: str, only: Collection[str] | None) -> pa.Schema:
    if isinstance(given, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return given.schema
    if is_of(given, "pandas", "DataFrame"):
        return from_pandas(given, lambda column: only is None or column in only, name).schema
    if is_of(given, "polars", "LazyFrame"):
        return pa.table(given.limit(0).collect()).schema
    if is_of(given, "polars", "DataFrame"):
        return pa.table(given.head(0)).schema
    if is_of(given, "duckdb", "DuckDBPyRelation"):
        return pa.table(given.limit(0)).schema
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    raise QueryError(f"{name}: the columns of {a_type(given)} are not known before it is read; declare them")


def _in_file(path: str) -> pa.Schema:
    if is_csv(path):
        own = [(name, pa.int64()) for name in csv_names(path) if name in _OWN]
        return pa.schema([*own, *schema_in_file(path).to_arrow()])
    if is_parquet(path):
        with open(path, "rb") as file:
            return open_parquet(file, path).schema_arrow
    if not is_folder(path):
        with open(path, "rb") as lines:
            head = [line for line in islice(lines, _LOOKED_AT) if line.strip()]
        found = None if any(map(may_be_deep, head)) else decode(b"".join(head), len(head), None)
        if found is not None and not {"row", "op"} & set(found.schema.names):
            return found.schema  # bare rows
    return pa.schema([("vs", pa.int64()), *schema_in_file(path).to_arrow()])
