"""Rows of an exchange and what partitions take and give, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.schema import Schema
from everwhen.plan.stages.model import Stage
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.spark.exchange.schema import NUMBERS, ExchangeSchema, slots
from everwhen.stream.element_batch import CTI, PUNCT, ElementBatch


@dataclass(frozen=True)
class Rows:
    """Rows of one stream: the four numbers of the exchange (`schema`) and the payload."""

    lo: np.ndarray
    hi: np.ndarray
    vnew: np.ndarray
    weight: np.ndarray
    columns: tuple[pa.Array, ...]


def typed(batch: pa.RecordBatch, layout: ExchangeSchema) -> pa.RecordBatch:
    """The batch in the layout's own types: Spark names time zones and sizes of text in its own way."""
    arrays = [
        column if column.type == type_ else pc.cast(column, type_)
        for column, (_, type_) in zip(batch.columns, layout.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=layout.arrow)


def stream_rows(table: pa.Table, kinds: np.ndarray, stage: Stage) -> dict[str, Rows]:
    """The rows of each stream of a stage."""
    found = {}
    for stream in stage.inputs:
        chosen = kinds == stream.tag
        count = int(chosen.sum())
        if count:
            part = table if count == len(kinds) else table.filter(pa.array(chosen))
            lo, hi, vnew, weight = (_numbers(part.column(name)) for name in NUMBERS)
            columns = tuple(whole(part.column(name)) for name, _ in slots(stream.schema))
            found[stream.name] = Rows(lo, hi, vnew, weight, columns)
    return found


def handed_rows(layout: ExchangeSchema, kind: int, codec: RowCodec, changes: Changes) -> Iterator[pa.RecordBatch]:
    """The changes of a stream that goes on to the next stage."""
    if len(changes):
        zeros = np.zeros(len(changes), np.int64)
        numbers = [pa.array(column) for column in (changes.lo, changes.hi, zeros, changes.weight)]
        yield layout.rows(kind, numbers, codec.schema, codec.decode(changes.rows))


def result_rows(layout: ExchangeSchema, kind: int, batch: ElementBatch) -> Iterator[pa.RecordBatch]:
    """The elements of an answer."""
    if len(batch):
        numbers = [pa.array(column.astype(np.int64)) for column in (batch.vs, batch.ve, batch.vnew, batch.op)]
        yield layout.rows(kind, numbers, batch.schema, batch.columns)


def element_rows(table: pa.Table, kinds: np.ndarray, kind: int, schema: Schema, source: str = "") -> ElementBatch:
    """The elements of a stream or of an answer."""
    part = table.filter(pa.array(kinds == kind))
    vs, ve, vnew, op = (_numbers(part.column(name)) for name in NUMBERS)
    columns = tuple(whole(part.column(slot).cast(type_)) for slot, type_ in slots(schema))
    return ElementBatch(schema, op.astype(np.uint8), vs, ve, vnew, columns, source=source)


def without_promises(batch: ElementBatch) -> ElementBatch:
    """The elements without the partition's own promises, which stand last and say nothing about other partitions."""
    n = len(batch)
    n -= n > 0 and batch.op[n - 1] == CTI
    while n and batch.op[n - 1] == PUNCT:
        n -= 1
    return batch if n == len(batch) else batch.slice(0, n)


def taken(batch: ElementBatch, order: np.ndarray) -> ElementBatch:
    """The elements at positions."""
    picked = pa.array(order)
    columns = tuple(column.take(picked) for column in batch.columns)
    return ElementBatch(batch.schema, batch.op[order], batch.vs[order], batch.ve[order], batch.vnew[order], columns)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers that may be written to: compiled kernels take no others."""
    return np.array(whole(column).to_numpy(zero_copy_only=False), dtype=np.int64)
