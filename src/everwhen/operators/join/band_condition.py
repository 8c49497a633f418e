"""Bands: comparisons of one left column with one right column, so that partners lie in a range of values.

Recognised in a condition's conjuncts: `left ± constant < right ± constant` with any of < <= > >= = between numeric,
date, time or timestamp columns.  The band only narrows the candidates (bounds are widened to floats), the whole
condition is still checked on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Column, Expr, Literal, conjuncts
from everwhen.core.schema import Schema
from everwhen.rows.codec import RowCodec

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Band:
    """`low ≤ right - left ≤ high` for a left and a right column (positions)."""

    left: int
    right: int
    low: float
    high: float

    @classmethod
    def of(cls, condition: Expr, left: Schema, right: Schema, pair: Schema) -> Band | None:
        """The narrowest band that a condition implies, if any."""
        bands: dict[tuple[int, int], tuple[float, float]] = {}
        n = len(left)
        for part in conjuncts(condition):
            if not (isinstance(part, Call) and part.name in _FLIPPED and len(part.operands) == 2):
                continue
            terms = [_term(operand, pair) for operand in part.operands]
            if terms[0] is None or terms[1] is None:
                continue
            (a, offset_a), (b, offset_b) = terms[0], terms[1]
            op = part.name
            if a >= n > b:
                a, b, offset_a, offset_b, op = b, a, offset_b, offset_a, _FLIPPED[op]
            if not a < n <= b:
                continue
            # left + offset_a  op  right + offset_b
            bound = offset_a - offset_b
            low, high = bands.get((a, b - n), (-np.inf, np.inf))
            if op in ("<", "<=", "="):
                low = max(low, bound)
            if op in (">", ">=", "="):
                high = min(high, bound)
            bands[a, b - n] = (low, high)
        if not bands:
            return None
        at = max(bands, key=lambda k: (np.isfinite(bands[k]).sum(), -k[0]))
        return cls(at[0], at[1], *bands[at])

    def values(self, port: int, codec: RowCodec, rows: np.ndarray) -> np.ndarray:
        """The compared values of a side's rows as floats; NaN, the largest of all, stands as infinity, and so do
        nulls."""
        values = self._floats(port, codec, rows)
        return np.where(np.isnan(values), np.inf, values)

    def bounds(self, port: int, codec: RowCodec, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For changes of one port the range in which partners' values lie, a little wider than exact."""
        values = self._floats(port, codec, rows)
        low, high = (self.low, self.high) if port == 0 else (-self.high, -self.low)
        finite = np.isfinite(values)  # an infinity has no neighbours: what is added to it changes nothing
        slack = np.where(finite, (np.abs(values) + sum(abs(b) for b in (low, high) if np.isfinite(b))) * 1e-12, 0.0)
        unknown = np.isnan(values)
        return (
            np.where(unknown | (low == -np.inf), -np.inf, values + np.where(finite, low, 0.0) - slack),
            np.where(unknown | (high == np.inf), np.inf, values + np.where(finite, high, 0.0) + slack),
        )

    def _floats(self, port: int, codec: RowCodec, rows: np.ndarray) -> np.ndarray:
        column = self.left if port == 0 else self.right
        codes = rows[:, codec.words + column]
        if pa.types.is_floating(codec.schema.types[column]):
            values = np.ascontiguousarray(codes).view(np.float64)
        else:
            values = codes.astype(np.float64)
        valid = codec.valid(rows, column)
        return values if valid is None else np.where(valid, values, np.nan)


def _term(expr: Expr, schema: Schema) -> tuple[int, float] | None:
    """`column`, `column + constant` or `column - constant` as (position, constant)."""
    if isinstance(expr, Column):
        at = schema.index(expr.name)
        type_ = schema.types[at]
        numeric = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_temporal(type_)
        return (at, 0.0) if numeric else None
    if isinstance(expr, Call) and expr.name in ("+", "-") and len(expr.operands) == 2:
        first, second = expr.operands
        inner = _term(first, schema)
        if inner and isinstance(second, Literal) and isinstance(second.constant, int | float) and inner[1] == 0.0:
            return inner[0], float(second.constant if expr.name == "+" else -second.constant)
    return None
