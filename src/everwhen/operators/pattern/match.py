"""MATCH_RECOGNIZE as an operator: per snapshot, kept up to date by what changes.

Kept are rows until `ve ≤ c`, by partition, in order.  With each row stands how far the searches that begin at it have
looked, in rows and in time (`loops/layout.py`).  A row that comes, late or not, or goes, concerns only searches that
have looked at its place, or may go on with it.  These are done again: what they found is taken back, what they find is
said, and the difference leaves.  Nothing that was found is kept: it follows from the rows.

Everything is said as soon as it is known; the output clips it, as behind a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.algebra.nodes import MatchRecognize
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.key_frontiers import KeyFrontiers, keys_covered
from everwhen.operators.net import netted, put_together
from everwhen.operators.pattern.kept_rows import KeptRows
from everwhen.operators.pattern.loops.layout import ROW
from everwhen.operators.pattern.measures import Measures
from everwhen.punctuation.api import Projection, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec

_NO_KEYS = np.empty(0, np.int64)


class MatchOperator(Operator):
    """See the module."""

    keeps = "rows until ve ≤ c, per partition, in order"

    def __init__(self, node: MatchRecognize, source: RowCodec, codec: RowCodec) -> None:
        self.codec = codec
        self._source = source
        self._read_at = [source.schema.index(name) for name in node.reads]
        self._rows = RowCodec(source.schema.select(node.reads), source.pool)
        self._partition_at = [self._rows.schema.index(name) for name in node.partition]
        self._key_codec = RowCodec(source.schema.select(node.partition), source.pool)
        self._keys = KeyTable(self._key_codec.width, self._key_codec.pooled)
        source.pool.register(self._keys)
        self._kept = KeptRows(node, self._rows)
        self._kept.grow(self._keys.capacity)
        self._measures = Measures(node, codec, self._kept.tables.slots)
        self._promises = Projection(source.schema, {name: [name] for name in node.partition})
        self._floors = KeyFrontiers()
        self._promise = NEVER
        self._forgotten = NEVER  # the largest end of what went because its partition is promised

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        out = self._apply(inputs[0]) if len(inputs[0]) else no_changes(self.codec)
        frontier, reached = frontiers[0], _NO_KEYS
        if frontier.promises:
            # what is near a row depends on the whole partition: only promises about partitions count
            frontier = make_frontier(frontier.time, self._promises.project(frontier.promises))
            over, until = keys_covered(frontier.promises, self._key_codec, self._keys)
            reached = self._floors.raise_to(over, until, self._keys.capacity)
        promise = max(frontier.time, self._promise)
        if promise > self._promise or len(reached):
            self._forget(promise, reached)
        self._promise = promise
        return Output(out, frontier)

    def _apply(self, batch: Changes) -> Changes:
        # rows may be equal in what is read
        batch = netted(batch.with_rows(self._rows, self._source.select(batch.rows, self._read_at, self._rows)))
        if not len(batch):
            return no_changes(self.codec)
        lo, hi, weight, rows = batch.lo, batch.hi, batch.weight, batch.rows
        if weight.max() > 1:
            copies = np.maximum(weight, 1)
            lo, hi, rows = np.repeat(lo, copies), np.repeat(hi, copies), np.repeat(rows, copies, axis=0)
            weight = np.repeat(np.minimum(weight, 1), copies)
        kept = self._kept
        changed = kept.sorted(self._intern(rows), kept.tables.records(lo, hi, rows), weight)
        found, spans = kept.affected(changed, self._promise)
        before = self._said(found, -1)
        kept.apply(changed)
        after = self._said(kept.search(changed.keys, spans, True), 1)
        self._leave(kept.empty(changed.keys))
        return put_together(concat(before, after))

    def _leave(self, keys: np.ndarray) -> None:
        """Keys without rows are nobody's."""
        if len(keys):
            if self._floors.any:
                self._floors.settle(keys)
            self._keys.remove(keys)

    def _intern(self, rows: np.ndarray) -> np.ndarray:
        ids = self._keys.intern(self._rows.select(rows, self._partition_at, self._key_codec))
        self._kept.grow(self._keys.capacity)
        if self._floors.any:
            self._floors.grow(self._keys.capacity)
        return ids

    def _said(self, found: np.ndarray, sign: int) -> Changes:
        if not len(found):
            return no_changes(self.codec)
        return self._measures.changes(found, self._kept.runs.pool, self._keys.codes, self._key_codec, sign)

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
        return max(self._promise, self._forgotten), self._said(self._search_all(), 1)

    def _search_all(self) -> np.ndarray:
        keys = self._keys.ids()
        self._kept.mark_all(keys)
        spans = np.tile(np.array([self._promise, NEVER, INF], np.int64), (len(keys), 1))
        return self._kept.search(keys, spans, True)

    def state_size(self) -> StateSize:
        return StateSize(self._kept.rows, self._kept.nbytes + self._keys.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        records, offsets = self._kept.gather(ids)
        lo, hi = self._kept.lifetimes(records)
        return {
            "keys": self._key_codec.decode(self._keys.codes[ids]), "offsets": offsets, "lo": lo, "hi": hi,
            "rows": self._rows.decode(records[:, ROW : ROW + self._rows.width]),
            "promise": self._promise, "forgotten": self._forgotten,
            "floors": self._floors.snapshot(ids), "promises": self._promises.snapshot(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._promise, self._forgotten = state["promise"], state["forgotten"]
        n = len(state["lo"])
        restored.ints(n, state["lo"], state["hi"])
        rows = restored.rows(self._rows, state["rows"], n)
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
            records = self._kept.tables.records(state["lo"], state["hi"], rows)
            self._kept.apply(self._kept.sorted(self._intern(rows), records, np.ones(n, np.int64)))
            self._search_all()
