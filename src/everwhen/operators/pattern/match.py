"""MATCH_RECOGNIZE as an operator: per snapshot, kept up to date by what changes.

Kept are rows until `ve ≤ c`, by partition, in order.  With each row stands how far the searches that begin at it have
looked, in rows and in time (`loops/layout.py`).  A row that comes, late or not, or goes, concerns only searches that
have looked at its place, or may go on with it.  These are done again: what they found is taken back, what they find is
said, and the difference leaves.  Nothing that was found is kept: it follows from the rows.

Everything is said as soon as it is known; the output clips it, as behind a join.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everwhen.algebra.nodes import MatchRecognize
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.net import netted, put_together
from everwhen.operators.partitioned import PartitionedOperator
from everwhen.operators.pattern.kept_rows import KeptRows
from everwhen.operators.pattern.loops.layout import ROW
from everwhen.operators.pattern.measures import Measures
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec


class MatchOperator(PartitionedOperator):
    """See the module."""

    def __init__(self, node: MatchRecognize, source: RowCodec, codec: RowCodec) -> None:
        self._read_at = [source.schema.index(name) for name in node.reads]
        read = RowCodec(source.schema.select(node.reads), source.pool)
        self._kept = KeptRows(node, read)
        self._measures = Measures(node, codec, self._kept.tables.slots)
        super().__init__(node.partition, source, read, self._kept, codec)

    def _apply(self, batch: Changes) -> Changes:
        # rows may be equal in what is read
        batch = netted(
            batch.with_rows(self._row_codec, self._source.select(batch.rows, self._read_at, self._row_codec))
        )
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

    def _said(self, found: np.ndarray, sign: int) -> Changes:
        if not len(found):
            return no_changes(self.codec)
        return self._measures.changes(found, self._kept.runs.pool, self._keys.codes, self._key_codec, sign)

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        return self._known_from, self._said(self._search_all(), 1)

    def _search_all(self) -> np.ndarray:
        keys = self._keys.ids()
        self._kept.mark_all(keys)
        spans = np.tile(np.array([self._promise, NEVER, INF], np.int64), (len(keys), 1))
        return self._kept.search(keys, spans, True)

    def _kept_rows(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        records, offsets = self._kept.gather(ids)
        return *self._kept.lifetimes(records), records[:, ROW : ROW + self._row_codec.width], offsets

    def _load(self, lo: np.ndarray, hi: np.ndarray, rows: np.ndarray) -> None:
        records = self._kept.tables.records(lo, hi, rows)
        self._kept.apply(self._kept.sorted(self._intern(rows), records, np.ones(len(lo), np.int64)))
        self._search_all()
