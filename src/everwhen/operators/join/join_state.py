"""One side of a join: the rows that the other side may still meet, by key.

Kept until `ve ≤ c` of the other side, and up to as many again until the log is tidied.  Negative segments are cut out
of kept ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.join.loops import expire as ends
from everwhen.operators.join.loops import join as kernel
from everwhen.operators.join.loops.exact import NO_SLOTS, empty_slots, enter_all
from everwhen.operators.join.loops.lifetimes import END, HI, LO, MOST, NO_ENTRY, ROW, WEIGHT
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec

_PUT: Final = 4
"""So many entries are looked at to add one, or fewer."""
_FEWEST: Final = 64
_MANY: Final = 16
"""If so many segments were taken back, and this many entries looked at for each, their places are noted."""
AT_ONCE: Final = 8192
"""To go through so many entries takes no time worth sharing out."""
_LEAST: Final = 256
"""Entries that are not worth looking for dead ones."""
_LARGE: Final = 1 << 18
"""From so many on the dead go sooner: a step that goes through all takes less long, all steps together longer."""


class JoinState:
    """Rows with lifetimes and weights per key id; ids are given by whoever owns the keys.

    Behind its row an entry has `behind` words for its owner, who fills them in.
    """

    def __init__(self, codec: RowCodec, behind: int = 0) -> None:
        self.codec = codec
        self.cti = NEVER
        self.heads = np.full((1, len(NO_ENTRY)), NO_ENTRY, np.int64)
        self._ready = 1  # so many heads can be used; others have not been written to
        self.log = np.empty((_LEAST, ROW + codec.width + behind), np.int64)
        self.touched = np.zeros(1, np.int64)
        """How many entries were looked at so far: the work that the tree does."""
        self._count = 0
        self._tidy_at: float = _LEAST
        self._expected = 0
        self._slots = NO_SLOTS
        self._searched = np.zeros(2, np.int64)  # segments that were taken back, and entries looked at for them

    def grow(self, capacity: int, spare: int = 0) -> None:
        """Make room for key ids below `capacity`, and for so many more where there is none."""
        _check_room("keys", capacity)
        ready = self._ready
        if capacity <= ready:
            return
        if capacity > len(self.heads):
            heads = np.empty((capacity + spare, len(NO_ENTRY)), np.int64)
            heads[:ready] = self.heads[:ready]
            self.heads = heads
        self._ready = min(len(self.heads), capacity + capacity // 4 + _LEAST)
        self.heads[ready : self._ready] = NO_ENTRY

    def expect(self, count: int) -> None:
        """So many entries will be there soon.  Memory that is not written to costs nothing."""
        if self._count == 0 and count > len(self.log):  # as many again are dead before they go
            self.log = np.empty((2 * count + count // 4, self.log.shape[1]), np.int64)
            self._tidy_at = self._expected = count
            heads = np.empty((count, len(NO_ENTRY)), np.int64)
            heads[: self._ready] = self.heads[: self._ready]
            self.heads = heads

    def reserve(self, more: int, later: bool = False) -> int:
        """Make room for so many entries; how many were looked at because the dead ones went before that.

        They go when as many entries have been added as were left the last time (of very many: half as many), so that
        the log stays small, and before it grows: to copy a large log into new memory takes longer than all else in an
        epoch.  `later`: not in this step, if there are many and there is room.
        """
        is_full = self._count + more > len(self.log)
        if not is_full and (self._count < self._tidy_at or (later and self._count > AT_ONCE)):
            return 0
        looked_at = self._count
        self.tidy()
        room = self._count + more
        _check_room("rows", room)
        if not room + room // 4 <= len(self.log) <= 8 * max(_LEAST, room, self._expected):
            log = np.empty((max(_LEAST, 2 * room), self.log.shape[1]), np.int64)
            log[: self._count] = self.log[: self._count]
            self.log = log
        return looked_at

    def tidy(self) -> None:
        """Drop the dead entries."""
        if self._count >= self._expected:
            self._expected = 0
        self._count = ends.tidy(self.heads[: self._ready], self.log, self._count, self.cti, self.touched)
        self._tidy_at = max(_LEAST, (2 if self._count < _LARGE else 1.5) * self._count)
        if len(self._slots):
            self._note_places()

    def add(self, ids: np.ndarray, batch: Changes) -> int:
        """Add signed segments, for which there must be room.  Returns where in the log the added ones begin."""
        first, before = self._count, int(self.touched[0])
        self.log, self._count, missing = kernel.keep(
            ids,
            batch.lo,
            batch.hi,
            batch.weight,
            batch.rows,
            self.heads,
            self.log,
            self._count,
            self.cti,
            self.touched,
            self._slots,
        )
        if len(self._slots):
            if 2 * self._slots[-1] >= len(self._slots):
                self._note_places()
        elif len(batch) and int(batch.weight.min()) < 0:
            gone = int((batch.weight < 0).sum())
            self._searched += (gone, int(self.touched[0]) - before - _PUT * (len(batch) - gone))
            if self._searched[0] > _FEWEST and self._searched[1] > _MANY * self._searched[0]:
                self._note_places()
        if missing >= 0:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        return first

    def _note_places(self) -> None:
        """Note where entries stand: taking them back costs too many looks."""
        self._slots = empty_slots(self._count)
        enter_all(self._slots, self.log, self._count, self.codec.width)

    def recoded(self) -> None:
        """Rows have other codes now."""
        if len(self._slots):
            self._note_places()

    def expire(self, cti: int) -> None:
        """What ended at or before `cti` is dead."""
        self.cti = cti
        if cti == INF:
            self.heads[: self._ready] = NO_ENTRY
            self._count = 0
            self._slots = NO_SLOTS

    def expire_keys(self, ids: np.ndarray, until: np.ndarray) -> int:
        """What ended by the time promised for its key is dead; the largest end among that (-∞: it was nothing)."""
        return int(ends.expire(ids, until, self.heads, self.log, self.cti))

    def vacant(self, ids: np.ndarray) -> np.ndarray:
        """Which keys have no rows that live on."""
        empty: np.ndarray = self.heads[ids, END] <= self.cti
        return empty

    def forget(self, ids: np.ndarray) -> None:
        """Vacant keys get nothing to do with dead rows: their ids may be given to others."""
        self.heads[ids] = NO_ENTRY

    def occupied(self, ids: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Whether keys (-1: unknown) have rows that live before a time."""
        return ends.occupied(ids, before, self.heads, self.log, self.cti)

    def alive(self) -> np.ndarray:
        """Where in the log the entries stand that are not dead."""
        return np.flatnonzero(self.log[: self._count, HI] > self.cti)

    def overlapping(self, lo: int, hi: int) -> np.ndarray:
        """Where in the log the entries stand that are not dead and live within `[lo, hi)`."""
        log = self.log[: self._count]
        return np.flatnonzero((log[:, HI] > max(lo, self.cti)) & (log[:, LO] < hi))

    def meeting(self, entries: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> int:
        """How many pairs of entries and lifetimes overlap."""
        starts, ends = np.sort(self.log[entries, LO]), np.sort(self.log[entries, HI])
        return int((np.searchsorted(starts, hi) - np.searchsorted(ends, lo, "right")).sum())

    def segments(self) -> Changes:
        """The entries that are not dead, in arrays of their own; some at a time, so that they are read once."""
        at = self.alive()
        times, rows = np.empty((3, len(at)), np.int64), np.empty((len(at), self.codec.width), np.int64)
        for first in range(0, len(at), AT_ONCE):
            here = slice(first, first + AT_ONCE)
            some = self.log[at[here]]
            times[0, here], times[1, here], times[2, here] = some[:, LO], some[:, HI], some[:, WEIGHT]
            rows[here] = some[:, ROW : ROW + self.codec.width]
        return Changes(self.codec, times[0], times[1], times[2], rows)

    @property
    def rows(self) -> int:
        """How many entries there are, dead ones too."""
        return self._count

    @property
    def empty(self) -> bool:
        return self._count == 0

    @property
    def nbytes(self) -> int:
        return self.log.nbytes + self.heads.nbytes + self._slots.nbytes

    def coded(self) -> tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]:
        """The entries, with the columns whose codes belong to a pool."""
        return self.log[: self._count], [(ROW + j, t) for j, t in self.codec.pooled]

    def snapshot(self) -> dict[str, Any]:
        entries = self.log[self.alive()]
        return {
            "cti": self.cti,
            "segments": entries[:, [LO, HI, WEIGHT]],
            "rows": self.codec.decode(entries[:, ROW : ROW + self.codec.width]),
        }

    def restored(self, state: dict[str, Any]) -> Changes:
        """Take the promise from a snapshot; returns its rows, to be added with their ids."""
        self.cti = state["cti"]
        segments = state["segments"]
        n = restored.records(segments, 3)
        restored.counts(segments[:, 2])
        lo, hi, weight = (np.ascontiguousarray(column) for column in segments.T)
        return Changes(self.codec, lo, hi, weight, restored.rows(self.codec, state["rows"], n))


def _check_room(what: str, size: int) -> None:
    if size > MOST:
        raise EverwhenError(
            f"a side of a join would keep {size:,} {what}, and the most it can is {MOST:,}: "
            "let promises (CTIs) free rows sooner, put windows on the inputs, or split them by key"
        )
