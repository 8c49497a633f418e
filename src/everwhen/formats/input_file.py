"""What a file is to a query: a stream of elements, or rows that become elements by what is declared of them.  A folder
is a changelog: a stream of elements in epochs.

    stream      elements; with a time column (ORDERED BY) a row may bring its start instead of `vs`, and lives one tick
    varying     the same: a relation that changes is a stream
    constant    plain rows, each of which lives from 0 for ever; known whole at the start
    temporal    rows with two columns for the start and the end of their lives, or elements; known whole at the start

Rows stand in JSON lines, bare (`{"id":1,"name":"x"}`) or within `"row"`, in Parquet, or in CSV with a header.  The time
columns are whole numbers (ticks), or timestamps, which become ticks; without a zone they are in UTC.  One between two
ticks is an error.  They are part of the payload only if the schema has them.  Other columns that the schema has not are
left alone; one that it has and the table has not, or no row of JSON lines, is an error.

**Guarantee.**  What is read is well formed, or the first row that is not is an `InputError` with file and line.
Nothing here looks at promises or earlier events: that is the guard's part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.core.time import ticks
from everwhen.core.time_axis import TimeAxis
from everwhen.errors import InputError, QueryError
from everwhen.formats.changelog.layout import ABOUT, Header
from everwhen.formats.changelog.reading import header_of, read_changelog
from everwhen.formats.csv import csv_first, csv_pieces, csv_schema
from everwhen.formats.json.inference import Contents
from everwhen.formats.json.lines import LineReader
from everwhen.formats.parquet import contents_of, is_parquet, open_parquet
from everwhen.formats.row_mapping import RowsAsElements
from everwhen.stream.element_batch import ElementBatch

Kind = Literal["stream", "varying", "constant", "temporal"]
STANDARD_INPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file and what its rows mean.  `time` is the column of ORDERED BY, `period` those of a temporal relation."""

    file: str
    schema: Schema
    kind: Kind = "stream"
    time: str | None = None
    period: tuple[str, str] | None = None
    tick: str = "1ms"
    name: str = ""  # by which messages call it, where that is not the file's
    late_rows: str = ""  # the file in which late rows are kept

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise QueryError(f"an input is one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if self.tick_length == 0:
            raise QueryError(f"a tick is longer than nothing, not {self.tick!r}")

    @property
    def tick_length(self) -> int:
        """The length of a tick in nanoseconds."""
        return ticks(self.tick, "1ns")

    @property
    def shown(self) -> str:
        """What messages call the file."""
        return self.name or ("<stdin>" if self.file == STANDARD_INPUT else self.file)

    @property
    def known_whole(self) -> bool:
        """Whether nothing can be added while the query runs."""
        return self.kind in ("constant", "temporal")

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that tell times."""
        return (() if self.time is None else (self.time,)) + (self.period or ())

    @property
    def rows(self) -> RowsAsElements:
        """How its rows become elements."""
        start, end = (self.time, None) if self.period is None else self.period
        constant = self.kind == "constant"
        return RowsAsElements(self.schema, start, end, constant, not self.known_whole, self.tick_length)

    @property
    def lines(self) -> LineReader:
        """What reads it where it is JSON lines."""
        reshape = self.rows.of_object if self.times or self.known_whole else None
        return LineReader(self.schema, self.shown, self.tick_length, reshape, always=self.known_whole)


def read_input(given: InputFile, batch: int, skip: int = 0) -> Iterator[ElementBatch]:
    """The elements of a file after the first `skip`, in batches of about so many."""
    if given.file == STANDARD_INPUT:
        return given.lines.stream(sys.stdin.buffer, batch, skip)
    if is_folder(given.file):
        return _read_folder(given, batch, skip)
    if is_parquet(given.file):
        return _read_parquet(given, batch, skip)
    if is_csv(given.file):
        return _read_csv(given, batch, skip)
    return given.lines.file(given.file, batch, skip)


def _read_folder(given: InputFile, batch: int, skip: int) -> Iterator[ElementBatch]:
    require_columns(given)
    yield from read_changelog(given.file, batch, skip)


def _read_csv(given: InputFile, batch: int, skip: int) -> Iterator[ElementBatch]:
    for piece, first in csv_pieces(given.file, given.schema, given.times, batch):
        if skip >= piece.num_rows:
            skip -= piece.num_rows
            continue
        yield from given.rows.of_table(piece.slice(skip), given.file, first + skip)
        skip = 0


def _read_parquet(given: InputFile, batch: int, skip: int) -> Iterator[ElementBatch]:
    with open(given.file, "rb") as stream:
        file = open_parquet(stream, given.file)
        first = 1
        try:
            for piece in file.iter_batches(batch_size=batch):
                if skip < piece.num_rows:
                    yield from given.rows.of_table(piece.slice(skip), given.file, first + skip)
                skip = max(skip - piece.num_rows, 0)
                first += piece.num_rows
        except (pa.ArrowException, OSError) as bad:
            text = str(bad).splitlines()[0] if str(bad) else type(bad).__name__
            raise InputError(f"the file cannot be read: {text}", source=given.file, remedy="is it whole?") from None


def contents_in_file(file: str) -> Contents:
    """The payload columns that a file of elements has, for a stream that is not declared, and the axis of its times."""
    if is_folder(file):
        header = header_of(file)
        return Contents(header.schema, header.axis)
    found = _csv_contents(file) if is_csv(file) else contents_of(file)
    if not len(found.schema):  # perhaps because these are no elements
        next(read_input(InputFile(file, found.schema, tick=found.axis.tick_text), 1), None)
    return found


def _csv_contents(file: str) -> Contents:
    first = csv_first(file, "vs")
    return Contents(csv_schema(file), TimeAxis(dated=first is not None and not first.strip().lstrip("-").isdecimal()))


def schema_in_file(file: str) -> Schema:
    """The payload columns that a file of elements has."""
    return contents_in_file(file).schema


def is_folder(file: str) -> bool:
    """Whether an input is a changelog, there or not: its name ends in a slash, or it is one."""
    return file.endswith("/") or is_changelog(file)


def is_changelog(place: str) -> bool:
    """Whether there is a changelog."""
    return os.path.isfile(os.path.join(place, ABOUT))


def require_columns(given: InputFile) -> Header:
    """A changelog has the columns that are declared, and the ticks that are asked for; its header."""
    if given.times or given.known_whole:
        problem = "a changelog holds elements, not rows with times of their own"
        raise InputError(problem, source=given.file, remedy="declare a stream without ORDERED BY")
    header = header_of(given.file)
    found = header.schema
    if header.axis.dated and header.axis.tick != given.tick_length:
        problem = f"the changelog has ticks of {header.axis.tick_text}, and the query ticks of {given.tick}"
        remedy = f"run with --tick {header.axis.tick_text}"
        raise InputError(problem, source=os.path.join(given.file, ABOUT), remedy=remedy)
    if found != given.schema:
        problem = f"the changelog has the columns {found}, and {given.schema} are declared"
        remedy = "declare the stream as the header says, or leave the declaration out"
        raise InputError(problem, source=os.path.join(given.file, ABOUT), remedy=remedy)
    return header


def is_csv(file: str | os.PathLike[str]) -> bool:
    """Whether a file's name says that it is CSV."""
    return os.fspath(file).lower().endswith((".csv", ".tsv"))
