"""Functions over frames as an operator: per snapshot, kept up to date by what changes.

Kept are rows until `ve ≤ c`, per partition.  Within the instants that a change touches rows of the partition that are
alive there are walked along their edges (`loops/frames.py`), before the change and after it, and the difference leaves.

Where frames reach a fixed number of rows, or a range with two bounds, these are the rows near to what changes
(`loops/near.py`), unless that is most of the partition: a step costs as much as there are near rows, not as many as
live on.  Else they are all rows: a step costs as much as there are rows alive in the spans that it touches, times the
rows that are alive together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import Over
from everwhen.algebra.ranks.over import SHIFTS, Frame, OverFunction
from everwhen.core.scalars import from_python
from everwhen.errors import EvaluationError
from everwhen.operators.rank.loops import frame_functions as functions
from everwhen.operators.rank.loops.frames import OUT, Frames, framed
from everwhen.operators.rank.loops.reach import Reach
from everwhen.operators.rank.ordered_rows import OrderedRows, everything
from everwhen.operators.rank.partitions import RankedPartitions
from everwhen.operators.rank.ranked_rows import KeptRows, Touched
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import BITS, RowCodec, encode_column
from everwhen.rows.interner import is_pooled

_MOST: Final = 2**62
"""A range that is as wide has all rows."""
_OPS: Final = {
    "min": functions.MIN,
    "max": functions.MAX,
    "first_value": functions.FIRST,
    "last_value": functions.LAST,
    "lag": functions.SHIFT,
    "lead": functions.SHIFT,
    "ntile": functions.NTILE,
    "percent_rank": functions.PERCENT,
    "cume_dist": functions.CUME,
}


class OverOperator(RankedPartitions):
    """See the module."""

    def __init__(self, node: Over, source: RowCodec, codec: RowCodec) -> None:
        self._node = node
        self._reach = _reach(node)
        kept = KeptRows if self._reach.places < 0 else OrderedRows
        super().__init__(node.partition, node.order, node.ties, source, codec, kept)
        n = len(node.functions)
        self._functions = np.zeros((n, functions.NUMBERS), np.int64)
        self._floats = np.zeros((n, 2), np.float64)
        self._defaults = np.zeros((1, n), np.int64)
        types = codec.schema.types[len(source.schema) :]
        self._pooled = [(at, type_) for at, type_ in enumerate(types) if is_pooled(type_)]
        places = {name: at for at, name in enumerate([*(each.column for each in node.order), *node.ties])}
        for at, function in enumerate(node.functions):
            self._set(at, function, places, types[at])
        source.pool.register(self)

    def _set(self, at: int, each: OverFunction, places: dict[str, int], type_: pa.DataType) -> None:
        source, f = self._source, self._functions[at]
        row = self._kept.head
        floating = False
        if each.column is not None:
            j = source.schema.index(each.column)
            floating = pa.types.is_floating(source.schema.types[j])
            f[functions.WORD] = row + source.words + j
            f[functions.NULL_WORD], f[functions.NULL_BIT] = row + j // BITS, j % BITS
            f[functions.PLACE] = places.get(each.column, -1)
        f[functions.OP] = _op(each, floating)
        frame = each.frame or Frame("range", None, 0)
        f[functions.RANGE] = frame.unit == "range"
        for to, (place, bound) in enumerate(((functions.START, frame.start), (functions.END, frame.end))):
            if bound is not None:
                f[place] = 1
                f[place + 1] = bound if type(bound) is int else int(np.sign(bound))
                self._floats[at, to] = bound
        f[functions.COUNTED] = -each.places if each.function == "lag" else each.places
        if each.function in SHIFTS and each.default is not None:
            f[functions.DEFAULT] = 1
            self._defaults[0, at] = encode_column(from_python([each.default], type_), type_, source.pool)[0]

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        """Defaults of texts and the like."""
        return [(self._defaults, self._pooled)]

    def recoded(self) -> None:
        """They are read anew at each step."""

    def _touched(self, ids: np.ndarray, batch: Changes) -> Touched:
        touched, kept = super()._touched(ids, batch), self._kept
        if not isinstance(kept, OrderedRows):
            return touched
        return replace(touched, near=kept.near(touched, batch, self._reach))

    def _apply(self, batch: Changes) -> Changes:
        """Near rows may be told what is wrong and goes away in the difference: what remains must not exceed 64 bits."""
        out = super()._apply(batch)
        before = len(self._source.schema)
        for at in np.flatnonzero(self._functions[:, functions.OP] == functions.SUM_I):
            null = (out.rows[:, (before + at) // BITS] >> ((before + at) % BITS)) & 1 == 1
            if (out.rows[null, self.codec.words + before + at] == functions.EXCEEDED).any():
                raise EvaluationError("a sum OVER a frame exceeds 64 bits; cast to DOUBLE first")
        return out

    def _said(self, touched: Touched, sign: int) -> Changes:
        kept = self._kept
        if not len(touched.keys):
            return no_changes(self.codec)
        self._functions[:, functions.DEFAULT + 1] = self._defaults[0]
        frames = Frames(self._functions, self._floats, self._reach)
        near = everything(touched) if touched.near is None else touched.near
        found, _ = framed(
            touched.keys, touched.offsets, touched.spans, near, kept.root, kept.count, kept.pool,
            kept.pool.view(np.float64), kept.order, frames,
        )  # fmt: skip
        lo, hi = found[:, 1].copy(), found[:, 2].copy()
        return Changes(self.codec, lo, hi, np.full(len(found), sign, np.int64), self._rows(found))

    def _rows(self, found: np.ndarray) -> np.ndarray:
        """Records with what functions say behind their columns."""
        source, codec = self._source, self.codec
        before = len(source.schema)
        records = self._kept.pool[found[:, 0], self._kept.head :]
        rows = np.zeros((len(found), codec.width), np.int64)
        rows[:, : source.words] = records[:, : source.words]
        rows[:, codec.words : codec.words + before] = records[:, source.words :]
        rows[:, codec.words + before :] = found[:, OUT:]
        for at in range(len(self._node.functions)):
            rows[:, (before + at) // BITS] |= ((found[:, 3] >> at) & 1) << ((before + at) % BITS)
        return rows


def _reach(node: Over) -> Reach:
    """How far frames reach; all rows of the partition matter where there is no bound, or where one is out of reach."""
    places, ranges = 0, []
    for each in node.functions:
        if each.function in SHIFTS:
            places = max(places, each.places)
            continue
        frame = each.frame
        if frame is None or frame.start is None or frame.end is None:
            return Reach(-1, peers=len(node.order))
        if frame.unit == "rows":
            places = max(places, abs(int(frame.start)), abs(int(frame.end)))
        else:
            ranges.append((frame.start, frame.end))
    start = min((0, *(start for start, _ in ranges)))
    end = max((0, *(end for _, end in ranges)))
    if not end - start < _MOST:  # nor is it a number
        return Reach(-1, peers=len(node.order))
    numbers = start < 0 or end > 0
    return Reach(places, bool(ranges), numbers, len(node.order), int(start), int(end), float(start), float(end))


def _op(each: OverFunction, floating: bool) -> int:
    match each.function:
        case "count":
            return functions.COUNT_ALL if each.column is None else functions.COUNT
        case "sum":
            return functions.SUM_F if floating else functions.SUM_I
        case "avg":
            return functions.AVG_F if floating else functions.AVG_I
    return _OPS[each.function]
