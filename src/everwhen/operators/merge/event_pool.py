"""Events of several parties, each stored once with a bit per party that has it, found by their hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.operators.merge import event_pool_loops as kernel
from everwhen.rows.codec import RowCodec

MOST_COPIES: Final = 61
"""Bits that copies may have; one more is for what is emitted."""
_FEWEST: Final = 512
"""There is room for so many events at least."""


class EventPool:
    """The entries: links, start, end, who has it, row.  Those that nobody has are used again."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self.pool = np.zeros((_FEWEST, kernel.ROW + codec.width), np.int64)
        self.heads = np.full(_FEWEST, -1, np.int64)
        self.free = np.array([-1, 0])
        self.top = 0
        self._left = 0  # how many were used after the last sweep
        codec.pool.register(self)

    @property
    def used(self) -> int:
        return self.top - int(self.free[1])

    @property
    def crowded(self) -> bool:
        """Whether so many have come since the last sweep that another one is worth it."""
        return self.used > self._left + max(self._left // 4, _FEWEST)

    def reserve(self, more: int) -> None:
        """Make room for so many more; entries stay where they are."""
        if len(self.pool) - self.top + int(self.free[1]) < more:
            self._place(self.pool[: self.top], self.used + more + max(more, self.used // 8))

    def swept(self) -> None:
        """Entries have been let go: where that leaves most of the room empty, the room goes, too."""
        self._left = self.used
        if len(self.pool) > 4 * (self._left + _FEWEST):
            self.keep()

    def _place(self, entries: np.ndarray, size: int) -> None:
        """Have these entries, in a pool with room for so many."""
        pool = np.zeros((max(size, _FEWEST), self.pool.shape[1]), np.int64)
        pool[: len(entries)] = entries
        self.pool, self.top = pool, len(entries)
        self.heads = np.empty(max(_FEWEST, 1 << (len(pool) - 1).bit_length()), np.int64)
        kernel.link(pool, self.heads, self.free, self.top)

    def keep(self) -> None:
        """Have the events one after the other."""
        left = self.pool[: self.top][self.pool[: self.top, kernel.HAVE] > 0]
        self._place(left, len(left) + len(left) // 4)

    def tidy(self) -> None:
        """Keep the events that are left, and nothing else."""
        self.keep()

    def entries(self) -> np.ndarray:
        """The events that are left, one after the other."""
        self.tidy()
        return self.pool[: self.top]

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self.entries(), [(kernel.ROW + j, type_) for j, type_ in self.codec.pooled])]

    def recoded(self) -> None:
        kernel.link(self.pool, self.heads, self.free, self.top)

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + self.heads.nbytes
