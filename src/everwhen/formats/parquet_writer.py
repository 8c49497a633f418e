"""Elements into a Parquet file (what its columns mean: `everwhen.formats.parquet`).

**Times** are whole numbers (ticks), or on a dated axis timestamps in UTC; the file's metadata then tell the length of a
tick (`everwhen.tick`).

**CTIs and promises** are rows without a payload, so every column has nulls.  Programs that know nulls read whole
numbers as such; pandas alone would make floats of them.  The file's metadata ask it for its nullable types instead
(`Int64`, `boolean`), as in files that pandas itself writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import QueryError
from everwhen.punctuation.api import write_match
from everwhen.storage.atomic_file import whole_file
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST, CTI, EXTERNAL_CTI, OPS, PUNCT, ElementBatch

MATCH, COUNT, AT = "_match", "_count", "_at"
SPECIAL: Final = (*RESERVED, MATCH, COUNT, AT)
TICK: Final = b"everwhen.tick"
"""The key of the metadata under which the length of a tick stands."""


def write_parquet(
    batches: Iterable[ElementBatch],
    path: str | os.PathLike[str],
    schema: Schema | None = None,
    axis: TimeAxis = TICKS,
) -> int:
    """Writes elements to a file that appears whole or not at all; the schema is needed only if there is no batch."""
    with whole_file(path) as part:
        output = _Output(part, axis)
        try:
            for batch in batches:
                if len(batch):
                    output.write(batch)
            if output.writer is None:
                output.open(schema or Schema(()), frozenset())
        finally:
            output.close()
    return output.count


class _Output:
    """A Parquet file that grows a column when the first element needs it."""

    def __init__(self, path: Path, axis: TimeAxis) -> None:
        self.path = path
        self.axis = axis
        self.writer: pq.ParquetWriter | None = None
        self.schema = Schema(())
        self.special: frozenset[str] = frozenset()
        self.count = 0

    def open(self, schema: Schema, special: frozenset[str]) -> None:
        taken = [name for name in schema.names if name in SPECIAL]
        if taken:
            raise QueryError(f"a column named {taken[0]!r} has no place in a Parquet file of elements; rename it")
        self.schema, self.special = schema, special
        times = [("op", pa.string()), *((name, self.axis.arrow_type) for name in ("vs", "ve", "vnew"))]
        extra = [(name, pa.string() if name == MATCH else pa.int64()) for name in (MATCH, COUNT, AT) if name in special]
        columns = pa.schema([*times, *extra, *schema.to_arrow()])
        about = {b"pandas": _for_pandas(columns)}
        if self.axis.dated:
            about[TICK] = self.axis.tick_text.encode()
        self.writer = pq.ParquetWriter(self.path, columns.with_metadata(about))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()

    def write(self, batch: ElementBatch) -> None:
        needed = self.special
        if (batch.op == PUNCT).any():
            needed |= {MATCH}
        if (batch.op == EXTERNAL_CTI).any():
            needed |= {COUNT}
        if batch.at is not None:
            needed |= {AT}
        if self.writer is None:
            self.open(batch.schema, needed)
        elif needed != self.special:
            self._widen(needed)
        assert self.writer is not None
        self.writer.write_table(self._table(batch))
        self.count += len(batch)

    def _widen(self, special: frozenset[str]) -> None:
        """Starts the file anew with more columns: rare, and cheaper than columns that nearly no file needs."""
        self.close()
        old = self.path.with_name(self.path.name + ".narrow")
        os.replace(self.path, old)
        try:
            self.open(self.schema, special)
            assert self.writer is not None
            with pq.ParquetFile(old) as file:
                for piece in file.iter_batches():
                    nulls = {field.name: pa.nulls(len(piece), field.type) for field in self.writer.schema}
                    there = {name: piece.column(name) for name in piece.schema.names}
                    self.writer.write_table(pa.table({**nulls, **there}, schema=self.writer.schema))
        finally:
            old.unlink()

    def _table(self, batch: ElementBatch) -> pa.Table:
        assert self.writer is not None
        columns = columns_of_elements(batch, self.axis)
        return pa.table({name: columns[name] for name in self.writer.schema.names}, schema=self.writer.schema)


def columns_of_elements(batch: ElementBatch, axis: TimeAxis = TICKS) -> dict[str, Any]:
    """The columns of a file of elements, all of those that one may have; times are as on the axis."""
    vs, ve = batch.vs.copy(), batch.ve.copy()
    counts = np.zeros(len(batch), np.int64)
    matches: list[str | None] = [None] * len(batch)
    for i, promise in batch.promises.items():
        if isinstance(promise, Punct):
            vs[i] = promise.promise.t
            match = write_match(promise.promise.match, batch.schema)
            matches[i] = json.dumps(match, ensure_ascii=False, separators=(",", ":"))
        else:
            vs[i], ve[i], counts[i] = promise.vs, promise.ve, promise.count
    op = batch.op
    columns: dict[str, Any] = {
        "op": pa.array(OPS).take(pa.array(op)),
        "vs": axis.array(vs, vs == INF),
        "ve": axis.array(ve, (op == CTI) | (op == PUNCT)),
        "vnew": axis.array(batch.vnew, op != ADJUST),
    }
    columns |= {
        MATCH: pa.array(matches, pa.string()),
        COUNT: pa.array(counts, mask=op != EXTERNAL_CTI),
        AT: batch.at,
    }
    columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
    return columns


def _for_pandas(columns: pa.Schema) -> bytes:
    """What pandas' own files say of columns of nullable types."""
    found = []
    for field in columns:
        type_ = str(field.type)
        if pa.types.is_integer(field.type):
            nullable = type_.replace("uint", "UInt") if type_.startswith("u") else type_.replace("int", "Int")
            found.append((field.name, type_, nullable))
        elif pa.types.is_boolean(field.type):
            found.append((field.name, "bool", "boolean"))
    told = [
        {"name": name, "field_name": name, "pandas_type": plain, "numpy_type": nullable, "metadata": None}
        for name, plain, nullable in found
    ]
    creator = {"library": "pyarrow", "version": pa.__version__}
    about = {"index_columns": [], "column_indexes": [], "columns": told, "creator": creator, "pandas_version": "1.5.0"}
    return json.dumps(about).encode()
