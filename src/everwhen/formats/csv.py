"""CSV with a header as typed rows: each column is read as what the schema says, a field without text is a null.

Fields are separated by commas, in files named `.tsv` by tabs.  The line of an error is that of its row, counted from
the header; a field with line ends inside counts as one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from everwhen.core.schema import RESERVED, Schema
from everwhen.errors import InputError
from everwhen.formats.parquet import AT, COUNT

_TIMES: Final = ("vs", "ve", "vnew", COUNT, AT)
_BLOCK: Final = 1 << 22
FIRST_ROW: Final = 2


def csv_pieces(path: str, schema: Schema, times: Collection[str], batch: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of a file in pieces of at most so many, each with the number of its first line.

    Columns of the schema have its types, those of element times are whole numbers; others, and `times`, stay text.
    """
    first = FIRST_ROW
    try:
        with pcsv.open_csv(path, **_options(path, csv_names(path))) as reader:
            for block in reader:
                for start in range(0, block.num_rows, batch):
                    piece = block.slice(start, batch)
                    yield _typed(piece, schema, times, path, first), first
                    first += piece.num_rows
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None


def csv_lines(
    path: str, header: bytes, lines: bytes, schema: Schema, times: Collection[str], first: int
) -> pa.RecordBatch:
    """Some lines of a file whose header is known, the first of which has the number `first`."""
    try:
        with pcsv.open_csv(pa.BufferReader(header), parse_options=_delimited(path)) as reader:
            names = list(reader.schema.names)
        table = pcsv.read_csv(pa.BufferReader(header + lines), **_options(path, names))
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise InputError(
            f"not CSV: {bad}", source=path, line=first, remedy="a row per line, as the header is"
        ) from None
    (piece,) = table.combine_chunks().to_batches(max_chunksize=table.num_rows)
    return _typed(piece, schema, times, path, first)


def csv_schema(path: str) -> Schema:
    """The payload columns of a file of elements, with the types that its text suggests."""
    csv_names(path)
    try:
        found = pcsv.read_csv(path, parse_options=_delimited(path)).schema
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None
    plain = ((f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in found)
    return Schema.of((name, type_) for name, type_ in plain if name not in (*RESERVED, COUNT, AT))


def csv_names(path: str) -> list[str]:
    """The names in the header, each once."""
    try:
        with pcsv.open_csv(path, parse_options=_delimited(path)) as reader:
            names = list(reader.schema.names)
    except (pa.ArrowException, UnicodeDecodeError) as bad:
        raise _unreadable(path, bad) from None
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} is there twice", source=path, line=1, remedy="rename one of them")
    return names


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
    return pcsv.ParseOptions(delimiter="\t" if path.lower().endswith(".tsv") else ",", newlines_in_values=True)


def _typed(piece: pa.RecordBatch, schema: Schema, times: Collection[str], path: str, first: int) -> pa.RecordBatch:
    found = {}
    for name in piece.schema.names:
        column = piece.column(name)
        if name in schema and name not in times:
            column = _cast(column, schema.field(name).type, name, path, first)
        elif name in _TIMES:
            column = _cast(column, pa.int64(), name, path, first)
        found[name] = column
    return pa.RecordBatch.from_pydict(found)


def _cast(column: pa.Array, type_: pa.DataType, name: str, path: str, first: int) -> pa.Array:
    if pa.types.is_string(type_):
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    try:
        return trimmed.cast(type_)
    except pa.ArrowException:
        for i in range(len(trimmed)):
            try:
                trimmed.slice(i, 1).cast(type_)
            except pa.ArrowException:
                problem = f"{column[i].as_py()!r} in column {name!r} is not of type {type_}"
                raise InputError(problem, source=path, line=first + i) from None
        raise


def _unreadable(path: str, bad: Exception) -> InputError:
    if isinstance(bad, UnicodeDecodeError) or "UTF8" in str(bad):
        with open(path, "rb") as file:
            for line, raw in enumerate(file, 1):
                try:
                    raw.decode("utf-8")
                except UnicodeDecodeError as wrong:
                    problem = f"byte {wrong.start + 1} of the line is not UTF-8"
                    return InputError(problem, source=path, line=line, remedy="save the file as UTF-8")
    text = str(bad).splitlines()[0] if str(bad) else type(bad).__name__
    return InputError(f"not a CSV file that can be read: {text}", source=path, remedy="a header, then a row per line")
