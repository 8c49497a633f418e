"""The events of several copies of one stream that adjusts may still name, each stored once.

Every source guard keeps the events that an adjust may name.  Where copies of one stream are merged, n logs would hold
the same events n times: that is the naive index of the LMerge paper.  Here an event is one entry with a bit per copy
that has it.  What each guard checks, and what it forgets when, is the same as with a log of its own (`EventLog`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.merge import event_pool_loops as kernel
from everwhen.operators.merge.event_pool import MOST_COPIES, EventPool
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


class SharedLog(EventPool):
    """The events of all copies.  `copy` gives the log of the next one."""

    def __init__(self, codec: RowCodec, copies: int) -> None:
        assert copies <= MOST_COPIES, "a copy has a bit"
        super().__init__(codec)
        self.ctis = np.full(copies, NEVER, np.int64)
        self.copies: list[CopyLog] = []

    def copy(self) -> CopyLog:
        self.copies.append(CopyLog(self, len(self.copies)))
        return self.copies[-1]

    def reserve(self, more: int) -> None:
        """Make room for so many more.  While a batch may be undone entries stay."""
        if self.crowded and all(each.settled for each in self.copies):
            self._sweep()
        super().reserve(more)

    def _sweep(self) -> None:
        """Let go what nobody may name any more."""
        kernel.sweep(self.pool, self.heads, self.free, self.top, self.ctis, self.ctis.max())
        self.swept()

    def tidy(self) -> None:
        for each in self.copies:
            each.settle()
            each.drop_promised()
        self._sweep()
        super().tidy()

    def alive(self, bits: int) -> int:
        return int(kernel.alive(self.pool, self.top, self.ctis, self.ctis.max(), bits))


class CopyLog:
    """One copy's log: what `EventLog` is to a guard whose events nobody else has."""

    def __init__(self, shared: SharedLog, port: int) -> None:
        self.codec = shared.codec
        self._shared = shared
        self._port = port
        self._bit = 1 << port
        self._journal: np.ndarray | None = None  # what the last batch has done, until it stays
        self._forgotten = NEVER
        self._over: PunctuationStore | None = None  # what was promised since the last tidying

    def apply(
        self,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        rows: np.ndarray,
        adjusts: int,
        until: int = NEVER,
    ) -> int:
        """Take elements in arrival order; the position of the first adjust without its event (then nothing is
        taken), or -1."""
        shared = self._shared
        self.settle()
        shared.reserve(len(op))
        slots, journal = np.empty(len(op), np.int64), np.empty(len(op) + adjusts, np.int64)
        if adjusts:
            until = NEVER  # one of them may name what ends before
        shared.top, done, wrong = kernel.apply(
            kernel.Elements(op, vs, ve, vnew, rows),
            until,
            shared.pool,
            shared.heads,
            shared.free,
            shared.top,
            self._bit,
            slots,
            journal,
        )
        self._journal = journal[: int(done)]
        if wrong >= 0:
            self.undo()
        return int(wrong)

    def undo(self) -> None:
        """Take back what the last `apply` took; of several copies, the last one first."""
        if self._journal is not None:
            shared, journal = self._shared, self._journal
            kernel.undo(shared.pool, shared.heads, shared.free, self._bit, journal, len(journal))
            self._journal = None

    @property
    def settled(self) -> bool:
        """Whether nothing is to be undone."""
        return self._journal is None

    def settle(self) -> None:
        """The last batch stays, and those of the other copies in the same epoch."""
        if self._journal is not None:
            shared, journal = self._shared, self._journal
            kernel.release(shared.pool, shared.heads, shared.free, journal, len(journal))
            self._journal = None

    def close(self, promises: Iterable[Punctuation]) -> None:
        """Events whose rows are promised can no longer be named; they go with the next tidying."""
        self._over = self._over or PunctuationStore(self.codec.schema)
        self._over.add(promises)

    def drop_promised(self) -> None:
        """Drop events that ended before what is promised of their rows."""
        over, self._over = self._over, None
        shared = self._shared
        if over is None or not len(over):
            return
        used = shared.pool[: shared.top]
        mine = np.flatnonzero((used[:, kernel.HAVE] > 0) & ((used[:, kernel.HAVE] & self._bit) != 0))
        ends, until = used[mine, kernel.VE], upto(over, self.codec, used[mine, kernel.ROW :])
        gone = (ends < until) | (until == INF)
        shared.pool[mine[gone], kernel.HAVE] &= ~self._bit
        self._forgotten = max(self._forgotten, int(ends[gone].max(initial=NEVER)))

    @property
    def forgotten(self) -> int:
        """The largest end of the events that were dropped because their rows are promised (-∞: none was)."""
        self.drop_promised()
        return self._forgotten

    def forget(self, cti: int) -> None:
        """Events that ended before `cti` can no longer be named; with the last one all go."""
        self._shared.ctis[self._port] = cti
        if cti == INF:
            used = self._shared.pool[: self._shared.top]
            used[used[:, kernel.HAVE] > 0, kernel.HAVE] &= ~self._bit

    def begin_anew(self) -> None:
        """A new copy takes the place of one that has left."""
        self.settle()
        self.forget(INF)
        self._shared.ctis[self._port] = self._forgotten = NEVER
        self._over = None

    def events(self) -> Changes:
        """The events that can still be named."""
        entries = self._shared.entries()
        left = entries[(entries[:, kernel.HAVE] & self._bit) != 0]
        vs, ve, rows = left[:, kernel.VS].copy(), left[:, kernel.VE].copy(), left[:, kernel.ROW :].copy()
        return Changes(self.codec, vs, ve, np.ones(len(left), np.int64), rows)

    def state_size(self) -> StateSize:
        """Events that can still be named; of the bytes, this copy's share."""
        self.drop_promised()
        return StateSize(self._shared.alive(self._bit), self._shared.nbytes // len(self._shared.copies))

    def snapshot(self) -> dict[str, Any]:
        left, cti = self.events(), int(self._shared.ctis[self._port])
        rows = self.codec.decode(left.rows)
        return {"cti": cti, "forgotten": self._forgotten, "vs": left.lo, "ve": left.hi, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        self._shared.ctis[self._port], self._forgotten = state["cti"], state["forgotten"]
        vs, ve = state["vs"], state["ve"]
        restored.ints(len(vs), vs, ve)
        self.apply(np.zeros(len(vs), np.uint8), vs, ve, ve, restored.rows(self.codec, state["rows"], len(vs)), 0)
        self.settle()
