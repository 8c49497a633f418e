"""Rows of partitions with their lifetimes, until `ve ≤ c`: one tree per partition (`loops/tree.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.live_runs import group_rows
from everwhen.containers.run_pool import resized
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.rank.loops import changes as loops
from everwhen.operators.rank.loops.order import Order
from everwhen.operators.rank.loops.tree import DEEPEST, END, FREE, HI, LO, ROW, SEED, USED
from everwhen.operators.rank.row_order import RowOrder
from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, slots=True)
class Touched:
    """The spans of time of each key that a batch touches, and how many changes they are made of."""

    keys: np.ndarray
    offsets: np.ndarray
    spans: np.ndarray
    changes: np.ndarray


class KeptRows:
    """See the module.  Key ids are given by whoever owns the keys."""

    def __init__(self, codec: RowCodec, order: RowOrder) -> None:
        self.codec = codec
        self.pool = np.zeros((256, ROW + codec.width), np.int64)
        self.root = np.full(64, -1, np.int64)
        self.count = np.zeros(64, np.int64)
        self._idle = _no_idle(64)
        self._order = order
        self._stale = False  # codes have changed since values were noted
        self._book = np.zeros(4, np.int64)
        self._book[FREE], self._book[SEED] = -1, 20_111
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._path = np.empty(DEEPEST, np.int64)
        self._pooled = tuple((ROW + at, type_) for at, type_ in codec.pooled)
        codec.pool.register(self)

    def grow(self, capacity: int) -> None:
        """Make room for key ids below `capacity`."""
        if capacity > len(self.root):
            more = max(capacity, 2 * len(self.root))
            self.root, self.count = grown(self.root, more, -1), grown(self.count, more, 0)
            self._idle = np.concatenate([self._idle, _no_idle(more - len(self._idle))])
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)

    @property
    def rows(self) -> int:
        return int(self._book[USED])

    @property
    def order(self) -> Order:
        """How rows compare; all that are kept, and all that were noted."""
        if self._stale:
            records, _ = self.gather(np.flatnonzero(self.count))
            self._order.note(records[:, ROW:])
            self._stale = False
        return self._order.arrays

    def touched(self, ids: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Touched:
        """The instants of keys that segments touch."""
        keys, offsets, positions = group_rows(ids, self._slot)
        spans, span_offsets = loops.spans_of(keys, offsets, positions, lo, hi)
        return Touched(keys, span_offsets, spans, np.diff(offsets))

    def note(self, rows: np.ndarray) -> None:
        """Let coded rows be known to the order before they come."""
        if self._stale:
            _ = self.order
        self._order.note(rows)

    def apply(
        self,
        ids: np.ndarray,
        lo: np.ndarray,
        hi: np.ndarray,
        weight: np.ndarray,
        rows: np.ndarray,
        bars: np.ndarray | None = None,
        columns: int = 0,
    ) -> None:
        """Let rows, which the order knows, come and go.  `bars`: of the keys as `touched` gives them, the records
        behind which, by the first `columns` of the order, no row that comes has a number (-1: there is none)."""
        batch = np.empty((len(ids), self.pool.shape[1]), np.int64)
        batch[:, LO], batch[:, HI], batch[:, ROW:] = lo, hi, rows
        copies, used = int(np.abs(weight).sum()), int(self._book[END])
        if used + copies > len(self.pool):
            self.pool = resized(self.pool, used + copies, used)
        keys, offsets, positions = group_rows(ids, self._slot)
        if bars is None:
            bars = np.full(len(keys), -1, np.int64)
        missing = loops.apply(
            loops.Segments(positions, offsets, ids, batch, weight), bars, columns, self._ends.due, self.root,
            self.count, self.pool, self._book, self._idle, self.order, self._path,
        )  # fmt: skip
        if missing >= 0:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        loops.note_ends(keys, self.root, self.pool, self._idle, self._ends.times)

    def empty(self, keys: np.ndarray) -> np.ndarray:
        """Those of the keys that have no rows."""
        return keys[self.count[keys] == 0]

    def due(self, promise: int) -> np.ndarray:
        """Keys that have rows which end by a promise."""
        return self._ends.before(promise + 1) if promise < INF else np.flatnonzero(self.count)

    def drop(self, keys: np.ndarray, until: np.ndarray) -> tuple[np.ndarray, int]:
        """Drop rows that have ended by a time of their key; the keys that have none left, and the largest end of what
        went."""
        if not len(keys):
            return keys, NEVER
        _, last = loops.drop(
            keys, until, self.root, self.count, self.pool, self._book, self._idle, self.order, self._path,
            self._ends.times,
        )  # fmt: skip
        return self.empty(keys), last

    def gather(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of keys, in the order of their ends, idle ones last, and the offsets at which each key begins."""
        found, offsets = loops.gathered(keys, self.root, self.count, self.pool, self._idle)
        return self.pool[found], offsets

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self.pool[: self._book[END]], self._pooled)]  # what is not used is zero

    def recoded(self) -> None:
        self._order.forget()
        self._stale = True

    @property
    def nbytes(self) -> int:
        used = int(self._book[END]) * self.pool.shape[1] * 8
        return used + self.root.nbytes + self.count.nbytes + self._idle.nbytes + self._ends.nbytes


def _no_idle(keys: int) -> np.ndarray:
    """No key has idle rows: their first record, and their least end."""
    return np.tile(np.array([-1, INF], np.int64), (keys, 1))
