"""What heads have in common that keep something per key: numbers of keys, records over time, what is due, what ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import group_rows
from everwhen.containers.regions import Regions
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.loop import support_loops as kernel
from everwhen.operators.loop.head import LoopHead
from everwhen.operators.loop.support_loops import DELETE, HOLD, INSERT
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

NO_INTS = np.empty(0, np.int64)


class KeyedHead(LoopHead):
    """Keys of `keys` by number; per number runs of records `[lo, hi, …]`.  A key is gone when its run in the first of
    `regions` is empty."""

    once = True

    def __init__(self, codec: RowCodec, sent: RowCodec, keys: RowCodec, regions: Sequence[Regions]) -> None:
        self.codec = codec
        self.sent = sent
        self._keys = KeyTable(keys.width, keys.pooled)
        codec.pool.register(self._keys)
        self._regions = tuple(regions)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._round = 0
        self._promise = NEVER
        self._due: list[np.ndarray] = []  # keys at which something waits to come
        self._touched: list[np.ndarray] = []  # keys of this epoch

    @abstractmethod
    def _take(self, derived: Changes, phase: int) -> Changes:
        """Take derivations; what goes or comes."""

    @abstractmethod
    def _come(self, ids: np.ndarray) -> Changes:
        """What comes at keys where something is due."""

    def retract(self, derived: Changes) -> Changes:
        return self._take(derived, DELETE) if len(derived) else no_changes(self.sent)

    def insert(self, derived: Changes | None) -> Changes:
        waiting, self._due = self._due, []
        self._round += 1
        if derived is not None and len(derived):
            assert not waiting, "what is due comes before more is derived"
            return self._take(derived, INSERT)
        ids = self._distinct(waiting)
        return self._come(ids) if len(ids) else no_changes(self.sent)

    def hold(self, derived: Changes) -> None:
        if len(derived):
            self._take(derived, HOLD)

    @property
    def due(self) -> bool:
        return bool(self._due)

    def _grouped(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of coded keys, each once, with offsets and positions of those that have it."""
        ids = self._keys.intern(keys)
        self._grow()
        found: tuple[np.ndarray, np.ndarray, np.ndarray] = group_rows(ids, self._slot)
        return found

    def _visited(self, keys: np.ndarray, due: np.ndarray) -> None:
        """Note keys that were touched, and which of them are due."""
        self._touched.append(keys)
        if due.any():
            self._due.append(keys[due])

    def expire(self, promise: int) -> None:
        touched, self._touched = self._touched, []
        if promise == INF:
            self._keys.remove(self._keys.ids())
            for regions in self._regions:
                regions.clear()
            self._due = []
            self._promise = promise
            return
        if promise > self._promise:
            touched.append(self._ends.before(promise + 1))
        self._promise = max(promise, self._promise)
        ids = self._distinct(touched)
        if len(ids):
            for regions in self._regions:  # what was corrected may end at the promise though that has not moved
                ended = ids[kernel.first_ends(ids, regions.pool, regions.start, regions.length) <= self._promise]
                if len(ended):
                    new, offsets = kernel.drop_ended(*regions.gather(ended), self._promise)
                    regions.put(ended, offsets, new)
            self._schedule(ids)

    def _schedule(self, ids: np.ndarray) -> None:
        """Note when the first record of each key ends; forget keys without records."""
        regions = self._regions[0]
        ends = kernel.first_ends(ids, regions.pool, regions.start, regions.length)
        self._ends.schedule(ids, ends)
        empty = regions.length[ids] == 0
        if empty.any():
            self._keys.remove(ids[empty])

    def _distinct(self, parts: list[np.ndarray]) -> np.ndarray:
        if not parts:
            return NO_INTS
        return kernel.distinct(parts[0] if len(parts) == 1 else np.concatenate(parts), self._slot)

    def _grow(self) -> None:
        capacity = self._keys.capacity
        if capacity > len(self._slot):
            self._slot = grown(self._slot, capacity, -1)
            self._ends.grow(capacity)
            for regions in self._regions:
                regions.grow(capacity)

    def state_size(self) -> StateSize:
        kept = self._keys.nbytes + self._ends.nbytes + self._slot.nbytes
        return StateSize(sum(each.rows for each in self._regions), kept + sum(each.nbytes for each in self._regions))
