"""Ingress without a dataflow behind it: elements in, elements out.

What comes out of a source is a valid stream in the order in which its elements may be used, its promises as the last
elements: what Finalize admits, when Align lets it through.  Whoever runs a plan elsewhere, such as on Spark, puts this
before it.  The same elements in the same epochs give what the local runtime's ingress gives.

    >>> import everwhen as ew
    >>> from everwhen.stream.element_batch import batch_of
    >>> s = ew.source("S", {"x": "int64"})
    >>> ingress = ElementIngress({"S": s.node}, frozenset({"S"}), ew.consistency(block=2, remember=5))
    >>> late = [ew.Insert(t, t + 1, {"x": t}) for t in (9, 7, 3, 8)]
    >>> for element in ingress.push({"S": batch_of(late, s.schema)})["S"].elements():
    ...     print(element)
    insert [7, 8) x=7
    cti 4
    >>> ingress.dropped
    {'S': {<Reason.LATE: 'late'>: 1}}
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import Source
from everwhen.core.consistency import Consistency
from everwhen.core.late_count import LateCount
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.engine.ingress import Ingress, OnDropped
from everwhen.engine.source_levels import bounds_of
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import Reason
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.operators.output.changelog import with_punctuation
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element_batch import CTI, ElementBatch, empty_elements, joined


class ElementIngress:
    """Call `push` per epoch.  Only sources in `bounded` wait or are forgotten; the others pass.

    `ordered=False`: schemes of sources (PUNCTUATE) are not to count on the order of rows within an epoch.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        bounded: frozenset[str],
        level: Consistency,
        clock: Callable[[], float] = time.time,
        dropped: OnDropped | None = None,
        ordered: bool = True,
    ) -> None:
        self.level = level
        self.pool = Interner()
        self._bounded = bounded
        self._reached = dict.fromkeys(sources, NEVER)
        self._ingress = Ingress(clock, dropped=dropped)
        for name, source in sources.items():
            codec = RowCodec(source.schema, self.pool)
            self._ingress.add(name, self._ingress.open(source, codec, bounds_of(name, level, bounded), ordered=ordered))

    def intake(self, name: str) -> SourcePipeline:
        return self._ingress.inputs[name].intake

    def push(self, batches: Mapping[str, ElementBatch], closes: Collection[str] = ()) -> dict[str, ElementBatch]:
        """One epoch: what goes on of each source, its promise last where it has moved; `closes` end with it."""
        self._ingress.check(batches)
        arrived = self._ingress.advance(closes=closes)
        found = {}
        for name, entry in self._ingress.inputs.items():
            intake = entry.intake
            elements = _elements(arrived[name]) if name in arrived else empty_elements(intake.codec.schema)
            promises = intake.frontier.promises
            if promises:
                elements = with_punctuation(elements, promises)
            if intake.promise > self._reached[name]:
                self._reached[name] = intake.promise
                elements = joined(elements, _cti(intake.codec.schema, intake.promise))
            found[name] = elements
        self.pool.collect()
        return found

    def change(self, level: Consistency) -> None:
        """Wait and remember for another time from the next epoch on."""
        self.level = level
        for name in sorted(self._bounded):
            self._ingress.change(name, bounds_of(name, level, self._bounded))

    @property
    def dropped(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each source were given up, by reason."""
        return self._ingress.dropped(self._ingress.inputs)

    @property
    def promised(self) -> dict[str, int]:
        """How far each source has come: what was last said of it."""
        return dict(self._reached)

    @property
    def late(self) -> dict[str, LateCount]:
        """How many rows of each source came behind its promises, where it declares what becomes of them."""
        return self._ingress.late

    def state_size(self) -> StateSize:
        return self._ingress.state_size()

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {"reached": dict(self._reached), "inputs": self._ingress.snapshot()}

    def restore(self, state: Mapping[str, Any], level: Consistency) -> None:
        """Go on from a snapshot of the same sources, at the level there was."""
        self.change(level)
        self._reached = dict(state["reached"])
        self._ingress.restore(state["inputs"])


def _elements(guarded: CheckedBatch) -> ElementBatch:
    codec = guarded.codec
    op = guarded.op.astype(np.uint8)
    return ElementBatch(codec.schema, op, guarded.vs, guarded.ve, guarded.vnew, codec.decode(guarded.rows))


def _cti(schema: Schema, promise: int) -> ElementBatch:
    t = np.array([promise], np.int64)
    columns = tuple(pa.nulls(1, type_) for type_ in schema.types)
    return ElementBatch(schema, np.array([CTI], np.uint8), t, t, np.zeros(1, np.int64), columns)
