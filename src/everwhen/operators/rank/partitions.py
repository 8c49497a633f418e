"""What operators over ordered partitions have in common: rows are kept until `ve ≤ c`, and a change is answered by the
difference between what is said before it and after it, within the instants that it touches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.algebra.ranks.rank import Ordering
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.key_frontiers import KeyFrontiers, keys_covered
from everwhen.operators.net import netted, put_together
from everwhen.operators.rank.loops.tree import HI, LO, ROW
from everwhen.operators.rank.ranked_rows import KeptRows, Touched
from everwhen.operators.rank.row_order import RowOrder
from everwhen.punctuation.api import Projection, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec

_NO_KEYS = np.empty(0, np.int64)


class PartitionOperator(Operator):
    """See the module."""

    keeps = "rows until ve ≤ c, per partition"

    def __init__(
        self,
        partition: Sequence[str],
        order: Sequence[Ordering],
        ties: Sequence[str],
        source: RowCodec,
        codec: RowCodec,
    ) -> None:
        self.codec = codec
        self._source = source
        self._partition_at = [source.schema.index(name) for name in partition]
        self._key_codec = RowCodec(source.schema.select(tuple(partition)), source.pool)
        self._keys = KeyTable(self._key_codec.width, self._key_codec.pooled)
        source.pool.register(self._keys)
        self._kept = KeptRows(source, RowOrder(order, ties, source, ROW))
        self._kept.grow(self._keys.capacity)
        self._promises = Projection(source.schema, {name: [name] for name in partition})
        self._floors = KeyFrontiers()
        self._promise = NEVER
        self._forgotten = NEVER  # the largest end of what went because its partition is promised

    @abstractmethod
    def _said(self, touched: Touched, sign: int) -> Changes:
        """What is said of keys within spans of time."""

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        out = self._apply(inputs[0]) if len(inputs[0]) else no_changes(self.codec)
        frontier, reached = frontiers[0], _NO_KEYS
        if frontier.promises:
            # a number depends on the whole partition: only promises about partitions count
            frontier = make_frontier(frontier.time, self._promises.project(frontier.promises))
            over, until = keys_covered(frontier.promises, self._key_codec, self._keys)
            reached = self._floors.raise_to(over, until, self._keys.capacity)
        promise = max(frontier.time, self._promise)
        if promise > self._promise or len(reached):
            self._forget(promise, reached)
        self._promise = promise
        return Output(out, frontier)

    def _apply(self, batch: Changes) -> Changes:
        batch = netted(batch)
        if not len(batch):
            return no_changes(self.codec)
        kept = self._kept
        ids = self._intern(batch.rows)
        kept.note(batch.rows)
        touched = kept.touched(ids, batch.lo, batch.hi)
        before = self._said(touched, -1)
        kept.apply(ids, batch.lo, batch.hi, batch.weight, batch.rows, touched.keys)
        after = self._said(touched, 1)
        self._leave(kept.empty(touched.keys))
        return put_together(concat(before, after))

    def _leave(self, keys: np.ndarray) -> None:
        """Keys without rows are nobody's."""
        if len(keys):
            if self._floors.any:
                self._floors.settle(keys)
            self._keys.remove(keys)

    def _intern(self, rows: np.ndarray) -> np.ndarray:
        ids = self._keys.intern(self._source.select(rows, self._partition_at, self._key_codec))
        self._kept.grow(self._keys.capacity)
        if self._floors.any:
            self._floors.grow(self._keys.capacity)
        return ids

    def _forget(self, promise: int, reached: np.ndarray) -> None:
        """Drop rows that have ended by the promise, or by what is promised of their partition."""
        keys = self._kept.due(promise) if promise > self._promise else _NO_KEYS
        if len(reached):
            keys = np.union1d(keys, reached)
        empty, last = self._kept.drop(keys, self._floors.until(keys, promise))
        if last > promise:
            self._forgotten = max(self._forgotten, last)
        if promise == INF:
            empty = self._keys.ids()
        if self._floors.any:
            self._floors.settle(empty)
        self._keys.remove(empty)

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        keys = self._keys.ids()
        since = max(self._promise, self._forgotten)
        spans = np.tile(np.array([since, INF], np.int64), (len(keys), 1))
        everything = Touched(keys, np.arange(len(keys) + 1), spans, self._kept.count[keys])
        return since, self._said(everything, 1)

    def state_size(self) -> StateSize:
        return StateSize(self._kept.rows, self._kept.nbytes + self._keys.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        return {
            "keys": self._key_codec.decode(self._keys.codes[ids]), "offsets": offsets,
            "lo": records[:, LO].copy(), "hi": records[:, HI].copy(), "rows": self._source.decode(records[:, ROW:]),
            "promise": self._promise, "forgotten": self._forgotten,
            "floors": self._floors.snapshot(ids), "promises": self._promises.snapshot(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._promise, self._forgotten = state["promise"], state["forgotten"]
        n = len(state["lo"])
        restored.ints(n, state["lo"], state["hi"])
        rows = restored.rows(self._source, state["rows"], n)
        keys = len(state["offsets"]) - 1
        ids = self._keys.intern(
            restored.rows(self._key_codec, state["keys"], keys)
            if self._partition_at
            else np.zeros((keys, self._key_codec.width), np.int64)
        )
        self._kept.grow(self._keys.capacity)
        self._floors.restore(ids, state["floors"], self._keys.capacity)
        self._promises.restore(state["promises"])
        if n:
            if (state["lo"] >= state["hi"]).any():
                raise restored.misfit("a row ends before it begins")
            ids = self._intern(rows)
            self._kept.note(rows)
            self._kept.apply(ids, state["lo"], state["hi"], np.ones(n, np.int64), rows, np.unique(ids))
