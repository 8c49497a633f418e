"""Stages without Spark: the same cutting and the same kernels, with an exchange made of Python dictionaries.

What is left to test on Spark itself is what Spark does: feeds in the JVM, hashing, transport, files.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import Node
from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.operators.loop.turn import TurnPhase
from everwhen.plan.stages.model import LoopRange, StagePlan, StreamIn
from everwhen.plan.stages.prune_columns import narrow
from everwhen.plan.stages.stages import cut
from everwhen.spark.exchange.codec import Rows
from everwhen.spark.worker.answer_span import WHOLE
from everwhen.spark.worker.partition import EpochInput, StagePartition
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch
from state_files import through_file


@dataclass
class _Epoch:
    """What is under way in an epoch: rows by level, partition and stream; what was promised; what is said."""

    batches: Mapping[str, ElementBatch]
    progress: Mapping[str, tuple[int, int]]
    waiting: dict[int, dict[int, dict[str, list[Rows]]]] = field(default_factory=dict)
    handed: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    tau: int = NEVER
    sent: int = 0
    out: list[Element] = field(default_factory=list)

    def rows(self, level: int, partition: int) -> dict[str, list[Rows]]:
        return self.waiting.setdefault(level, {}).setdefault(partition, {})


class Partitions:
    """A query in `n` partitions per stage; `push` is an epoch, with the order of its rows shuffled."""

    def __init__(self, query: Node, n: int, emit: str, seed: int = 0) -> None:
        self.plan: StagePlan = cut({"out": narrow(query)}, {}, lambda expr, schema: False)
        self.n = n
        self.first = self.emit = Emit(emit)
        self.kernels = [[StagePartition(stage, self.emit) for _ in range(n)] for stage in self.plan.stages]
        self.said = NEVER
        self.rng = random.Random(seed)
        self.ended: frozenset[str] = frozenset()
        self.anew: dict[str, int] = {}
        self.until: dict[str, int] = {}
        self.span = WHOLE
        self.tau = NEVER
        """A start that is known already."""
        self.rounds = 0
        self.restarts = 0.0

    def end(self, sources: Iterable[str]) -> None:
        """These copies of merges have left from the next epoch on."""
        self.ended |= set(sources)

    def begin_anew(self, source: str, since: int) -> None:
        """What a source brings from the next epoch on is another stream."""
        self.ended -= {source}
        self.anew[source] = since
        self.until.pop(source, None)

    def push(self, batches: Mapping[str, ElementBatch]) -> list[Element]:
        """An epoch: every stage once; where a loop's rounds cross exchanges, its stages once per round."""
        epoch = _Epoch(batches, {name: _progress(batch) for name, batch in batches.items()}, tau=self.tau)
        done = 0
        for loop in self.plan.loops:
            for level in range(done + 1, loop.last + 1):
                self._level(epoch, level, "retract")
            phase: TurnPhase = "retract"
            while epoch.sent or phase == "retract":
                phase = phase if epoch.sent else "insert"
                self._round(epoch, loop, phase)
            promise = min(turn.external for kernel in self.kernels[loop.last - 1] for turn in kernel.turns)
            self._round(epoch, loop, "settle", promise)
            done = loop.last
        for level in range(done + 1, len(self.plan.stages) + 1):
            self._level(epoch, level, None)
        self.anew = {}
        return epoch.out

    def _round(self, epoch: _Epoch, loop: LoopRange, phase: TurnPhase, promise: int = NEVER) -> None:
        """All stages of a loop with what goes round; what leaves the loop adds up."""
        self.rounds += 1
        if self.rng.random() < self.restarts:
            self.restart()
        for level in range(loop.first, loop.last + 1):
            self._level(epoch, level, phase, promise, again=True)

    def _level(
        self, epoch: _Epoch, level: int, phase: TurnPhase | None, promise: int = NEVER, again: bool = False
    ) -> None:
        stage = self.plan.stages[level - 1]
        if not again:
            for stream in stage.inputs:
                if stream.feed is not None and stream.feed.source.name in epoch.batches:
                    self._spread(stream, _rows(epoch.batches[stream.feed.source.name], stream), epoch, level)
        mine = {s.name for s in stage.inputs}
        given, epoch.waiting[level] = epoch.waiting.get(level, {}), {}
        promises: dict[str, int] = {}
        answered = []
        if stage.returns:
            epoch.sent = 0
        for partition, kernel in enumerate(self.kernels[level - 1]):
            rows = {name: _joined(parts, self.rng) for name, parts in given.get(partition, {}).items()}
            result = kernel.step(
                EpochInput(
                    rows,
                    {} if again else epoch.progress,
                    handed={k: v for k, v in epoch.handed.items() if k in mine},
                    tau=epoch.tau,
                    emit=self.emit,
                    starts={k: v for k, v in epoch.starts.items() if k in mine},
                    ended=self.ended,
                    anew={} if again else self.anew,
                    until=self.until,
                    span=self.span,
                    phase=phase if stage.loop is not None else None,
                    promise=promise,
                )
            )
            for placed in kernel.plan.handed:
                output = result.handed[placed.name]
                if placed.name in stage.returns:
                    epoch.sent += len(output.changes)
                else:
                    before = promises.get(placed.name, output.frontier.time)
                    promises[placed.name] = min(before, output.frontier.time)
                    start = kernel.start(placed.port)
                    epoch.starts[placed.name] = max(epoch.starts.get(placed.name, start), start)
                changes = output.changes
                zeros = np.zeros(len(changes), np.int64)
                found = Rows(changes.lo, changes.hi, zeros, changes.weight, placed.codec.decode(changes.rows))
                target = next(s for s in self.plan.stages if any(i.name == placed.name for i in s.inputs)).level
                self._spread(self.plan.stream(placed.name), found, epoch, target)
            for batch in result.results.values():
                epoch.out += [element for element in batch.elements() if not isinstance(element, Cti)]
            answered += list(result.progress.values())
            epoch.tau = max(epoch.tau, result.tau)
            kernel.collect()
        epoch.handed |= promises
        if answered and min(answered) > self.said:
            self.said = min(answered)
            if self.emit is Emit.FINAL:
                epoch.out.sort(key=lambda element: element.sync)
            epoch.out.append(Cti(self.said))

    def restart(self) -> None:
        """Every partition goes on from its snapshot."""
        for at, stage in enumerate(self.plan.stages):
            for partition, kernel in enumerate(self.kernels[at]):
                again = StagePartition(stage, self.first)
                again.restore(through_file(kernel.snapshot()))
                self.kernels[at][partition] = again

    def _spread(self, stream: StreamIn, rows: Rows, epoch: _Epoch, level: int) -> None:
        if not len(rows.lo):
            return
        if stream.by is None:
            for partition in range(self.n):
                epoch.rows(level, partition).setdefault(stream.name, []).append(rows)
            return
        columns = [rows.columns[stream.schema.index(name)].to_pylist() for name in stream.by]
        keys = [hash(repr(key)) % self.n for key in zip(*columns, strict=True)] if columns else [0] * len(rows.lo)
        where = np.array(keys)
        for partition in range(self.n):
            picked = where == partition
            if picked.any():
                parts = epoch.rows(level, partition).setdefault(stream.name, [])
                parts.append(_picked(rows, np.flatnonzero(picked)))


def _progress(batch: ElementBatch) -> tuple[int, int]:
    starts, promises = batch.vs[batch.op == INSERT], batch.vs[batch.op == CTI]
    return int(starts.max(initial=NEVER)), int(promises.max(initial=NEVER))


def _rows(batch: ElementBatch, stream: StreamIn) -> Rows:
    data = np.flatnonzero(batch.op <= ADJUST)
    named = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = tuple(named[name].take(pa.array(data)) for name in stream.schema.names)
    op = batch.op[data].astype(np.int64)
    return Rows(batch.vs[data], batch.ve[data], batch.vnew[data], op, columns)


def _picked(rows: Rows, at: np.ndarray) -> Rows:
    picked = pa.array(at)
    columns = tuple(column.take(picked) for column in rows.columns)
    return Rows(rows.lo[at], rows.hi[at], rows.vnew[at], rows.weight[at], columns)


def _joined(parts: list[Rows], rng: random.Random) -> Rows:
    numbers = [np.concatenate([getattr(part, name) for part in parts]) for name in ("lo", "hi", "vnew", "weight")]
    columns = tuple(pa.concat_arrays(list(column)) for column in zip(*(part.columns for part in parts), strict=True))
    order = list(range(len(numbers[0])))
    rng.shuffle(order)
    return _picked(Rows(*numbers, columns), np.array(order, np.int64))
