"""A live multiset per key (the state of min, max, quantiles, user-defined aggregates, of the hold at the output).

Kept are segments until `ve ≤ c`, per key in the order of their ends.  Negative segments are cut out of kept ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.containers import live_runs as kernel
from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.run_pool import LENGTH, Runs
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.rows import restored
from everwhen.rows.interner import Interner

_NO_INTS = np.empty(0, np.int64)


class LiveRows:
    """Records `[lo, hi, weight, values…]` per key id; ids are given by whoever owns the keys."""

    def __init__(self, values: int, pooled: Sequence[tuple[int, pa.DataType]], pool: Interner) -> None:
        self.runs = Runs(kernel.VALUES + values)
        self.rows = 0
        self.longest = 0  # no key has ever more records
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
        before, _ = kernel.lengths(keys, runs.place)
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
        now, longest = kernel.lengths(keys, runs.place)
        self.rows += now - before
        self.longest = max(self.longest, longest)
        self._drop(keys)
        return keys

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
            self._drop(keys)
        return keys

    def expire_keys(self, keys: np.ndarray, until: np.ndarray) -> None:
        """Drop what ended by the time that is promised for its key."""
        if len(keys):
            self._drop(keys, until)

    def _drop(self, keys: np.ndarray, until: np.ndarray = _NO_INTS) -> None:
        """Drop what has ended, also by a time of each key's own, and note when the next ends."""
        runs, ends, empty = self.runs, self._ends, np.empty(len(keys), np.int64)
        dropped, gone = kernel.drop_ended(keys, self.cti, until, runs.place, runs.pool, ends.due, ends.block, empty)
        self.rows -= dropped
        if gone:
            runs.release(empty[:gone])
        if runs.crowded:
            runs.tidy()

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
        restored.runs(ids, state["offsets"], records, self.runs.pool.shape[1])
        restored.counts(records[:, kernel.WEIGHT])
        self.runs.put(ids, state["offsets"], records)
        self.rows = len(records)
        self.longest = max(self.longest, int(np.diff(state["offsets"]).max(initial=0)))
        self._drop(ids)
