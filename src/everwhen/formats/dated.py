"""Whether the times of an input are written as timestamps, as far as its first elements show.

What the data have decides, not only what is declared of them: a stream that is ordered by a TIMESTAMP may come as
elements whose times are whole numbers, and then its answers have whole numbers, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from everwhen.formats.changelog.reading import header_of
from everwhen.formats.csv import csv_first, csv_names
from everwhen.formats.input_file import STANDARD_INPUT, InputFile, is_changelog, is_csv, is_folder
from everwhen.formats.parquet import is_parquet, open_parquet
from everwhen.formats.time_columns import is_dated

_LINES: Final = 100
"""So many lines are looked at."""


def shows_dates(given: InputFile) -> bool | None:
    """Whether an input has timestamps; None if it is not there yet, has no times, or can be read only once."""
    file = given.file
    if is_folder(file):
        return header_of(file).axis.dated if is_changelog(file) else None
    if given.kind == "constant" or file == STANDARD_INPUT or not os.path.isfile(file):
        return None
    if is_parquet(file):
        return _of_parquet(given)
    if is_csv(file):
        return _of_csv(given)
    with open(file, "rb") as lines:
        return next((found for line in islice(lines, _LINES) if (found := _of_line(line, given)) is not None), None)


def _clocks(given: InputFile) -> tuple[str, ...]:
    return ("vs", *given.times)


def _of_parquet(given: InputFile) -> bool | None:
    with open(given.file, "rb") as stream:
        columns = open_parquet(stream, given.file).schema_arrow
        name = next((name for name in _clocks(given) if name in columns.names), None)
        return None if name is None else is_dated(columns.field(name).type)


def _of_csv(given: InputFile) -> bool | None:
    names = csv_names(given.file)
    name = next((name for name in _clocks(given) if name in names), None)
    first = None if name is None else csv_first(given.file, name)
    return None if first is None else not first.strip().lstrip("-").isdecimal()


def _of_line(line: bytes, given: InputFile) -> bool | None:
    try:
        element = json.loads(line)
    except ValueError:
        return None  # the reader complains
    if not isinstance(element, dict):
        return None
    row = element.get("row") if isinstance(element.get("row"), dict) else element
    times = [element.get("vs"), element.get("t") if element.get("op") == "cti" else None, *_in_row(row, given.times)]
    told = next((t for t in times if t is not None), None)
    return None if told is None else isinstance(told, str) and not told.strip().lstrip("-").isdecimal()


def _in_row(row: Mapping[str, Any] | Any, names: tuple[str, ...]) -> list[Any]:
    return [row.get(name) for name in names]
