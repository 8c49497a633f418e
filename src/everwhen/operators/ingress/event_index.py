"""Entries found by (start, end, row): the memory of Finalize and Align.

An insert is a few writes.  What is gone stays until as much again has been added, then the rest is written anew, so the
cost per entry is constant; memory is at most twice what is kept.  Entries are hashed when somebody comes to look for
one: as long as nothing is adjusted, they are only written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress import event_index_loops as kernel
from everwhen.operators.key_frontiers import upto
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows import restored
from everwhen.rows.codec import RowCodec

_SMALL: Final = 256


class EventIndex:
    """Lines of four numbers, the first two a start and an end, with a row.  Kernels append at `count`, then `extended`
    says so.

    An entry is forgotten when its field `column` is less than `least`.
    """

    def __init__(self, codec: RowCodec, column: int) -> None:
        self.codec = codec
        self.column = column
        self.least = NEVER
        self.count = 0
        self.fields = np.zeros((_SMALL, 4), np.int64)
        self.rows = np.zeros((_SMALL, codec.width), np.int64)
        self.after = np.zeros(_SMALL, np.int64)
        self.heads = np.full(_SMALL, -1, np.int64)
        self._tidy_at = _SMALL
        self._hashed = 0  # so many of the first can be found
        codec.pool.register(self)

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What kernels append to."""
        return self.heads, self.after, self.fields, self.rows

    @property
    def searched(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What kernels search, and append to what can be found."""
        if self._hashed < self.count or not self.count:
            kernel.chain(*self.table, self._hashed, self.count)
            self._hashed = self.count
        return self.table

    def extended(self, count: int, hashed: bool) -> None:
        """There are so many entries now; `hashed`: the new ones can be found."""
        if hashed:
            self._hashed = count
        self.count = count

    def has_room(self, more: int) -> bool:
        """Whether so many can be appended without writing anything anew."""
        return self.count + more <= self._tidy_at

    def make_room(self, more: int) -> bool:
        """Make sure that so many can be appended; whether positions have changed."""
        if self.has_room(more):
            return False
        self.tidy()
        self._tidy_at = max(_SMALL, 2 * (self.count + more))
        if self._tidy_at > len(self.after):
            self.fields, self.rows = grown(self.fields, self._tidy_at, 0), grown(self.rows, self._tidy_at, 0)
            self.after = grown(self.after, self._tidy_at, 0)
        slots = len(self.heads)
        while slots < self._tidy_at:
            slots *= 2
        if slots > len(self.heads):
            self.heads = np.full(slots, -1, np.int64)
        return True

    def tidy(self) -> None:
        """Drop what is gone or forgotten."""
        self.count = kernel.keep(self.fields, self.rows, self.count, self.column, self.least)
        self._hashed = 0

    def forget(self, least: int) -> None:
        self.least = max(self.least, least)

    def drop_promised(self, over: PunctuationStore) -> int:
        """Drop entries that nothing can name any more: their rows are promised until after their end.

        Returns the largest time, of those that `forget` goes by, among them (-∞: none).
        """
        until = upto(over, self.codec, self.rows[: self.count])
        fields = self.fields[: self.count]
        gone = self.alive() & ((fields[:, 1] < until) | (until == INF))
        fields[gone, 1] = NEVER
        return int(fields[gone, self.column].max(initial=NEVER))

    def alive(self) -> np.ndarray:
        """Which entries are there."""
        fields = self.fields[: self.count]
        found: np.ndarray = (fields[:, 1] != NEVER) & (fields[:, self.column] >= self.least)
        return found

    def note(self, vs: np.ndarray, ve: np.ndarray, rows: np.ndarray) -> None:
        """Add inserts, without those that are forgotten by now: (start, end, end, 0)."""
        self.make_room(len(vs))
        self.count = kernel.note(self.fields, self.rows, self.count, vs, ve, rows, self.least)

    def append(self, fields: np.ndarray, rows: np.ndarray) -> None:
        """Add entries as they are."""
        self.make_room(len(fields))
        self.fields[self.count : self.count + len(fields)] = fields
        self.rows[self.count : self.count + len(fields)] = rows
        self.count += len(fields)

    @property
    def nbytes(self) -> int:
        return self.fields.nbytes + self.rows.nbytes + self.after.nbytes + self.heads.nbytes

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self.rows[: self.count], self.codec.pooled)]

    def recoded(self) -> None:
        """The hashes of rows have changed.  Positions stay, because others may know them."""
        self._hashed = 0

    def snapshot(self) -> dict[str, Any]:
        alive = self.alive()
        rows = self.codec.decode(self.rows[: self.count][alive])
        return {"least": self.least, "fields": self.fields[: self.count][alive], "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        self.least = state["least"]
        fields = state["fields"]
        n = restored.records(fields, self.fields.shape[1])
        self.append(fields, restored.rows(self.codec, state["rows"], n))
