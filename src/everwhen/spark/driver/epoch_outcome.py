"""What came out of an epoch's job: elements, punctuations, and what the partitions note, put together.

A punctuation that one partition alone can keep is said as soon as that partition makes it (`plan/stages/lineage.py`).
Any other is said when all partitions have made it; until then it stands in the epoch log, so a query that is started
again goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.plan.stages.model import StagePlan
from everwhen.punctuation.api import PortIntersection, compacted, write_match
from everwhen.spark.driver.epoch_log import EpochState
from everwhen.spark.exchange.codec import element_rows, taken
from everwhen.spark.exchange.messages import Failure, Message, TaskNote, kinds_in, messages_in
from everwhen.spark.exchange.punctuation_rows import Heard, by_partition, heard
from everwhen.stream.element import Cti, Punct
from everwhen.stream.element_batch import ADJUST, ElementBatch, batch_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochOutcome:
    """The elements of each query, what is said about their data by the number of the query, the notes of all partitions
    of all stages, how many elements the last stage has written, and the steps of loops whose rounds cross exchanges."""

    results: Mapping[str, ElementBatch]
    words: Mapping[int, Heard]
    notes: Sequence[TaskNote]
    written: int = 0
    steps: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def of(
        table: pa.Table, schemas: Mapping[str, Schema], emit: Emit, stages: int = 1, earlier: Sequence[Message] = ()
    ) -> EpochOutcome:
        """What the last stage gave out; the error of a partition that gave up is raised.  `earlier`: messages of jobs
        before the last one."""
        table = table.combine_chunks()
        messages = [*earlier, *messages_in(table)]
        for message in messages:
            if isinstance(message, Failure):
                raise message.raised()
        notes = [message for message in messages if isinstance(message, TaskNote)]
        for problem in sorted({problem for note in notes for problem in note.damaged}):
            _log.warning("a snapshot was skipped, and the state rebuilt from what came before it: %s", problem)
        kinds = kinds_in(table)
        results = {}
        for at, (name, schema) in enumerate(schemas.items()):
            batch = element_rows(table, kinds, at, schema)
            if emit is Emit.FINAL and len(batch):
                sync = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
                batch = taken(batch, np.argsort(sync, kind="stable"))
            results[name] = batch
        written = sum(note.rows_out for note in notes if note.stage == stages)
        return EpochOutcome(results, heard(table, dict(enumerate(schemas.values()))), notes, written)

    @cached_property
    def fed(self) -> dict[str, int]:
        """How many rows each source had; several partitions tell of the same rows."""
        return _largest(note.fed for note in self.notes)

    @cached_property
    def late(self) -> dict[str, int]:
        """How many rows of each source came too late, likewise."""
        return _largest(note.late for note in self.notes)

    def parts(self, name: str) -> list[str]:
        """What was written for the sink of a query."""
        in_order = sorted(self.notes, key=lambda note: note.partition)
        return [part for note in in_order for part in note.parts.get(name, ())]

    def left_out(self, plan: StagePlan) -> dict[str, int]:
        """How many adjusts of each source were left out because their events are not there."""
        streams: dict[str, int] = {}
        for note in self.notes:
            for name, rows in note.left_out.items():
                streams[name] = streams.get(name, 0) + rows
        feeds = {name: plan.stream(name).feed for name, rows in streams.items() if rows}
        return _largest({feed.source.name: streams[name]} for name, feed in feeds.items() if feed is not None)

    def after(self, known: EpochState, now: float, sources: Iterable[str], schemas: Mapping[str, Schema]) -> EpochState:
        """What is known after the epoch of sources and queries."""
        promised = _largest([known.sources, *(note.sources for note in self.notes)])
        seen = {name: now if self.fed.get(name) else known.seen.get(name, now) for name in sources}
        queries = {
            name: max(
                known.queries.get(name, NEVER),
                min(note.progress[name] for note in self.notes if name in note.progress),
            )
            for name in schemas
        }
        tau = max([NEVER if known.tau is None else known.tau, *(note.tau for note in self.notes)])
        before = (
            dict.fromkeys(known.queries, INF) if known.tau is None else known.ends
        )  # an older version tells nothing
        ends = _largest([before, *(note.ends for note in self.notes)])
        return EpochState(promised, queries, seen, tau=tau, ends=ends)

    def promised(
        self, known: EpochState, after: EpochState, schemas: Mapping[str, Schema], partitions: int
    ) -> tuple[dict[str, list[Punctuation]], EpochState]:
        """What each query newly promises about its data, and what is known then."""
        found: dict[str, list[Punctuation]] = {}
        kept: dict[str, list[tuple[int, dict[str, Any], int]]] = {}
        for number, (name, schema) in enumerate(schemas.items()):
            now, low = self.words.get(number, Heard()), after.queries[name]
            old = Heard(parts=by_partition(known.said.get(name, ()), schema))
            promises = list(now.whole)
            if old.parts or now.parts:
                times = {note.partition: note.progress[name] for note in self.notes if name in note.progress}
                gathering = PortIntersection(schema, partitions)
                gathering.intersect(_ports(old, {}, partitions))
                promises += gathering.intersect(_ports(now, times, partitions))
                said = {at: [*old.parts.get(at, ()), *now.parts.get(at, ())] for at in range(partitions)}
                kept[name] = [
                    (at, write_match(p.match, schema), p.t)
                    for at, all_of in said.items()
                    for p in compacted(all_of, schema)
                    if p.t > low
                ]
            found[name] = [promise for promise in compacted(promises, schema) if promise.t > low]
        return found, replace(after, said=kept)


def last_words(schema: Schema, promised: Sequence[Punctuation], before: int, now: int) -> ElementBatch:
    """The promises with which an epoch of an answer ends: those about data, and a CTI if time has moved on."""
    return batch_of([*map(Punct, promised), *([Cti(now)] if now > before else [])], schema)


def _largest(told: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest number of each name."""
    found: dict[str, int] = {}
    for numbers in told:
        for name, number in numbers.items():
            found[name] = max(found.get(name, number), number)
    return found


def _ports(said: Heard, times: Mapping[int, int], partitions: int) -> list[Frontier]:
    found = said.frontiers(times)
    return [found.get(at, Frontier()) for at in range(partitions)]
