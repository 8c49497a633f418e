"""The emission filter: how much of an answer leaves before it is final.  Every output has at most one.

Operators emit all that they know, or less where they take the policy in themselves: a sweep computes no piece that the
policy would hold back (`clip.py`), and coalesce waits until an interval can not grow.  What is left to do is done
here, and the policy may change between steps.  Of what has come and has not gone on,

    final     goes on what the frontier covers, cut there
    ended     also what has ended by τ; at the output of windows and splits, also what has begun (`starts`)
    current   also what has begun by τ, as far as it is known
    all       everything.

**Guarantee.**  What has gone on stands until it is known to be wrong: a stricter policy retracts nothing by itself,
and what turns out wrong is retracted at once, whatever the policy.  What waits goes on no later than the frontier, or
punctuation about its row, covers it; so all that punctuation covers is out before it.

Kept are segments that wait, until `ve ≤ c`: at most two per event.  Where nothing beyond the frontier has gone on,
corrections wait with what they correct, and are netted when it goes on, or when as many came as had been left.

**Starts.**  A window over a lifetime has levels that start one after the other.  Emitting all of them when the event
arrives would announce the future and put later events out of order, so they wait until they begin.  A row of which
something is retracted is out of order anyway: it is emitted as it comes, until all that went ahead has begun, because
a correction that comes in parts takes more elements than one that comes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everwhen.containers.key_table import KeyTable
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import NEVER
from everwhen.operators.contract import Policy, StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.net import net_corrected, netted
from everwhen.operators.signed_bag import SignedBag, after, before
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec


class EmitFilter:
    """The filter of one output.  `starts`: in `ended`, what has begun goes on; the policy says when that is.  `ahead`:
    what has gone on without it ends no later."""

    def __init__(self, codec: RowCodec, emit: Emit, starts: Policy | None = None, ahead: int = NEVER) -> None:
        self.codec = codec
        self.emit = emit
        self._starts = starts
        self._waiting = SignedBag(codec)
        self._ahead = ahead  # nothing that has gone on ends later
        self._unordered = KeyTable(codec.width, codec.pooled)  # rows that are emitted as they come,
        self._until = np.empty(0, np.int64)  # and until when
        codec.pool.register(self._unordered)

    @property
    def waiting(self) -> Changes:
        """What has come and has not gone on."""
        return self._waiting.netted()

    @property
    def ahead(self) -> int:
        """Nothing that has gone on ends later, but for what was final when it did."""
        return self._ahead

    @property
    def orders(self) -> bool:
        """Whether some rows go on as they come, because they are out of order."""
        return len(self._unordered) > 0

    def stop_at(self, t: int) -> None:
        """Let nothing go on from an instant on."""
        self._waiting.put(before(self._waiting.netted(), t))

    keeps = "segments until the policy lets them go, at the latest until ve ≤ c"

    def step(self, changes: Changes, tau: int, frontier: Frontier) -> Changes:
        """What goes on when the largest start is `tau`."""
        self._waiting.add(changes)
        if self.emit is Emit.FINAL and self._ahead <= frontier.time:
            return self._final(frontier)
        batch = netted(changes) if self._orders else changes
        whole = self._waiting.netted()
        if not len(whole) and not len(self._unordered):
            return no_changes(self.codec)
        retracted, limit = whole.weight < 0, self._limit(whole, frontier)
        due = retracted | self._due(whole, tau, frontier.time, limit)
        if self._orders:
            due |= self._out_of_order(batch, whole, tau, frontier.time)
        cut = ~due & (whole.lo < limit)
        self._waiting.put(after(whole.take(~due), limit[~due]))
        out = whole.take(due)
        self._ahead = max(self._ahead, int(out.hi.max(initial=NEVER)))
        return concat(out, before(whole.take(cut), limit[cut])) if cut.any() else out

    @property
    def _orders(self) -> bool:
        return self._starts is not None and self.emit is Emit.ENDED

    def _due(self, whole: Changes, tau: int, promise: int, limit: np.ndarray) -> np.ndarray:
        match self.emit:
            case Emit.ALL:
                return np.ones(len(whole), np.bool_)
            case Emit.CURRENT:
                return whole.lo <= max(tau, promise)
            case Emit.ENDED if self._starts is not None:
                return (whole.lo <= self._starts.ended_by(tau)) | (whole.lo < limit)
            case Emit.ENDED:
                return whole.hi <= tau
        return np.zeros(len(whole), np.bool_)

    def _final(self, frontier: Frontier) -> Changes:
        """What the frontier covers, if nothing beyond it has gone on."""
        if frontier.time <= self._waiting.first and not frontier.promises:
            return no_changes(self.codec)
        whole = self._waiting.whole()
        limit = self._limit(whole, frontier)
        out = net_corrected(before(whole, limit))
        self._waiting.cut(limit)
        if frontier.promises:
            self._ahead = max(self._ahead, int(out.hi.max(initial=NEVER)))
        return out

    def _limit(self, changes: Changes, frontier: Frontier) -> np.ndarray:
        """Until when each row is promised."""
        everywhere = np.full(len(changes), frontier.time, np.int64)
        if not frontier.promises:
            return everywhere
        return np.maximum(everywhere, upto(frontier.promises, self.codec, changes.rows))

    def _out_of_order(self, batch: Changes, whole: Changes, tau: int, promise: int) -> np.ndarray:
        """Which segments belong to rows that are emitted as they come; notes how long these are."""
        assert self._starts is not None
        table, corrected = self._unordered, batch.weight < 0
        if not len(table) and not corrected.any():
            return np.zeros(len(whole), np.bool_)
        table.intern(batch.rows[corrected])
        until = np.full(table.capacity, NEVER, np.int64)
        until[: len(self._until)] = self._until
        ids = table.find(whole.rows)
        found = ids >= 0
        np.maximum.at(until, ids[found], whole.lo[found])
        known = table.ids()
        over = known[(until[known] <= self._starts.ended_by(tau)) | (until[known] < promise)]
        until[over] = NEVER
        table.remove(over)
        self._until = until
        return found

    # -- state ----------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        return self._waiting.state_size() + StateSize(len(self._unordered), self._until.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._unordered.ids()
        rows = self.codec.decode(self._unordered.codes[ids])
        unordered = {"rows": rows, "until": self._until[ids]}
        return {"waiting": self._waiting.snapshot(), "ahead": self._ahead, "unordered": unordered}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._waiting.restore(state["waiting"])
        self._ahead = state["ahead"]
        rows, until = state["unordered"]["rows"], state["unordered"]["until"]
        restored.ints(len(until), until)
        ids = self._unordered.intern(restored.rows(self.codec, rows, len(until)))
        self._until = np.full(self._unordered.capacity, NEVER, np.int64)
        self._until[ids] = until
