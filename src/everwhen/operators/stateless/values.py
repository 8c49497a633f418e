"""Constant rows: all of them in the first step, with the promise that nothing else will ever come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.algebra.table_nodes import BEGINS, Values
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec


class ValuesOperator(Operator):
    """An operator without inputs.  `here`: whether this partition has the rows."""

    ports = 0
    keeps = "whether its rows have been said"

    def __init__(self, node: Values, codec: RowCodec, here: bool = True) -> None:
        self.codec = codec
        self._rows = node.rows if here else ()
        self._said = False

    @property
    def unfinished(self) -> bool:
        return not self._said

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        changes = no_changes(self.codec) if self._said else self._all()
        self._said = True
        return Output(changes, Frontier(INF))

    def _all(self) -> Changes:
        count = len(self._rows)
        columns = [pa.array([row[at] for row in self._rows], type_) for at, type_ in enumerate(self.codec.schema.types)]
        starts, ends = np.full(count, BEGINS, np.int64), np.full(count, INF, np.int64)
        return Changes(self.codec, starts, ends, np.ones(count, np.int64), self.codec.encode(columns, count))

    def needs(self, t: int) -> tuple[int, ...]:
        return ()

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes]:
        return NEVER, self._all() if self._said else no_changes(self.codec)

    def snapshot(self) -> dict[str, Any]:
        return {"said": self._said}

    def restore(self, state: dict[str, Any]) -> None:
        self._said = state["said"]
