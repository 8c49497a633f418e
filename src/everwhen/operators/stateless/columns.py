"""Rows of other columns, linear in segments: computed row by row, or one for each element of a row's list or series."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.build import Column, Expr
from everwhen.algebra.table_nodes import Unnest
from everwhen.core.punctuation import Frontier
from everwhen.errors import EvaluationError
from everwhen.operators.contract import Operator, Output
from everwhen.operators.stateless.linear import MOST_LEVELS, evaluate
from everwhen.punctuation.api import Projection, make_frontier
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import BITS, RowCodec, encode_column


class KeepingOperator(Operator):
    """Rows of other columns.  What is promised of columns that are kept, under these names, holds for them."""

    def __init__(self, kept: Mapping[str, Sequence[str]], source: RowCodec, codec: RowCodec) -> None:
        self.codec = codec
        self._source = source
        self._promises = Projection(source.schema, kept)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        frontier = frontiers[0]
        if frontier.promises:
            frontier = make_frontier(frontier.time, self._promises.project(frontier.promises))
        return Output(self._rows(batch) if len(batch) else no_changes(self.codec), frontier)

    @abstractmethod
    def _rows(self, batch: Changes) -> Changes:
        """What becomes of some rows."""

    def snapshot(self) -> dict[str, Any]:
        return {"promises": self._promises.snapshot()} if len(self._promises) else {}

    def restore(self, state: dict[str, Any]) -> None:
        if state:
            self._promises.restore(state["promises"])


class MapOperator(KeepingOperator):
    """Each output column is an input column (copied as it is) or an expression."""

    def __init__(self, columns: Sequence[tuple[str, Expr]], source: RowCodec, codec: RowCodec) -> None:
        self._columns = [(source.schema.index(e.name) if isinstance(e, Column) else e) for _, e in columns]
        self._plain = [c for c in self._columns if isinstance(c, int)]
        kept: dict[str, list[str]] = {}
        for name, e in columns:
            if isinstance(e, Column):
                kept.setdefault(e.name, []).append(name)
        super().__init__(kept, source, codec)

    def _rows(self, batch: Changes) -> Changes:
        source, target, rows = self._source, self.codec, batch.rows
        if len(self._plain) == len(self._columns):
            return batch.with_rows(target, source.select(rows, self._plain, target))
        out = np.zeros((len(rows), target.width), np.int64)
        for to, column in enumerate(self._columns):
            if isinstance(column, int):
                out[:, target.words + to] = rows[:, source.words + column]
                missing = (rows[:, column // BITS] >> (column % BITS)) & 1
                out[:, to // BITS] |= missing << (to % BITS)
                continue
            values = evaluate(column, source, rows)
            codes = encode_column(values, target.schema.types[to], target.pool)
            if values.null_count:
                absent = values.is_null().to_numpy(zero_copy_only=False)
                codes[absent] = 0
                out[:, to // BITS] |= absent.astype(np.int64) << (to % BITS)
            out[:, target.words + to] = codes
        return batch.with_rows(target, out)


class UnnestOperator(KeepingOperator):
    """A row for each element of a row's list, or of a series.  Columns of the input keep their codes, and what is
    promised of them holds for the rows made of them."""

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
