"""Elements as JSON lines: one element per line, in arrival order.

    {"op":"insert","vs":1,"ve":5,"row":{"item":7}}      op left out: insert; ve left out: vs + 1; null: infinity
    {"op":"adjust","vs":1,"ve":5,"vnew":3,"row":{"item":7}}
    {"op":"cti","t":10}                                  null: infinity
    {"op":"punct","match":{"item":{"in":[7,9]}},"t":10}  t left out or null: infinity
    {"op":"external_cti","vs":0,"ve":8,"count":5}
    {"op":"note","t":10,"what":"window","of":"q","value":3}     tells of a change that the engine made; it is read over

Every line may carry an integer `"at"`; then all of a file must.  What a reader yields is well formed; anything else is
an `InputError` with file, line, problem and remedy.  A row may leave attributes out (they are null); those that the
schema lacks are left alone.  Blank lines are skipped.  How payload values look in JSON: `everwhen.core.scalars`.

Times are whole numbers of ticks, or ISO 8601 text such as "2015-09-02T06:45:00Z" (without a zone: UTC).  How long a
tick is is told to the reader; else it is a millisecond, or as short as the times of the file need.

The text is decoded in pieces of a whole batch: by Arrow where that is safe (`arrow_reader`), else by the careful reader
(`python_reader`), which alone knows how to complain.  Times are written as numbers, on a dated axis as text in UTC.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, Final, cast

import numpy as np

from everwhen.core.scalars import Unfit, json_texts
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import FastReader
from everwhen.formats.json.inference import Contents, Inference
from everwhen.formats.json.python_reader import (
    decode_lines,
    elements_of_objects,
    is_note,
    not_all_numbered,
    without_notes,
)
from everwhen.punctuation.api import write_match
from everwhen.storage.atomic_file import is_regular, whole_file
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import ADJUST, CTI, EXTERNAL_CTI, INSERT, OPS, PUNCT, ElementBatch

DEFAULT_BATCH: Final = 10_000

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
        yield from LineReader(schema, source, tick or TICKS.tick).elements(lines, batch)


def open_jsonlines(
    path_or_file: Readable, tick: int | None = None, batch: int = DEFAULT_BATCH
) -> tuple[TimeAxis, Iterator[ElementBatch]]:
    """On which axis the times of a file are, and its elements; what can be read only once is kept in memory."""
    if _read_once(path_or_file):
        with _opened(path_or_file) as (lines, source):
            text = list(lines)
        found = _infer(iter(text), source)
        axis = TimeAxis(tick or found.axis.tick, found.axis.dated)
        return axis, LineReader(found.schema, source, axis.tick).elements(iter(text), batch)
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
            inference.take(*without_notes(*decode_lines(piece, first, source)))
    return inference.contents()


class LineReader:
    """The elements of the lines of one file, piece by piece; what stands before a wrong line is read.

    `reshape` makes an element of the object on a line that is none by itself, or of each (`always`); if it cannot, it
    raises `Unfit`.
    """

    def __init__(
        self,
        schema: Schema,
        source: str,
        tick: int = TICKS.tick,
        reshape: Reshape | None = None,
        always: bool = False,
    ) -> None:
        self.schema, self.source, self.reshape, self.tick = schema, source, reshape, tick
        self.fast = None if always else FastReader(schema, source, tick)
        self._notes = not always and "what" not in schema.names  # else a plain row might look like a note

    def file(self, path: str, batch: int, skip: int = 0) -> Iterator[ElementBatch]:
        """The elements of a file after the first `skip`.  If that is all of it, an attribute that no row has is an
        error: its name is wrong, here or there."""
        with open(path, "rb") as stream:
            found = self.stream(stream, batch, skip)
            yield from found if skip else self._with_all_columns(found, path)

    def stream(self, stream: IO[bytes], batch: int, skip: int = 0) -> Iterator[ElementBatch]:
        """The elements of a stream after the first `skip`."""
        lines, first = iter(stream), 1
        while skip and (line := next(lines, None)) is not None:
            first += 1
            skip -= bool(line.strip(b" \t\r\n")) and not self._is_note(line)
        yield from self.elements(lines, batch, first)

    def elements(self, lines: Iterator[bytes], batch: int, first: int = 1) -> Iterator[ElementBatch]:
        """The elements of lines, the first of which has the number `first`."""
        numbered: bool | None = None
        for at, piece in _pieces(lines, batch, first):
            for found in self._read(piece, at):
                if numbered is None:
                    numbered = found.at is not None
                elif numbered != (found.at is not None):
                    raise not_all_numbered(self.source, found.line(0))
                yield found

    def _with_all_columns(self, found: Iterator[ElementBatch], path: str) -> Iterator[ElementBatch]:
        unseen, rows = set(self.schema.names), 0
        for batch in found:
            for name in list(unseen):
                column = batch.columns[self.schema.index(name)]
                if column.null_count < len(column):
                    unseen.remove(name)
            rows += int((batch.op < CTI).sum())
            yield batch
        for name in self.schema.names:
            if name in unseen and rows and not _named_in(path, name):
                problem = f"the declared column {name!r} is in no row of the file"
                remedy = "rename it, or leave it out of the declaration; a row that has no value of it may say null"
                raise InputError(problem, source=self.source, remedy=remedy)

    def _read(self, piece: list[bytes], first: int) -> Iterator[ElementBatch]:
        try:
            found = (self.fast and self.fast.read(piece, first)) or self._careful(piece, first)
        except InputError as bad:
            # What comes before the wrong line may be wrong as well, and if it is right it has arrived.
            before = piece[: (bad.line or first) - first]
            if before:
                yield from self._read(before, first)
            raise
        if len(found):
            yield found

    def _is_note(self, line: bytes) -> bool:
        return self._notes and b'"note"' in line and any(map(is_note, decode_lines([line], 1, self.source)[0]))

    def _careful(self, piece: list[bytes], first: int) -> ElementBatch:
        objects, numbers = decode_lines(piece, first, self.source)
        if self._notes:
            objects, numbers = without_notes(objects, numbers)
        if self.reshape is not None:
            for i, element in enumerate(objects):
                try:
                    objects[i] = self.reshape(element)
                except Unfit as bad:
                    raise InputError(bad.problem, source=self.source, line=int(numbers[i]), remedy=bad.remedy) from None
        return elements_of_objects(objects, numbers, self.schema, self.source, self.tick)


def _named_in(file: str, name: str) -> bool:
    """Whether a name, or what may be an escaped one, stands in a file."""
    written = json.dumps(name, ensure_ascii=False).encode()
    with open(file, "rb") as lines:
        return any(written in line or b"\\u" in line for line in lines)


# --- from elements to lines ---------------------------------------------------------------------------------------


def write_jsonlines(
    batches: Iterable[ElementBatch],
    path_or_file: str | os.PathLike[str] | IO[bytes] | IO[str],
    axis: TimeAxis = TICKS,
) -> int:
    """Writes elements, a line each, and returns how many; a path is written whole or not at all."""
    if isinstance(path_or_file, str | os.PathLike):
        with whole_file(path_or_file) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
            return _write(batches, file, axis)
    if hasattr(path_or_file, "encoding"):
        return _write(batches, cast(IO[str], path_or_file), axis)
    wrapper = io.TextIOWrapper(cast(IO[bytes], path_or_file), encoding="utf-8", newline="\n", write_through=True)
    try:
        return _write(batches, wrapper, axis)
    finally:
        wrapper.detach()


def _write(batches: Iterable[ElementBatch], file: IO[str], axis: TimeAxis) -> int:
    count = 0
    for batch in batches:
        if len(batch):
            file.write("\n".join(jsonlines(batch, axis)) + "\n")
            count += len(batch)
    return count


def jsonlines(batch: ElementBatch, axis: TimeAxis = TICKS) -> Iterator[str]:
    """The lines of a batch, without line ends."""
    keys = ",".join(json.dumps(name, ensure_ascii=False).replace("%", "%%") + ":%s" for name in batch.schema.names)
    template = "{" + keys + "}"
    if batch.columns:
        rows: Iterable[str] = [template % values for values in zip(*map(json_texts, batch.columns), strict=True)]
    else:
        rows = ["{}"] * len(batch)
    ops = batch.op.tolist()
    starts, ends, news = (_times(times, axis) for times in (batch.vs, batch.ve, batch.vnew))
    tails = ["}"] * len(batch) if batch.at is None else [f',"at":{at}}}' for at in batch.at.tolist()]
    for i, (op, vs, ve, vnew, row, tail) in enumerate(zip(ops, starts, ends, news, rows, tails, strict=True)):
        if op == INSERT:
            yield f'{{"op":"insert","vs":{vs},"ve":{ve},"row":{row}{tail}'
        elif op == ADJUST:
            yield f'{{"op":"adjust","vs":{vs},"ve":{ve},"vnew":{vnew},"row":{row}{tail}'
        elif op == CTI:
            yield f'{{"op":"cti","t":{vs}{tail}'
        else:
            yield _promise(batch.promises[i], batch.schema, axis) + tail


def _times(times: np.ndarray, axis: TimeAxis) -> Sequence[object]:
    """Times as JSON: text, or numbers, which are written as they are."""
    if not axis.dated:
        numbers: list[object] = times.tolist()
        return ["null" if t == INF else t for t in numbers] if (times == INF).any() else numbers
    known, place = np.unique(times, return_inverse=True)  # times come again and again, and text takes long
    texts = axis.texts(np.where(known == INF, 0, known))
    plain = [
        "null" if t == INF else f'"{text}"' if text[-1] == "Z" else text
        for t, text in zip(known.tolist(), texts, strict=True)
    ]
    return [plain[at] for at in place.tolist()]


def _promise(promise: Punct | ExternalCti, schema: Schema, axis: TimeAxis) -> str:
    """The line of a promise, without the closing brace."""
    if isinstance(promise, ExternalCti):
        start, end = _times(np.array([promise.vs, promise.ve], np.int64), axis)
        return f'{{"op":"{OPS[EXTERNAL_CTI]}","vs":{start},"ve":{end},"count":{promise.count}'
    match = json.dumps(write_match(promise.promise.match, schema), ensure_ascii=False, separators=(",", ":"))
    t = promise.promise.t
    told = "" if t == INF else f',"t":{_times(np.array([t], np.int64), axis)[0]}'
    return f'{{"op":"{OPS[PUNCT]}","match":{match}{told}'
