"""What ranks and frames have in common: a change is answered by the difference between what is said before it and after
it, within the instants that it touches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from everwhen.algebra.ranks.rank import Ordering
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF
from everwhen.operators.net import netted, put_together
from everwhen.operators.partitioned import PartitionedOperator
from everwhen.operators.rank.loops.tree import HI, LO
from everwhen.operators.rank.ranked_rows import KeptRows, Touched
from everwhen.operators.rank.row_order import RowOrder
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec


class RankedPartitions(PartitionedOperator):
    """See the module."""

    def __init__(
        self,
        partition: Sequence[str],
        order: Sequence[Ordering],
        ties: Sequence[str],
        source: RowCodec,
        codec: RowCodec,
        kept: type[KeptRows] = KeptRows,
    ) -> None:
        self._kept = kept(source, RowOrder(order, ties, source, kept.head))
        super().__init__(partition, source, source, self._kept, codec)

    @abstractmethod
    def _said(self, touched: Touched, sign: int) -> Changes:
        """What is said of keys within spans of time."""

    def _touched(self, ids: np.ndarray, batch: Changes) -> Touched:
        """What a batch that is yet to come touches."""
        return self._kept.touched(ids, batch.lo, batch.hi)

    def _bars(self, touched: Touched) -> tuple[np.ndarray | None, int]:
        """For each key a record behind which, by so many columns of the order, nothing is said (see `KeptRows`), as it
        was when `_said` was asked last."""
        return None, 0

    def _apply(self, batch: Changes) -> Changes:
        batch = netted(batch)
        if not len(batch):
            return no_changes(self.codec)
        kept = self._kept
        ids = self._intern(batch.rows)
        kept.note(batch.rows)
        touched = self._touched(ids, batch)
        before = self._said(touched, -1)
        kept.apply(ids, batch.lo, batch.hi, batch.weight, batch.rows, *self._bars(touched))
        after = self._said(touched, 1)
        self._leave(kept.empty(touched.keys))
        return put_together(concat(before, after))

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        keys, since = self._keys.ids(), self._known_from
        spans = np.tile(np.array([since, INF], np.int64), (len(keys), 1))
        everything = Touched(keys, np.arange(len(keys) + 1), spans, self._kept.count[keys])
        return since, self._said(everything, 1)

    def _kept_rows(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        records, offsets = self._kept.gather(ids)
        return records[:, LO].copy(), records[:, HI].copy(), records[:, self._kept.head :], offsets

    def _load(self, lo: np.ndarray, hi: np.ndarray, rows: np.ndarray) -> None:
        ids = self._intern(rows)
        self._kept.note(rows)
        self._kept.apply(ids, lo, hi, np.ones(len(lo), np.int64), rows)
