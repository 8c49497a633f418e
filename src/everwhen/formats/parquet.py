"""Elements as Parquet: columns `op, vs, ve, vnew` (all but `vs` optional) and one column per attribute.

* No `op` column: all are inserts; a null op is an insert, too.  No `ve` column: chronons; a null ve is infinity.  The
  time of a CTI stands in `vs`, null is infinity.  An adjust needs the column `vnew`, where null is infinity.
* Elements beyond the contract's three have columns of their own, written only where such elements are: `_match` holds
  the `match` object of a `punct` as JSON text (its `t` in `vs`, null: infinity), `_count` the count of an
  `external_cti` (its times in `vs, ve`), `_at` the arrival order across inputs.

* Times are whole numbers of ticks, or timestamps or dates.  How long a tick is is told to the reader, else by the
  file's metadata (`everwhen.tick`), else it is that of the column's unit, at most a millisecond.

The rules and errors are those of `jsonlines`; the line of an error is the number of the row, from 1.  Dictionary
columns and columns of large text or binary are read as plain ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import IO, Final, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from everwhen.core.punctuation import Punctuation
from everwhen.core.scalars import Unfit
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.core.time_axis import TICKS, TimeAxis, tick_length
from everwhen.errors import InputError, QueryError
from everwhen.formats.column_checks import first_odd_value, misfit
from everwhen.formats.column_checks import plain_type as _plain
from everwhen.formats.json.inference import Contents
from everwhen.formats.json.lines import (
    DEFAULT_BATCH,
    Readable,
    infer_contents,
    open_jsonlines,
    read_jsonlines,
    write_jsonlines,
)
from everwhen.formats.parquet_writer import AT as AT
from everwhen.formats.parquet_writer import COUNT as COUNT
from everwhen.formats.parquet_writer import MATCH as MATCH
from everwhen.formats.parquet_writer import SPECIAL, TICK
from everwhen.formats.parquet_writer import write_parquet as write_parquet
from everwhen.formats.time_columns import FINER, is_dated, ticks_of_array
from everwhen.punctuation.api import read_match
from everwhen.stream.batch_punctuation import Places, punctuations
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import (
    ADJUST,
    CTI,
    EXTERNAL_CTI,
    IN_RANGE,
    INSERT,
    OPS,
    PUNCT,
    ElementBatch,
    ill_formed,
    lifetime_problem,
)

_TIMES: Final = ("vs", "ve", "vnew")
_NUMBERS: Final = (*_TIMES, COUNT, AT)


def read_elements(
    path_or_file: Readable, schema: Schema | None = None, batch: int = DEFAULT_BATCH, tick: int | None = None
) -> Iterator[ElementBatch]:
    """The elements of a file: Parquet if its name ends so, else JSON lines.

    `tick`: the length of a tick in nanoseconds, in which timestamps are counted; None: as the file has it.
    """
    if is_parquet(path_or_file):
        return read_parquet(path_or_file, batch, schema, tick)
    return read_jsonlines(path_or_file, schema, batch, tick)


def open_elements(path_or_file: Readable, tick: int | None = None) -> tuple[TimeAxis, Iterator[ElementBatch]]:
    """On which axis the times of a file of elements are, and its elements."""
    if not is_parquet(path_or_file):
        return open_jsonlines(path_or_file, tick)
    axis = contents_of(path_or_file).axis
    axis = axis if tick is None else TimeAxis(tick, axis.dated)
    return axis, read_parquet(path_or_file, tick=axis.tick)


def write_elements(
    batches: Iterable[ElementBatch],
    path_or_file: Readable,
    schema: Schema | None = None,
    axis: TimeAxis = TICKS,
) -> int:
    """Writes elements as Parquet if the name ends so, else as JSON lines; returns how many."""
    if is_parquet(path_or_file):
        return write_parquet(batches, path_or_file, schema, axis)
    return write_jsonlines(batches, path_or_file, axis)


def contents_of(path_or_file: Readable) -> Contents:
    """What a file of elements holds: its schema, and the axis of its times."""
    if not is_parquet(path_or_file):
        return infer_contents(path_or_file)
    source = os.fspath(path_or_file)
    with open(path_or_file, "rb") as file:
        columns = open_parquet(file, source).schema_arrow
        return Contents(_payload_schema(columns, source), _axis(columns, source))


def is_parquet(path_or_file: Readable) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a file's name says that it is Parquet."""
    return isinstance(path_or_file, str | os.PathLike) and os.fspath(path_or_file).lower().endswith(".parquet")


# --- reading ------------------------------------------------------------------------------------------------------


def read_parquet(
    path: str | os.PathLike[str], batch: int = DEFAULT_BATCH, schema: Schema | None = None, tick: int | None = None
) -> Iterator[ElementBatch]:
    """The elements of a Parquet file in batches; with a schema, columns are cast to it and missing ones are null."""
    source = os.fspath(path)
    with open(path, "rb") as stream:
        small = os.fstat(stream.fileno()).st_size <= 1 << 20  # then no other thread is waited for, which takes longer
        file = open_parquet(pa.BufferReader(stream.read()) if small else stream, source)
        found = _payload_schema(file.schema_arrow, source)
        _check_special(file.schema_arrow, source)
        target = found if schema is None else schema
        extra = [name for name in found.names if name not in target]
        if extra:
            raise InputError(f"the column {extra[0]!r} is not in the schema {target}", source=source)
        first = 1
        tick = _axis(file.schema_arrow, source).tick if tick is None else tick
        try:
            for piece in file.read(use_threads=False).to_batches(batch) if small else file.iter_batches(batch):
                yield from _elements(piece, source, first, target, tick)
                first += piece.num_rows
        except (pa.ArrowException, OSError) as bad:
            raise _broken(source, bad) from None


def elements_of_table(
    table: pa.Table | pa.RecordBatch,
    schema: Schema | None = None,
    source: str = "table",
    first: int = 1,
    tick: int = TICKS.tick,
) -> Iterator[ElementBatch]:
    """The elements of an Arrow table with the columns of a Parquet file of elements; `first` numbers its first row."""
    target = _payload_schema(table.schema, source) if schema is None else schema
    _check_special(table.schema, source)
    for piece in [table] if isinstance(table, pa.RecordBatch) else table.to_batches():
        yield from _elements(piece, source, first, target, tick)
        first += piece.num_rows


def _elements(piece: pa.RecordBatch, source: str, first: int, schema: Schema, tick: int) -> Iterator[ElementBatch]:
    try:
        yield _Piece(piece, source, first, tick).elements(schema)
    except InputError as bad:
        # Columns are checked one after the other, so an earlier row may be wrong as well: name the first.  What comes
        # before it has arrived.
        before = (bad.line or first) - first
        if before:
            yield from _elements(piece.slice(0, before), source, first, schema, tick)
        raise


def open_parquet(stream: IO[bytes], source: str) -> pq.ParquetFile:
    """A Parquet file; one that cannot be read is an `InputError`."""
    try:
        file = pq.ParquetFile(stream)
        list(file.schema_arrow.names)
        return file
    except UnicodeDecodeError:
        problem = "the name of a column is not UTF-8"
        raise InputError(problem, source=source, remedy="write the file anew with other names") from None
    except (pa.ArrowException, OSError) as bad:
        raise _broken(source, bad) from None


def _broken(source: str, bad: Exception) -> InputError:
    text = str(bad).splitlines()[0] if str(bad) else type(bad).__name__
    return InputError(f"not a Parquet file that can be read: {text}", source=source, remedy="is it whole?")


def _payload_schema(columns: pa.Schema, source: str) -> Schema:
    names = [field.name for field in columns]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} is there twice", source=source, remedy="rename one of them")
    return Schema.of((field.name, _plain(field.type)) for field in columns if field.name not in SPECIAL)


def _axis(columns: pa.Schema, source: str) -> TimeAxis:
    """On which axis the times of a file are."""
    types = [_plain(columns.field(name).type) for name in _TIMES if name in columns.names]
    dated = [type_ for type_ in types if is_dated(type_)]
    told = (columns.metadata or {}).get(TICK)
    if told is not None:
        try:
            return TimeAxis(tick_length(told.decode()), bool(dated))
        except (QueryError, UnicodeDecodeError):
            problem = f"the metadata's {TICK.decode()} is no length of time: {told[:20]!r}"
            raise InputError(problem, source=source, remedy="a tick is for example 1ms") from None
    units = [type_.unit for type_ in dated if pa.types.is_timestamp(type_)]
    finest = next((TimeAxis(length) for length in reversed(FINER) if TimeAxis(length).unit in units), TICKS)
    return TimeAxis(finest.tick, bool(dated))


def _check_special(columns: pa.Schema, source: str) -> None:
    if "vs" not in columns.names:
        there = ", ".join(columns.names) or "none"
        remedy = "the start of a lifetime" + _declaration(columns)
        raise InputError(f'there is no column "vs"; there is {there}', source=source, remedy=remedy)
    for name in SPECIAL:
        if name not in columns.names:
            continue
        type_ = _plain(columns.field(name).type)
        right = pa.types.is_integer(type_) if name in _NUMBERS else pa.types.is_string(type_)
        right = right or (name in _TIMES and is_dated(type_))
        if not right and not pa.types.is_null(type_):
            wanted = "text"
            if name in _NUMBERS:
                wanted = "whole numbers (ticks) or timestamps" if name in _TIMES else "whole numbers"
            raise InputError(f"the column {name!r} is of type {type_}", source=source, remedy=f"it holds {wanted}")


def _declaration(columns: pa.Schema) -> str:
    """How plain rows with a column of times would be declared."""
    clock = next((f.name for f in columns if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)), None)
    clock = clock or next((name for name in columns.names if name.lower() in ("timestamp", "ts", "time", "at")), None)
    return "" if clock is None else f"; or declare that {clock} is: CREATE STREAM … (…, {clock} …) ORDERED BY {clock}"


class _Piece:
    """One batch of a file."""

    def __init__(self, piece: pa.RecordBatch, source: str, first: int, tick: int) -> None:
        self.piece = piece
        self.tick = tick
        self.source = source
        self.first = first
        self.length = piece.num_rows

    def error(self, index: int, problem: str, remedy: str = "") -> InputError:
        return InputError(problem, source=self.source, line=self.first + index, remedy=remedy)

    def elements(self, schema: Schema) -> ElementBatch:
        op = self._ops()
        vs, no_start = self._times("vs")
        ve, no_end = self._times("ve")
        vnew, no_new = self._times("vnew")
        self._require(no_start & (op != CTI) & (op != PUNCT), '"vs" is null', "only a CTI may stand at infinity")
        vs[no_start] = ve[no_end] = vnew[no_new] = INF
        if "ve" not in self.piece.schema.names:
            self._require(op == EXTERNAL_CTI, 'an external_cti needs the column "ve"', "the end of its interval")
            ve = np.where(no_start, INF, vs + 1)
        if "vnew" not in self.piece.schema.names:
            self._require(op == ADJUST, 'an adjust needs the column "vnew"', "the new end of the lifetime")
        promise_times = vs.copy()
        ve = np.where(op == CTI, vs, np.where(op == PUNCT, INF, ve))
        vnew = np.where(op == ADJUST, vnew, 0)
        vs = np.where(op == PUNCT, 0, vs)
        bad = ill_formed(op, vs, ve, vnew)
        if bad is not None:
            problem = lifetime_problem(int(op[bad]), int(vs[bad]), int(ve[bad]), int(vnew[bad]))
            raise self.error(bad, *problem)
        promises: Places = {}
        if (op >= PUNCT).any():
            promises = punctuations(self._promises(op, promise_times, ve, schema), schema)
        at = None
        if AT in self.piece.schema.names:
            at, missing = self._integers(AT)
            self._require(missing, '"_at" is null', "give it to every element, or to none")
        columns = tuple(self._column(field.name, field.type) for field in schema)
        return ElementBatch(schema, op, vs, ve, vnew, columns, promises, self.source, self.first, None, at)

    def _require(self, wrong: np.ndarray, problem: str, remedy: str) -> None:
        if wrong.any():
            raise self.error(int(np.argmax(wrong)), problem, remedy)

    def _ops(self) -> np.ndarray:
        if "op" not in self.piece.schema.names:
            return np.full(self.length, INSERT, np.uint8)
        names = self._column("op", pa.string()).fill_null(OPS[INSERT])
        codes = pc.index_in(names, value_set=pa.array(OPS))
        if codes.null_count:
            index = int(np.argmax(codes.is_null().to_numpy(zero_copy_only=False)))
            raise self.error(index, f"unknown op {names[index].as_py()!r}", f"there are {', '.join(OPS)}")
        return codes.to_numpy().astype(np.uint8)

    def _integers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """A column of whole numbers, and where it is null; an absent column is null throughout."""
        column = self._column(name, pa.int64())
        return column.fill_null(0).to_numpy().copy(), column.is_null().to_numpy(zero_copy_only=False)

    def _times(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        if name in self.piece.schema.names and is_dated(_plain(self.piece.schema.field(name).type)):
            try:
                column = ticks_of_array(self.piece.column(name), name, self.tick)
            except Unfit as bad:
                raise self.error(bad.index, bad.problem, bad.remedy) from None
            times, missing = column.fill_null(0).to_numpy().copy(), column.is_null().to_numpy(zero_copy_only=False)
        else:
            times, missing = self._integers(name)
        self._require((times < MIN_TIME) | (times > MAX_TIME), f'"{name}" is out of range', IN_RANGE)
        return times, missing

    def _column(self, name: str, type_: pa.DataType) -> pa.Array:
        if name not in self.piece.schema.names:
            return pa.nulls(self.length, type_)
        column = self.piece.column(name)
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        wrong = first_odd_value(column)
        if wrong is not None:
            index, problem, remedy = wrong
            raise self.error(index, f"{problem} in column {name!r}", remedy)
        if column.type == type_:
            return column
        try:
            return column.cast(type_)
        except pa.ArrowException:
            for index in range(self.length):
                try:
                    column.slice(index, 1).cast(type_)
                except pa.ArrowException:
                    declared = name not in SPECIAL
                    raise self.error(index, *misfit(column[index].as_py(), name, type_, declared)) from None
            raise

    def _promises(
        self, op: np.ndarray, vs: np.ndarray, ve: np.ndarray, schema: Schema
    ) -> dict[int, Punct | ExternalCti]:
        match, (count, no_count) = self._column(MATCH, pa.string()), self._integers(COUNT)
        found: dict[int, Punct | ExternalCti] = {}
        for i in np.flatnonzero(op >= PUNCT).tolist():
            if op[i] == EXTERNAL_CTI:
                if no_count[i] or count[i] < 0:
                    raise self.error(i, f'an external_cti needs a count of 0 or more in the column "{COUNT}"')
                found[i] = ExternalCti(int(vs[i]), int(ve[i]), int(count[i]))
                continue
            problem, remedy = lifetime_problem(CTI, int(vs[i]), 0, 0)
            if problem:
                raise self.error(i, problem, remedy)
            try:
                pattern = read_match(json.loads(match[i].as_py() or "null"), schema)
            except (ValueError, RecursionError) as bad:
                raise self.error(i, f'the column "{MATCH}" holds no JSON: {bad}') from None
            except Unfit as bad:
                raise self.error(i, bad.problem, bad.remedy) from None
            found[i] = Punct(Punctuation(pattern, int(vs[i])))
        return found
