"""One operator alone: changes told in plain rows, stepped by hand, and read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.operators.contract import Operator, Output
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from state_files import through_file

Segment = tuple[Any, ...]
"""(lo, hi, weight, values…)."""
Said = dict[tuple[Any, ...], int]
"""The weight of each (lo, hi, values…)."""


def codec_of(columns: Mapping[str, pa.DataType], pool: Interner | None = None) -> RowCodec:
    return RowCodec(Schema.of(list(columns.items())), pool or Interner())


def changes(codec: RowCodec, *segments: Segment) -> Changes:
    times = np.array([each[:3] for each in segments], np.int64).reshape(-1, 3)
    columns = [pa.array([each[3 + j] for each in segments], type_) for j, type_ in enumerate(codec.schema.types)]
    lo, hi, weight = (times[:, c].copy() for c in range(3))
    return Changes(codec, lo, hi, weight, codec.encode(columns, len(segments)))


def said(batch: Changes) -> Said:
    """The weights of segments, those of equal ones added up."""
    columns = [column.to_pylist() for column in batch.codec.decode(batch.rows)]
    found: Counter[tuple[Any, ...]] = Counter()
    for lo, hi, weight, *row in zip(batch.lo.tolist(), batch.hi.tolist(), batch.weight.tolist(), *columns, strict=True):
        found[lo, hi, *row] += weight
    return {segment: weight for segment, weight in found.items() if weight}


class Stepped:
    """An operator that `make` builds.  Frontiers are times, or a time and promises about data."""

    def __init__(self, make: Callable[[], Operator], *ports: RowCodec) -> None:
        self._make = make
        self._ports = ports
        self.operator = make()
        self.frontier = Frontier()

    def step(
        self,
        *inputs: Sequence[Segment],
        ctis: Sequence[int] = (),
        promises: Sequence[Sequence[Punctuation]] = (),
        tau: int = NEVER,
    ) -> Said:
        """What comes out; ports without changes or progress may be left out."""
        n = len(self._ports)
        batches = [changes(codec, *(inputs[p] if p < len(inputs) else ())) for p, codec in enumerate(self._ports)]
        frontiers = [
            Frontier(ctis[p] if p < len(ctis) else NEVER, tuple(promises[p] if p < len(promises) else ()))
            for p in range(n)
        ]
        output: Output = self.operator.step(batches, frontiers, tau)
        self.frontier = output.frontier
        return said(output.changes)

    def restart(self) -> None:
        """Go on in a new operator from what a snapshot is on disk."""
        state = through_file(self.operator.snapshot())
        self.operator = self._make()
        self.operator.restore(state)

    @property
    def rows(self) -> int:
        return self.operator.state_size().rows
