"""CSV with a header as typed rows: each column is read as what the schema says, a field without text is a null.

Fields are separated by commas, in files named `.tsv` by tabs.  The line of an error is that of its row, counted from
the header; a field with line ends inside counts as one line.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from everwhen.core.scalars import typed_texts
from everwhen.core.schema import RESERVED, Schema
from everwhen.errors import InputError
from everwhen.formats.column_checks import misfit
from everwhen.formats.parquet import AT, COUNT

_TIMES: Final = ("vs", "ve", "vnew")
_BLOCK: Final = 1 << 22
FIRST_ROW: Final = 2
_FIELD: Final = r'(?:"(?:[^"]|"")*"(?!")[^{0}]*|[^"{0}][^{0}]*|)'
_CLOSED: Final = {mark: re.compile("{1}(?:{0}{1})*".format(mark, _FIELD.format(mark)).encode()) for mark in ",\t"}
"""Lines in which every field that begins with a quotation mark is closed; a mark elsewhere is text."""


def csv_pieces(path: str, schema: Schema, times: Collection[str], batch: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of a file in pieces of at most so many, each with the number of its first line.

    Columns of the schema have its types, counts and arrival numbers are whole numbers; others, those of times among
    them, stay text.
    """
    first = FIRST_ROW
    if is_empty(path):
        return
    last = None
    try:
        with pcsv.open_csv(path, **_options(path, csv_names(path))) as reader:
            for block in reader:
                for start in range(0, block.num_rows, batch):
                    last = piece = block.slice(start, batch)
                    yield _typed(piece, schema, times, path, first), first
                    first += piece.num_rows
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None
    if last is not None and last.num_rows:
        _check_quotes(path, last.column(last.num_columns - 1)[-1].as_py(), first - 1)


def csv_lines(
    path: str, header: bytes, lines: bytes, schema: Schema, times: Collection[str], first: int
) -> pa.RecordBatch:
    """Some lines of a file whose header is known, the first of which has the number `first`."""
    try:
        with pcsv.open_csv(pa.BufferReader(header), parse_options=_delimited(path)) as reader:
            names = list(reader.schema.names)
        table = pcsv.read_csv(pa.BufferReader(header + lines), **_options(path, names))
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        text = io.StringIO((header + lines).decode("utf-8", "replace"), newline="")
        raise _uneven(text, path, first) or InputError(
            f"not CSV: {bad}", source=path, line=first, remedy="a row per line, as the header is"
        ) from None
    (piece,) = table.combine_chunks().to_batches(max_chunksize=table.num_rows)
    return _typed(piece, schema, times, path, first)


def is_open(line: bytes, path: str) -> bool:
    """Whether a line ends within a field that a quotation mark has begun.

    >>> [is_open(line, "a.csv") for line in (b'1,"a, b"', b'1,"a', b'1,5" wide', b'1,5","a', b'"no ""x"" here"')]
    [False, True, False, True, False]
    """
    return b'"' in line and _CLOSED[_delimiter(path)].fullmatch(line.rstrip(b"\r\n")) is None


def csv_schema(path: str) -> Schema:
    """The payload columns of a file of elements, with the types that its text suggests."""
    if not csv_names(path):
        return Schema(())
    try:
        found = pcsv.read_csv(path, parse_options=_delimited(path)).schema
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None
    plain = ((f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in found)
    return Schema.of((name, type_) for name, type_ in plain if name not in (*RESERVED, COUNT, AT))


def csv_first(path: str, column: str) -> str | None:
    """The first text in a column, if there is the column and some text."""
    names = csv_names(path)
    if column not in names:
        return None
    try:
        with pcsv.open_csv(path, **_options(path, names)) as reader:
            return next((text for block in reader for text in block.column(column).to_pylist() if text), None)
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None


def csv_names(path: str) -> list[str]:
    """The names in the header, each once; none if the file is empty, as when nothing has been written to it yet."""
    if is_empty(path):
        return []
    try:
        with pcsv.open_csv(path, parse_options=_delimited(path)) as reader:
            names = list(reader.schema.names)
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} is there twice", source=path, line=1, remedy="rename one of them")
    return names


def is_empty(path: str) -> bool:
    """Whether a file has no text, not even a header."""
    with open(path, "rb") as file:
        return not file.read(_BLOCK).strip(b"\xef\xbb\xbf \t\r\n")


def _options(path: str, names: list[str]) -> dict[str, object]:
    as_text = pcsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return {
        "read_options": pcsv.ReadOptions(block_size=_BLOCK),
        "parse_options": _delimited(path),
        "convert_options": as_text,
    }


def _delimited(path: str) -> pcsv.ParseOptions:
    return pcsv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True)


def _delimiter(path: str) -> str:
    return "\t" if path.lower().endswith(".tsv") else ","


def _typed(piece: pa.RecordBatch, schema: Schema, times: Collection[str], path: str, first: int) -> pa.RecordBatch:
    found = {}
    for name in piece.schema.names:
        column = piece.column(name)
        if name in schema and name not in times:
            column = _cast(column, schema.field(name).type, name, path, first)
        elif name in _TIMES:
            column = pc.utf8_trim_whitespace(column)
        elif name in (COUNT, AT):
            column = _cast(column, pa.int64(), name, path, first)
        found[name] = column
    return pa.RecordBatch.from_pydict(found)


def _cast(column: pa.Array, type_: pa.DataType, name: str, path: str, first: int) -> pa.Array:
    if pa.types.is_string(type_):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    try:
        return typed_texts(trimmed, type_)
    except pa.ArrowException:
        for i in range(len(trimmed)):
            try:
                typed_texts(trimmed.slice(i, 1), type_)
            except pa.ArrowException:
                problem, remedy = misfit(column[i].as_py(), name, type_, declared=name not in (COUNT, AT))
                raise InputError(problem, source=path, line=first + i, remedy=remedy) from None
        raise


def _check_quotes(path: str, text: str | None, line: int) -> None:
    """Refuse a file whose last field begins with a quotation mark that nothing closes: all rows behind the mark would
    be one text.  The reader takes such a field as it is."""
    raw = b'"' + (text or "").replace('"', '""').encode()
    with open(path, "rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - len(raw) - 1))
        tail = file.read()
    marks = len(tail) - len(tail.rstrip(b'"'))
    if tail.endswith(raw) and (raw.strip(b'"') or marks % 2):
        problem = "a quotation mark is opened in this row, and the file ends before it is closed"
        raise InputError(problem, source=path, line=line, remedy="close it, or take it out")


def _unreadable(path: str, bad: Exception) -> InputError:
    if isinstance(bad, UnicodeDecodeError) or "UTF8" in str(bad):
        with open(path, "rb") as file:
            for line, raw in enumerate(file, 1):
                try:
                    raw.decode("utf-8")
                except UnicodeDecodeError as wrong:
                    problem = f"byte {wrong.start + 1} of the line is not UTF-8"
                    return InputError(problem, source=path, line=line, remedy="save the file as UTF-8")
    with open(path, encoding="utf-8-sig", newline="") as lines:
        uneven = _uneven(lines, path, FIRST_ROW)
    if uneven is not None:
        return uneven
    text = str(bad).splitlines()[0] if str(bad) else type(bad).__name__
    return InputError(f"not a CSV file that can be read: {text}", source=path, remedy="a header, then a row per line")


def _uneven(lines: TextIO, path: str, first: int) -> InputError | None:
    """The first row that has more or fewer fields than the header, if that is what is wrong.  Rows are read one by one
    here, because only a run that has failed gets here."""
    rows = csv.reader(lines, delimiter=_delimiter(path))
    try:
        names = next(rows, [])
        for line, row in enumerate(filter(None, rows), first):
            if len(row) != len(names):
                fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
                problem = f"{fields} where the header has {len(names)} ({', '.join(names)}): {','.join(row)[:80]}"
                return InputError(problem, source=path, line=line, remedy="mend the row, or take it out")
    except csv.Error:
        return None
    return None
