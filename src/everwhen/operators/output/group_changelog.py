"""The changelog encoder of groups: the sink's memory for answers made of groups with one row each at any instant.

Such an answer needs no search by row: the group says which events a segment may concern, and time says which of these
it is.  Kept are, per group, the lifetimes said whose end is after the CTI; rows come with the segments.  What has ended
is dropped when its group is touched, or in bulk when as much has been said as there is memory for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from everwhen.containers.run_pool import LENGTH, ROOM, Runs
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.contract import StateSize
from everwhen.operators.output import group_changelog_loops as kernel
from everwhen.rows import restored
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ElementBatch, coded_elements

_FEW: Final = 1 << 15
_NOTHING: Final = np.empty(0, np.int64)


class GroupChangelogEncoder:
    """Changes of groups and a promise in, elements out, the CTI last.

    `ordered`: elements of a step come in the order of their sync times.
    """

    def __init__(self, codec: RowCodec, ordered: bool = True) -> None:
        self.codec = codec
        self.cti = NEVER
        self._ordered = ordered
        self._said = Runs(2)
        self._since = 0  # segments since the last time that all groups were looked at

    def step(self, batch: Changes, promise: int, promises: Sequence[Punctuation] = ()) -> ElementBatch:
        """Elements; `promises` about data are said behind what they cover."""
        elements = self._step(batch, promise, promises)
        if batch.closed is not None and len(batch.closed):
            kernel.close(batch.closed, self._said.place)
        return elements

    def _step(self, batch: Changes, promise: int, promises: Sequence[Punctuation]) -> ElementBatch:
        said_cti = promise > self.cti
        op, times, rows = self._elements(batch, promise, len(promises) + said_cti)
        n = len(rows)
        if self._ordered and n > 1:
            sync = np.empty(n, np.int64)
            if not kernel.sync_times(op, times, sync):
                order = _order(sync)
                op[:n], times[:, :n], rows = op[order], times[:, order], rows[order]
        if said_cti:
            self.cti = promise
            if promise == INF:  # nothing can be taken back any more, however long it lives
                self._said.clear()
        return coded_elements(self.codec, op, times, rows, promises, promise if said_cti else None)

    def _elements(self, batch: Changes, promise: int, more: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ops, times (vs, ve and vnew), with room for `more` elements, and the rows: first what is taken back, then
        what is said."""
        n = len(batch)
        if not n:
            return np.empty(more, np.uint8), np.empty((3, more), np.int64), batch.rows
        assert batch.group is not None, "a chain of groups is fed by an operator that knows groups"
        group, lo, hi, said = batch.group, batch.lo, batch.hi, self._said
        most, taken = kernel.survey(group, batch.weight)
        said.grow(most + 1)
        if taken:
            op, times, at = self._take_back(group[:taken], lo[:taken], hi[:taken], n - taken + more)
        else:
            op, times, at = np.empty(n + more, np.uint8), np.empty((3, n + more), np.int64), _NOTHING
        count = len(at)
        group, lo, hi = group[taken:], lo[taken:], hi[taken:]
        kept = 0
        while True:
            kept, said.end = kernel.keep(
                kept, group, lo, hi, said.place, said.pool, said.free, said.end, self.cti, promise
            )
            if kept == len(group):
                break
            self._reserve(group[kept], len(group))
        kernel.say(lo, hi, op, times, count)
        self._since += n
        self._tidy()
        rows = batch.rows
        if count > taken:  # otherwise each segment is one element
            rows = np.empty((count + n - taken, rows.shape[1]), np.int64)
            kernel.pick(batch.rows, at, taken, rows)
        return op, times, rows

    def _take_back(
        self, group: np.ndarray, lo: np.ndarray, hi: np.ndarray, more: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ops and times of what segments take back, with room for `more` elements, and the segment of each."""
        said, taken = self._said, len(group)
        size = taken + taken // 8 + 64
        op, times, at = np.empty(size + more, np.uint8), np.empty((3, size + more), np.int64), np.empty(size, np.int64)
        rest = np.empty((64, 2), np.int64)
        done = count = 0
        while done < taken:
            written = kernel.Written(op, times, at)
            done, count, said.end, missing = kernel.take_back(
                done, group, lo, hi, said.arrays, said.end, self.cti, written, count, rest
            )
            if missing:
                raise EverwhenError("the output takes back what it never said: please report this as a defect")
            if done < taken:
                most = 2 * taken + self._reserve(group[done], taken)
                size = 2 * size + most
                old = op, times, at
                op, times, at = (
                    np.empty(size + more, np.uint8),
                    np.empty((3, size + more), np.int64),
                    np.empty(size, np.int64),
                )
                op[:count], times[:, :count], at[:count] = old[0][:count], old[1][:, :count], old[2][:count]
                rest = np.empty((most, 2), np.int64)
        return op[: count + more], times[:, : count + more], at[:count]

    def _reserve(self, group: int, segments: int) -> int:
        """Make room for so many records more of a group.  Returns how many it has."""
        length = int(self._said.place[group, LENGTH])
        self._said.reserve(4 * (int(self._said.place[group, ROOM]) + length + segments) + 64)
        return length

    def _tidy(self, force: bool = False) -> None:
        if force or self._since > max(_FEW, self._said.end):
            kernel.forget(self._said.place, self._said.pool, self._said.free, self.cti)
            self._since = 0
        if force or self._said.crowded:
            self._said.tidy()

    def said(self, pieces: Changes) -> Changes:
        """The events said that live where `pieces` do, under the names by which they may still be adjusted.

        `pieces` are what their operator has said and still knows, of each group from some instant on; events have the
        rows of the pieces that they meet.  What ended before nobody can adjust any more.
        """
        self._tidy(force=True)
        groups = np.flatnonzero(self._said.place[:, LENGTH])
        if not len(pieces) or not len(groups):
            return no_changes(self.codec)
        events, offsets = self._said.gather(groups)
        assert pieces.group is not None, "a chain of groups is fed by an operator that knows groups"
        vs, ve, group = events[:, kernel.VS], events[:, kernel.VE], np.repeat(groups, np.diff(offsets))
        # pieces of a group are disjoint: the first one that ends after an event's start is the one to look at
        order = np.lexsort((pieces.hi, pieces.group))
        ends = np.concatenate([pieces.hi[order], np.maximum(vs, self.cti)])
        of = np.concatenate([pieces.group[order], group])
        both = np.lexsort((np.arange(len(of)) >= len(order), ends, of))
        following = np.where(both < len(order), both, len(order))
        following = np.minimum.accumulate(following[::-1])[::-1]
        piece = np.empty(len(of), np.int64)
        piece[both] = following
        piece = piece[len(order) :]
        there = piece < len(order)
        at = order[np.minimum(piece, len(order) - 1)]
        met = there & (pieces.group[at] == group) & (pieces.lo[at] < ve)
        ones = np.ones(int(met.sum()), np.int64)
        return Changes(self.codec, vs[met], ve[met], ones, pieces.rows[at[met]])

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
        restored.runs(state["groups"], state["offsets"], state["said"], self._said.pool.shape[1])
        self._said.put(state["groups"], state["offsets"], state["said"])


def _order(sync: np.ndarray) -> np.ndarray:
    """The stable order of times."""
    few, (which, order) = np.empty((3, 8), np.int64), np.empty((2, len(sync)), np.int64)
    return order if kernel.by_few(sync, few, which, order) else np.argsort(sync, kind="stable")
