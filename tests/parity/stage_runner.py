"""Stages without Spark: the same cutting and the same kernels, with an exchange made of Python dictionaries.

What is left to test on Spark itself is what Spark does: feeds in the JVM, hashing, transport, files.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import Node
from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.plan.stages.model import StagePlan, StreamIn
from everwhen.plan.stages.prune_columns import narrow
from everwhen.plan.stages.stages import cut
from everwhen.spark.exchange.codec import Rows
from everwhen.spark.worker.answer_span import WHOLE
from everwhen.spark.worker.partition import EpochInput, StagePartition
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch
from state_files import through_file


class Partitions:
    """A query in `n` partitions per stage; `push` is an epoch, with the order of its rows shuffled."""

    def __init__(self, query: Node, n: int, emit: str, seed: int = 0) -> None:
        self.plan: StagePlan = cut({"out": narrow(query)}, {}, lambda expr, schema: False)
        self.n = n
        self.emit = Emit(emit)
        self.kernels = [[StagePartition(stage, self.emit) for _ in range(n)] for stage in self.plan.stages]
        self.said = NEVER
        self.rng = random.Random(seed)
        self.ended: frozenset[str] = frozenset()
        self.anew: dict[str, int] = {}
        self.until: dict[str, int] = {}
        self.span = WHOLE
        self.tau = NEVER
        """A start that is known already."""

    def end(self, sources: Iterable[str]) -> None:
        """These copies of merges have left from the next epoch on."""
        self.ended |= set(sources)

    def begin_anew(self, source: str, since: int) -> None:
        """What a source brings from the next epoch on is another stream."""
        self.ended -= {source}
        self.anew[source] = since
        self.until.pop(source, None)

    def push(self, batches: Mapping[str, ElementBatch]) -> list[Element]:
        progress = {name: _progress(batch) for name, batch in batches.items()}
        waiting: dict[int, list[dict[str, list[Rows]]]] = {}
        handed: dict[str, int] = {}
        starts: dict[str, int] = {}
        tau = self.tau
        out: list[Element] = []
        for at, stage in enumerate(self.plan.stages):
            rows: list[dict[str, list[Rows]]] = waiting.get(at) or [{} for _ in range(self.n)]
            for stream in stage.inputs:
                if stream.feed is not None and stream.feed.source.name in batches:
                    self._spread(stream, _rows(batches[stream.feed.source.name], stream), rows)
            nxt: list[dict[str, list[Rows]]] = [{} for _ in range(self.n)]
            promises: dict[str, int] = {}
            reached: dict[str, int] = {}
            answered = []
            for partition, kernel in enumerate(self.kernels[at]):
                given = {name: _joined(parts, self.rng) for name, parts in rows[partition].items()}
                mine = {s.name for s in stage.inputs}
                result = kernel.step(
                    EpochInput(
                        given,
                        progress,
                        handed={k: v for k, v in handed.items() if k in mine},
                        tau=tau,
                        starts={k: v for k, v in starts.items() if k in mine},
                        ended=self.ended,
                        anew=self.anew,
                        until=self.until,
                        span=self.span,
                    )
                )
                for placed in kernel.plan.handed:
                    output = result.handed[placed.name]
                    promises[placed.name] = min(promises.get(placed.name, output.frontier.time), output.frontier.time)
                    start = kernel.start(placed.port)
                    reached[placed.name] = max(reached.get(placed.name, start), start)
                    changes = output.changes
                    zeros = np.zeros(len(changes), np.int64)
                    found = Rows(changes.lo, changes.hi, zeros, changes.weight, placed.codec.decode(changes.rows))
                    self._spread(self.plan.stream(placed.name), found, nxt)
                for batch in result.results.values():
                    out += [element for element in batch.elements() if not isinstance(element, Cti)]
                answered += list(result.progress.values())
                tau = max(tau, result.tau)
                kernel.collect()
            waiting[at + 1], handed, starts = nxt, promises, reached
            if answered and min(answered) > self.said:
                self.said = min(answered)
                if self.emit is Emit.FINAL:
                    out.sort(key=lambda element: element.sync)
                out.append(Cti(self.said))
        self.anew = {}
        return out

    def restart(self) -> None:
        """Every partition goes on from its snapshot."""
        for at, stage in enumerate(self.plan.stages):
            for partition, kernel in enumerate(self.kernels[at]):
                again = StagePartition(stage, self.emit)
                again.restore(through_file(kernel.snapshot()))
                self.kernels[at][partition] = again

    def _spread(self, stream: StreamIn, rows: Rows, into: list[dict[str, list[Rows]]]) -> None:
        if not len(rows.lo):
            return
        if stream.by is None:
            for partition in into:
                partition.setdefault(stream.name, []).append(rows)
            return
        columns = [rows.columns[stream.schema.index(name)].to_pylist() for name in stream.by]
        keys = [hash(repr(key)) % self.n for key in zip(*columns, strict=True)] if columns else [0] * len(rows.lo)
        where = np.array(keys)
        for partition in range(self.n):
            picked = where == partition
            if picked.any():
                into[partition].setdefault(stream.name, []).append(_picked(rows, np.flatnonzero(picked)))


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
