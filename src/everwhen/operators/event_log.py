"""The multiset of events that an adjust may still name: kept until `ve < c`, and up to as many again until it is
tidied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.model.changes import Changes
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import StateSize
from everwhen.operators.kernels import log as kernel
from everwhen.operators.kernels.tables import grown


class EventLog:
    """Events by (vs, ve, row)."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._cti = NEVER
        self._count = 0
        self._tidy_at = 1024
        self._last: tuple[Any, ...] | None = None
        self._vs = np.zeros(1024, np.int64)
        self._ve = np.zeros(1024, np.int64)
        self._rows = np.zeros((1024, codec.width), np.int64)
        self._after = np.zeros(1024, np.int64)
        self._heads = np.full(1024, -1, np.int64)
        codec.pool.register(self)

    def apply(self, op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray, rows: np.ndarray) -> int:
        """Take elements in arrival order; the position of the first adjust without its event (then nothing is
        taken), or -1."""
        n = len(op)
        if self._count + n > self._tidy_at:
            self._tidy(n)
        killed = np.empty(n, np.int64)
        before = self._count
        self._count, wrong = kernel.apply(
            op, vs, ve, vnew, rows, self._heads, self._after, self._vs, self._ve, self._rows, before, killed
        )
        self._last = (op, vs, ve, vnew, rows, before, killed) if wrong < 0 else None
        return int(wrong)

    def undo(self) -> None:
        """Take back what the last `apply` took."""
        if self._last is not None:
            op, vs, ve, vnew, rows, before, killed = self._last
            kernel.undo(op, vs, ve, vnew, rows, self._heads, self._after, self._ve, self._count, killed)
            self._count, self._last = before, None

    def forget(self, cti: int) -> None:
        """Events that ended before `cti` can no longer be named."""
        self._cti = cti
        if cti == INF:  # nothing may be named any more, whenever it ends
            self._count = 0
            self._heads[:] = -1

    def _tidy(self, more: int) -> None:
        """Drop what is forgotten; the next time comes when as much again has been added."""
        self._last = None
        self._count = kernel.compact(self._cti, self._heads, self._after, self._vs, self._ve, self._rows, self._count)
        self._tidy_at = max(1024, 2 * (self._count + more))
        if self._tidy_at > len(self._vs):
            self._vs, self._ve = grown(self._vs, self._tidy_at, 0), grown(self._ve, self._tidy_at, 0)
            self._rows, self._after = grown(self._rows, self._tidy_at, 0), grown(self._after, self._tidy_at, 0)
        slots = len(self._heads)
        while slots < self._tidy_at:
            slots *= 2
        if slots > len(self._heads):
            self._heads = np.full(slots, -1, np.int64)
            self._count = kernel.compact(
                self._cti, self._heads, self._after, self._vs, self._ve, self._rows, self._count
            )

    def events(self) -> Changes:
        """The events that can still be named."""
        self._tidy(0)
        n = self._count
        vs, ve, rows = self._vs[:n].copy(), self._ve[:n].copy(), self._rows[:n].copy()
        return Changes(self.codec, vs, ve, np.ones(n, np.int64), rows)

    def state_size(self) -> StateSize:
        """Events that can still be named."""
        ends = self._ve[: self._count]
        rows = int(((ends >= self._cti) & (ends != NEVER)).sum())
        return StateSize(
            rows, self._vs.nbytes + self._ve.nbytes + self._rows.nbytes + self._after.nbytes + self._heads.nbytes
        )

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._tidy(0)
        return [(self._rows[: self._count], self.codec.pooled)]

    def recoded(self) -> None:
        self._tidy(0)

    def snapshot(self) -> dict[str, Any]:
        self._tidy(0)
        n = self._count
        return {
            "cti": self._cti,
            "vs": self._vs[:n].copy(),
            "ve": self._ve[:n].copy(),
            "rows": self.codec.decode(self._rows[:n]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._cti = state["cti"]
        n = len(state["vs"])
        self.apply(np.zeros(n, np.uint8), state["vs"], state["ve"], state["ve"], self.codec.encode(state["rows"], n))
