"""Functions over frames as an operator: per snapshot, kept up to date by what changes.

Kept are rows until `ve ≤ c`, per partition.  Within the instants that a change touches all rows of the partition that
are alive there are walked along their edges (`loops/frames.py`), before the change and after it, and the difference
leaves.  So a step costs as much as there are rows alive in the spans that it touches, times, for frames that are not
a fixed number of rows, the rows of the partition that are alive together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import Over
from everwhen.algebra.over_node import SHIFTS, Frame, OverFunction
from everwhen.core.scalars import from_python
from everwhen.errors import EvaluationError
from everwhen.operators.rank.kept_rows import Touched
from everwhen.operators.rank.loops import frames as loops
from everwhen.operators.rank.loops.tree import ROW
from everwhen.operators.rank.partitions import PartitionOperator
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import BITS, RowCodec, encode_column
from everwhen.rows.interner import is_pooled

_OPS: Final = {
    "min": loops.MIN, "max": loops.MAX, "first_value": loops.FIRST, "last_value": loops.LAST, "lag": loops.SHIFT,
    "lead": loops.SHIFT, "ntile": loops.NTILE, "percent_rank": loops.PERCENT, "cume_dist": loops.CUME,
}  # fmt: skip


class OverOperator(PartitionOperator):
    """See the module."""

    def __init__(self, node: Over, source: RowCodec, codec: RowCodec) -> None:
        super().__init__(node.partition, node.order, node.ties, source, codec)
        self._node = node
        n = len(node.functions)
        self._functions = np.zeros((n, loops.NUMBERS), np.int64)
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
        floating = False
        if each.column is not None:
            j = source.schema.index(each.column)
            floating = pa.types.is_floating(source.schema.types[j])
            f[loops.WORD] = ROW + source.words + j
            f[loops.NULL_WORD], f[loops.NULL_BIT] = ROW + j // BITS, j % BITS
            f[loops.PLACE] = places.get(each.column, -1)
        f[loops.OP] = _op(each, floating)
        frame = each.frame or Frame("range", None, 0)
        f[loops.RANGE] = frame.unit == "range"
        for to, (place, bound) in enumerate(((loops.START, frame.start), (loops.END, frame.end))):
            if bound is not None:
                f[place] = 1
                f[place + 1] = bound if type(bound) is int else int(np.sign(bound))
                self._floats[at, to] = bound
        f[loops.COUNTED] = -each.places if each.function == "lag" else each.places
        if each.function in SHIFTS and each.default is not None:
            f[loops.DEFAULT] = 1
            self._defaults[0, at] = encode_column(from_python([each.default], type_), type_, source.pool)[0]

    @property
    def _reach(self) -> int:
        """How many rows away a row may matter; -1: all rows of the partition do."""
        reach = 0
        for each in self._node.functions:
            if each.function in SHIFTS:
                reach = max(reach, each.places)
                continue
            frame = each.frame
            if frame is None or frame.unit == "range" or frame.start is None or frame.end is None:
                return -1
            reach = max(reach, abs(int(frame.start)), abs(int(frame.end)))
        return reach

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        """Defaults of texts and the like."""
        return [(self._defaults, self._pooled)]

    def recoded(self) -> None:
        """They are read anew at each step."""

    def _said(self, touched: Touched, sign: int) -> Changes:
        kept = self._kept
        if not len(touched.keys):
            return no_changes(self.codec)
        self._functions[:, loops.DEFAULT + 1] = self._defaults[0]
        frames = loops.Frames(self._functions, self._floats, len(self._node.order), self._reach)
        found, exceeds = loops.framed(
            touched.keys, touched.offsets, touched.spans, kept.root, kept.count, kept.pool,
            kept.pool.view(np.float64), kept.order, frames,
        )  # fmt: skip
        if exceeds:
            raise EvaluationError("a sum OVER a frame exceeds 64 bits; cast to DOUBLE first")
        lo, hi = found[:, 1].copy(), found[:, 2].copy()
        return Changes(self.codec, lo, hi, np.full(len(found), sign, np.int64), self._rows(found))

    def _rows(self, found: np.ndarray) -> np.ndarray:
        """Records with what functions say behind their columns."""
        source, codec = self._source, self.codec
        before, functions = len(source.schema), len(self._node.functions)
        records = self._kept.pool[found[:, 0], ROW:]
        rows = np.zeros((len(found), codec.width), np.int64)
        rows[:, : source.words] = records[:, : source.words]
        rows[:, codec.words : codec.words + before] = records[:, source.words :]
        rows[:, codec.words + before :] = found[:, loops.OUT :]
        for at in range(functions):
            rows[:, (before + at) // BITS] |= ((found[:, 3] >> at) & 1) << ((before + at) % BITS)
        return rows


def _op(each: OverFunction, floating: bool) -> int:
    match each.function:
        case "count":
            return loops.COUNT_ALL if each.column is None else loops.COUNT
        case "sum":
            return loops.SUM_F if floating else loops.SUM_I
        case "avg":
            return loops.AVG_F if floating else loops.AVG_I
    return _OPS[each.function]
