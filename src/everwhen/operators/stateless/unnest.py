"""A row for each element of a row's list, or of a series: linear in segments, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.table_nodes import Unnest
from everwhen.errors import EvaluationError
from everwhen.operators.stateless.linear import MOST_LEVELS, KeepingOperator, evaluate
from everwhen.rows.changes import Changes
from everwhen.rows.codec import BITS, RowCodec, encode_column


class UnnestOperator(KeepingOperator):
    """Columns of the input keep their codes.  What is promised of them holds for the rows made of them."""

    def __init__(self, node: Unnest, source: RowCodec, codec: RowCodec) -> None:
        super().__init__({name: [name] for name in source.schema.names}, source, codec)
        self._node = node

    def _rows(self, batch: Changes) -> Changes:
        args = [evaluate(arg, self._source, batch.rows) for arg in self._node.args]
        counts, elements = _listed(args[0]) if self._node.kind == "list" else self._series(args)
        total = float(counts.sum(dtype=np.float64))
        if total > MOST_LEVELS:
            raise EvaluationError(f"{self._node} would make {total:.3g} rows in one step; at most {MOST_LEVELS:,} are")
        absent = counts == 0 if self._node.outer else np.zeros(len(counts), np.bool_)
        repeated = counts + absent
        at = np.repeat(np.arange(len(counts)), repeated)
        place = np.arange(len(at)) - np.repeat(np.cumsum(repeated) - repeated, repeated) + 1
        return self._with_elements(batch.take(at), elements, place, absent[at])

    def _with_elements(self, batch: Changes, elements: pa.Array, place: np.ndarray, padded: np.ndarray) -> Changes:
        """The rows with an element each; `padded` ones have none."""
        source, target = self._source, self.codec
        width = len(source.schema)
        out = np.zeros((len(batch), target.width), np.int64)
        for to in range(width):
            out[:, target.words + to] = batch.rows[:, source.words + to]
            missing = (batch.rows[:, to // BITS] >> (to % BITS)) & 1
            out[:, to // BITS] |= missing << (to % BITS)
        codes = np.zeros(len(batch), np.int64)
        null = padded.copy()
        codes[~padded] = encode_column(elements, target.schema.types[width], target.pool)
        if elements.null_count:
            null[~padded] = elements.is_null().to_numpy(zero_copy_only=False)
            codes[null] = 0
        self._fill(out, width, codes, null)
        if self._node.place is not None:
            self._fill(out, width + 1, np.where(padded, 0, place), padded)
        return batch.with_rows(target, out)

    def _fill(self, out: np.ndarray, to: int, codes: np.ndarray, null: np.ndarray) -> None:
        out[:, self.codec.words + to] = codes
        out[:, to // BITS] |= null.astype(np.int64) << (to % BITS)

    def _series(self, args: Sequence[pa.Array]) -> tuple[np.ndarray, pa.Array]:
        known = np.ones(len(args[0]), np.bool_)
        for arg in args:
            known &= arg.is_valid().to_numpy(zero_copy_only=False)
        begin, end, step = (_whole_numbers(arg) for arg in args)
        if (known & (step == 0)).any():
            raise EvaluationError(f"{self._node} has a step of nothing: it would not end")
        forth = step > 0
        safe = np.where(step == 0, 1, step)
        inclusive = self._node.kind == "series"
        bound = end if inclusive else end - np.where(forth, 1, -1)
        some = known & np.where(forth, begin <= bound, begin >= bound)
        steps = np.where(some, (bound - np.where(some, begin, bound)) // safe, 0)
        counts = np.where(some, steps + 1, 0)
        if float(counts.sum(dtype=np.float64)) > MOST_LEVELS:
            return counts, pa.nulls(0)
        at = np.repeat(np.arange(len(counts)), counts)
        k = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
        values = begin[at] + k * step[at]
        return counts, pa.array(values).cast(self._node.element)


def _listed(lists: Any) -> tuple[np.ndarray, pa.Array]:
    """How many elements each list has, and all of them in a row."""
    if pa.types.is_null(lists.type):
        return np.zeros(len(lists), np.int64), pa.nulls(0)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts, lists.flatten()


def _whole_numbers(column: pa.Array) -> np.ndarray:
    """Numbers, or microseconds, with zeros for nulls."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    elif pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"))
    return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
