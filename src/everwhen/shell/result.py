"""What a query of the shell has said: the rows that hold now, and its last changes.

"Now" is the latest instant that the answer speaks of: the largest start seen (τ), or where only final answers are said
the last instant before the promise, if that is earlier.  Events that ended before it are forgotten, so what is kept
is bounded by the answer's own size.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch, taken
from everwhen.stream.history import Event, History, RowTuple, canonical_rows

REMEMBERED: Final = 50
"""So many changes are kept as text."""


@dataclass
class Answer:
    """The accumulated answer of one query."""

    schema: Schema
    emit: Emit
    now: int = NEVER
    final: int = NEVER
    inserts: int = 0
    adjusts: int = 0
    changes: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _events: dict[Event, int] = field(default_factory=dict)
    _tidy_at: int = 1000

    def take(self, batch: ElementBatch, tau: int) -> None:
        """What the query said in an epoch, after which the latest start is `tau`."""
        inserts, adjusts, promises = batch.op == INSERT, batch.op == ADJUST, batch.op == CTI
        if promises.any():
            self.final = max(self.final, int(batch.vs[promises].max()))
        answered = self.emit in (Emit.CURRENT, Emit.ALL) or self.final == INF
        now = tau if answered else min(tau, max(self.final, NEVER + 1) - 1)
        self.now = max(self.now, now)
        self.inserts += int(np.count_nonzero(inserts))
        self.adjusts += int(np.count_nonzero(adjusts))
        said = np.flatnonzero(inserts | adjusts)
        self.changes.extend(str(element) for element in taken(batch, said[-REMEMBERED:]).elements())
        ends = np.where(adjusts, np.maximum(batch.ve, batch.vnew), batch.ve)
        self._apply(taken(batch, said[ends[said] > self.now]))
        if len(self._events) > self._tidy_at:
            self._events = {event: copies for event, copies in self._events.items() if event[1] > self.now}
            self._tidy_at = max(1000, 2 * len(self._events))

    def _apply(self, batch: ElementBatch) -> None:
        times = zip(batch.op.tolist(), batch.vs.tolist(), batch.ve.tolist(), batch.vnew.tolist(), strict=True)
        for (op, vs, ve, vnew), row in zip(times, canonical_rows(batch), strict=True):
            if op == INSERT:
                self._add((vs, ve, row), 1)
                continue
            if ve > self.now:  # else it was forgotten
                self._add((vs, ve, row), -1)
            if vnew > vs:
                self._add((vs, vnew, row), 1)

    def _add(self, event: Event, copies: int) -> None:
        left = self._events.get(event, 0) + copies
        if left:
            self._events[event] = left
        else:
            del self._events[event]

    def rows(self) -> list[RowTuple]:
        """The snapshot now, in the order of its columns, nulls first."""
        history = History(self.schema, MappingProxyType(self._events)).at(self.now)
        return [row for _, _, row in history.events()]
