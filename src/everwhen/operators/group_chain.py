"""GroupChain: the sink's memory for answers that are made of groups with one row each at any instant.

Such an answer needs no search by row: the group says which events a segment may concern, and time says which of these
it is.  Kept are, per group, the lifetimes said whose end is after the CTI; rows come with the segments.  What has ended
is dropped when its group is touched, or in bulk when as much again has been said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from everwhen.errors import EverwhenError
from everwhen.model.changes import Changes
from everwhen.model.elements import ADJUST, ElementBatch
from everwhen.model.punctuation import Promise
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import StateSize
from everwhen.operators.chain import said
from everwhen.operators.kernels import said as kernel
from everwhen.operators.kernels.runs import LENGTH, Runs, needed

_FEW: Final = 1 << 15
_NO_RECORDS: Final = np.empty((5, 0), np.int64)


class GroupChain:
    """Changes of groups and a promise in, elements out, the CTI last.

    `ordered`: elements of a step come in the order of their sync times.
    """

    def __init__(self, codec: RowCodec, ordered: bool = True) -> None:
        self.codec = codec
        self.cti = NEVER
        self._ordered = ordered
        self._said = Runs(2)
        self._since = 0  # segments since the last time that all groups were looked at

    def step(self, batch: Changes, promise: int, promises: Sequence[Promise] = ()) -> ElementBatch:
        """Elements; `promises` about data are said behind what they cover."""
        elements = self._step(batch, promise, promises)
        if batch.closed is not None and len(batch.closed):
            self._said.place[batch.closed[batch.closed < len(self._said.place)], LENGTH] = 0
        return elements

    def _step(self, batch: Changes, promise: int, promises: Sequence[Promise]) -> ElementBatch:
        said_cti = promise > self.cti
        head, rows = self._elements(batch, promise, len(promises) + said_cti)
        n = len(rows)
        if self._ordered and n > 1:
            op, vs, ve, vnew = head[:, :n]
            sync = np.where(op == ADJUST, np.minimum(ve, vnew), vs)
            if (sync[1:] < sync[:-1]).any():
                order = np.argsort(sync, kind="stable")
                head[:, :n], rows = head[:, order], rows[order]
        if said_cti:
            self.cti = promise
            if promise == INF:  # nothing can be taken back any more, however long it lives
                self._said.clear()
        return said(self.codec, head, rows, promises, promise if said_cti else None)

    def _elements(self, batch: Changes, promise: int, more: int) -> tuple[np.ndarray, np.ndarray]:
        """Columns op, vs, ve, vnew, with room for `more` elements, and the rows: first what is taken back, then what is
        said."""
        n = len(batch)
        if not n:
            return np.empty((4, more), np.int64), batch.rows
        assert batch.group is not None, "a chain of groups is fed by an operator that knows groups"
        group, lo, hi, said = batch.group, batch.lo, batch.hi, self._said
        said.grow(int(group.max()) + 1)
        taken = int(np.count_nonzero(batch.weight < 0))
        count, records = 0, _NO_RECORDS
        if taken:
            total, longest = self._reserve(group[:taken])
            records = np.empty((5, 2 * taken + total), np.int64)
            rest = np.empty((longest + 2 * taken, 2), np.int64)
            count, said.end, missing = kernel.take_back(
                group[:taken],
                lo[:taken],
                hi[:taken],
                said.place,
                said.pool,
                said.free,
                said.end,
                self.cti,
                records,
                rest,
            )
            if missing >= 0:
                raise EverwhenError("the output takes back what it never said: please report this as a defect")
        if taken < n:
            keys, offsets = kernel.stretches(group[taken:])
            said.reserve(needed(said.place, keys, offsets)[0])
            said.end = kernel.keep(
                keys, offsets, lo[taken:], hi[taken:], said.place, said.pool, said.free, said.end, self.cti, promise
            )
        self._since += n
        self._tidy()
        size = count + n - taken
        head = np.empty((4, size + more), np.int64)
        rows = np.empty((size if taken else 0, batch.rows.shape[1]), np.int64)
        kernel.elements(lo, hi, batch.rows, taken, records, count, head, rows)
        return head, rows if taken else batch.rows

    def _reserve(self, group: np.ndarray) -> tuple[int, int]:
        """Make room for a record more per segment.  Returns how many records these groups have, in all and at most."""
        room, total, longest = needed(self._said.place, *kernel.stretches(group))
        self._said.reserve(room)
        return total, longest

    def _tidy(self, force: bool = False) -> None:
        if force or self._since > max(_FEW, len(self._said.place)):
            kernel.forget(self._said.place, self._said.pool, self._said.free, self.cti)
            self._since = 0
        if force or self._said.crowded:
            self._said.tidy()

    def said(self, pieces: Changes) -> Changes:
        """The events said that live at the CTI or later, under the names by which they may still be adjusted.

        Their rows are those of `pieces`: what their operator has said from the CTI on.
        """
        self._tidy(force=True)
        groups = np.flatnonzero(self._said.place[:, LENGTH])
        events, offsets = self._said.gather(groups)
        assert pieces.group is not None, "a chain of groups is fed by an operator that knows groups"
        group = np.concatenate([pieces.group, np.repeat(groups, np.diff(offsets))])
        # an event lies where its group has said its row: the last piece that starts by then
        start = np.concatenate([pieces.lo, np.maximum(events[:, kernel.VS], self.cti)])
        order = np.lexsort((np.arange(len(group)) >= len(pieces), start, group))
        piece = np.maximum.accumulate(np.where(order < len(pieces), np.arange(len(order)), 0))
        found = np.empty(len(order), np.int64)
        found[order] = order[piece]
        rows = pieces.rows[found[len(pieces) :]]
        ones = np.ones(len(events), np.int64)
        return Changes(self.codec, events[:, kernel.VS].copy(), events[:, kernel.VE].copy(), ones, rows)

    def state_size(self) -> StateSize:
        """Events that can still be named."""
        return StateSize(int((self._said.records[:, kernel.VE] > self.cti).sum()), self._said.nbytes)

    def snapshot(self) -> dict[str, Any]:
        self._tidy(force=True)
        groups = np.flatnonzero(self._said.place[:, LENGTH])
        said, offsets = self._said.gather(groups)
        return {"cti": self.cti, "groups": groups, "said": said, "offsets": offsets}

    def restore(self, state: dict[str, Any]) -> None:
        self.cti = state["cti"]
        self._said.put(state["groups"], state["offsets"], state["said"])
