"""Admission: the intakes of several sources without a graph behind them, elements in and elements out.

What comes out of a source is a valid stream in the order in which its elements may be used, its promises as the last
elements: what Finalize admits, when Align lets it through.  Whoever runs a plan elsewhere, such as on Spark, puts this
before it.  The same elements in the same epochs give what the local runtime's intakes give.

    >>> import everwhen as ew
    >>> from everwhen.stream.element_batch import batch_of
    >>> s = ew.source("S", {"x": "int64"})
    >>> admission = Admission({"S": s.node}, frozenset({"S"}), ew.consistency(block=2, remember=5))
    >>> late = [ew.Insert(t, t + 1, {"x": t}) for t in (9, 7, 3, 8)]
    >>> for element in admission.push({"S": batch_of(late, s.schema)})["S"].elements():
    ...     print(element)
    insert [7, 8) x=7
    cti 4
    >>> admission.given_up
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
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.engine.release_horizon import Horizon
from everwhen.errors import InputError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import GivenUp, Reason
from everwhen.operators.ingress.guard import Guard, Guarded
from everwhen.operators.ingress.pipeline import Intake
from everwhen.operators.output.changelog import with_punctuation
from everwhen.operators.punctuate.punctuator import source_punctuators
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Pool
from everwhen.stream.element_batch import CTI, ElementBatch, empty_elements, joined


class Admission:
    """Call `push` per epoch, then `close`.  Only sources in `bounded` wait or are forgotten; the others pass.

    `ordered=False`: schemes of sources (PUNCTUATE) are not to count on the order of rows within an epoch.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        bounded: frozenset[str],
        level: Consistency,
        clock: Callable[[], float] = time.time,
        given_up: Callable[[str, GivenUp], None] | None = None,
        ordered: bool = True,
    ) -> None:
        self.level = level
        self.pool = Pool()
        self._bounded = bounded
        self._side = given_up
        self._horizon = Horizon(clock)
        self._said = dict.fromkeys(sources, NEVER)
        self.intakes = {
            name: Intake(
                Guard(
                    name,
                    RowCodec(source.schema, self.pool),
                    source.insert_only,
                    source.chronons,
                    punctuator=source_punctuators(source, ordered),
                ),
                level.remember,
                finalizes=level.finalizes and name in bounded,
                aligns=level.aligns and name in bounded,
            )
            for name, source in sources.items()
        }

    def push(self, batches: Mapping[str, ElementBatch], closes: Collection[str] = ()) -> dict[str, ElementBatch]:
        """One epoch: what goes on of each source, its promise last where it has moved; `closes` end with it."""
        checked: list[Intake] = []
        try:
            for name, batch in batches.items():
                self.intakes[name].check(batch)
                checked.append(self.intakes[name])
        except InputError:
            for intake in checked:
                intake.undo()
            raise
        arrived: dict[str, Guarded] = {}
        for name, intake in self.intakes.items():
            said, given_up = intake.take()
            if said is not None:
                arrived[name] = said
            self._note(name, given_up)
        for name in closes:
            self.intakes[name].check_end()
        for name in closes:
            self.intakes[name].close()
        arrived |= self._released()
        found = {}
        for name, intake in self.intakes.items():
            elements = _elements(arrived[name]) if name in arrived else empty_elements(intake.codec.schema)
            promises = intake.frontier.promises
            if promises:
                elements = with_punctuation(elements, promises)
            if intake.promise > self._said[name]:
                self._said[name] = intake.promise
                elements = joined(elements, _cti(intake.codec.schema, intake.promise))
            found[name] = elements
        self.pool.collect()
        return found

    def _released(self) -> dict[str, Guarded]:
        aligned = {name: intake for name, intake in self.intakes.items() if intake.align is not None}
        found: dict[str, Guarded] = {}
        if aligned:
            latest, level = max(intake.latest for intake in aligned.values()), self.level
            horizon = self._horizon.reached(latest, level.block, level.within)
            promised = min(intake.cti for intake in aligned.values())
            for name, intake in aligned.items():
                released = intake.release(horizon, promised)
                if released is not None:
                    found[name] = released
        return found

    def change(self, level: Consistency) -> None:
        """Wait and remember for another time from the next epoch on."""
        self.level = level
        for name in sorted(self._bounded):
            if level.aligns:
                self.intakes[name].block()
            if level.finalizes:
                self._note(name, self.intakes[name].remember(level.remember))

    def _note(self, name: str, given_up: tuple[GivenUp, ...]) -> None:
        if self._side is not None:
            for each in given_up:
                self._side(name, each)

    @property
    def given_up(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each source were given up, by reason."""
        counted = {name: intake.finalize for name, intake in self.intakes.items()}
        return {name: dict(each.counts) for name, each in counted.items() if each is not None and each.counts}

    def state_size(self) -> StateSize:
        return sum((intake.state_size() for intake in self.intakes.values()), StateSize())

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        intakes = {name: intake.snapshot() for name, intake in self.intakes.items()}
        return {"said": dict(self._said), "intakes": intakes, "horizon": self._horizon.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of the same sources; then `change` to the level there was."""
        self._said = dict(state["said"])
        self._horizon.restore(state["horizon"])
        for name, intake in self.intakes.items():
            intake.restore(state["intakes"][name])


def _elements(guarded: Guarded) -> ElementBatch:
    codec = guarded.codec
    op = guarded.op.astype(np.uint8)
    return ElementBatch(codec.schema, op, guarded.vs, guarded.ve, guarded.vnew, codec.decode(guarded.rows))


def _cti(schema: Schema, promise: int) -> ElementBatch:
    t = np.array([promise], np.int64)
    columns = tuple(pa.nulls(1, type_) for type_ in schema.types)
    return ElementBatch(schema, np.array([CTI], np.uint8), t, t, np.zeros(1, np.int64), columns)
