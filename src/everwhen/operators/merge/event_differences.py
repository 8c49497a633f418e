"""What the inputs of a merge of events say, and what has been emitted, in one index.

An event is one entry with a bit per input that says it and one if it has been emitted (`EventPool`).  By how much an
input differs from what has been emitted are the entries of which just one of the two bits is set.  So copies that agree
cost one entry for all, and an input that says what has been emitted sets a bit.  Where an input is a source, its guard
may set the bits: it keeps its events here, too (`shared_log.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.merge import event_pool_loops as kernel
from everwhen.operators.merge.event_pool import MOST_COPIES
from everwhen.operators.merge.shared_log import SharedLog
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec

_EMITTED: Final = 1 << 61
_NOBODY: Final = 0


class EventDifferences(SharedLog):
    """Events by (start, end, row); rows of changes have the start as one more word."""

    def __init__(self, codec: RowCodec) -> None:
        super().__init__(codec, MOST_COPIES)
        self.until = NEVER
        self.closed = NEVER
        """The largest end of the events that went because their rows are promised."""

    @property
    def merged(self) -> bool:
        return bool(self.copies)

    def part(self) -> None:
        """Give the guards a log of their own, with what they have here."""
        if not self.copies:
            return
        apart = SharedLog(self.codec, 1 + max(each.port for each in self.copies))
        apart.ctis[:], apart.copies, self.copies = self.ctis[: len(apart.ctis)], self.copies, []
        bits = sum(each.move(apart) for each in apart.copies)
        entries = self.pool[: self.top][self.pool[: self.top, kernel.HAVE] > 0]
        entries[:, kernel.HAVE] &= bits
        apart._place(entries[entries[:, kernel.HAVE] > 0], len(entries))

    def add(self, port: int, changes: Changes, limit: int) -> None:
        """An input says events, or takes them back; what ends by `limit` does not count."""
        self._change(changes.rows, changes.hi, changes.weight, limit, 1 << port)

    def emit(self, changes: Changes) -> None:
        """Segments have been emitted: [a, b) is the difference of the events that end at b and at a."""
        start = changes.rows[:, -1]
        cut = changes.lo > start
        rows = np.concatenate([changes.rows, changes.rows[cut]])
        ends = np.concatenate([changes.hi, changes.lo[cut]])
        weight = np.concatenate([changes.weight, -changes.weight[cut]])
        missing = self._change(rows, ends, weight, NEVER, _EMITTED)
        assert not missing, "what is taken back has been emitted"

    def _change(self, rows: np.ndarray, ends: np.ndarray, weight: np.ndarray, limit: int, bit: int) -> int:
        self.reserve(int(np.maximum(weight, 0).sum()))
        top, missing = kernel.change(
            np.ascontiguousarray(rows), ends, weight, limit, self.pool, self.heads, self.free, self.top, bit,
            np.empty(len(ends) + 1, np.int64),
        )  # fmt: skip
        self.top = int(top)
        return int(missing)

    def ahead(self, port: int, limit: int) -> Changes:
        """What an input says more or less than has been emitted, from `limit` on; not netted."""
        found = self._held(1 << port, _EMITTED, limit)
        weight = np.where((found[:, kernel.HAVE] & _EMITTED) != 0, -1, 1)
        return self._segments(found, weight, limit)

    def follow(self, port: int, limit: int) -> tuple[Changes, bool]:
        """Emit what an input says: of events that begin from `limit` on, by how much it differed from what had been
        emitted, as `ahead`; and whether others differ that end behind it."""
        lo, hi, weight = np.empty((3, self.top), np.int64)
        rows = np.empty((self.top, self.codec.width + 1), np.int64)
        n, older = kernel.follow(
            self.pool, self.heads, self.free, self.top, 1 << port, _EMITTED, limit, lo, hi, weight, rows
        )
        return Changes(self.codec, lo[:n], hi[:n], weight[:n], rows[:n]), bool(older)

    def emitted(self, limit: int) -> Changes:
        """What has been emitted and ends behind `limit`."""
        found = self._held(_EMITTED, _NOBODY, limit)
        return self._segments(found, np.ones(len(found), np.int64), NEVER)

    def _held(self, one: int, other: int, limit: int) -> np.ndarray:
        found = np.empty(self.top, np.int64)
        return self.pool[found[: int(kernel.held(self.pool, self.top, one, other, limit, found))]]

    def _segments(self, found: np.ndarray, weight: np.ndarray, limit: int) -> Changes:
        rows = np.empty((len(found), self.codec.width + 1), np.int64)
        rows[:, :-1], rows[:, -1] = found[:, kernel.ROW :], found[:, kernel.VS]
        lo = np.maximum(found[:, kernel.VS], limit)
        return Changes(self.codec, lo, found[:, kernel.VE].copy(), weight, rows)

    def rename(self, known: Callable[[np.ndarray], np.ndarray], limit: int) -> None:
        """Events that inputs say, and that end behind `limit`, have other starts now; guards know them by their own."""
        self.part()
        found = np.flatnonzero((self.pool[: self.top, kernel.HAVE] > 0) & (self.pool[: self.top, kernel.VE] > limit))
        entries = self.pool[found]
        before = self._segments(entries, np.ones(len(found), np.int64), NEVER)
        rows = known(before.rows)
        moved = rows[:, -1] != before.rows[:, -1]
        if not moved.any():
            return
        have, ends, rows = entries[moved, kernel.HAVE] & ~_EMITTED, before.hi[moved], rows[moved]
        kernel.take(self.pool, self.heads, self.free, found[moved], _EMITTED - 1)
        every = int(np.bitwise_or.reduce(have))
        for port in range(every.bit_length()):
            of = (have >> port) & 1 != 0
            self._change(rows[of], ends[of], np.ones(int(of.sum()), np.int64), NEVER, 1 << port)

    def begin(self, port: int) -> None:
        """A new input has said nothing yet."""
        used = np.flatnonzero(self.pool[: self.top, kernel.HAVE] > 0)
        kernel.take(self.pool, self.heads, self.free, used, 1 << port)

    def forget(self, promise: int) -> None:
        """What ends before is final; it goes with the next sweep."""
        self.until = promise
        if promise == INF:
            self._sweep()

    def close(self, until: Callable[[np.ndarray], np.ndarray]) -> None:
        """The same of rows that are promised."""
        used = np.flatnonzero(self.pool[: self.top, kernel.HAVE] > 0)
        entries = self.pool[used]
        over = entries[:, kernel.VE] < until(np.ascontiguousarray(entries[:, kernel.ROW :]))
        self.closed = max(self.closed, int(entries[over, kernel.VE].max(initial=NEVER)))
        kernel.take(self.pool, self.heads, self.free, used[over], 2 * _EMITTED - 1)

    def _sweep(self) -> None:
        if self.until == INF:
            self.pool[: self.top, kernel.HAVE] = kernel.FREE
        kernel.sweep(self.pool, self.heads, self.free, self.top, self.until)
        self.swept()

    def rows(self) -> np.ndarray:
        """The rows of all events, with their starts."""
        entries = self.entries()
        return self._segments(entries, np.ones(len(entries), np.int64), NEVER).rows

    def state_size(self) -> StateSize:
        self._sweep()
        return StateSize(self.used, self.nbytes)

    def snapshot(self) -> dict[str, Any]:
        entries = self.entries()
        rows = self.codec.decode(np.ascontiguousarray(entries[:, kernel.ROW :]))
        start, end, have = (entries[:, at].copy() for at in (kernel.VS, kernel.VE, kernel.HAVE))
        return {"final": self.until, "closed": self.closed, "start": start, "end": end, "have": have, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        n = len(state["start"])
        restored.ints(n, state["start"], state["end"], state["have"])
        if n and (int(state["have"].min()) <= 0 or int(state["have"].max()) >= 2 * _EMITTED):
            raise restored.misfit("events of a merge are said by nobody, or by too many")
        self.until, self.closed = state["final"], state.get("closed", NEVER)
        entries = np.zeros((n, self.pool.shape[1]), np.int64)
        entries[:, kernel.VS], entries[:, kernel.VE] = state["start"], state["end"]
        entries[:, kernel.HAVE] = state["have"]
        entries[:, kernel.ROW :] = restored.rows(self.codec, state["rows"], n)
        self._place(entries, n + n // 4)
        self._left = n
