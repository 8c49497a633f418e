"""Windows with their times in columns: start and end of an event, and rows that live as long as two columns say.

A start is known as soon as the event is.  An end may still move while progress has not reached it, and then the row
changes from its start on: so an operator that tells ends promises nothing beyond the earliest start of what is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.punctuation.api import Projection, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import BITS, RowCodec

_NOTHING: Final = np.empty((0, 3), np.int64)


class StampOperator(Operator):
    """Events with their starts, and their ends if these are told, as columns behind their own (event form).

    `lasts`: how long every event is, if that is known: a query that joins later sees events that began before cut.
    """

    keeps = "where ends are told: starts and ends of events that are not over"

    def __init__(self, source: RowCodec, codec: RowCodec, ends: bool, lasts: int | None = None) -> None:
        self.codec = codec
        self._source = source
        self._ends = ends
        self._lasts = lasts
        self._open = _NOTHING  # start, end, how many
        self._promises = Projection(source.schema, {name: [name] for name in source.schema.names})

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        frontier = frontiers[0]
        promises = self._promises.project(frontier.promises) if frontier.promises else frontier.promises
        if self._ends:
            self._note(batch, frontier.time)
            first = int(self._open[:, 0].min(initial=INF))
            return Output(self._stamped(batch), Frontier(min(frontier.time, first)))
        return Output(self._stamped(batch), make_frontier(frontier.time, promises))

    def _note(self, batch: Changes, time: int) -> None:
        new = np.stack([batch.lo, batch.hi, batch.weight], axis=1) if len(batch) else _NOTHING
        events = np.concatenate([self._open, new])
        events = events[events[:, 1] >= time] if time != INF else _NOTHING  # what ends there may still be continued
        if len(events):
            order = np.lexsort((events[:, 1], events[:, 0]))
            events = events[order]
            begins = np.ones(len(events), np.bool_)
            begins[1:] = (events[1:, :2] != events[:-1, :2]).any(axis=1)
            at = np.flatnonzero(begins)
            counts = np.add.reduceat(events[:, 2], at)
            events = np.column_stack([events[at, :2], counts])[counts != 0]
        self._open = events

    def _stamped(self, batch: Changes) -> Changes:
        source, target = self._source, self.codec
        rows = np.zeros((len(batch), target.width), np.int64)
        width = len(source.schema)
        rows[:, : source.words] = batch.rows[:, : source.words]
        rows[:, target.words : target.words + width] = batch.rows[:, source.words :]
        rows[:, target.words + width] = batch.lo
        if self._ends:
            endless = batch.hi == INF
            rows[:, target.words + width + 1] = np.where(endless, 0, batch.hi)
            rows[:, (width + 1) // BITS] |= endless.astype(np.int64) << ((width + 1) % BITS)
        return batch.with_rows(target, rows)

    def needs(self, t: int) -> tuple[int, ...]:
        """What began before must be over, so that its end does not move."""
        if t == INF or not self._ends:
            return (t,)
        last = int(self._open[self._open[:, 0] < t, 1].max(initial=NEVER))
        return (INF if last == INF else max(t, last + 1),)

    def exact_from(self, since: int) -> int:
        return INF if self._ends or self._lasts in (None, INF) else since + self._lasts

    def state_size(self) -> StateSize:
        return StateSize(len(self._open), self._open.nbytes)

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = {"open": self._open} if self._ends else {}
        return {**state, "promises": self._promises.snapshot()} if len(self._promises) else state

    def restore(self, state: dict[str, Any]) -> None:
        if self._ends:
            found = state["open"]
            if not isinstance(found, np.ndarray) or found.shape != (len(found), 3):
                raise restored.misfit("events that are not over are something else")
            self._open = found.astype(np.int64)
        if "promises" in state:
            self._promises.restore(state["promises"])


class SpanOperator(Operator):
    """Rows that live as long as two of their columns say, once for each instant that they had before."""

    def __init__(self, codec: RowCodec, start: str, end: str) -> None:
        self.codec = codec
        self._start = codec.words + codec.schema.index(start)
        self._end = codec.words + codec.schema.index(end)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        lo, hi = batch.rows[:, self._start].copy(), batch.rows[:, self._end].copy()
        weight = batch.weight * (batch.hi - batch.lo)
        found = Changes(self.codec, lo, hi, weight, batch.rows)
        return Output(found.take(lo < hi), Frontier(frontiers[0].time))

    def exact_from(self, since: int) -> int:
        return INF  # a window that was open then is not known from its start on
