"""The events of several copies of one stream that adjusts may still name, each stored once.

Every source guard keeps the events that an adjust may name.  Where copies of one stream are merged, n logs would hold
the same events n times: that is the naive index of the LMerge paper.  Here an event is one entry with a bit per copy
that has it.  What each guard checks, and what it forgets when, is the same as with a log of its own (`EventLog`).

Where such sources are inputs of the merge themselves, its index is their log, too (`EventDifferences`).  An event is
looked up once, when its guard takes it, and the merge finds the bit.  That is right while the merge hears all that a
guard takes at once and under its own start, and while nothing before the merge's promise is of interest to the guard.
Where that ends, the logs part from the merge (`part`).
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
    """The events of all copies.  `copy` gives the log of the next one, or of that at a port."""

    until = INF
    """What ends earlier need not be taken, if its copy has promised it."""

    def __init__(self, codec: RowCodec, copies: int) -> None:
        assert copies <= MOST_COPIES, "a copy has a bit"
        super().__init__(codec)
        self.ctis = np.full(copies, NEVER, np.int64)
        self.copies: list[CopyLog] = []
        self.heard = 0
        """Bits of the copies that have brought events since a merge looked."""

    def copy(self, port: int | None = None) -> CopyLog:
        self.copies.append(CopyLog(self, len(self.copies) if port is None else port))
        return self.copies[-1]

    @property
    def merged(self) -> bool:
        """Whether a merge needs the events of the copies, too."""
        return False

    def part(self) -> None:
        """Let the copies keep their events apart from those of a merge."""

    def reserve(self, more: int) -> None:
        """Make room for so many more.  While a batch may be undone entries stay."""
        if self.crowded and all(each.settled for each in self.copies):
            self._sweep()
        super().reserve(more)

    def _sweep(self) -> None:
        """Let go what nobody may name any more."""
        kernel.expire(self.pool, self.top, self.ctis, self.ctis.max())
        kernel.sweep(self.pool, self.heads, self.free, self.top, NEVER)
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
        self.port = port
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
        until = NEVER if adjusts else min(until, shared.until)  # an adjust may name what ends before
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
        shared.heard |= self._bit
        if wrong >= 0:
            self.undo()
        return int(wrong)

    def undo(self) -> None:
        """Take back what the last `apply` took; of several copies, the last one first."""
        if self._journal is not None:
            shared, journal = self._shared, self._journal
            kernel.undo(shared.pool, shared.heads, shared.free, self._bit, journal, len(journal))
            self._journal = None
            shared.heard &= ~self._bit

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

    def part(self) -> None:
        """Keep the events apart from those of a merge."""
        self._shared.part()

    def move(self, shared: SharedLog) -> int:
        """Keep the events in another pool from now on; the bit of those that can still be named."""
        self.settle()
        self._shared = shared
        return self._bit if shared.ctis[self.port] < INF else 0

    def close(self, promises: Iterable[Punctuation]) -> None:
        """Events whose rows are promised can no longer be named; they go with the next tidying."""
        self.part()
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
        """Events that ended before `cti` can no longer be named; with the last one all go, unless a merge needs
        them."""
        self._shared.ctis[self.port] = cti
        if cti == INF and not self._shared.merged:
            used = self._shared.pool[: self._shared.top]
            used[used[:, kernel.HAVE] > 0, kernel.HAVE] &= ~self._bit

    def begin_anew(self) -> None:
        """A new copy takes the place of one that has left."""
        self.settle()
        self.forget(INF)
        self._shared.ctis[self.port] = self._forgotten = NEVER
        self._over = None

    def events(self) -> Changes:
        """The events that can still be named."""
        entries, cti = self._shared.entries(), self._shared.ctis[self.port]
        left = entries[((entries[:, kernel.HAVE] & self._bit) != 0) & (entries[:, kernel.VE] >= cti) & (cti < INF)]
        vs, ve, rows = left[:, kernel.VS].copy(), left[:, kernel.VE].copy(), left[:, kernel.ROW :].copy()
        return Changes(self.codec, vs, ve, np.ones(len(left), np.int64), rows)

    def state_size(self) -> StateSize:
        """Events that can still be named; of the bytes, this copy's share, if they are not a merge's."""
        self.drop_promised()
        shared = self._shared
        rows = shared.alive(self._bit) if shared.ctis[self.port] < INF else 0
        return StateSize(rows, 0 if shared.merged else shared.nbytes // len(shared.copies))

    def snapshot(self) -> dict[str, Any]:
        left, cti = self.events(), int(self._shared.ctis[self.port])
        rows = self.codec.decode(left.rows)
        found = {"cti": cti, "forgotten": self._forgotten, "vs": left.lo, "ve": left.hi, "rows": rows}
        return found | {"merged": self._shared.merged}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot of this log or of an own one.  What a merge has, it brings itself."""
        if not state.get("merged"):
            self.part()
        self._shared.ctis[self.port], self._forgotten = state["cti"], state["forgotten"]
        vs, ve = state["vs"], state["ve"]
        restored.ints(len(vs), vs, ve)
        if self._shared.merged:
            return
        self.apply(np.zeros(len(vs), np.uint8), vs, ve, ve, restored.rows(self.codec, state["rows"], len(vs)), 0)
        self.settle()
