"""A bank of filters: many conditions `column = constant` over the same elements, looked up instead of tried in turn.

The elements are gathered once, those of each constant together and each group with the CTI behind it.  What a query
gets is a slice of that, so a query more costs a few microseconds, however many elements there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.nodes import Call, Column, Expr, Literal
from everwhen.algebra.nodes import Filter
from everwhen.core.schema import Schema
from everwhen.stream.element_batch import ElementBatch

FEWEST: Final = 3
"""So many filters on a column are worth a bank."""


def constant_of(predicate: Expr, schema: Schema) -> tuple[str, Any] | None:
    """The column and the constant of a condition that a bank can look up: whole numbers and texts are equal exactly
    if they are the same; other types have values (NaN, scales) that need the expression's own rules."""
    match predicate:
        case Call("=", (Column(name), Literal(value))) | Call("=", (Literal(value), Column(name))):
            type_ = schema.field(name, str(predicate)).type
            whole = pa.types.is_signed_integer(type_) and type(value) is int and -(2**63) <= value < 2**63
            if (whole and type_.bit_width == 64) or (pa.types.is_string(type_) and type(value) is str):
                return name, value
    return None


class EqualityFilterIndex:
    """Constants of one column; `find` gives the elements of each that there are any of."""

    def __init__(self, column: int, type_: pa.DataType, constants: Sequence[Any]) -> None:
        self._column = column
        self._constants = list(dict.fromkeys(constants))
        self._set = pa.array(self._constants, type_)

    def find(self, batch: ElementBatch, data: int) -> Mapping[Any, ElementBatch]:
        """By constant the elements with it among the first `data` ones, and the rest (a CTI) behind them."""
        found = pc.index_in(batch.columns[self._column].slice(0, data), self._set)
        codes = found.fill_null(-1).to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(codes >= 0)
        if not len(hits):
            return {}
        hits = hits[np.argsort(codes[hits], kind="stable")]
        present, counts = np.unique(codes[hits], return_counts=True)
        more = len(batch) - data
        ends = np.cumsum(counts + more)
        gathered = np.full(len(hits) + more * len(present), data, np.int64)
        is_data = np.ones(len(gathered), np.bool_)
        if more:
            is_data[ends - 1] = False
        gathered[is_data] = hits
        op, vs, ve, vnew = (each[gathered] for each in (batch.op, batch.vs, batch.ve, batch.vnew))
        at = pa.array(gathered)
        columns = [column.take(at) for column in batch.columns]
        parts, start = {}, 0
        for code, end in zip(present.tolist(), ends.tolist(), strict=True):
            some = tuple(column.slice(start, end - start) for column in columns)
            times = op[start:end], vs[start:end], ve[start:end], vnew[start:end]
            parts[self._constants[code]] = ElementBatch(batch.schema, *times, some)
            start = end
        return parts


def met(step: Filter, columns: Mapping[str, pa.Array], length: int) -> np.ndarray:
    """The positions of elements whose row makes the condition true."""
    verdict = step.predicate.evaluate(columns, length)
    if verdict.null_count:
        verdict = verdict.fill_null(False)
    return np.flatnonzero(verdict.to_numpy(zero_copy_only=False))


def taken(
    times: list[np.ndarray], columns: tuple[pa.Array, ...], picked: np.ndarray
) -> tuple[list[np.ndarray], tuple[pa.Array, ...]]:
    """The elements at some positions."""
    at = pa.array(picked)
    return [each[picked] for each in times], tuple(column.take(at) for column in columns)
