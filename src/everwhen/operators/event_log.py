"""The multiset of events that an adjust may still name: kept until `ve < c`, and behind one that lasts longer for as
long as the ring has room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.model.changes import Changes
from everwhen.model.promise_set import PromiseSet
from everwhen.model.punctuation import Promise
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import StateSize
from everwhen.operators.kernels import log as kernel
from everwhen.operators.promised import promised

_FEWEST: Final = 1024
"""A ring has room for so many entries at least; its size is a power of two."""


class EventLog:
    """Events by (vs, ve, row)."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._cti = NEVER
        self._oldest = 0
        self._count = 0
        self._last: tuple[Any, ...] | None = None
        self._over = PromiseSet(codec.schema)  # what was promised since the last tidying
        self._log = np.zeros((_FEWEST, kernel.ROW + codec.width), np.int64)
        self._heads = np.full(_FEWEST, -1, np.int64)
        codec.pool.register(self)

    def apply(
        self,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        rows: np.ndarray,
        adjusts: int,
        until: int = NEVER,
    ) -> int:
        """Take elements in arrival order; the position of the first adjust without its event (then nothing is
        taken), or -1.

        So many `adjusts` are among them.  `until`: the CTI that comes with the batch.
        """
        n = len(op)
        if self._count + n - self._oldest > len(self._log):
            self._tidy(n)
        marks = np.zeros(1 << (16 * adjusts).bit_length(), np.uint8)
        todo, hashes = np.empty(n, np.int64), np.empty(n, np.uint64)
        todo = todo[: kernel.named(op, vs, ve, rows, until, marks, todo, hashes)]
        killed, logged = np.empty(len(todo), np.int64), np.empty(len(todo), np.uint8)
        before = self._count
        self._count, wrong = kernel.apply(
            op, vs, ve, vnew, rows, until, marks, todo, self._heads, self._log, self._oldest, before, killed, logged,
            hashes,
        )  # fmt: skip
        self._last = (op, vs, ve, vnew, rows, before, todo, killed, logged) if wrong < 0 else None
        return int(wrong)

    def undo(self) -> None:
        """Take back what the last `apply` took."""
        if self._last is not None:
            op, vs, ve, vnew, rows, before, todo, killed, logged = self._last
            kernel.undo(op, vs, ve, vnew, rows, self._heads, self._log, self._count, todo, killed, logged)
            self._count, self._last = before, None

    def close(self, promises: Iterable[Promise]) -> None:
        """Events whose rows are promised can no longer be named; they go with the next tidying."""
        self._last = None
        if self._count > self._oldest:  # what comes later can't be what is promised
            self._over.add(promises)

    def _drop_promised(self) -> None:
        """Drop events that ended before what is promised of their rows."""
        if len(self._over):
            at = np.arange(self._oldest, self._count) & (len(self._log) - 1)
            ends, until = self._log[at, kernel.VE], promised(self._over, self.codec, self._log[at, kernel.ROW :])
            self._log[at[(ends < until) | (until == INF)], kernel.VE] = NEVER
            self._over = PromiseSet(self.codec.schema)

    def forget(self, cti: int) -> None:
        """Events that ended before `cti` can no longer be named."""
        self._cti, self._last = cti, None
        if cti == INF:  # nothing may be named any more, whenever it ends
            self._oldest = self._count
        else:
            self._oldest = int(kernel.forget(cti, self._log, self._oldest, self._count))

    def _tidy(self, more: int) -> None:
        """Write the events that are left anew, with room for so many more, and half of the ring besides."""
        self._last = None
        self._drop_promised()
        left = int(kernel.alive(self._cti, self._log, self._oldest, self._count))
        size = max(_FEWEST, 1 << (2 * (left + more) - 1).bit_length())
        if size != len(self._heads):
            self._heads = np.empty(size, np.int64)
        log = np.empty((size, self._log.shape[1]), np.int64)
        self._count = kernel.compact(self._cti, self._heads, self._log, self._oldest, self._count, log)
        self._oldest, self._log = 0, log

    def events(self) -> Changes:
        """The events that can still be named."""
        self._tidy(0)
        left = self._log[: self._count]
        vs, ve, rows = left[:, kernel.VS].copy(), left[:, kernel.VE].copy(), left[:, kernel.ROW :].copy()
        return Changes(self.codec, vs, ve, np.ones(len(left), np.int64), rows)

    def state_size(self) -> StateSize:
        """Events that can still be named."""
        self._drop_promised()
        rows = int(kernel.alive(self._cti, self._log, self._oldest, self._count))
        return StateSize(rows, self._log.nbytes + self._heads.nbytes)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._tidy(0)
        return [(self._log[: self._count], [(kernel.ROW + j, type_) for j, type_ in self.codec.pooled])]

    def recoded(self) -> None:
        self._tidy(0)

    def snapshot(self) -> dict[str, Any]:
        left = self.events()
        return {"cti": self._cti, "vs": left.lo, "ve": left.hi, "rows": self.codec.decode(left.rows)}

    def restore(self, state: dict[str, Any]) -> None:
        self._cti = state["cti"]
        vs, ve = state["vs"], state["ve"]
        self.apply(np.zeros(len(vs), np.uint8), vs, ve, ve, self.codec.encode(state["rows"], len(vs)), 0)
