"""Elements as JSON lines: one element per line, in arrival order.

    {"op":"insert","vs":1,"ve":5,"row":{"item":7}}      op left out: insert; ve left out: vs + 1; null: infinity
    {"op":"adjust","vs":1,"ve":5,"vnew":3,"row":{"item":7}}
    {"op":"cti","t":10}                                  null: infinity
    {"op":"punct","match":{"item":{"in":[7,9]}},"t":10}  t left out or null: infinity
    {"op":"external_cti","vs":0,"ve":8,"count":5}

Every line may carry an integer `"at"`; then all of a file must.  What a reader yields is well formed; anything else is
an `InputError` with file, line, problem and remedy.  A row may leave attributes out (they are null); those that the
schema lacks are left alone.  Blank lines are skipped.  How payload values look in JSON: `everwhen.core.scalars`.

Times are whole numbers of ticks, or ISO 8601 text such as "2015-09-02T06:45:00Z" (without a zone: UTC).  How long a
tick is is told to the reader; else it is a millisecond, or as short as the times of the file need.

The text is decoded in pieces of a whole batch: by Arrow where that is safe (`jsonfast`), else by the careful reader
here, which alone knows how to complain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.scalars import Unfit, describe, read_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, is_time
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import FastReader
from everwhen.formats.json.inference import Contents, Inference
from everwhen.formats.json.python_reader import decode_lines
from everwhen.formats.json.writer import jsonlines as jsonlines
from everwhen.formats.json.writer import write_jsonlines as write_jsonlines
from everwhen.formats.time_columns import nanoseconds_of_text, ticks_of_text
from everwhen.punctuation.api import read_match
from everwhen.storage.atomic_file import is_regular
from everwhen.stream.batch_punctuation import punctuations
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import (
    ADJUST,
    CTI,
    IN_RANGE,
    OPS,
    PUNCT,
    ElementBatch,
    lifetime_problem,
)

DEFAULT_BATCH: Final = 10_000

_CODES: Final = {name: code for code, name in enumerate(OPS)}
_FIELDS: Final = (
    frozenset({"op", "vs", "ve", "row", "at"}),
    frozenset({"op", "vs", "ve", "vnew", "row", "at"}),
    frozenset({"op", "t", "at"}),
    frozenset({"op", "match", "t", "at"}),
    frozenset({"op", "vs", "ve", "count", "at"}),
)
_NOTHING: Final[dict[str, Any]] = {}

Reshape = Callable[[dict[str, Any]], dict[str, Any]]
Readable = str | os.PathLike[str] | IO[bytes] | IO[str]


def read_jsonlines(
    path_or_file: Readable, schema: Schema | None = None, batch: int = DEFAULT_BATCH, tick: int | None = None
) -> Iterator[ElementBatch]:
    """The elements of a file in batches of `batch` lines; without a schema it is read twice, first for its types."""
    if schema is None:
        yield from open_jsonlines(path_or_file, tick, batch)[1]
        return
    with _opened(path_or_file) as (lines, source):
        yield from elements_of_lines(lines, source, schema, batch, tick=tick or TICKS.tick)


def open_jsonlines(
    path_or_file: Readable, tick: int | None = None, batch: int = DEFAULT_BATCH
) -> tuple[TimeAxis, Iterator[ElementBatch]]:
    """On which axis the times of a file are, and its elements; what can be read only once is kept in memory."""
    if _read_once(path_or_file):
        with _opened(path_or_file) as (lines, source):
            text = list(lines)
        found = _infer(iter(text), source)
        axis = TimeAxis(tick or found.axis.tick, found.axis.dated)
        return axis, elements_of_lines(iter(text), source, found.schema, batch, tick=axis.tick)
    found = infer_contents(path_or_file)
    axis = TimeAxis(tick or found.axis.tick, found.axis.dated)
    return axis, read_jsonlines(path_or_file, found.schema, batch, axis.tick)


def infer_schema(path_or_file: Readable) -> Schema:
    """The attributes of all rows of a file, in the order in which they first appear, with their types.

    Whole numbers are int64, numbers float64, text string, true and false bool; an attribute that is always null is
    a string.  Patterns of punctuations count, too, but name attributes only if there is no row at all.
    """
    return infer_contents(path_or_file).schema


def infer_contents(path_or_file: Readable) -> Contents:
    """The attributes of a file as `infer_schema` finds them, and the axis of its times."""
    with _opened(path_or_file) as (lines, source):
        return _infer(lines, source)


def _read_once(path_or_file: Readable) -> bool:
    return not isinstance(path_or_file, str | os.PathLike) or not is_regular(path_or_file)


@contextmanager
def _opened(path_or_file: Readable) -> Iterator[tuple[Iterator[bytes], str]]:
    if isinstance(path_or_file, str | os.PathLike):
        with open(path_or_file, "rb") as file:
            yield iter(file), os.fspath(path_or_file)
    else:
        name = getattr(path_or_file, "name", None)
        lines = (line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line for line in path_or_file)
        yield lines, name if isinstance(name, str) else "<input>"


def _pieces(lines: Iterator[bytes], batch: int, first: int = 1) -> Iterator[tuple[int, list[bytes]]]:
    while piece := list(islice(lines, batch)):
        yield first, piece
        first += len(piece)


def _infer(lines: Iterator[bytes], source: str) -> Contents:
    inference = Inference(source)
    for first, piece in _pieces(lines, DEFAULT_BATCH):
        if not inference.take_fast(piece, first):
            inference.take(*decode_lines(piece, first, source))
    return inference.contents()


def elements_of_lines(
    lines: Iterator[bytes],
    source: str,
    schema: Schema,
    batch: int = DEFAULT_BATCH,
    first: int = 1,
    reshape: Reshape | None = None,
    always: bool = False,
    tick: int = TICKS.tick,
) -> Iterator[ElementBatch]:
    """The elements of lines, the first of which has the number `first`; what stands before a wrong line is read.

    `reshape` makes an element of the object on a line that is none by itself, or of each (`always`); if it cannot, it
    raises `Unfit`.
    """
    reader = _Reader(schema, source, reshape, tick, quick=not always)
    numbered: bool | None = None
    for at, piece in _pieces(lines, batch, first):
        for found in reader.read(piece, at):
            if numbered is None:
                numbered = found.at is not None
            elif numbered != (found.at is not None):
                raise _not_all_numbered(source, found.line(0))
            yield found


class _Reader:
    """The elements of one file, piece by piece."""

    def __init__(self, schema: Schema, source: str, reshape: Reshape | None, tick: int, quick: bool) -> None:
        self.schema, self.source, self.reshape, self.tick = schema, source, reshape, tick
        self.fast = FastReader(schema, source, tick) if quick else None

    def read(self, piece: list[bytes], first: int) -> Iterator[ElementBatch]:
        try:
            found = (self.fast and self.fast.read(piece, first)) or self._careful(piece, first)
        except InputError as bad:
            # What comes before the wrong line may be wrong as well, and if it is right it has arrived.
            before = piece[: (bad.line or first) - first]
            if before:
                yield from self.read(before, first)
            raise
        if len(found):
            yield found

    def _careful(self, piece: list[bytes], first: int) -> ElementBatch:
        objects, numbers = decode_lines(piece, first, self.source)
        if self.reshape is not None:
            for i, element in enumerate(objects):
                try:
                    objects[i] = self.reshape(element)
                except Unfit as bad:
                    raise InputError(bad.problem, source=self.source, line=int(numbers[i]), remedy=bad.remedy) from None
        return elements_of_objects(objects, numbers, self.schema, self.source, self.tick)


# --- from objects to elements -------------------------------------------------------------------------------------


def elements_of_objects(
    objects: list[dict[str, Any]], numbers: np.ndarray, schema: Schema, source: str, tick: int = TICKS.tick
) -> ElementBatch:
    """The elements that objects of a decoder stand for; `numbers` are their lines."""
    taken = _Taken(schema, tick)
    try:
        for index, element in enumerate(objects):
            try:
                taken.take(index, element)
            except Unfit as bad:
                taken.columns()  # a misfit on an earlier line comes first
                raise Unfit(bad.problem, bad.remedy, index) from None
        columns = taken.columns()
    except Unfit as bad:
        line = int(numbers[bad.index])
        raise InputError(bad.problem, source=source, line=line, remedy=bad.remedy) from None
    if taken.at and len(taken.at) != len(objects):
        raise _not_all_numbered(
            source, int(numbers[next(i for i, o in enumerate(objects) if ("at" in o) != ("at" in objects[0]))])
        )
    times = np.array(taken.times, np.int64).reshape(-1, 3)
    return ElementBatch(
        schema,
        np.array(taken.op, np.uint8),
        times[:, 0].copy(),
        times[:, 1].copy(),
        times[:, 2].copy(),
        columns,
        punctuations(taken.promises, schema),
        source,
        int(numbers[0]) if len(numbers) else 1,
        None if len(numbers) == 0 or numbers[-1] - numbers[0] == len(numbers) - 1 else numbers,
        np.array(taken.at, np.int64) if taken.at else None,
    )


def _not_all_numbered(source: str, line: int) -> InputError:
    return InputError(
        'some elements have "at" and some have not',
        source=source,
        line=line,
        remedy="give it to every element, or to none",
    )


class _Taken:
    """The elements of a batch, taken one by one."""

    def __init__(self, schema: Schema, tick: int) -> None:
        self.schema = schema
        self.tick = tick
        self.op: list[int] = []
        self.times: list[tuple[int, int, int]] = []
        self.rows: list[dict[str, Any]] = []
        self.promises: dict[int, Punct | ExternalCti] = {}
        self.at: list[int] = []

    def take(self, index: int, element: dict[str, Any]) -> None:
        name = element.get("op", "insert")
        op = _CODES.get(name) if isinstance(name, str) else None
        if op is None:
            raise Unfit(f'unknown "op" {describe(name)}', f"there are {', '.join(OPS)}")
        if not element.keys() <= _FIELDS[op]:
            extra = min(element.keys() - _FIELDS[op])
            raise Unfit(f"unknown field {extra!r} in {OPS[op]}", f"it has {', '.join(sorted(_FIELDS[op]))}")
        vs = ve = vnew = 0
        row = _NOTHING
        if op <= ADJUST:
            vs = self._time(element, "vs")
            ve = self._time(element, "ve", INF) if "ve" in element else vs + 1
            if op == ADJUST:
                vnew = self._time(element, "vnew", INF)
            row = self._row(element)
        elif op == CTI:
            vs = ve = self._time(element, "t", INF)
        elif op == PUNCT:
            ve = INF
            match = read_match(_field(element, "match"), self.schema)
            self.promises[index] = Punct(Punctuation(match, self._time(element, "t", INF) if "t" in element else INF))
        else:
            vs, ve, count = self._time(element, "vs"), self._time(element, "ve", INF), _field(element, "count")
            if type(count) is not int or not 0 <= count <= MAX_TIME:
                raise Unfit(f'"count" must be a whole number, not {describe(count)}', "0 or more")
            self.promises[index] = ExternalCti(vs, ve, count)
        problem, remedy = lifetime_problem(op, vs, ve, vnew)
        if problem:
            raise Unfit(problem, remedy)
        if "at" in element:
            at = element["at"]
            if type(at) is not int or not MIN_TIME <= at <= MAX_TIME:
                raise Unfit(f'"at" must be a whole number, not {describe(at)}', IN_RANGE)
            self.at.append(at)
        self.op.append(op)
        self.times.append((vs, ve, vnew))
        self.rows.append(row)

    def _row(self, element: dict[str, Any]) -> dict[str, Any]:
        row = _field(element, "row")
        if not isinstance(row, dict):
            raise Unfit(f'"row" must be an object, but is {describe(row)}', 'write "row": {"item": 7}')
        return row

    def columns(self) -> tuple[pa.Array, ...]:
        """The payload so far; of several misfits the earliest element's is raised."""
        found: list[pa.Array] = []
        worst: Unfit | None = None
        for field in self.schema:
            try:
                found.append(read_values([row.get(field.name) for row in self.rows], field.type))
            except Unfit as bad:
                if worst is None or bad.index < worst.index:
                    worst = Unfit(f"attribute {field.name!r}: {bad.problem}", bad.remedy, bad.index)
        if worst is not None:
            raise worst
        return tuple(found)

    def _time(self, element: dict[str, Any], name: str, null: int | None = None) -> int:
        t = _field(element, name)
        if type(t) is int:
            if is_time(t):
                return t
            raise Unfit(f'"{name}" is {t}, out of range', IN_RANGE)
        if t is None and null is not None:
            return null
        if isinstance(t, str) and nanoseconds_of_text(t.strip()) is not None:
            return ticks_of_text(t, name, self.tick)
        only = "a whole number of ticks or a timestamp" + ("" if null is None else ", or null for infinity")
        raise Unfit(f'"{name}" must be {only}, not {describe(t)}', "numbers carry no unit, fraction or quotes")


def _field(element: dict[str, Any], name: str) -> Any:
    try:
        return element[name]
    except KeyError:
        raise Unfit(f'"{name}" is missing', f"give the element a {name!r}") from None
