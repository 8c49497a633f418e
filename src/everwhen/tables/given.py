"""What an input of a query may be, and how it becomes elements.

    elements            `Insert`, `Adjust`, `Cti`, …, one by one, or in an `ElementBatch`, or batches of them
    tables              Arrow, pandas, Polars, DuckDB relations, anything with Arrow's C stream interface, or batches
    paths               of CSV, Parquet, JSON lines, or a changelog folder
    `rows(table, …)`    a table or a path, and which of its columns tell times
    an answer           of another query: its batches

Rows of tables and files are elements by what is declared of the source (ORDERED BY, PERIOD, constant), or by columns
`op`, `vs`, `ve`, `vnew`.  A declared column that is not there is an error; others are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from os import PathLike, fspath
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.nodes import Source
from everwhen.core.kinds import kind
from everwhen.core.row_times import NO_TIMES, RowTimes
from everwhen.core.schema import Schema
from everwhen.core.time_axis import TICKS, TimeAxis, tick_length
from everwhen.errors import InputError, QueryError, a_type
from everwhen.formats.input_file import InputFile, Kind, read_input
from everwhen.stream.element import Adjust, Cti, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.tables.answer import Answer
from everwhen.tables.arrow import Wanted, is_table, names_in, pieces
from everwhen.tables.columns import types_in

SMALL_PIECE: Final = 1_000
"""At least so many elements of a file are decoded at once, however small the epochs are."""
_LARGE_PIECE: Final = 100_000
_OWN: Final = frozenset({"op", "vs", "ve", "vnew", "_match", "_count", "_at"})
_ELEMENTS: Final = (Insert, Adjust, Cti, Punct, ExternalCti)
_WHAT: Final = (
    "an input is a table (Arrow, pandas, Polars, DuckDB), a path, elements, or ew.rows(table, time='column of times')"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """A table or a path, and which of its columns tell times.  Made by `everwhen.rows`."""

    table: Any
    times: RowTimes
    tick: int
    constant: bool = False


def rows(table: Any, time: str | None = None, end: str | None = None, tick: str = "1ms") -> Rows:
    """A table (or path) for `run` or `sql` whose stream is not declared: which of its columns tell times.

    A row lives from `time` to `end` (null: for ever), without `end` one tick; without `time` it lives from 0 for ever.
    Times are timestamps, dates, or whole numbers: ticks.  `tick` says how long one is.

    >>> import everwhen as ew, pyarrow as pa
    >>> door = pa.table({"at": ["2024-05-01 07:30", "2024-05-01 07:45"], "who": ["Ann", "Bob"]})
    >>> seen = ew.rows(door, time="at")
    >>> q = ew.sql("SELECT COUNT(*) AS n FROM Door WINDOW(RANGE 1 HOUR)", Door=seen)
    >>> ew.run(q, {"Door": seen}).snapshot("2024-05-01 08:00").to_pylist()
    [{'n': 2}]
    """
    if isinstance(table, Rows):
        raise QueryError("rows() takes a table or a path, not what rows() has made")
    if end is not None and time is None:
        raise QueryError("rows(end=…) needs time=…, too: a row lives from one to the other")
    return Rows(table, RowTimes(time, end), TimeAxis(tick_length(tick)).tick, time is None)


def source_of(name: str, given: Any, tick: str = "1ms") -> Source:
    """A source with the columns of a table or file, for a query that does not declare it."""
    described = given if isinstance(given, Rows) else Rows(given, NO_TIMES, tick_length(tick))
    times, types = described.times, types_in(described.table, name)
    if not isinstance(given, Rows):
        _require_start(types, name)
    for column in times.columns:
        if column not in types:
            raise InputError(f"there is no column {column!r}", source=name, remedy=f"there is {', '.join(types)}")
    dated = any(_is_dated(types[column]) for column in times.columns)
    payload = [(column, type_) for column, type_ in types.items() if column not in (*times.columns, *_OWN)]
    one_tick = times.start is not None and times.end is None
    constant: Kind = "constant" if described.constant else "stream"
    axis = TimeAxis(described.tick, dated)
    return Source(name, Schema.of(payload), chronons=one_tick, kind=constant, axis=axis, times=times)


def _require_start(types: Mapping[str, pa.DataType], name: str) -> None:
    if "vs" in types:
        return
    clock = next((column for column, type_ in types.items() if kind(type_) in ("timestamp", "date")), "…")
    raise InputError(
        f'there is no column "vs", so nothing tells when rows live; there is {", ".join(types)}',
        source=name,
        remedy=f"name the column of times: {name}=ew.rows(…, time={clock!r}), or declare the stream; rows that live "
        f"for ever are {name}=ew.rows(…)",
    )


def axis_of(sources: Iterable[Source], inputs: Mapping[str, Any]) -> TimeAxis:
    """How long a tick of a query is, and whether its times are timestamps: one source that has them is enough."""
    found = [_axis_of(source, inputs.get(source.name)) for source in sources]
    telling = [axis for axis, _ in found if axis.dated] or [axis for axis, tells in found if tells]
    lengths = dict.fromkeys(axis.tick_text for axis in telling)
    if len(lengths) > 1:
        raise QueryError(f"the inputs have ticks of different lengths: {', '.join(lengths)}")
    return telling[0] if telling else TICKS


def _axis_of(source: Source, given: Any) -> tuple[TimeAxis, bool]:
    """What a source declares, else what the columns of times in its table or file are; and whether columns are named
    for times."""
    if source.times.columns:
        return source.axis, True
    if isinstance(given, Answer):
        return given.axis, False
    told = given if isinstance(given, Rows) else Rows(given, source.times, source.axis.tick)
    table, columns = told.table, told.times.columns or ("vs",)
    known = names_in(table) is not None if is_table(table) else isinstance(table, str | PathLike) and told is given
    types = types_in(table, source.name, columns) if known else {}
    dated = any(name in types and _is_dated(types[name]) for name in columns)
    return TimeAxis(told.tick, dated), bool(told.times.columns)


def _is_dated(type_: pa.DataType) -> bool:
    """Whether times of this type are timestamps, or text of them: numbers are ticks."""
    return not (pa.types.is_integer(type_) or pa.types.is_floating(type_))


# --- elements -----------------------------------------------------------------------------------------------------


def batches_of(given: Any, source: Source, size: int) -> Iterable[ElementBatch]:
    """The elements of an input, in batches; epochs have `size` elements."""
    table = given.table if isinstance(given, Rows) else given
    if isinstance(table, ElementBatch):
        return [table]
    if isinstance(table, Answer):
        return table.batches()
    read = _read(source, given)
    if isinstance(table, str | PathLike):
        return read_input(replace(read, file=fspath(table)), max(size, SMALL_PIECE))
    if is_table(table):
        _require_columns(table, read)
        return _elements(pieces(table, _wanted(read), max(size, _LARGE_PIECE), source.name), read)
    if isinstance(table, Iterable) and not isinstance(table, bytes | Mapping):
        return _of_items(table, source, read, size)
    raise QueryError(f"{source.name}: {a_type(table)} is no input; {_WHAT}")


def _read(source: Source, given: Any) -> InputFile:
    """How the rows of a source are read: as it is declared, else as `rows` says."""
    times, constant, axis = source.times, source.kind == "constant", source.axis
    if isinstance(given, Rows) and not times.columns and source.kind == "stream":
        times, constant, axis = given.times, given.constant, TimeAxis(given.tick)
    kind_: Kind = "constant" if constant else source.kind
    time, period = (None, (times.start, times.end)) if times.start and times.end else (times.start, None)
    return InputFile(source.name, source.schema, kind_, time, period, axis.tick_text)


def _wanted(read: InputFile) -> Wanted:
    names = {*read.schema.names, *read.times, *_OWN}
    return names.__contains__


def _require_columns(table: Any, read: InputFile) -> None:
    """Where the names of all columns are known, a message can tell them."""
    names = names_in(table)
    missing = [] if names is None else [name for name in read.schema.names if name not in names]
    if names is not None and missing:
        remedy = f"there is {', '.join(names) or 'none'}; rename the column, or leave it out of the declaration"
        raise InputError(f"the declared column {missing[0]!r} is not in the table", source=read.file, remedy=remedy)


def _elements(found: Iterable[pa.RecordBatch], read: InputFile) -> Iterator[ElementBatch]:
    first, mapping = 1, read.rows
    for piece in found:
        yield from mapping.of_table(piece, read.file, first)
        first += piece.num_rows


def _of_items(given: Iterable[Any], source: Source, read: InputFile, size: int) -> Iterator[ElementBatch]:
    """Elements are cut into batches; what comes in batches is left as it is."""
    rest: Iterator[Any] = iter(given)
    first = next(rest, None)
    items = chain([first], rest)
    if first is None:
        return
    if isinstance(first, ElementBatch):
        yield from items
    elif isinstance(first, _ELEMENTS):
        line = 1
        while chunk := list(islice(items, size)):
            yield replace(batch_of(chunk, source.schema, source.name), first_line=line)
            line += len(chunk)
    elif is_table(first):
        wanted, large = _wanted(read), max(size, _LARGE_PIECE)
        yield from _elements((each for item in items for each in pieces(item, wanted, large, source.name)), read)
    else:
        raise QueryError(f"{source.name}: {a_type(first)} is no element; {_WHAT}")
