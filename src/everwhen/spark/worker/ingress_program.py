"""The intake stage: Finalize and Align before everything else, where a level of consistency asks for them.

    rows of all sources ─▶ one task, in the order of sync times ─▶ what is admitted and let through ─▶ feeds, stages …
                                                                └▶ what is given up, by element and reason

Within an epoch a DataFrame has no order, so an epoch is one instant: its elements are taken in the order of their sync
times (an insert before adjusts, an adjust before the one that follows it), and its promises, those about data too, hold
from its end on; schemes of the sources (PUNCTUATE) are watched here, and what follows from them goes on as rows.  Then
the answer is that of the local runtime to the same epochs in that order.  Progress is a matter of the whole source, so
one task takes all of it; levels that neither wait nor forget (strong, middle) have no such stage.

Its state is kept like that of every other stage, as stage 0: the input of every epoch is published once, and a snapshot
now and then, so an epoch that is run again gives the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import Source
from everwhen.core.consistency import Consistency
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.engine.element_ingress import ElementIngress
from everwhen.errors import EverwhenError, InputError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import DroppedElements, Reason
from everwhen.operators.output.changelog import with_punctuation
from everwhen.punctuation.api import write_match
from everwhen.rows.codec import RowCodec
from everwhen.spark.exchange.codec import element_rows, taken
from everwhen.spark.exchange.messages import Failure, IngressNote, kinds_in, message_rows
from everwhen.spark.exchange.punctuation_rows import match_of
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.state_host import StateSpec, Step
from everwhen.stream.element import Adjust, Cti, Insert, Punct
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, PUNCT, ElementBatch, batch_of, joined

STAGE: Final = 0
MATCH: Final = "match"
"""The column with the patterns of punctuations, as in every normalised frame."""
REMARK: Final = "remark"
"""The column that says what is wrong with a row that comes in, and why one was dropped that goes out."""


@dataclass(frozen=True)
class SourceSpec:
    """A source as the stage reads it: its declaration, the bound of its disorder, whether late rows are dropped, and
    whether it is a copy that is merged, whose frontier is no measure for others."""

    source: Source
    disorder: int | None = None
    drops: bool = False
    merged: bool = False


class IngressPartition:
    """The state of the stage; call `step` once per epoch."""

    def __init__(self, drawn: Mapping[str, SourceSpec], level: Consistency) -> None:
        self.drawn = drawn
        self.now = 0.0
        self.lost: list[tuple[str, DroppedElements]] = []
        sources = {name: each.source for name, each in drawn.items()}
        self.ingress = ElementIngress(
            sources, frozenset(sources), level, lambda: self.now, lambda name, lost: self.lost.append((name, lost)),
            ordered=False,
        )  # fmt: skip
        self.dropped: dict[str, int] = dict.fromkeys(drawn, 0)

    def step(
        self, rows: Mapping[str, ElementBatch], level: Consistency, idle: frozenset[str], now: float
    ) -> dict[str, ElementBatch]:
        """One epoch: what goes on, per source; `lost` has what was given up."""
        self.lost, self.now = [], now
        if level != self.ingress.level:
            self.ingress.change(level)
        batches = {name: self._instant(name, batch) for name, batch in rows.items()}
        silent = {name for name in idle & set(self.drawn) if name not in rows}
        measures = [name for name, drawn in self.drawn.items() if name not in silent and not drawn.merged]
        promised = (self._promised(name, batches) for name in measures)
        awake = [cti for cti in promised if cti < INF]  # one that has ended is no measure
        for name in silent:  # one that has been silent for too long holds nobody back
            batches[name] = self._promising(name, None, min(awake, default=NEVER))
        try:
            return self.ingress.push({name: batch for name, batch in batches.items() if len(batch)})
        except InputError as error:
            raise _with_row(error, batches) from None

    def _instant(self, name: str, batch: ElementBatch) -> ElementBatch:
        """An epoch of a source as one instant: an element per event, in the order of sync times, then the promise."""
        drawn, intake = self.drawn[name], self.ingress.intake(name)
        ctis = batch.vs[batch.op == CTI]
        promise = int(ctis.max()) if len(ctis) else NEVER
        starts = batch.vs[batch.op == INSERT]
        if drawn.disorder is not None and len(starts):
            promise = max(promise, int(starts.max()) - drawn.disorder)
        data = np.flatnonzero(batch.op <= ADJUST)
        if drawn.drops:
            sync = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)[data]
            late = sync < intake.guard.cti
            self.dropped[name] += int(late.sum())
            if late.any():
                gone = taken(batch, data[late])
                codes = np.ones(len(gone), np.uint8)  # the number of LATE
                self.lost.append((name, DroppedElements(gone, codes)))
            data = data[~late]
        kept = taken(batch, data)
        words = [said.promise for _, said in sorted(batch.promises.items()) if isinstance(said, Punct)]
        in_order = with_punctuation(taken(kept, in_sync_order(kept, intake.codec)), words)
        return self._promising(name, in_order, promise)

    def _promised(self, name: str, batches: Mapping[str, ElementBatch]) -> int:
        """What a source has promised, by this epoch as well: else who rests would be an epoch behind."""
        cti = self.ingress.intake(name).cti
        if name in batches:
            cti = max(cti, int(batches[name].vs[batches[name].op == CTI].max(initial=NEVER)))
        return cti

    def _promising(self, name: str, batch: ElementBatch | None, promise: int) -> ElementBatch:
        intake = self.ingress.intake(name)
        schema = intake.codec.schema
        said = promise > intake.guard.cti
        end = batch_of([Cti(promise)] if said else [], schema)
        return end if batch is None else joined(batch, end) if said else batch

    def snapshot(self) -> dict[str, Any]:
        level = self.ingress.level.to_plain()
        return {"ingress": self.ingress.snapshot(), "dropped": dict(self.dropped), "level": level, "now": self.now}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.now = state["now"]
        self.ingress.restore(state["ingress"], Consistency.from_plain(state["level"]))
        self.dropped = dict(state["dropped"])

    def state_size(self) -> StateSize:
        return self.ingress.state_size()

    def collect(self) -> None:
        """Nothing: what was given out is nobody else's."""

    def counts(self) -> dict[str, dict[str, int]]:
        """How many elements were given up since the beginning, by source and reason."""
        found = {name: {r.value: n for r, n in counts.items()} for name, counts in self.ingress.dropped.items()}
        for name, count in self.dropped.items():
            if count:
                mine = found.setdefault(name, {})
                mine[Reason.LATE.value] = mine.get(Reason.LATE.value, 0) + count
        return found


def _with_row(error: InputError, batches: Mapping[str, ElementBatch]) -> InputError:
    """The error with the row that is wrong: lines count for nothing where an epoch has no order."""
    if error.source is None or error.line is None or error.source not in batches:
        return error
    batch = batches[error.source]
    row = next(batch.slice(error.line - batch.first_line, 1).elements())
    shown = f"{error.problem}; row {row.row}" if isinstance(row, Insert | Adjust) else error.problem
    return InputError(shown, source=error.source, remedy=error.remedy)


def in_sync_order(batch: ElementBatch, codec: RowCodec) -> np.ndarray:
    """The positions of inserts and adjusts in the order of their sync times.

    At one time inserts come first.  Of adjusts that follow one another each comes before the next, as early as the
    earliest of those behind it.
    """
    adjust = batch.op == ADJUST
    if not adjust.any():
        return np.argsort(batch.vs, kind="stable")
    position = np.where(adjust, np.minimum(batch.ve, batch.vnew), batch.vs)
    rank = np.zeros(len(batch), np.int64)
    at = np.flatnonzero(adjust)
    rows = codec.encode(tuple(column.take(pa.array(at)) for column in batch.columns), len(at))
    groups: dict[bytes, list[int]] = {}
    for i, name in zip(at.tolist(), np.concatenate([batch.vs[at, None], rows], axis=1), strict=True):
        groups.setdefault(name.tobytes(), []).append(i)
    for group in groups.values():
        if len(group) > 1:
            for chain in _chains(group, batch.ve, batch.vnew):
                position[chain] = np.minimum.accumulate(position[chain][::-1])[::-1]
                rank[chain] = np.arange(len(chain))
    return np.lexsort((rank, adjust, position))


def _chains(group: list[int], ve: np.ndarray, vnew: np.ndarray) -> Iterator[list[int]]:
    """Adjusts of events with one start and row, each behind the one whose new end it names."""
    left = sorted(group, key=lambda i: any(vnew[j] == ve[i] for j in group if j != i))
    while left:
        chain = [left.pop(0)]
        while (after := next((i for i in left if ve[i] == vnew[chain[-1]]), None)) is not None:
            left.remove(after)
            chain.append(after)
        yield chain


@dataclass(frozen=True)
class IngressProgram:
    """The stage as one partition.  `kinds` are those of the rows of its sources; `first` is the level at the start."""

    state: StateSpec
    drawn: Mapping[str, SourceSpec]
    kinds: Mapping[str, int]
    first: Consistency
    layout: ExchangeSchema

    def fresh(self, at: int) -> IngressPartition:
        return IngressPartition(self.drawn, self.first)

    def failed(self, error: EverwhenError) -> pa.RecordBatch:
        return message_rows(self.layout, [0], [Failure.of(error, STAGE)])

    def step(self, partition: IngressPartition, rows: pa.Table, context: EpochContext) -> dict[str, ElementBatch]:
        kinds, sources = kinds_in(rows), {}
        for name, kind in self.kinds.items():
            if (kinds == kind).any():
                sources[name] = self._elements(name, rows.filter(pa.array(kinds == kind)), kind)
        return partition.step(sources, context.level, context.idle, context.now)

    def _elements(self, name: str, rows: pa.Table, kind: int) -> ElementBatch:
        schema = self.drawn[name].source.schema
        found = element_rows(rows, kinds_in(rows), kind, schema, name)
        remarks = rows.column(REMARK)
        if remarks.null_count < len(remarks):
            at = int(np.flatnonzero(remarks.is_valid().to_numpy())[0])
            times = f"vs={found.vs[at]}, ve={found.ve[at]}, vnew={found.vnew[at]}"
            raise InputError(f"{remarks[at].as_py()}; the row has {times}", source=name)
        puncts = np.flatnonzero(found.op == PUNCT)
        if not len(puncts):
            return found
        texts = rows.column(MATCH).take(pa.array(puncts)).to_pylist()
        promises: dict[int, Any] = {
            i: Punct(Punctuation(match_of(text, schema, name), int(found.vs[i])))
            for i, text in zip(puncts.tolist(), texts, strict=True)
        }
        return replace(found, promises=promises)

    def output(
        self, at: int, context: EpochContext, done: Step[IngressPartition, dict[str, ElementBatch]]
    ) -> Iterator[pa.RecordBatch]:
        partition = done.partition
        for name, batch in done.out.items():
            yield from self.rows(self.kinds[name], batch)
        for name, lost in partition.lost:
            reasons = pa.array([reason.value for reason in lost.reasons], pa.string())
            yield from self.rows(dropped_kind(self.kinds[name]), lost.elements, reasons)
        note = IngressNote(done.size.rows, done.size.bytes, partition.counts(), done.damaged, done.caught_up)
        yield message_rows(self.layout, [0], [note])

    def rows(self, kind: int, batch: ElementBatch, remarks: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        """The elements of a source."""
        if not len(batch):
            return
        until, other = batch.vs.copy(), {"partition": pa.array(np.zeros(len(batch), np.int32))}
        if batch.promises:
            texts = np.full(len(batch), None, object)
            for i, said in batch.promises.items():
                assert isinstance(said, Punct), "Finalize has read the others"
                until[i], texts[i] = said.promise.t, json.dumps(write_match(said.promise.match, batch.schema))
            other[MATCH] = pa.array(texts, pa.string())
        if remarks is not None:
            other[REMARK] = remarks
        numbers = [pa.array(column.astype(np.int64)) for column in (until, batch.ve, batch.vnew, batch.op)]
        yield self.layout.rows(kind, numbers, batch.schema, batch.columns, **other)


def dropped_kind(kind: int) -> int:
    """The kind of the rows that a source has dropped; no message has such a number."""
    return -100 - kind
