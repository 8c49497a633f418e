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

from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import HI, LO, WEIGHT
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, Policy, StateSize
from everwhen.operators.key_frontiers import KeyFrontiers, keys_covered, upto
from everwhen.operators.live_rows import LiveRows
from everwhen.operators.net import netted
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec


class HoldOperator(Operator):
    """Everything before the promise, said once; of a row that is promised for longer, everything before that."""

    keeps = "segments until ve ≤ c"

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._promise = NEVER
        self._keys = KeyTable(codec.width, codec.pooled)
        codec.pool.register(self._keys)
        self._live = LiveRows(0, (), codec.pool)
        self._floors = KeyFrontiers()
        self._open = False

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        """Everything that waits goes on, and from now on nothing does wait."""
        if self._open or emit is Emit.FINAL:
            return None
        self._open = True
        ids = self._keys.ids()
        records, offsets = self._live.runs.gather(ids)
        key = np.repeat(ids, np.diff(offsets))
        lo = np.maximum(records[:, LO], self._floors.until(key, self._promise))
        out = Changes(self.codec, lo, records[:, HI].copy(), records[:, WEIGHT].copy(), self._keys.codes[key])
        self._remove([self._live.expire(INF)])
        return out.take(out.lo < out.hi)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        promise = frontiers[0].time
        if self._open:
            return Output(batch, Frontier(promise))
        maybe_empty = []
        if len(batch):
            ids = self._keys.intern(batch.rows)
            self._live.grow(self._keys.capacity)
            records = np.stack([batch.lo, batch.hi, batch.weight], axis=1)
            maybe_empty.append(self._live.empty(self._live.apply(ids, records)))
        reached, until = keys_covered(frontiers[0].promises, self.codec, self._keys)
        if self._floors.any or len(reached):
            self._floors.grow(self._keys.capacity)
        out = no_changes(self.codec)
        if promise > self._promise or len(reached):
            self._floors.raise_to(reached, until, len(self._floors.now))
            out = self._released(self._keys.ids() if promise > self._promise else reached, promise)
            maybe_empty += [self._live.expire(promise), reached]
            self._live.expire_keys(reached, until)
            self._promise = promise
        gone = self._remove(maybe_empty)
        if self._floors.any:
            self._floors.settle(gone)
        return Output(out, frontiers[0])

    def _released(self, ids: np.ndarray, promise: int) -> Changes:
        """What the promises let out of these rows and did not before."""
        records, offsets = self._live.runs.gather(ids)
        key = np.repeat(ids, np.diff(offsets))
        then, now = self._floors.then(key, self._promise), self._floors.until(key, promise)
        lo, hi = np.maximum(records[:, LO], then), np.minimum(records[:, HI], now)
        due = lo < hi
        return Changes(self.codec, lo[due], hi[due], records[due, WEIGHT].copy(), self._keys.codes[key[due]])

    def _remove(self, candidates: Sequence[np.ndarray]) -> np.ndarray:
        listed = [ids for ids in candidates if len(ids)]
        if not listed:
            return np.empty(0, np.int64)
        keys = np.unique(np.concatenate(listed))
        gone = self._live.empty(keys)
        self._keys.remove(gone)
        return gone

    def state_size(self) -> StateSize:
        return StateSize(self._live.rows, self._live.nbytes + self._keys.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        live = self._live.snapshot(ids)
        rows = self.codec.decode(self._keys.codes[ids])
        floors = self._floors.snapshot(ids)
        return {"promise": self._promise, "rows": rows, "live": live, "n": len(ids), "floors": floors}

    def restore(self, state: dict[str, Any]) -> None:
        self._promise = state["promise"]
        ids = self._keys.intern(restored.rows(self.codec, state["rows"], state["n"]))
        self._live.grow(self._keys.capacity)
        self._live.restore(ids, state["live"], state["live"]["records"])
        self._floors.restore(ids, state["floors"], self._keys.capacity)


class InOrderOperator(Operator):
    """What has begun by τ or before the promise, in the order of its starts (`ended`, at the output of windows and
    splits).

    A window over a lifetime has levels that start one after the other; saying all of them when the event arrives would
    announce the future and put later events out of order.  Kept are segments that have not begun.  A row of which
    something is taken back is no longer in order anyway: from then on it is said as it comes, until what was said ahead
    has begun, because a correction that came in parts would say more than one that comes at once.
    """

    keeps = "segments until they begin"

    def __init__(self, codec: RowCodec, policy: Policy) -> None:
        self.codec = codec
        self._policy = policy
        self._waiting = no_changes(codec)
        self._corrected = np.empty((0, codec.width), np.int64)
        self._until = np.empty(0, np.int64)
        self._open = False
        codec.pool.register(self)

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        if self._open or emit in (Emit.FINAL, Emit.ENDED):
            return None
        self._open = True
        out, self._waiting = self._waiting, no_changes(self.codec)
        return out

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        promise = frontiers[0].time
        if self._open:
            return Output(batch, frontiers[0])
        present = self._policy.ended_by(tau)
        batch = netted(batch)
        waiting = concat(self._waiting, batch)
        begun = (waiting.lo <= present) | (waiting.lo < promise)
        if frontiers[0].promises and len(waiting):
            begun |= waiting.lo < upto(frontiers[0].promises, self.codec, waiting.rows)
        out = waiting.take(begun)
        if len(self._corrected) or (batch.weight < 0).any():
            at_once = self._at_once(batch, waiting) & ~begun
            out = netted(concat(out, waiting.take(at_once)))
            begun |= at_once
            lasts = (self._until > present) & (self._until >= promise)
            self._corrected, self._until = self._corrected[lasts], self._until[lasts]
        self._waiting = no_changes(self.codec) if begun.all() else waiting.take(~begun)
        return Output(out, frontiers[0])

    def _at_once(self, batch: Changes, waiting: Changes) -> np.ndarray:
        """Which segments belong to rows that are said as they come; notes how long these are."""
        table = KeyTable(self.codec.width)
        table.intern(self._corrected)
        ids = table.intern(np.concatenate([batch.rows[batch.weight < 0], waiting.rows]))
        n = len(self._corrected) + int((batch.weight < 0).sum())
        until = np.full(table.capacity, NEVER, np.int64)
        until[: len(self._corrected)] = self._until  # ids are given out in order
        marked = np.zeros(table.capacity, np.bool_)
        marked[: len(self._corrected)] = True
        marked[ids[: n - len(self._corrected)]] = True
        ids = ids[n - len(self._corrected) :]
        at_once = marked[ids]
        np.maximum.at(until, ids[at_once], waiting.lo[at_once])
        kept = np.flatnonzero(marked)
        self._corrected, self._until = table.codes[kept].copy(), until[kept]
        return at_once

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self._waiting.rows, self.codec.pooled), (self._corrected, self.codec.pooled)]

    def recoded(self) -> None:
        """Segments carry no hash."""

    def state_size(self) -> StateSize:
        parts = (self._waiting.lo, self._waiting.hi, self._waiting.weight, self._waiting.rows)
        size = sum(part.nbytes for part in parts) + self._corrected.nbytes
        return StateSize(len(self._waiting) + len(self._corrected), size)

    def snapshot(self) -> dict[str, Any]:
        waiting = self._waiting
        return {
            "lo": waiting.lo, "hi": waiting.hi, "weight": waiting.weight, "rows": self.codec.decode(waiting.rows),
            "corrected": self.codec.decode(self._corrected), "until": self._until,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        restored.ints(len(state["lo"]), state["lo"], state["hi"], state["weight"])
        restored.counts(state["weight"])
        restored.ints(len(state["until"]), state["until"])
        rows = restored.rows(self.codec, state["rows"], len(state["lo"]))
        self._waiting = Changes(self.codec, state["lo"], state["hi"], state["weight"], rows)
        self._corrected = restored.rows(self.codec, state["corrected"], len(state["until"]))
        self._until = state["until"]
