"""Rows of an exchange and what kernels take and give, both ways."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.plan.stages.model import Stage
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.spark.exchange.schema import ExchangeSchema, slots
from everwhen.spark.exchange.stream_rows import Rows
from everwhen.stream.element_batch import CTI, PUNCT, ElementBatch


def typed(batch: pa.RecordBatch, layout: ExchangeSchema) -> pa.RecordBatch:
    """The batch in the layout's own types: Spark names time zones and sizes of text in its own way."""
    arrays = [
        column if column.type == type_ else pc.cast(column, type_)
        for column, (_, type_) in zip(batch.columns, layout.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=layout.arrow)


def stream_rows(table: pa.Table, tags: np.ndarray, stage: Stage) -> dict[str, Rows]:
    """The rows of each stream of a stage."""
    found = {}
    for stream in stage.inputs:
        chosen = tags == stream.tag
        count = int(chosen.sum())
        if count:
            part = table if count == len(tags) else table.filter(pa.array(chosen))
            a, b, c, w = (_numbers(part.column(name)) for name in "abcw")
            columns = tuple(whole(part.column(name)) for name, _ in slots(stream.schema))
            found[stream.name] = Rows(a, b, c, w, columns)
    return found


def handed_rows(layout: ExchangeSchema, tag: int, codec: RowCodec, changes: Changes) -> Iterator[pa.RecordBatch]:
    """The changes of a stream that goes on to the next stage."""
    if len(changes):
        zeros = np.zeros(len(changes), np.int64)
        numbers = [pa.array(column) for column in (changes.lo, changes.hi, zeros, changes.weight)]
        yield layout.rows(tag, numbers, codec.schema, codec.decode(changes.rows))


def result_rows(layout: ExchangeSchema, tag: int, batch: ElementBatch) -> Iterator[pa.RecordBatch]:
    """The elements of an answer."""
    if len(batch):
        numbers = [pa.array(column.astype(np.int64)) for column in (batch.vs, batch.ve, batch.vnew, batch.op)]
        yield layout.rows(tag, numbers, batch.schema, batch.columns)


def without_promises(batch: ElementBatch) -> ElementBatch:
    """The elements without the bucket's own promises, which stand last and say nothing about other buckets."""
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
