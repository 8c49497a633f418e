"""The columns in which rows and control messages cross an exchange, and the version of these columns.

    partition  where the row goes
    kind       0, 1, …: a row of the stream with that number (behind the last stage: of the query with that number);
               below 0: a control message (`messages`); NOTHING: neither
    lo, hi, vnew, weight    the times of a row, and its weight
    slots…     the payload: the k-th column of a type stands in the k-th slot of that type, in whatever stream
    message    a control message as JSON; null in a row

    a row that is     lo    hi    vnew   weight
    an element        vs    ve    vnew   op
    a segment, event  lo    hi           weight

A stream's slots depend on its own columns alone, so a row fits every layout that its stream is part of.

Rows and messages share their batches, since a task of Spark gives rows of one schema, and a partition has to get both
by the same shuffle.  Nobody but this module, `codec` (rows) and `messages` (messages) reads these columns in Python;
`source_scan`, `stage_input` and `punctuation_rows` write and place them in the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import pyarrow as pa
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from everwhen.core.schema import Schema
from everwhen.errors import QueryError, StateError
from everwhen.spark.translate.terms import carried_type
from everwhen.storage.state_format import software

VERSION: Final = 1
"""Of the columns and of the messages.  It stands in every message and in every log of a partition's input."""
NUMBERS: Final = ("lo", "hi", "vnew", "weight")
NOTHING: Final = 2**31 - 1
_HEAD: Final = (("partition", pa.int32()), ("kind", pa.int32()), *((name, pa.int64()) for name in NUMBERS))
_METADATA: Final = b"everwhen.exchange"


def check_version(found: object, what: str) -> None:
    """Refuse what another version has written."""
    if found != VERSION:
        raise StateError(
            f"{what} is of version {str(found)[:20]} of the exchange, and {software()} reads version {VERSION}: "
            "driver, workers and checkpoint must be of one version of Everwhen. Go on with the one that wrote it, or "
            "start the query with a new checkpoint"
        )


def check_log(table: pa.Table, what: str) -> pa.Table:
    """A partition's input as it was logged; refused if another version has logged it."""
    found = (table.schema.metadata or {}).get(_METADATA, b"0")
    check_version(int(found) if found.isdigit() else found.decode(errors="replace"), what)
    return table


def carried(type_: pa.DataType) -> DataType:
    """Spark's type for a column that has to cross an exchange."""
    found = carried_type(type_)
    if found is None:
        raise QueryError(f"a column of type {type_} cannot cross Spark; cast it to another type in the query")
    return found


def slots(schema: Schema) -> tuple[tuple[str, pa.DataType], ...]:
    """The slots of a stream's columns, in their order."""
    counts: dict[str, int] = {}
    found = []
    for field in schema.fields:
        key = re.sub(r"\W+", "_", str(field.type)).strip("_")
        if "struct<" in str(field.type):  # names of fields may differ by what was left out
            key = f"{key[:40]}_{crc32(str(field.type).encode()):08x}"
        counts[key] = counts.get(key, 0) + 1
        found.append((f"{key}_{counts[key]}", field.type))
    return tuple(found)


@dataclass(frozen=True)
class ExchangeSchema:
    """The columns of an exchange: the head, the slots of all its streams, and a message."""

    payload: tuple[tuple[str, pa.DataType], ...]

    @classmethod
    def of(cls, schemas: Iterable[Schema]) -> ExchangeSchema:
        found = {name: type_ for schema in schemas for name, type_ in slots(schema)}
        return cls(tuple(sorted(found.items())))

    @property
    def columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        return (*_HEAD, *self.payload, ("message", pa.string()))

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema(list(self.columns), {_METADATA: str(VERSION).encode()})

    @property
    def spark(self) -> StructType:
        """The columns as Spark names them."""
        fixed: dict[str, DataType] = {"partition": IntegerType(), "kind": IntegerType(), "message": StringType()}
        fixed |= {name: LongType() for name in NUMBERS}
        return StructType([StructField(name, fixed.get(name) or carried(type_)) for name, type_ in self.columns])

    def batch(self, length: int, given: dict[str, pa.Array]) -> pa.RecordBatch:
        """So many rows with some of the columns; the others are null."""
        arrays = [given[name] if name in given else pa.nulls(length, type_) for name, type_ in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def rows(
        self, kind: int, numbers: Sequence[pa.Array], schema: Schema, payload: Sequence[pa.Array], **other: pa.Array
    ) -> pa.RecordBatch:
        """Rows of a stream: its four numbers and its columns, where they belong."""
        length = len(numbers[0])
        given = dict(zip([name for name, _ in slots(schema)], payload, strict=True)) | other
        given["kind"] = pa.repeat(pa.scalar(kind, pa.int32()), length)
        given.update(zip(NUMBERS, numbers, strict=True))
        return self.batch(length, given)
