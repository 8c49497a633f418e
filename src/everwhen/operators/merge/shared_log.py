"""The events of several copies of one stream that adjusts may still name, each stored once.

Every source guard keeps the events that an adjust may name.  Where copies of one stream are merged, n logs would hold
the same events n times: that is the naive index of the LMerge paper.  Here an event is one entry with a bit per copy
that has it.  What each guard checks, and what it forgets when, is the same as with a log of its own (`EventLog`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.merge import shared_log_loops as kernel
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec

MOST_COPIES: Final = 62
_FEWEST: Final = 1024
"""A ring has room for so many entries at least; its size is a power of two."""


class SharedLog:
    """The ring of all copies.  `copy` gives the log of the next one."""

    def __init__(self, codec: RowCodec, copies: int) -> None:
        assert copies <= MOST_COPIES, "a copy has a bit"
        self.codec = codec
        self.ctis = np.full(copies, NEVER, np.int64)
        self.log = np.zeros((_FEWEST, kernel.ROW + codec.width), np.int64)
        self.heads = np.full(_FEWEST, -1, np.int64)
        self.oldest = self.count = 0
        self.copies: list[CopyLog] = []
        self.pending: set[int] = set()  # the copies that have taken a batch of the present epoch, which may be undone
        codec.pool.register(self)

    def copy(self) -> CopyLog:
        self.copies.append(CopyLog(self, len(self.copies)))
        return self.copies[-1]

    def reserve(self, more: int) -> None:
        """Make room for so many more.  Numbers stay while a batch may still be undone."""
        if self.count + more - self.oldest > len(self.log):
            self.tidy(more, renumber=not self.pending)

    def tidy(self, more: int = 0, renumber: bool = True) -> None:
        """Write the events that are left anew, with room for so many more, and half of the ring besides."""
        if renumber:
            for each in self.copies:
                each.drop_promised()
        left = self.alive(-1) if renumber else self.count - self.oldest
        size = max(_FEWEST, 1 << max(2 * (left + more) - 1, 0).bit_length())
        log, heads = np.empty((size, self.log.shape[1]), np.int64), np.empty(size, np.int64)
        self.count = kernel.rewrite(self.log, self.oldest, self.count, self.ctis, log, heads, renumber)
        self.oldest = 0 if renumber else self.oldest
        self.log, self.heads = log, heads

    def alive(self, bits: int) -> int:
        return int(kernel.alive(self.log, self.oldest, self.count, self.ctis, bits))

    def forget(self) -> None:
        self.oldest = int(kernel.forget(self.log, self.oldest, self.count, self.ctis))

    def entries(self) -> np.ndarray:
        """The events that are left, one after the other."""
        self.pending.clear()
        self.tidy()
        return self.log[: self.count]

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self.entries(), [(kernel.ROW + j, type_) for j, type_ in self.codec.pooled])]

    def recoded(self) -> None:
        self.tidy()

    @property
    def nbytes(self) -> int:
        return self.log.nbytes + self.heads.nbytes


class CopyLog:
    """One copy's log: what `EventLog` is to a guard whose events nobody else has."""

    def __init__(self, shared: SharedLog, port: int) -> None:
        self.codec = shared.codec
        self._shared = shared
        self._port = port
        self._bit = 1 << port
        self._journal: tuple[np.ndarray, int] | None = None
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
        if self._port in shared.pending:  # another epoch
            shared.pending.clear()
        shared.reserve(len(op))
        journal = np.empty(len(op) + adjusts, np.int64)
        if adjusts:
            until = NEVER  # one of them may name what ends before
        before = shared.count
        shared.count, done, wrong = kernel.apply(
            op, vs, ve, vnew, rows, until, shared.log, shared.heads, shared.oldest, before, self._bit, journal
        )
        self._journal = journal, int(done)
        shared.pending.add(self._port)
        if wrong >= 0:
            self.undo()
        return int(wrong)

    def undo(self) -> None:
        """Take back what the last `apply` took; of several copies, the last one first."""
        if self._journal is not None:
            shared, (journal, done) = self._shared, self._journal
            shared.count = int(kernel.undo(shared.log, shared.heads, shared.count, self._bit, journal, done))
            self._journal = None

    def close(self, promises: Iterable[Punctuation]) -> None:
        """Events whose rows are promised can no longer be named; they go with the next tidying."""
        self._over = self._over or PunctuationStore(self.codec.schema)
        self._over.add(promises)

    def drop_promised(self) -> None:
        """Drop events that ended before what is promised of their rows."""
        over, self._over = self._over, None
        shared = self._shared
        if over is None or not len(over) or shared.oldest == shared.count:
            return
        at = np.arange(shared.oldest, shared.count) & (len(shared.log) - 1)
        mine = at[(shared.log[at, kernel.HAVE] & self._bit) != 0]
        ends, until = shared.log[mine, kernel.VE], upto(over, self.codec, shared.log[mine, kernel.ROW :])
        gone = (ends < until) | (until == INF)
        shared.log[mine[gone], kernel.HAVE] &= ~self._bit
        self._forgotten = max(self._forgotten, int(ends[gone].max(initial=NEVER)))

    @property
    def forgotten(self) -> int:
        """The largest end of the events that were dropped because their rows are promised (-∞: none was)."""
        self.drop_promised()
        return self._forgotten

    def forget(self, cti: int) -> None:
        """Events that ended before `cti` can no longer be named."""
        self._journal = None
        if cti == INF:
            self.clear()
        self._shared.ctis[self._port] = cti
        self._shared.forget()

    def clear(self) -> None:
        """The copy has no events any more."""
        self._journal = None
        self._shared.log[:, kernel.HAVE] &= ~self._bit

    def begin_anew(self) -> None:
        """A new copy takes the place of one that has left."""
        self.clear()
        self._shared.pending.discard(self._port)
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
