"""A topic as an input of a query: the same elements again from any position, and progress by partition.

A CTI in a partition is a promise about that partition only, and so is a disorder bound; what is promised of the stream
is the least of all partitions.  One that has been silent for `idle` seconds is not waited for.  Promises about single
values (punctuation) pass where there is one partition.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from everwhen.connectors.changes.log_input import LogInput
from everwhen.connectors.kafka.messages import MessageReader
from everwhen.connectors.kafka.topic_log import TopicLog
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live.inputs import Position
from everwhen.errors import InputError
from everwhen.formats.input_file import InputFile
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import ADJUST, CTI, PUNCT, ElementBatch, batch_of, joined, taken


class TopicInput(LogInput):
    """Rows or elements of a topic.  `disorder`: by how many ticks a row may be behind others of its partition."""

    lag_unit = "messages"

    def __init__(
        self, name: str, given: InputFile, log: TopicLog, disorder: int | None = None, idle: float | None = None
    ) -> None:
        super().__init__(name, given, log, disorder)
        self._topic = log
        self._idle = idle
        self._reader = MessageReader(given)
        self._promised: dict[str, int] = {}
        self._messages: list[Any] = []
        self._heard: dict[str, float] = {}

    @property
    def lag(self) -> int | None:
        return self._topic.lag

    @property
    def position(self) -> dict[str, Any]:
        promised = {part: None if t == INF else t for part, t in self._promised.items()}
        offsets = self.log.position if self._begun else None
        return {"offsets": offsets, "first": self._first, "ctis": promised, **self._reached.to_plain()}

    def seek(self, position: Position) -> None:
        if position["offsets"] is None:
            return
        self._begun, self._first = True, position["first"]
        self.log.seek(position["offsets"])
        self._take_up(position)

    def _take_up(self, position: Position) -> None:
        self._promised = {part: INF if t is None else t for part, t in position["ctis"].items()}
        self._reached.of_plain(position)
        self.ended = self._reached.said == INF

    def take(self, most: int) -> ElementBatch | None:
        self.begin()
        before = self.log.position
        messages = self.log.take(most) or []
        try:
            found = self.said(messages)
        except InputError:
            self.log.seek(before)
            raise
        return self._promising(found, self._promise())

    def take_to(self, position: Position) -> ElementBatch | None:
        if not self._begun:
            self._begun, self._first = True, position["first"]
            self.log.seek(position["first"])
        found = self.said(self.log.take_to(position["offsets"]) or [])
        said = self._reached.said
        self._take_up(position)
        return self._promising(found, self._reached.said if self._reached.said > said else None)

    def leave_word(self, reader: str, position: Position, cares: int) -> None:
        """A topic keeps what it has, whoever has read it."""

    def place_of(self, error: InputError) -> InputError:
        line = error.line
        if line is None or error.source not in (self.given.shown, self.name) or not 0 < line <= len(self._messages):
            return error
        return self._placed(error)

    # -- inside -------------------------------------------------------------------------------------------------

    def _placed(self, error: InputError) -> InputError:
        message = self._messages[(error.line or 1) - 1]
        place = f"{self.log.shown}, partition {message.partition()}, offset {message.offset()}"
        return InputError(error.problem, source=place, remedy=error.remedy)

    def said(self, records: list[Any]) -> ElementBatch | None:
        """The elements of messages; what they promise is noted and taken out."""
        messages = self._messages = records
        if not messages:
            return None
        stamps = np.array([message.timestamp()[1] for message in messages], np.int64)
        try:
            batch = self._reader.read([message.value() for message in messages], stamps)
        except InputError as bad:
            raise self._placed(bad) from None
        lines = batch.first_line + np.arange(len(batch)) if batch.lines is None else batch.lines
        parts = np.array([message.partition() for message in messages], np.int64)[lines - 1]
        now = time.monotonic()
        for part in np.unique(parts).tolist():
            here = parts == part
            self._heard[str(part)] = now
            self._reached.see(str(part), batch.vs[here & (batch.op <= ADJUST)])
            ctis = batch.vs[here & (batch.op == CTI)]
            if len(ctis):
                self._promised[str(part)] = max(self._promised.get(str(part), NEVER), int(ctis.max()))
        return self._without_promises(batch, lines)

    def _without_promises(self, batch: ElementBatch, lines: np.ndarray) -> ElementBatch | None:
        kept = batch.op != CTI
        if len(self.log.parts) > 1:
            kept &= batch.op < PUNCT
        if kept.all():
            return replace(batch, lines=lines, at=None)
        if len(self.log.parts) == 1:  # in order: what was promised holds where it stands
            return replace(batch, lines=lines, at=None)
        rows = np.flatnonzero(kept)
        if not len(rows):
            return None
        return taken(replace(batch, lines=lines, at=None), rows)

    def _promise(self) -> int | None:
        """What can be promised of all partitions now."""
        parts = self.log.parts
        if self._idle is not None:
            since = time.monotonic() - self._idle
            for part in parts:
                self._heard.setdefault(part, time.monotonic())
            parts = tuple(part for part in parts if self._heard[part] > since)
        promised = min((self._promised.get(part, NEVER) for part in parts), default=NEVER)
        found = None if promised == NEVER else self._reached.say(promised)
        if (bound := self._reached.promise(parts)) is not None:
            found = bound
        self.ended = self._reached.said == INF
        return found

    def _promising(self, found: ElementBatch | None, t: int | None) -> ElementBatch | None:
        if t is None or (found is not None and bool(((found.op == CTI) & (found.vs >= t)).any())):
            return found
        promise = batch_of([Cti(t)], self.given.schema)
        if found is None:
            return promise
        lines = found.lines
        whole = joined(found, promise)
        return replace(whole, source=found.source, lines=None if lines is None else np.append(lines, lines[-1]))
