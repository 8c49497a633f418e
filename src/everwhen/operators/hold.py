"""Hold: the final clip at the output of a plan that must never take anything back (`final`).

Segments wait until the promise has passed them, corrections are cut out while they wait, and what is released is cut
at the promise, because beyond it things may still change.  Kept are segments until `ve ≤ c`.  Unlike the sweep's
clip it leaves the pieces of a row apart, as they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.model.changes import Changes, concat, no_changes
from everwhen.model.punctuation import Frontier
from everwhen.model.rows import RowCodec
from everwhen.model.time import NEVER
from everwhen.operators.base import Operator, Output, StateSize
from everwhen.operators.kernels.live import HI, LO, WEIGHT
from everwhen.operators.kernels.tables import KeyTable
from everwhen.operators.live import LiveRows
from everwhen.operators.net import netted


class HoldOperator(Operator):
    """Everything before the promise, said once."""

    keeps = "segments until ve ≤ c"

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._promise = NEVER
        self._keys = KeyTable(codec.width, codec.pooled)
        codec.pool.register(self._keys)
        self._live = LiveRows(0, (), codec.pool)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        promise = frontiers[0].time
        maybe_empty = []
        if len(batch):
            ids = self._keys.intern(batch.rows)
            self._live.grow(self._keys.capacity)
            records = np.stack([batch.lo, batch.hi, batch.weight], axis=1)
            maybe_empty.append(self._live.empty(self._live.apply(ids, records)))
        if promise <= self._promise:
            self._remove(maybe_empty)
            return Output(no_changes(self.codec), Frontier(promise))
        ids = self._keys.ids()
        records, offsets = self._live.regions.gather(ids)
        key = np.repeat(ids, np.diff(offsets))
        due = records[:, LO] < promise
        lo = np.maximum(records[due, LO], self._promise)
        hi = np.minimum(records[due, HI], promise)
        out = Changes(self.codec, lo, hi, records[due, WEIGHT].copy(), self._keys.codes[key[due]])
        maybe_empty.append(self._live.expire(promise))
        self._promise = promise
        self._remove(maybe_empty)
        return Output(out, Frontier(promise))

    def _remove(self, candidates: Sequence[np.ndarray]) -> None:
        listed = [ids for ids in candidates if len(ids)]
        if listed:
            keys = np.unique(np.concatenate(listed))
            self._keys.remove(keys[self._live.regions.length[keys] == 0])

    def state_size(self) -> StateSize:
        return StateSize(self._live.regions.rows, self._live.nbytes + self._keys.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        live = self._live.snapshot(ids)
        return {"promise": self._promise, "rows": self.codec.decode(self._keys.codes[ids]), "live": live, "n": len(ids)}

    def restore(self, state: dict[str, Any]) -> None:
        self._promise = state["promise"]
        ids = self._keys.intern(self.codec.encode(state["rows"], state["n"]))
        self._live.grow(self._keys.capacity)
        self._live.restore(ids, state["live"], state["live"]["records"])


class InOrderOperator(Operator):
    """What has begun by τ or before the promise, in the order of its starts (`ended`, at the output of windows and
    splits).

    A window over a lifetime has levels that start one after the other; saying all of them when the event arrives would
    announce the future and put later events out of order.  Kept are segments that have not begun.
    """

    keeps = "segments until they begin"

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._waiting = no_changes(codec)
        codec.pool.register(self)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        promise = frontiers[0].time
        waiting = netted(concat(self._waiting, batch))
        begun = (waiting.lo <= tau) | (waiting.lo < promise)
        if begun.all():
            self._waiting = no_changes(self.codec)
            return Output(waiting, Frontier(promise))
        self._waiting = waiting.take(~begun)
        return Output(waiting.take(begun), Frontier(promise))

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self._waiting.rows, self.codec.pooled)]

    def recoded(self) -> None:
        """Segments carry no hash."""

    def state_size(self) -> StateSize:
        parts = (self._waiting.lo, self._waiting.hi, self._waiting.weight, self._waiting.rows)
        return StateSize(len(self._waiting), sum(part.nbytes for part in parts))

    def snapshot(self) -> dict[str, Any]:
        waiting = self._waiting
        return {"lo": waiting.lo, "hi": waiting.hi, "weight": waiting.weight, "rows": self.codec.decode(waiting.rows)}

    def restore(self, state: dict[str, Any]) -> None:
        rows = self.codec.encode(state["rows"], len(state["lo"]))
        self._waiting = Changes(self.codec, state["lo"], state["hi"], state["weight"], rows)
