"""A live multiset per key (the state of min, max, quantiles, user-defined aggregates, of the hold at the output).

Kept are segments until `ve ≤ c`.  Negative segments are cut out of kept ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.errors import EverwhenError
from everwhen.model.pool import Pool
from everwhen.model.time import INF, NEVER
from everwhen.operators.kernels import live as kernel
from everwhen.operators.kernels.calendar import Calendar
from everwhen.operators.kernels.events import drop_ended
from everwhen.operators.kernels.tables import Regions, grown


class LiveRows:
    """Records `[lo, hi, weight, values…]` per key id; ids are given by whoever owns the keys."""

    def __init__(self, values: int, pooled: Sequence[tuple[int, pa.DataType]], pool: Pool) -> None:
        self.regions = Regions(kernel.VALUES + values, [(kernel.VALUES + j, t) for j, t in pooled])
        pool.register(self.regions)
        self.cti = NEVER
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)

    def grow(self, capacity: int) -> None:
        self.regions.grow(capacity)
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)

    def apply(self, ids: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Add signed records; returns the keys touched."""
        regions = self.regions
        keys, offsets, order = kernel.group_rows(ids, self._slot)
        negative = records[:, kernel.WEIGHT] < 0
        before = int(regions.length[keys].sum())
        cuts = int(-records[negative, kernel.WEIGHT].sum())  # each cut may leave two ends
        regions.reserve((before + len(records)) * (2 if cuts else 1) + 4 * cuts)
        regions.end, missing = kernel.apply(
            keys, offsets, order, records, regions.start, regions.length, regions.pool, regions.end, self.cti
        )
        if missing >= 0:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        regions.rows += int(regions.length[keys].sum()) - before
        self._ends.schedule(keys, self._soonest(keys))
        return keys

    def expire(self, cti: int) -> np.ndarray:
        """Drop what ended at or before `cti`; returns the keys that lost something."""
        self.cti = cti
        if cti == INF:
            keys = np.flatnonzero(self.regions.length)
            self.regions.clear()
            return keys
        keys = self._ends.before(cti + 1)
        if len(keys):
            self._ends.schedule(keys, self._soonest(keys))
        return keys

    def expire_keys(self, keys: np.ndarray, until: np.ndarray) -> None:
        """Drop what ended by the time that is promised for its key."""
        for t in np.unique(until):
            some = keys[until == t]
            self._ends.schedule(some, self._soonest(some, int(t)))

    def _soonest(self, keys: np.ndarray, until: int = NEVER) -> np.ndarray:
        soonest = np.empty(len(keys), np.int64)
        regions = self.regions
        regions.rows -= drop_ended(
            keys, regions.start, regions.length, regions.pool, kernel.HI, max(self.cti, until), soonest
        )
        return soonest

    def empty(self, keys: np.ndarray) -> np.ndarray:
        """Those of the keys that have no record left."""
        return keys[self.regions.length[keys] == 0]

    @property
    def nbytes(self) -> int:
        return self.regions.nbytes + self._ends.nbytes

    def snapshot(self, ids: np.ndarray) -> dict[str, Any]:
        records, offsets = self.regions.gather(ids)
        return {"cti": self.cti, "records": records, "offsets": offsets}

    def restore(self, ids: np.ndarray, state: dict[str, Any], records: np.ndarray) -> None:
        self.cti = state["cti"]
        self.regions.put(ids, state["offsets"], records)
        self._ends.schedule(ids, self._soonest(ids))
