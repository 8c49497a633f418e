"""Rows of partitions with their lifetimes, until `ve ≤ c`, one tree per partition in the order of rows
(`loops/row_tree.py`), and which of them are near to a change."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from everwhen.operators.rank.loops import row_changes as loops
from everwhen.operators.rank.loops.changes import Segments
from everwhen.operators.rank.loops.near import Near, in_order, near_rows
from everwhen.operators.rank.loops.reach import Reach
from everwhen.operators.rank.loops.row_tree import ROW
from everwhen.operators.rank.ranked_rows import KeptRows, Touched
from everwhen.rows.changes import Changes

_FIRST: Final = np.zeros(1, np.int64)


class OrderedRows(KeptRows):
    """See the module."""

    head: ClassVar[int] = ROW
    share: ClassVar[int] = 2
    """Where what is near may come to this part (one in so many) of a partition, it is the whole partition."""

    def near(self, touched: Touched, batch: Changes, reach: Reach) -> Near:
        """What matters to a batch that is yet to come where frames reach so far."""
        changed = self._records(batch.lo, batch.hi, batch.rows)[touched.positions]
        offsets = np.concatenate([_FIRST, np.cumsum(touched.changes)])
        if reach.ranged:
            changed = changed[in_order(changed, offsets, self.order)]
        whole, records, near_offsets = near_rows(
            touched.keys, touched.offsets, touched.spans, changed, offsets, reach, self.share, self.root,
            self.count, self.pool, self.order,
        )  # fmt: skip
        return Near(whole, records, near_offsets, changed, offsets)

    def _apply(self, given: Segments, keys: np.ndarray, bars: np.ndarray | None, columns: int) -> int:
        missing = loops.apply(
            given, self.root, self.count, self.pool, self._book, self.order, self._path, self._ends.times
        )
        return int(missing)

    def _drop(self, keys: np.ndarray, until: np.ndarray) -> int:
        _, last = loops.drop(keys, until, self.root, self.count, self.pool, self._book, self._path, self._ends.times)
        return int(last)


def everything(touched: Touched) -> Near:
    """All rows are walked along in each span."""
    spans, keys = len(touched.spans), len(touched.keys)
    offsets, changed = np.zeros(spans + 1, np.int64), np.empty((0, ROW), np.int64)
    return Near(np.ones(spans, np.bool_), np.empty(0, np.int64), offsets, changed, np.zeros(keys + 1, np.int64))
