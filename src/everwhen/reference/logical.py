"""Logical streams: a function from an instant to the multiset of rows alive then (thesis, 6.5.2 and 10.1).

A `LogicalStream` is its `at`.  Two facts beside it make it possible to look at all instants although time has no
end: nothing is alive before `start`, and the snapshot can differ from the one before it only at the instants
that `changes` lists.  The list may be too long, never too short; `tests/reference` checks that for every operator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.reference.order import Row

Snapshot = Counter[Row]
Event = tuple[int, int, Row]


@dataclass(frozen=True)
class Instants:
    """Instants at which something may change: `until(t)` lists those up to and including `t`, in order.

    `last` is the last of them (or an instant after it), `NEVER` if there are none, `INF` if they go on for ever.
    """

    until: Callable[[int], list[int]]
    last: int

    @classmethod
    def listed(cls, instants: Iterable[int]) -> Instants:
        """Finitely many, written down."""
        known = sorted(set(instants))
        return cls(lambda t: known[: bisect_right(known, t)], known[-1] if known else NEVER)


class LogicalStream:
    """A function from instants to snapshots, with the instants at which it may change."""

    def __init__(self, start: int, at: Callable[[int], Snapshot], instants: Instants) -> None:
        self.start = start
        self.settled = instants.last
        self._definition = at
        self._instants = instants
        self._snapshots: dict[int, Snapshot] = {}
        self._changes: list[int] = []
        self._known = NEVER

    def at(self, t: int) -> Snapshot:
        """The multiset of rows alive at `t`: the timeslice (10.1).  Do not modify it."""
        if t not in self._snapshots:
            self._snapshots[t] = self._definition(t) if t >= self.start else Counter()
        return self._snapshots[t]

    def changes(self, first: int, last: int) -> list[int]:
        """Instants `first <= t <= last` at which the snapshot may differ from the one at `t - 1`."""
        if last > self._known and self._known < self.settled:
            self._known = last if self.settled == INF else self.settled
            self._changes = self._instants.until(self._known)
        return self._changes[bisect_right(self._changes, first - 1) : bisect_right(self._changes, last)]

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, int, Snapshot]]:
        """Consecutive `(vs, ve, snapshot)` that cover the instants `first <= t <= last`, from `start` on."""
        first = max(first, self.start)
        if first <= last:
            cuts = [first, *self.changes(first + 1, last), last + 1]
            for vs, ve in pairwise(cuts):
                yield vs, ve, self.at(vs)

    def during(self, first: int, last: int) -> Snapshot:
        """The snapshots at all instants `first <= t <= last` added up."""
        total: Snapshot = Counter()
        for vs, ve, snapshot in self.pieces(first, last):
            for row, n in snapshot.items():
                total[row] += n * (ve - vs)
        return total

    def levels(self, first: int | None = None, last: int | None = None) -> list[Event]:
        """The events of the canonical level form: level k of a row is where its multiplicity is at least k.

        Limited to the instants `first <= t < last`, events are cut at the limits.  Without `last` the stream must
        settle.
        """
        first = self.start if first is None else max(first, self.start)
        if last is None:
            last = INF
            if self.settled == INF:
                raise QueryError("this stream changes for ever: say up to which instant its history is wanted")
        events: list[Event] = []
        begun: defaultdict[Row, list[int]] = defaultdict(list)
        for t in [first, *self.changes(first + 1, min(last - 1, self.settled))] if first < last else []:
            snapshot = self.at(t)
            for row in begun.keys() | snapshot.keys():
                levels = begun[row]
                while len(levels) > snapshot[row]:
                    events.append((levels.pop(), t, row))
                levels.extend([t] * (snapshot[row] - len(levels)))
        events.extend((vs, last, row) for row, levels in begun.items() for vs in levels)
        return sorted(events, key=lambda event: event[:2])


def stream_of(events: Iterable[Event]) -> LogicalStream:
    """The logical stream of a multiset of events: the function φ from physical to logical streams (6.5.3).

    >>> stream_of([(1, 3, ("a",)), (2, 5, ("a",))]).at(2)
    Counter({('a',): 2})
    """
    listed = [event for event in events if event[0] < event[1]]
    ends = [t for vs, ve, _ in listed for t in (vs, ve) if t != INF]

    def at(t: int) -> Snapshot:
        return Counter(row for vs, ve, row in listed if vs <= t < ve)

    return LogicalStream(min(ends, default=INF), at, Instants.listed(ends))
