"""A source's port from which nothing before an instant, its floor, comes any more: it is cut there, and promised.

That is legal: a stream that is cut at V says nothing before V, so it may promise V.  Segments are cut one by one.

**Events.**  In event form an event is taken back and said again under its own start, and who has heard of it knows it
by that start.  So what was said before the floor keeps its start, and is shortened to the floor where it should end
earlier.  An event that is new and began before the floor begins there, and so does one that had ended before it and
grows beyond it.  Which events have another start is remembered, by row, start and end as the source names them, while
they may still be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.time import NEVER
from everwhen.engine.node import cut
from everwhen.operators.contract import Output, StateSize
from everwhen.punctuation.api import make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat_all
from everwhen.rows.codec import RowCodec


class PortFloor:
    """The floor of a port in segment form."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self.time = NEVER
        self.promised = NEVER
        """What the source itself has promised."""

    def raise_to(self, time: int) -> None:
        """Nothing before `time` comes any more; it never goes back."""
        self.time = max(self.time, time)

    @property
    def forces(self) -> bool:
        """Whether the source has promised less than the port does."""
        return self.promised < self.time

    def apply(self, given: Output) -> Output:
        """What goes on of what the source brings."""
        changes = self._cut(given.changes)
        self.promised = max(self.promised, given.frontier.time)
        if given.frontier.time >= self.time:
            return Output(changes, given.frontier)
        return Output(changes, make_frontier(self.time, given.frontier.promises))

    def _cut(self, changes: Changes) -> Changes:
        return cut(changes, self.time)

    def known(self, events: Changes) -> Changes:
        """Events of the source under the starts by which they went on."""
        return events

    def state_size(self) -> StateSize:
        return StateSize()

    def snapshot(self) -> dict[str, Any]:
        return {"time": self.time, "promised": self.promised}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.time, self.promised = state["time"], state["promised"]


class EventPortFloor(PortFloor):
    """The floor of a port in event form."""

    def __init__(self, codec: RowCodec) -> None:
        super().__init__(codec)
        # events that went on under another start: how many by row, start and end; and that start, by row and start
        self._ends, self._starts = (KeyTable(codec.width + more, codec.pooled) for more in (2, 1))
        self._count, self._start = np.empty((2, 0), np.int64)
        codec.pool.register(self._ends)
        codec.pool.register(self._starts)

    def raise_to(self, time: int) -> None:
        super().raise_to(time)
        self._forget()

    def apply(self, given: Output) -> Output:
        before = self.promised
        found = super().apply(given)
        if self.promised > before and len(self._ends):
            self._forget()
        return found

    def _forget(self) -> None:
        """What ended before the floor, or before what is promised, is named no more."""
        ids = self._ends.ids()
        ends = self._ends.codes[ids, -1]
        self._drop(ids[(ends <= self.time) | (ends < self.promised)])
        known = self._starts.ids()
        used = np.zeros(self._starts.capacity, np.bool_)
        used[self._starts.find(self._ends.codes[self._ends.ids(), :-1])] = True
        self._starts.remove(known[~used[known]])

    def _drop(self, ids: np.ndarray) -> None:
        self._count[ids] = 0
        self._ends.remove(ids)

    def _cut(self, changes: Changes) -> Changes:
        old = changes.lo < self.time
        if not old.any() or (self.promised > self.time and not len(self._ends)):
            return changes
        young = changes.take(~old)
        touched = self._net(changes.take(old & (changes.hi > self.time)))
        return concat_all(self.codec, [young, *self._renamed(touched)]) if len(touched) else young

    def _net(self, changes: Changes) -> Changes:
        """Each event once, as often as it is said more than it is taken back."""
        table = KeyTable(self.codec.width + 2)
        ids = table.intern(_by_end(changes))
        total = np.zeros(table.capacity, np.int64)
        np.add.at(total, ids, changes.weight)
        left = np.flatnonzero(total)
        codes = table.codes[left]
        return _events(self.codec, codes[:, :-2], codes[:, -2], codes[:, -1], total[left])

    def _renamed(self, changes: Changes) -> list[Changes]:
        """Events that began before the floor and end after it, by the starts under which they go on.

        Of one row and start, what is said goes on for what is taken back: first under the own start, then under the
        other one.  What is left is new, and begins at the floor, with all that have another start; what is taken back
        and does not go on lives until the floor.
        """
        floor, codec = self.time, self.codec
        back, said = _single(changes.take(changes.weight < 0)), _single(changes.take(changes.weight > 0))
        table = KeyTable(codec.width + 1)
        of_back, of_said = (table.intern(_by_start(part)) for part in (back, said))
        known = self._starts.find(table.codes)
        start = np.full(len(known), floor, np.int64)
        start[known >= 0] = self._start[known[known >= 0]]
        ids = self._ends.find(_by_end(back))
        renamed = ids >= 0
        renamed[renamed] = _rank(ids[renamed]) < self._count[ids[renamed]]
        own, other = (np.bincount(of_back[picked], minlength=len(start)) for picked in (~renamed, renamed))
        rank = _rank(of_said)
        stays = rank < own[of_said]  # under its own start
        new = np.bincount(of_said, minlength=len(start)) > own + other
        moved = new & (start < floor)
        begins = np.where(moved, floor, start)
        lo = np.where(renamed, start[of_back], back.lo)
        parts = [
            Changes(codec, lo, back.hi, -back.weight, back.rows),
            Changes(codec, np.where(stays, said.lo, begins[of_said]), said.hi, said.weight, said.rows),
        ]
        left = np.bincount(of_said, minlength=len(start))
        first = np.where(renamed, _rank_of(of_back, renamed) + own[of_back], _rank_of(of_back, ~renamed))
        ends = (first >= left[of_back]) | (renamed & moved[of_back])
        ends &= lo < floor
        parts.append(_events(codec, back.rows[ends], lo[ends], np.full(int(ends.sum()), floor), back.weight[ends]))
        np.subtract.at(self._count, ids[renamed], 1)
        self._drop(np.unique(ids[renamed][self._count[ids[renamed]] == 0]))
        parts += self._move(table.codes[moved])
        self._name(said.take(~stays), begins[of_said[~stays]])
        return parts

    def _move(self, starts: np.ndarray) -> list[Changes]:
        """Let what goes on of these rows and starts under another start begin at the floor."""
        groups = self._starts.find(starts)
        groups = groups[groups >= 0]
        if not len(groups):
            return []
        ids = self._ends.ids()
        group = self._starts.find(self._ends.codes[ids, :-1])
        picked = np.isin(group, groups)
        ids, lo = ids[picked], self._start[group[picked]]
        rows, hi, n = self._ends.codes[ids, :-2], self._ends.codes[ids, -1], self._count[ids]
        floor = np.full(len(ids), self.time, np.int64)
        self._start[groups] = self.time
        spans = ((lo, hi, -n), (lo, floor, n), (floor, hi, n))
        return [_events(self.codec, rows, *span) for span in spans]

    def _name(self, events: Changes, start: np.ndarray) -> None:
        """Note that events go on under another start."""
        ids, groups = self._ends.intern(_by_end(events)), self._starts.intern(_by_start(events))
        self._count = grown(self._count, self._ends.capacity, 0)
        self._start = grown(self._start, self._starts.capacity, NEVER)
        np.add.at(self._count, ids, 1)
        self._start[groups] = start

    def known(self, events: Changes) -> Changes:
        """Each event is one of these changes."""
        ids = self._ends.find(_by_end(events))
        renamed = ids >= 0
        renamed[renamed] = _rank(ids[renamed]) < self._count[ids[renamed]]
        lo = events.lo.copy()
        lo[renamed] = self._start[self._starts.find(_by_start(events)[renamed])]
        return Changes(self.codec, lo, events.hi, events.weight, events.rows)

    def state_size(self) -> StateSize:
        kept = self._ends.nbytes + self._starts.nbytes + self._start.nbytes + self._count.nbytes
        return StateSize(len(self._ends), kept)

    def snapshot(self) -> dict[str, Any]:
        ids = self._ends.ids()
        codes = self._ends.codes[ids]
        return {
            **super().snapshot(),
            "rows": self.codec.decode(np.ascontiguousarray(codes[:, :-2])),
            "vs": codes[:, -2].copy(),
            "ve": codes[:, -1].copy(),
            "count": self._count[ids],
            "start": self._start[self._starts.find(codes[:, :-1])],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        n = len(state["vs"])
        restored.ints(n, state["vs"], state["ve"], state["start"], state["count"])
        restored.counts(state["count"])
        rows = restored.rows(self.codec, state["rows"], n)
        if n and int(state["count"].min()) < 1:
            raise restored.misfit("an event that is not there has another start")
        events = _events(self.codec, rows, state["vs"], state["ve"], state["count"])
        self._name(events, state["start"])
        self._count[self._ends.find(_by_end(events))] = state["count"]


def _by_end(events: Changes) -> np.ndarray:
    """Rows with the starts and ends of their events."""
    return np.concatenate([events.rows, events.lo[:, None], events.hi[:, None]], axis=1)


def _by_start(events: Changes) -> np.ndarray:
    """Rows with the starts of their events."""
    return np.concatenate([events.rows, events.lo[:, None]], axis=1)


def _events(codec: RowCodec, rows: np.ndarray, lo: np.ndarray, hi: np.ndarray, weight: np.ndarray) -> Changes:
    """Events of rows that stand among other words."""
    return Changes(codec, lo.copy(), hi.copy(), weight, np.ascontiguousarray(rows))


def _single(events: Changes) -> Changes:
    """Each event by itself."""
    times = np.abs(events.weight)
    whole = events if (times == 1).all() else events.take(np.repeat(np.arange(len(events)), times))
    return Changes(events.codec, whole.lo, whole.hi, np.ones(len(whole), np.int64), whole.rows)


def _rank(ids: np.ndarray) -> np.ndarray:
    """The position of each entry among equal ones."""
    order = np.argsort(ids, kind="stable")
    rank = np.empty(len(ids), np.int64)
    rank[order] = np.arange(len(ids)) - np.searchsorted(ids[order], ids[order])
    return rank


def _rank_of(ids: np.ndarray, picked: np.ndarray) -> np.ndarray:
    """The position of each entry that is picked among equal ones that are; 0 for the others."""
    rank = np.zeros(len(ids), np.int64)
    rank[picked] = _rank(ids[picked])
    return rank
