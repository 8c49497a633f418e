"""Conditions that let each left row meet one right row of its key: `t >= near AND (nearer IS NULL OR t < nearer)`.

A left row is a point on the axis of values, a right row an interval on it, and at any instant the intervals of a key
are disjoint.  So pairs are looked for by value and lifetime together (`loops/nearest.py`).  That only narrows the
candidates: values are compared as floats, the whole condition is still checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.properties.one_partner import neighbours
from everwhen.core.schema import Schema
from everwhen.operators.join.loops.nearest import FAR, NEAR, Blocks, Spans, blocks_of, probe_points
from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, slots=True)
class Nearest:
    """Positions of the left column `t` and of the right columns `near` and `nearer`, and whether t is above near."""

    t: int
    near: int
    nearer: int
    above: bool

    @classmethod
    def of(cls, condition: Expr | None, left: Schema, right: Schema, pair: Schema) -> Nearest | None:
        """What a condition says, if it says that and the values can be compared as floats."""
        found = neighbours(condition)
        if found is None:
            return None
        t, *others = (pair.index(name) for name in found[:3])
        near, nearer = (at - len(left) for at in others)
        if t >= len(left) or min(near, nearer) < 0 or right.types[near] != right.types[nearer]:
            return None
        return cls(t, near, nearer, found.above) if _comparable(left.types[t], right.types[near]) else None

    def points(self, codec: RowCodec, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values of left rows, and which of the rows have one."""
        values, valid = _floats(codec, rows, self.t)
        return values, np.flatnonzero(valid)

    def intervals(self, codec: RowCodec, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest values that right rows may meet."""
        near, _ = _floats(codec, rows, self.near)
        nearer, known = _floats(codec, rows, self.nearer)
        return (near, np.where(known, nearer, np.inf)) if self.above else (np.where(known, nearer, -np.inf), near)


def _comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether the codes of two types, as floats, are in the order of values."""
    if pa.uint64() in (a, b):
        return False
    number = pa.types.is_integer, pa.types.is_floating
    return (a == b and pa.types.is_temporal(a)) or all(any(test(each) for test in number) for each in (a, b))


def _floats(codec: RowCodec, rows: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column as floats, NaN as infinity, and which there are."""
    codes = np.ascontiguousarray(rows[:, codec.words + column])
    floating = pa.types.is_floating(codec.schema.types[column])
    values = codes.view(np.float64) if floating else codes.astype(np.float64)
    valid = codec.valid(rows, column)
    return np.where(np.isnan(values), np.inf, values), np.ones(len(rows), bool) if valid is None else valid


def meeting(points: Spans, intervals: Spans, cap: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs (point, interval) that live together, of one key, the point inside the interval; so many at a time."""
    order = np.lexsort((points.low, points.ids))
    points = Spans(*(each[order] for each in points))
    blocks = Blocks(blocks_of(points.lo, points.hi, NEAR), blocks_of(points.lo, points.hi, FAR))
    first = 0
    while first < len(intervals.ids):
        of, at, first = probe_points(points, blocks, intervals, first, cap)
        yield order[at], of
