"""Tables of other packages as Arrow: whatever speaks Arrow's C stream interface, and pandas.

Nothing here imports pandas, Polars or DuckDB.  Only the columns that are of use are taken.  Numbers of Arrow, Polars
and DuckDB are not copied; text of Polars is, because it is laid out otherwise.  The index of pandas is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from everwhen.errors import InputError
from everwhen.tables.optional import is_of

Wanted = Callable[[str], bool]


def is_table(given: object) -> bool:
    """Whether a value is a table, a batch of one, or a stream of such batches."""
    if isinstance(given, type):
        return False
    return (
        hasattr(given, "__arrow_c_stream__")
        or hasattr(given, "__arrow_c_array__")
        or is_of(given, "pandas", "DataFrame")
        or is_of(given, "polars", "LazyFrame")
    )


def pieces(given: Any, wanted: Wanted, size: int, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a table in pieces of at most so many, with the columns that are wanted."""
    return map(_with_plain_words, _pieces(given, wanted, size, name))


def _pieces(given: Any, wanted: Wanted, size: int, name: str) -> Iterator[pa.RecordBatch]:
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        yield from _chosen(given, wanted).to_batches(max_chunksize=size)
        return
    if is_of(given, "pandas", "DataFrame"):
        _require_no_index(given, wanted, name)
        yield from from_pandas(given, wanted, name).to_batches(max_chunksize=size)
        return
    for batch in _reader(given, wanted, name):
        kept = [column for column in batch.schema.names if wanted(column)]
        for start in range(0, batch.num_rows, size):
            yield batch.select(kept).slice(start, size)


def names_in(given: Any) -> list[str] | None:
    """The names of a table's columns; None if they are not known before it is read."""
    if isinstance(given, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return list(given.schema.names)
    if is_of(given, "polars", "LazyFrame"):
        return list(given.collect_schema().names())
    return list(map(str, given.columns)) if hasattr(given, "columns") else None


def _chosen(table: pa.Table, wanted: Wanted) -> pa.Table:
    return table.select([i for i, column in enumerate(table.schema.names) if wanted(column)])


def from_pandas(frame: Any, wanted: Wanted, name: str) -> pa.Table:
    """Columns of a pandas frame without its index; NaN is null."""
    chosen = frame.loc[:, [isinstance(column, str) and wanted(column) for column in frame.columns]]
    try:
        return pa.Table.from_pandas(chosen, preserve_index=False)
    except (pa.ArrowException, ValueError) as bad:
        text = "; ".join(str(part) for part in bad.args) or type(bad).__name__
        remedy = "a column has one type, and a name of its own; convert it with astype()"
        raise InputError(f"the frame cannot be read: {text}", source=name, remedy=remedy) from None


def _require_no_index(frame: Any, wanted: Wanted, name: str) -> None:
    for level in frame.index.names:
        if isinstance(level, str) and wanted(level) and level not in frame.columns:
            problem = f"{level!r} is the index of the frame, which is not read"
            raise InputError(problem, source=name, remedy="make it a column: frame.reset_index()")


def _reader(given: Any, wanted: Wanted, name: str) -> Iterator[pa.RecordBatch]:
    if is_of(given, "polars", "LazyFrame"):
        given = given.select([column for column in given.collect_schema().names() if wanted(column)]).collect()
    elif is_of(given, "polars", "DataFrame"):
        given = given.select([column for column in given.columns if wanted(column)])
    if hasattr(given, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(given))
    return iter([pa.record_batch(given)])


def _with_plain_words(piece: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; words of a category that Arrow cannot look up as they are laid out are laid out anew."""
    for i, field in enumerate(piece.schema):
        if pa.types.is_dictionary(field.type) and field.type.value_type == pa.string_view():
            column = piece.column(i)
            plain = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
            piece = piece.set_column(i, field.name, plain)
    return piece
