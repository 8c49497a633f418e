"""ROW_NUMBER, RANK, DENSE_RANK and limits as an operator: per snapshot, kept up to date by what changes.

Kept are rows until `ve ≤ c`, per partition.  A change touches some instants of a partition; the numbers there before
and after it are found from the first rows of the partition that are alive there (`loops/numbers.py`), and the
difference leaves.  With a limit, rows far behind it are not looked at, and rows that come behind enough others that
outlive them are not even put in order until something is taken back.  Nothing that was said is kept: it follows from
the rows.

Everything is said as soon as it is known; the output clips it, as behind a join.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.algebra.nodes import Rank
from everwhen.operators.rank.loops.numbers import DENSE, RANK, ROW_NUMBER, Numbering, numbered
from everwhen.operators.rank.loops.tree import ROW
from everwhen.operators.rank.partitions import RankedPartitions
from everwhen.operators.rank.ranked_rows import Touched
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

_KINDS: Final = {"row_number": ROW_NUMBER, "rank": RANK, "dense_rank": DENSE}
_ALL: Final = 1 << 60


class RankOperator(RankedPartitions):
    """See the module."""

    def __init__(self, node: Rank, source: RowCodec, codec: RowCodec) -> None:
        super().__init__(node.partition, node.order, node.ties, source, codec)
        self._named = node.name is not None
        last = _ALL if node.last is None else node.last
        self._how = Numbering(_KINDS[node.kind], len(node.order), self._named, node.offset, last)
        self._known: np.ndarray | None = None

    def _said(self, touched: Touched, sign: int) -> Changes:
        kept, how = self._kept, self._how
        if not len(touched.keys) or how.last <= how.offset:
            self._known = None
            return no_changes(self.codec)
        found, self._known = numbered(
            touched.keys, touched.offsets, touched.spans, touched.changes, kept.root, kept.count, kept.pool, kept.order,
            how,
        )  # fmt: skip
        rows = kept.pool[found[:, 0], ROW:]
        if self._named:
            rows = self._numbered(rows, found[:, 3])
        lo, hi = found[:, 1].copy(), found[:, 2].copy()
        return Changes(self.codec, lo, hi, np.full(len(found), sign, np.int64), rows)

    def _bars(self, touched: Touched) -> tuple[np.ndarray | None, int]:
        order = len(self._kept.order.columns)
        return self._known, order if self._how.kind == ROW_NUMBER else self._how.peers

    def _numbered(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Rows with a number as last column."""
        source, codec = self._source, self.codec
        out = np.zeros((len(rows), codec.width), np.int64)
        out[:, : source.words] = rows[:, : source.words]
        out[:, codec.words : codec.width - 1] = rows[:, source.words :]
        out[:, -1] = numbers
        return out
