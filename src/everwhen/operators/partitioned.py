"""What operators over ordered partitions have in common: ranks, frames and patterns of rows.

Rows are kept until `ve ≤ c`, by partition, in order.  What is said of a row depends on its whole partition, so of
promises about data only those about partitions count: they free a partition's rows earlier.  How rows are kept, and
what a change brings, is each operator's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.key_frontiers import KeyFrontiers, keys_covered
from everwhen.punctuation.api import Projection, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

_NO_KEYS = np.empty(0, np.int64)


class KeptByKey(Protocol):
    """Rows by the number of their partition."""

    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def grow(self, capacity: int) -> None:
        """Make room for numbers below `capacity`."""

    def due(self, promise: int) -> np.ndarray:
        """Keys that have rows which end by a promise."""

    def drop(self, keys: np.ndarray, until: np.ndarray) -> tuple[np.ndarray, int]:
        """Drop rows that have ended by a time of their key; the keys that have none left, and the largest end of what
        went."""


class ByPartition(Operator):
    """Partitions by their numbers, and what is promised of them.  `read`: the columns of the source that are kept."""

    def __init__(self, partition: Sequence[str], source: RowCodec, read: RowCodec, codec: RowCodec) -> None:
        self.codec = codec
        self._source = source
        self._row_codec = read
        self._partition_at = [read.schema.index(name) for name in partition]
        self._key_codec = RowCodec(read.schema.select(tuple(partition)), read.pool)
        self._keys = KeyTable(self._key_codec.width, self._key_codec.pooled)
        read.pool.register(self._keys)
        self._promises = Projection(source.schema, {name: [name] for name in partition})
        self._floors = KeyFrontiers()
        self._promise = NEVER
        self._forgotten = NEVER  # the largest end of what went because its partition is promised

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Make room for partitions with numbers below `capacity`."""

    def _of_partitions(self, frontier: Frontier, time: int) -> tuple[Frontier, np.ndarray]:
        """What a frontier promises of partitions, and the partitions of which more is promised now."""
        if not frontier.promises:
            return frontier, _NO_KEYS
        frontier = make_frontier(time, self._promises.project(frontier.promises))
        over, until = keys_covered(frontier.promises, self._key_codec, self._keys)
        return frontier, self._floors.raise_to(over, until, self._keys.capacity)

    def _intern(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of the partitions of rows."""
        ids = self._keys.intern(self._row_codec.select(rows, self._partition_at, self._key_codec))
        self._grow(self._keys.capacity)
        if self._floors.any:
            self._floors.grow(self._keys.capacity)
        return ids

    def _restored(self, state: dict[str, Any]) -> np.ndarray:
        """The partitions of a snapshot, and what was promised."""
        self._promise, self._forgotten = state["promise"], state["forgotten"]
        n = len(state["offsets"]) - 1
        ids = self._keys.intern(
            restored.rows(self._key_codec, state["keys"], n)
            if self._partition_at
            else np.zeros((n, self._key_codec.width), np.int64)
        )
        self._grow(self._keys.capacity)
        self._floors.restore(ids, state["floors"], self._keys.capacity)
        self._promises.restore(state["promises"])
        return ids

    def key_count(self) -> int:
        return len(self._keys)


class PartitionedOperator(ByPartition):
    """See the module.  `kept`: what keeps rows."""

    keeps = "rows until ve ≤ c, per partition, in order"

    def __init__(
        self, partition: Sequence[str], source: RowCodec, read: RowCodec, kept: KeptByKey, codec: RowCodec
    ) -> None:
        super().__init__(partition, source, read, codec)
        self._by_key = kept
        self._grow(self._keys.capacity)

    def _grow(self, capacity: int) -> None:
        self._by_key.grow(capacity)

    @abstractmethod
    def _apply(self, batch: Changes) -> Changes:
        """Keep what comes: what is said because of it."""

    @abstractmethod
    def _kept_rows(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Starts, ends and rows of keys, and the offsets at which each key begins."""

    @abstractmethod
    def _load(self, lo: np.ndarray, hi: np.ndarray, rows: np.ndarray) -> None:
        """Keep rows of a snapshot."""

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        out = self._apply(inputs[0]) if len(inputs[0]) else no_changes(self.codec)
        frontier, reached = self._of_partitions(frontiers[0], frontiers[0].time)
        promise = max(frontier.time, self._promise)
        if promise > self._promise or len(reached):
            self._forget(promise, reached)
        self._promise = promise
        return Output(out, frontier)

    def _leave(self, keys: np.ndarray) -> None:
        """Keys without rows are nobody's."""
        if len(keys):
            if self._floors.any:
                self._floors.settle(keys)
            self._keys.remove(keys)

    def _forget(self, promise: int, reached: np.ndarray) -> None:
        """Drop rows that have ended by the promise, or by what is promised of their partition."""
        keys = self._by_key.due(promise) if promise > self._promise else _NO_KEYS
        if len(reached):
            keys = np.union1d(keys, reached)
        empty, last = self._by_key.drop(keys, self._floors.until(keys, promise))
        if last > promise:
            self._forgotten = max(self._forgotten, last)
        self._leave(self._keys.ids() if promise == INF else empty)

    @property
    def _known_from(self) -> int:
        """From when on all rows that stand are kept."""
        return max(self._promise, self._forgotten)

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        """The rows that have not ended, where all of their columns are kept."""
        since = self._known_from
        if since == INF or self._row_codec.schema != self._source.schema:
            return None
        lo, hi, rows, _ = self._kept_rows(self._keys.ids())
        return since, Changes(self._source, lo, hi, np.ones(len(lo), np.int64), rows.copy())

    def state_size(self) -> StateSize:
        return StateSize(self._by_key.rows, self._by_key.nbytes + self._keys.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        lo, hi, rows, offsets = self._kept_rows(ids)
        return {
            "keys": self._key_codec.decode(self._keys.codes[ids]), "offsets": offsets, "lo": lo, "hi": hi,
            "rows": self._row_codec.decode(rows), "promise": self._promise, "forgotten": self._forgotten,
            "floors": self._floors.snapshot(ids), "promises": self._promises.snapshot(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        n = len(state["lo"])
        restored.ints(n, state["lo"], state["hi"])
        rows = restored.rows(self._row_codec, state["rows"], n)
        self._restored(state)
        if n:
            if (state["lo"] >= state["hi"]).any():
                raise restored.misfit("a row ends before it begins")
            self._load(state["lo"], state["hi"], rows)
