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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.containers.key_table import KeyTable
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Policy, StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import net_corrected
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, concat_all, no_changes
from everwhen.rows.codec import RowCodec

_FEWEST_TO_NET: Final = 1024
"""So many segments come before what waits is netted again, or as many as were left the last time."""


class EmitFilter:
    """The filter of one output.  `starts`: in `ended`, what has begun goes on; the policy says when that is."""

    def __init__(self, codec: RowCodec, emit: Emit, starts: Policy | None = None) -> None:
        self.codec = codec
        self.emit = emit
        self._starts = starts
        self._parts: list[Changes] = []
        self._size = self._left = 0
        self._corrects = False  # whether something that waits may correct something else that does
        self._first = INF  # nothing that waits starts earlier
        self._ahead = NEVER  # nothing that has gone on ends later
        self._unordered = KeyTable(codec.width, codec.pooled)  # rows that are emitted as they come,
        self._until = np.empty(0, np.int64)  # and until when
        codec.pool.register(self)
        codec.pool.register(self._unordered)

    keeps = "segments until the policy lets them go, at the latest until ve ≤ c"

    def step(self, changes: Changes, tau: int, frontier: Frontier) -> Changes:
        """What goes on when the largest start is `tau`."""
        if len(changes):
            self._add(changes)
        if self.emit is Emit.FINAL and self._ahead <= frontier.time:
            return self._final(frontier)
        batch = netted(changes) if self._orders else changes
        whole = self._taken()
        if self._corrects:
            whole = net_corrected(whole)
        if not len(whole):
            return no_changes(self.codec)
        retracted, limit = whole.weight < 0, self._limit(whole, frontier)
        due = retracted | self._due(whole, tau, frontier.time, limit)
        if self._orders:
            due |= self._out_of_order(batch, whole, tau, frontier.time)
        cut = ~due & (whole.lo < limit)
        self._keep(_from(whole, ~due & (whole.hi > limit), limit))
        self._corrects = False
        out = whole.take(due)
        self._ahead = max(self._ahead, int(out.hi.max(initial=NEVER)))
        return concat(out, _upto(whole, cut, limit)) if cut.any() else out

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
        if not self._size or (frontier.time <= self._first and not frontier.promises):
            return no_changes(self.codec)
        whole = self._taken()
        limit = self._limit(whole, frontier)
        self._keep(_from(whole, whole.hi > limit, limit))
        out = net_corrected(_upto(whole, whole.lo < limit, limit))
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

    # -- what waits ---------------------------------------------------------------------------------------------

    def _add(self, changes: Changes) -> None:
        # rows are recoded in place, so they are this filter's own
        self._parts.append(Changes(self.codec, changes.lo, changes.hi, changes.weight, changes.rows.copy()))
        self._size += len(changes)
        self._corrects |= bool((changes.weight < 0).any())
        self._first = min(self._first, int(changes.lo.min()))
        if self._size > 2 * self._left + _FEWEST_TO_NET:
            self._tidy()

    def _taken(self) -> Changes:
        whole = concat_all(self.codec, self._parts)
        self._parts = [whole]
        return whole

    def _keep(self, left: Changes) -> None:
        self._parts = [left] if len(left) else []
        self._size = len(left)
        self._left = min(self._left, len(left))
        self._first = int(left.lo.min(initial=INF))

    def _tidy(self) -> Changes:
        """Net what waits."""
        whole = self._taken()
        self._keep(net_corrected(whole))
        self._left, self._corrects = self._size, False
        return self._taken()

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(self._taken().rows, self.codec.pooled)]

    def recoded(self) -> None:
        """Segments carry no hash."""

    def state_size(self) -> StateSize:
        waiting = self._tidy() if self.emit is Emit.FINAL else self._taken()
        parts = (waiting.lo, waiting.hi, waiting.weight, waiting.rows)
        return StateSize(len(waiting) + len(self._unordered), sum(part.nbytes for part in parts))

    def snapshot(self) -> dict[str, Any]:
        waiting, unordered = self._tidy(), self._unordered.ids()
        rows = self.codec.decode(self._unordered.codes[unordered])
        return {
            "lo": waiting.lo, "hi": waiting.hi, "weight": waiting.weight, "rows": self.codec.decode(waiting.rows),
            "ahead": self._ahead, "unordered": rows, "until": self._until[unordered],
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        restored.ints(len(state["lo"]), state["lo"], state["hi"], state["weight"])
        restored.counts(state["weight"])
        restored.ints(len(state["until"]), state["until"])
        rows = restored.rows(self.codec, state["rows"], len(state["lo"]))
        self._keep(Changes(self.codec, state["lo"], state["hi"], state["weight"], rows))
        self._ahead = state["ahead"]
        ids = self._unordered.intern(restored.rows(self.codec, state["unordered"], len(state["until"])))
        self._until = np.full(self._unordered.capacity, NEVER, np.int64)
        self._until[ids] = state["until"]


def _from(changes: Changes, picked: np.ndarray, limit: np.ndarray) -> Changes:
    left = changes.take(picked)
    return Changes(left.codec, np.maximum(left.lo, limit[picked]), left.hi, left.weight, left.rows)


def _upto(changes: Changes, picked: np.ndarray, limit: np.ndarray) -> Changes:
    left = changes.take(picked)
    return Changes(left.codec, left.lo, np.minimum(left.hi, limit[picked]), left.weight, left.rows)
