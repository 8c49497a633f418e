"""The punctuator: the schemes of a stream, as promises that follow from its rows (Tucker, 6.2).

    observe(columns, length) -> promises that hold behind these rows, or the first row that breaks one
    settle()                    the rows stay; without it the next `observe` goes on from before them

Guarantee: over all cuttings of the rows into batches the same row is found, if any, and what has been promised behind
the last row says the same.  The first call also gives what holds from the start.  Rows are those of inserts and adjusts
alike, in arrival order; promises are for all time (t = ∞).

Not here: what happens to a promise after that.  A `host` keeps and checks the promises of all batches itself; without
one the punctuator keeps what it needs to check them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everwhen.algebra.nodes import Source
from everwhen.core.schema import Schema
from everwhen.operators.punctuate.key_schemes import CountedMachine, ListedMachine, UniqueMachine
from everwhen.operators.punctuate.order_schemes import (
    BoundsMachine,
    Broken,
    ClusteredMachine,
    Columns,
    Machine,
    Observed,
    SaidMachine,
    SortedMachine,
)
from everwhen.punctuation.schemes import (
    Bounds,
    ClusteredBy,
    Complete,
    Given,
    Scheme,
    Selection,
    SortedBy,
    Unique,
)

__all__ = ["Broken", "Observed", "Punctuator", "source_punctuators"]


class Punctuator:
    """Several schemes at once.  `reads` names the columns that `observe` needs.  `ordered=False`: the rows of a batch
    are an epoch without order."""

    def __init__(self, schemes: Sequence[Scheme], schema: Schema, hosted: bool = False, ordered: bool = True) -> None:
        self._ordered = ordered
        self.reads = frozenset(column for scheme in schemes for column in scheme.columns)
        self._machines = [_machine(scheme, schema, hosted) for scheme in schemes]
        self._begun = False
        self._beginning = False

    def observe(self, columns: Columns, length: int) -> Observed:
        """What follows from the rows."""
        promises = [] if self._begun else [each for machine in self._machines for each in machine.start()]
        broken: Broken | None = None
        for machine in self._machines:
            found = machine.observe(columns, length, self._ordered)
            promises += found.promises
            if found.broken is not None and (broken is None or found.broken.at < broken.at):
                broken = found.broken
        self._beginning = True
        return Observed([], broken) if broken is not None else Observed(promises)

    def settle(self) -> None:
        self._begun = self._beginning
        for machine in self._machines:
            machine.settle()

    @property
    def nbytes(self) -> int:
        """What is kept, in bytes."""
        return sum(machine.nbytes for machine in self._machines)

    def snapshot(self) -> dict[str, Any]:
        return {"begun": self._begun, "machines": [machine.snapshot() for machine in self._machines]}

    def restore(self, state: dict[str, Any]) -> None:
        self._begun = self._beginning = state["begun"]
        for machine, part in zip(self._machines, state["machines"], strict=True):
            machine.restore(part)


def source_punctuators(source: Source, ordered: bool = True) -> Punctuator | None:
    """The punctuator of a source's guard, which keeps the promises itself; None if nothing is declared."""
    return Punctuator(source.schemes, source.schema, hosted=True, ordered=ordered) if source.schemes else None


def _machine(scheme: Scheme, schema: Schema, hosted: bool) -> Machine:
    match scheme:
        case SortedBy():
            return SortedMachine(scheme, schema)
        case ClusteredBy():
            return ClusteredMachine(scheme, schema, hosted)
        case Bounds():
            return BoundsMachine(scheme, schema)
        case Unique():
            return UniqueMachine(scheme, schema, hosted)
        case Complete(each=None):
            return ListedMachine(scheme, schema)
        case Complete():
            return CountedMachine(scheme, schema, hosted)
        case Selection(promises):
            return SaidMachine(promises or ())
        case Given():
            return SaidMachine()
