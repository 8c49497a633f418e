"""How rows of several streams share the columns of one exchange.

    bucket  where the row goes           a, b, c, w  four numbers, whose meaning the row's kind says
    tag     which stream, or which kind  note        text of control rows
    slots   the payload: the k-th column of a type stands in the k-th slot of that type, in whatever stream

    kind             a          b           c      w
    element          vs         ve          vnew   op          tag = the stream's
    segment, event   lo         hi                 weight      tag = the stream's
    SOURCE           max start  cti         rows   source      progress of a source in this epoch; note: a wrong row
    LATE             rows       earliest           source      rows that came behind the promise of their source
    HANDED           tau        promise     from   stream      what a bucket of the stage before has promised
    PROMISE          from       until       kind   stream      a promise about data; see `promises`
    NOTE                                                       what a stage wants the driver to know
    ERROR                                                      why a bucket of the stage before gave up

A stream's slots depend on its own columns alone, so a row fits every layout that its stream is part of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StringType, StructField, StructType

from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.spark.translate.expressions import spark_type

SOURCE: Final = -1
LATE: Final = -2
HANDED: Final = -3
NOTE: Final = -4
ERROR: Final = -5
PROMISE: Final = -6

HEAD: Final = (
    ("bucket", pa.int32()),
    ("tag", pa.int32()),
    ("a", pa.int64()),
    ("b", pa.int64()),
    ("c", pa.int64()),
    ("w", pa.int64()),
)


def carried(type_: pa.DataType) -> DataType:
    """Spark's type for a column that has to cross an exchange."""
    found = spark_type(type_)
    if found is None and pa.types.is_list(type_):
        found = ArrayType(carried(type_.value_type))
    if found is None:
        raise QueryError(f"a column of type {type_} cannot cross Spark; cast it to another type in the query")
    return found


def control(
    tag: int, bucket: int, *, a: int = 0, b: int = 0, c: int = 0, w: int = 0, note: str | None = None
) -> dict[str, object]:
    """One control row."""
    return {"bucket": bucket, "tag": tag, "a": a, "b": b, "c": c, "w": w, "note": note}


def slots(schema: Schema) -> tuple[tuple[str, pa.DataType], ...]:
    """The slots of a stream's columns, in their order."""
    counts: dict[str, int] = {}
    found = []
    for field in schema.fields:
        key = re.sub(r"\W+", "_", str(field.type)).strip("_")
        counts[key] = counts.get(key, 0) + 1
        found.append((f"{key}_{counts[key]}", field.type))
    return tuple(found)


@dataclass(frozen=True)
class ExchangeSchema:
    """The columns of an exchange: the head, the slots of all its streams, and a note."""

    payload: tuple[tuple[str, pa.DataType], ...]

    @classmethod
    def of(cls, schemas: Iterable[Schema]) -> ExchangeSchema:
        found = {name: type_ for schema in schemas for name, type_ in slots(schema)}
        return cls(tuple(sorted(found.items())))

    @property
    def columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        return (*HEAD, *self.payload, ("note", pa.string()))

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(name, type_) for name, type_ in self.columns])

    @property
    def spark(self) -> StructType:
        """The columns as Spark names them."""
        fixed = {"bucket": IntegerType(), "tag": IntegerType(), "note": StringType()} | {n: LongType() for n in "abcw"}
        return StructType([StructField(name, fixed.get(name) or carried(type_)) for name, type_ in self.columns])

    def controls(self, rows: Sequence[dict[str, object]]) -> pa.RecordBatch:
        """Control rows as a batch of this layout."""
        return pa.RecordBatch.from_arrays(
            [pa.array([row.get(name) for row in rows], type_) for name, type_ in self.columns], schema=self.arrow
        )

    def rows(
        self, tag: int, numbers: Sequence[pa.Array], schema: Schema, payload: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        """Rows of a stream: its four numbers and its columns, where they belong."""
        length = len(numbers[0])
        given = dict(zip([name for name, _ in slots(schema)], payload, strict=True))
        given["tag"] = pa.repeat(pa.scalar(tag, pa.int32()), length)
        given.update(zip("abcw", numbers, strict=True))
        arrays = [given[name] if name in given else pa.nulls(length, type_) for name, type_ in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
