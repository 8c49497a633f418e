"""Rows of partitions with their lifetimes, until `ve ≤ c`: one tree per partition (`loops/tree.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.live_runs import group_rows
from everwhen.containers.run_pool import resized
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.rank.loops import changes as loops
from everwhen.operators.rank.loops.near import Near
from everwhen.operators.rank.loops.order import Order
from everwhen.operators.rank.loops.tree import DEEPEST, END, FREE, HI, LO, ROW, SEED, USED
from everwhen.operators.rank.row_order import RowOrder
from everwhen.rows.codec import RowCodec


def _nothing() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Touched:
    """The spans of time of each key that a batch touches, of how many changes they are made, and where these are in the
    batch, one key after the other."""

    keys: np.ndarray
    offsets: np.ndarray
    spans: np.ndarray
    changes: np.ndarray
    positions: np.ndarray = field(default_factory=_nothing)
    near: Near | None = None
    """What is walked along in the spans; None: everything."""


class KeptRows:
    """See the module.  Key ids are given by whoever owns the keys."""

    head: ClassVar[int] = ROW
    """The word of a record at which its row begins."""

    def __init__(self, codec: RowCodec, order: RowOrder) -> None:
        self.codec = codec
        self.pool = np.zeros((256, self.head + codec.width), np.int64)
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
        self._pooled = tuple((self.head + at, type_) for at, type_ in codec.pooled)
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
            self._order.note(records[:, self.head :])
            self._stale = False
        return self._order.arrays

    def touched(self, ids: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Touched:
        """The instants of keys that segments touch."""
        keys, offsets, positions = group_rows(ids, self._slot)
        spans, span_offsets = loops.spans_of(keys, offsets, positions, lo, hi)
        return Touched(keys, span_offsets, spans, np.diff(offsets), positions)

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
        copies, used = int(np.abs(weight).sum()), int(self._book[END])
        if used + copies > len(self.pool):
            self.pool = resized(self.pool, used + copies, used)
        keys, offsets, positions = group_rows(ids, self._slot)
        given = loops.Segments(positions, offsets, ids, self._records(lo, hi, rows), weight)
        if self._apply(given, keys, bars, columns) >= 0:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )

    def _records(self, lo: np.ndarray, hi: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Segments of rows as records that are in no tree."""
        records = np.empty((len(lo), self.pool.shape[1]), np.int64)
        records[:, LO], records[:, HI], records[:, self.head :] = lo, hi, rows
        return records

    def _apply(self, given: loops.Segments, keys: np.ndarray, bars: np.ndarray | None, columns: int) -> int:
        """`apply` in the tree; the position of a segment that takes back what is not there (-1: none)."""
        if bars is None:
            bars = np.full(len(keys), -1, np.int64)
        missing = loops.apply(
            given, bars, columns, self._ends.due, self.root, self.count, self.pool, self._book, self._idle, self.order,
            self._path,
        )  # fmt: skip
        loops.note_ends(keys, self.root, self.pool, self._idle, self._ends.times)
        return int(missing)

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
        last = self._drop(keys, until)
        return self.empty(keys), last

    def _drop(self, keys: np.ndarray, until: np.ndarray) -> int:
        """`drop` in the tree; the largest end of what went."""
        _, last = loops.drop(
            keys, until, self.root, self.count, self.pool, self._book, self._idle, self.order, self._path,
            self._ends.times,
        )  # fmt: skip
        return int(last)

    def gather(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of keys, in the order of the tree, idle ones last, and the offsets at which each key begins."""
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
