"""Late rows of a source, before its guard sees them: left out, moved, or an error, as its policy says.

A batch is held against what was promised when it began, and against the CTIs within it; so how rows fall into batches
decides which are late.  The guard then finds nothing that breaks a promise.  The bound of the disorder becomes a
promise when the batch has been taken (`pipeline.py`).  The definition is `reference/late_rows.py`.

**Cost.**  One pass over the times of a batch; columns are copied only where rows are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from everwhen.core.late_count import LateCount
from everwhen.core.source_policy import SourcePolicy
from everwhen.core.time import INF, MIN_TIME, NEVER, show, show_span
from everwhen.errors import InputError
from everwhen.operators.ingress import finalize_loops as kernel
from everwhen.operators.ingress.finalize import DroppedElements
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch, taken


class LateRows:
    """The late rows of one source.  `step` holds a batch against promises; then `settle`, or `undo`."""

    def __init__(self, name: str, policy: SourcePolicy) -> None:
        self.name = name
        self.policy = policy
        self.count = LateCount()
        self._fresh = LateCount()
        self._dropped: tuple[DroppedElements, ...] = ()

    def step(self, batch: ElementBatch, promised: int) -> ElementBatch:
        """What is left of a batch, rows moved to where they may start."""
        self._dropped, op = (), batch.op
        if not op.any() and (not len(op) or int(batch.vs.min()) >= promised):  # inserts alone, and none is late
            self._fresh = LateCount(len(op))
            return batch
        data = op <= ADJUST
        self._fresh = LateCount(int(np.count_nonzero(data)))
        until = _promised_before(op, batch.vs, promised)
        adjust = op == ADJUST
        sync = np.where(adjust, np.minimum(batch.ve, batch.vnew), batch.vs) if adjust.any() else batch.vs
        late = data & (sync < until)
        if not late.any():
            return batch
        if self.policy.late == "error":
            raise self._error(batch, int(np.argmax(late)), sync, until)
        gone = late
        if self.policy.late == "adjust":
            batch, gone = _moved(batch, late & (op == INSERT), late, until)
        self._fresh += LateCount(0, int(np.count_nonzero(gone)), int(np.count_nonzero(late & ~gone)))
        if not gone.any():
            return batch
        self._dropped = (given_up(batch, np.flatnonzero(gone), kernel.LATE),)
        return without(batch, gone)

    def unknown(self, batch: ElementBatch, places: np.ndarray) -> None:
        """Adjusts in time of events that are not there: their inserts were left out, and so are they."""
        if len(places):
            self._dropped += (given_up(batch, places, kernel.UNKNOWN),)
            self._fresh += LateCount(0, len(places))

    def settle(self) -> tuple[DroppedElements, ...]:
        """The batch stays: what was left out of it."""
        self.count += self._fresh
        dropped, self._dropped, self._fresh = self._dropped, (), LateCount()
        return dropped

    def undo(self) -> None:
        """Be as before the last batch."""
        self._dropped, self._fresh = (), LateCount()

    def reached(self, tau: int) -> int:
        """What follows from the largest start so far."""
        within = self.policy.within
        if within is None or tau == NEVER:
            return NEVER
        found = tau - within
        return found if found >= MIN_TIME else NEVER

    def _error(self, batch: ElementBatch, at: int, sync: np.ndarray, until: np.ndarray) -> InputError:
        promised = int(until[at]) if until.ndim else int(until)
        what = "an adjust that changes something" if batch.op[at] == ADJUST else "a row that starts"
        place = f"{what} at {show(int(sync[at]))}"
        behind = show_span(promised - int(sync[at]))
        within = "" if self.policy.within is None else f" (WITHIN {show_span(self.policy.within)})"
        wider = "" if self.policy.within is None else f"widen WITHIN by {behind} or more, or "
        return InputError(
            f"{place}, {behind} behind {show(promised)}, before which {self.name} had promised to change "
            f"nothing{within}",
            source=batch.source or self.name,
            line=batch.line(at),
            remedy=f"{wider}say what becomes of late rows: LATE ROWS DROP or ADJUST (--late {self.name}=drop)",
        )

    def snapshot(self) -> list[int]:
        return [self.count.rows, self.count.dropped, self.count.moved]

    def restore(self, state: list[int]) -> None:
        self.count = LateCount(*state)


def _promised_before(op: np.ndarray, vs: np.ndarray, promised: int) -> np.ndarray:
    """What is promised before each element of a batch; one number where that is the same for all."""
    said = op == CTI
    if not said.any():
        return np.asarray(promised)
    return np.maximum(np.maximum.accumulate(np.where(said, vs, NEVER)), promised)


def _moved(
    batch: ElementBatch, moving: np.ndarray, late: np.ndarray, until: np.ndarray
) -> tuple[ElementBatch, np.ndarray]:
    """Late inserts at the promise that they broke, and which are left out because nothing of them is left."""
    start = np.where(moving, until, batch.vs)
    end = np.where(moving & (batch.ve == batch.vs + 1), np.where(start < INF, start + 1, start), batch.ve)
    gone = late & (~moving | (start >= end))
    vs, ve = np.where(gone, batch.vs, start), np.where(gone, batch.ve, end)
    return replace(batch, vs=vs, ve=ve), gone


def without(batch: ElementBatch, gone: np.ndarray) -> ElementBatch:
    """A batch without some of its elements; the others keep their lines."""
    at = np.flatnonzero(~gone)
    promises: Mapping[int, Any] = batch.promises
    if promises:
        place = np.cumsum(~gone) - 1
        promises = {int(place[i]): said for i, said in promises.items()}
    return replace(taken(batch, at), promises=promises)


def given_up(batch: ElementBatch, at: np.ndarray, reason: int) -> DroppedElements:
    """Some elements of a batch, as those that were given up for a reason."""
    return DroppedElements(replace(taken(batch, at), at=None), np.full(len(at), reason, np.uint8))
