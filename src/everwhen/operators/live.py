"""A live multiset per key (the state of min, max, quantiles, user-defined aggregates, of the hold at the output).

Kept are segments until `ve ≤ c`, per key in the order of their ends.  Negative segments are cut out of kept ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.errors import EverwhenError
from everwhen.model.arrays import grown
from everwhen.model.pool import Pool
from everwhen.model.time import INF, NEVER
from everwhen.operators.kernels import live as kernel
from everwhen.operators.kernels.calendar import Calendar
from everwhen.operators.kernels.runs import LENGTH, Runs


class LiveRows:
    """Records `[lo, hi, weight, values…]` per key id; ids are given by whoever owns the keys."""

    def __init__(self, values: int, pooled: Sequence[tuple[int, pa.DataType]], pool: Pool) -> None:
        self.runs = Runs(kernel.VALUES + values)
        self.rows = 0
        self._pooled = [(kernel.VALUES + j, t) for j, t in pooled]
        self._tail = np.empty((256, kernel.VALUES + values), np.int64)
        pool.register(self)
        self.cti = NEVER
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)

    def grow(self, capacity: int) -> None:
        self.runs.grow(capacity)
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)

    def apply(self, ids: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Add signed records; returns the keys touched."""
        runs = self.runs
        keys, offsets, order = kernel.group_rows(ids, self._slot)
        before = self._count(keys)
        at = 0
        while at < len(keys):
            at, runs.end, tail, room, missing = kernel.apply(
                at, keys, offsets, order, records, runs.place, runs.pool, runs.free, runs.end, self._tail
            )
            if missing >= 0:
                raise EverwhenError(
                    "a change takes back a row that is not there: the stream before this operator is not valid"
                )
            if tail:
                self._tail = np.empty((2 * tail, self._tail.shape[1]), np.int64)
            if room:
                runs.reserve(room)
        self.rows += self._count(keys) - before
        self._ends.schedule(keys, self._soonest(keys))
        return keys

    def _count(self, keys: np.ndarray) -> int:
        return int(self.runs.place[keys, LENGTH].sum())

    def expire(self, cti: int) -> np.ndarray:
        """Drop what ended at or before `cti`; returns the keys that lost something."""
        self.cti = cti
        if cti == INF:
            keys = np.flatnonzero(self.runs.place[:, LENGTH])
            self.runs.clear()
            self.rows = 0
            return keys
        keys = self._ends.before(cti + 1)
        if len(keys):
            self._ends.schedule(keys, self._soonest(keys))
        return keys

    def expire_keys(self, keys: np.ndarray, until: np.ndarray) -> None:
        """Drop what ended by the time that is promised for its key."""
        self._ends.schedule(keys, self._soonest(keys, until))

    def _soonest(self, keys: np.ndarray, until: np.ndarray | None = None) -> np.ndarray:
        """Drop what has ended; per key the soonest end that is left."""
        soonest, over = np.empty(len(keys), np.int64), np.full(len(keys), self.cti, np.int64)
        if until is not None:
            over = np.maximum(over, until)
        runs = self.runs
        self.rows -= kernel.drop_ended(keys, over, runs.place, runs.pool, soonest)
        gone = keys[runs.place[keys, LENGTH] == 0]
        if len(gone):
            runs.release(gone)
        if runs.crowded:
            runs.tidy()
        return soonest

    def empty(self, keys: np.ndarray) -> np.ndarray:
        """Those of the keys that have no record left."""
        return keys[self.runs.place[keys, LENGTH] == 0]

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self.runs.tidy()  # what is left has codes in use
        return [(self.runs.pool[: self.runs.end], self._pooled)]

    def recoded(self) -> None:
        """Records carry no hash."""

    @property
    def nbytes(self) -> int:
        return self.runs.nbytes + self._tail.nbytes + self._ends.nbytes

    def snapshot(self, ids: np.ndarray) -> dict[str, Any]:
        records, offsets = self.runs.gather(ids)
        return {"cti": self.cti, "records": records, "offsets": offsets}

    def restore(self, ids: np.ndarray, state: dict[str, Any], records: np.ndarray) -> None:
        self.cti = state["cti"]
        self.runs.put(ids, state["offsets"], records)
        self.rows = len(records)
        self._ends.schedule(ids, self._soonest(ids))
