"""Files of plain rows: tables that say nothing of lifetimes, so that somebody must say which column is the time.

A CSV or Parquet file is plain if it has no column `vs`, one of JSON lines if its first lines are objects without `vs`,
`row`, `op` or `t`.  The types of its columns are found in the data, as far as a declaration can name them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.errors import InputError
from everwhen.formats.csv import csv_names, csv_schema
from everwhen.formats.json.inference import Inference
from everwhen.formats.parquet import is_parquet, open_parquet

Columns = tuple[tuple[str, pa.DataType], ...]
_LOOKED_AT: Final = 1_000
"""So many lines of JSON are looked at."""
_ELEMENT: Final = ("vs", "row", "op", "t")
_NAMES: Final = (
    "ts",
    "time",
    "timestamp",
    "datetime",
    "date",
    "at",
    "event_time",
    "eventtime",
    "rowtime",
    "created_at",
)


def plain_columns(file: str) -> Columns | None:
    """The columns of a file of plain rows with their types; None: it holds elements, or nothing to go by."""
    if file.lower().endswith((".csv", ".tsv")):
        if "vs" in csv_names(file):
            return None
        columns = tuple((f.name, f.type) for f in csv_schema(file))
        # bytes that are no text are an error, which the reader tells with its line
        return None if not columns or any(pa.types.is_binary(type_) for _, type_ in columns) else columns
    if is_parquet(file):
        with open(file, "rb") as stream:
            schema = open_parquet(stream, file).schema_arrow
        return None if "vs" in schema.names else tuple((f.name, f.type) for f in schema)
    return _in_lines(file)


def _in_lines(file: str) -> Columns | None:
    objects: list[dict[str, Any]] = []
    with open(file, "rb") as stream:
        for line in islice(stream, _LOOKED_AT):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError:
                return None  # the reader says what is wrong, and where
            if not isinstance(found, dict) or any(name in found for name in _ELEMENT):
                return None
            objects.append(found)
    if not objects:
        return None
    inference = Inference(file)
    try:
        inference.take([{"row": each} for each in objects], np.arange(1, len(objects) + 1))
    except InputError:
        return None
    return tuple((f.name, _or_time(f.type, [each.get(f.name) for each in objects])) for f in inference.schema())


def _or_time(type_: pa.DataType, values: Sequence[Any]) -> pa.DataType:
    """Text that is a timestamp throughout is one."""
    texts = [value for value in values if value is not None]
    return pa.timestamp("us") if texts and all(_is_time(value) for value in texts) else type_


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or len(value) < len("2015-02-26"):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def time_column(columns: Columns) -> str | None:
    """The column that is most likely the time of a row; None: none looks like it."""
    stamps = [name for name, type_ in columns if pa.types.is_timestamp(type_)]
    days = [name for name, type_ in columns if pa.types.is_date(type_)]
    whole = [name for name, type_ in columns if pa.types.is_integer(type_) and name.lower() in _NAMES]
    named = [name for name in (*stamps, *days) if name.lower() in _NAMES]
    return next(iter((*named, *stamps, *days, *whole)), None)
