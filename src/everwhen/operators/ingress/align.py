"""Align(B): elements wait up to B behind the largest sync time seen, and go on in the order of their sync times.

**Guarantee.**  What goes on means the same as what came.  If no element is later than B, what goes on is ordered, so
that operators answer without ever having been wrong.  While an insert waits, its adjusts are merged into it; an adjust
that waits is merged with the next one.  An element of the sync time s goes on when the horizon has reached s, or when
all inputs have promised everything before some t > s; progress does not pass what waits.

The horizon is handed in, the largest sync time of all inputs minus B, because elements of one input may be late for
those of another.  An epoch is taken at once: what waits at its end is what the horizon has not reached then.  CEDR,
section 4.5, with sync times for starts, so that adjusts too go on in order; the definition is `reference/admission.py`.
It is no clock: what B means in system time, whoever hands the horizon in decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.sort_by_time import by_time
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress import align_loops as kernel
from everwhen.operators.ingress.event_index import EventIndex
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.operators.ingress.sorted_buffer import SortedBuffer
from everwhen.operators.key_frontiers import upto
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ADJUST, INSERT


class Align:
    """The Align of one source.  Cost: O(1) per element that comes in order, O(log n) for n that wait otherwise."""

    keeps = "elements until the horizon or a promise has passed them"

    def __init__(self, codec: RowCodec, insert_only: bool = False) -> None:
        self.codec = codec
        self.insert_only = insert_only
        self.lowest = INF
        """The smallest sync time that waits; infinity if nothing does."""
        self._line = SortedBuffer(codec)  # what waits, as long as that is inserts which are not far out of order
        self._entries = EventIndex(codec, column=0)  # else
        self._heap = np.empty((256, 2), np.int64)
        self._queue = np.empty((256, 2), np.int64)
        self._sizes = np.zeros(3, np.int64)
        codec.pool.register(self)

    def step(self, arrived: CheckedBatch | None, horizon: int, promised: int) -> CheckedBatch:
        """Take elements; what goes on when the horizon is there and all inputs have promised everything before
        `promised`."""
        limit = INF if promised == INF else max(horizon, promised - 1 if promised > NEVER else NEVER)
        if self._sizes[0] == 0 and self._sizes[1] == self._sizes[2]:
            if arrived is None or (not arrived.adjusts and self._line.take(arrived)):
                due = self._line.due(limit)
                self.lowest = self._line.lowest
                return due
            self._leave_line()
        passing = None
        if arrived is not None:
            passing = self._wait(arrived, limit)
        released = self._release(limit)
        return released if passing is None else _in_order(released, passing)

    def _leave_line(self) -> None:
        """Something else has come: what waits in line waits as all the rest does."""
        line = self._line.all()
        self._line.clear()
        self._wait(line, NEVER)

    def _wait(self, arrived: CheckedBatch, limit: int) -> CheckedBatch | None:
        """Let elements wait; inserts that would go on at once, and that nothing follows yet, do not."""
        which, passing = np.arange(len(arrived.op)), None
        if not arrived.adjusts:
            due = arrived.vs <= limit
            n = int(np.count_nonzero(due))
            if n == len(due):
                return arrived
            if n:
                now: slice | np.ndarray = due
                if due[:n].all():  # as in a stream in order: no need to copy
                    now, which = slice(0, n), which[n:]
                else:
                    which = np.flatnonzero(~due)
                passing = _part(arrived, now)
        if self._entries.make_room(len(which)):
            self._order()
        searched = arrived.adjusts > 0
        count = kernel.wait(
            arrived.op, arrived.vs, arrived.ve, arrived.vnew, arrived.rows, which, searched,
            self._entries.searched if searched else self._entries.table, self._entries.count,
            self._heap, self._queue, self._sizes,
        )  # fmt: skip
        self._entries.extended(int(count), searched)
        return passing

    def _release(self, limit: int) -> CheckedBatch:
        at = np.empty(int(self._sizes[0] + self._sizes[2] - self._sizes[1]), np.int64)
        n, self.lowest = map(
            int, kernel.release(limit, self._entries.table, self._heap, self._queue, self._sizes, at)
        )  # fmt: skip
        op, rows = np.empty(n, np.uint8), np.empty((n, self.codec.width), np.int64)
        vs, ve, vnew = (np.empty(n, np.int64) for _ in range(3))
        adjusts = kernel.take(self._entries.table, at[:n], op, vs, ve, vnew, rows)
        return CheckedBatch(self.codec, op, vs, ve, vnew, rows, int(adjusts))

    def _order(self) -> None:
        """The queue anew: entries stand elsewhere."""
        fields = self._entries.fields[: self._entries.count]
        alive = np.flatnonzero(self._entries.alive())
        order = alive[np.argsort(fields[alive, 3], kind="stable")]
        self._heap = grown(self._heap, len(self._entries.after), 0)
        self._queue = grown(self._queue, len(self._entries.after), 0)
        self._sizes[:] = 0, 0, len(order)
        self._queue[: len(order), 0], self._queue[: len(order), 1] = fields[order, 3], order
        self.lowest = int(fields[order[0], 3]) if len(order) else INF

    def waiting(self) -> CheckedBatch:
        """The elements that wait, as they are merged by now."""
        if len(self._line):
            return self._line.all()
        alive = self._entries.alive()
        fields, rows = self._entries.fields[: len(alive)][alive], self._entries.rows[: len(alive)][alive]
        adjust = fields[:, 2] != NEVER
        op = np.where(adjust, np.uint8(ADJUST), np.uint8(INSERT))
        ve, vnew = np.where(adjust, fields[:, 2], fields[:, 1]), np.where(adjust, fields[:, 1], 0)
        return CheckedBatch(self.codec, op, fields[:, 0].copy(), ve, vnew, rows, int(adjust.sum()))

    def holds(self, promise: Punctuation) -> bool:
        """Whether an element waits that a promise matches and that changes an instant before its time."""
        if self.lowest >= promise.t:
            return False
        waiting = self.waiting()
        return bool((waiting.sync < upto([promise], self.codec, waiting.rows)).any())

    def state_size(self) -> StateSize:
        held = self._entries.nbytes + self._heap.nbytes + self._line.nbytes
        return StateSize(int(self._entries.alive().sum()) + len(self._line), held)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return self._line.coded()

    def recoded(self) -> None:
        """Nothing is looked up by its codes."""

    def snapshot(self) -> dict[str, Any]:
        return self._line.snapshot() if len(self._line) else self._entries.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        if (state["fields"][:, 2] == NEVER).all():
            self._line.restore(state)
            self.lowest = self._line.lowest
        else:
            self._entries.restore(dict(state))
            self._order()


def _part(some: CheckedBatch, which: slice | np.ndarray) -> CheckedBatch:
    """Some of these inserts; with a slice they are not copied."""
    op, vs, ve, vnew, rows = (each[which] for each in (some.op, some.vs, some.ve, some.vnew, some.rows))
    return CheckedBatch(some.codec, op, vs, ve, vnew, rows, 0)


def _joined(first: CheckedBatch, second: CheckedBatch) -> CheckedBatch:
    op, vs, ve, vnew, rows = (
        np.concatenate([getattr(first, part), getattr(second, part)]) for part in ("op", "vs", "ve", "vnew", "rows")
    )
    return CheckedBatch(first.codec, op, vs, ve, vnew, rows, first.adjusts)


def _in_order(first: CheckedBatch, second: CheckedBatch) -> CheckedBatch:
    """Both, by sync time; the second has inserts only."""
    if not len(first.op) and (len(second.vs) < 2 or bool((second.vs[1:] >= second.vs[:-1]).all())):
        return second
    sync, both = np.concatenate([first.sync, second.vs]), _joined(first, second)
    if (sync[1:] >= sync[:-1]).all():
        return both
    order = by_time(sync)
    op, vs, ve, vnew, rows = (each[order] for each in (both.op, both.vs, both.ve, both.vnew, both.rows))
    return CheckedBatch(first.codec, op, vs, ve, vnew, rows, first.adjusts)
