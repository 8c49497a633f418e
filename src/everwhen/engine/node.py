"""An operator at work: what it got and emitted last, from which instant on it is exact.

**State.**  The state of operators is plain data, each part under the operator's stable name (`plan/names.py`).  So it
does not matter how operators are numbered, in which order plans were lowered, or what else runs: a part is found where
the same thing is computed.  Operators that are equal and run apart are counted in the order in which they stand below
the roots, which is the same where the same roots are given in the same order.  Up to Everwhen 0.5 a part told a root
and the operator's position below it; such a state is still read, for the plan that it was written for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from everwhen.core.emit import Emit
from everwhen.core.punctuation import NO_PROGRESS, Frontier
from everwhen.core.time import NEVER
from everwhen.operators.contract import Operator, Output
from everwhen.plan.names import operator_names
from everwhen.plan.physical import PlacedOperator, Port
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec

if TYPE_CHECKING:
    from everwhen.engine.observe.gauge import Gauge


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator, by its number, was given in a step, and what it emitted."""

    at: int
    operator: Operator
    inputs: Sequence[Changes]
    frontiers: Sequence[Frontier]
    tau: int
    output: Output


class StepCheck(Protocol):
    """Somebody who looks at every step, in tests: `everwhen.testing.step_invariants`."""

    def begin(self, number: int, operator: Operator) -> None:
        """Before the first step of an operator."""

    def after(self, step: Step) -> None:
        """An operator has been stepped."""


@dataclass
class OperatorNode:
    """An operator that sees its inputs from the instant `since` on.  Its output is exact from `exact` on."""

    number: int
    placed: PlacedOperator
    output: Output
    frontiers: list[Frontier]
    began: float = 0.0
    since: int = NEVER
    exact: int = NEVER
    max_end: int = NEVER
    """The largest end that it ever emitted, where plans may join."""
    tau: int = NEVER
    woken: bool = False
    """Whether the next step is taken although nothing comes."""
    moved: tuple[Emit, ...] = ()
    """The policies that it was moved to since it is there, each once, the present one last."""
    loading: bool = False
    """It is given the past of its inputs in slices, and is not stepped with the others."""
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    """How long its steps took, in this process."""
    gauge: Gauge | None = None
    measured: Any = None
    """What a snapshot tells of what was measured, until somebody asks for it."""

    @classmethod
    def of(cls, number: int, placed: PlacedOperator, began: float = 0.0) -> OperatorNode:
        """A node that has not been stepped."""
        nothing = Output(no_changes(placed.operator.codec), NO_PROGRESS)
        woken = placed.operator.unfinished  # constant rows come by themselves
        return cls(number, placed, nothing, [NO_PROGRESS] * len(placed.inputs), began, woken=woken)

    @property
    def codec(self) -> RowCodec:
        return self.placed.operator.codec

    def begin_anew(self) -> None:
        """Go on as if nothing had come yet; for operators that remember nothing."""
        assert self.placed.operator.stateless, self.placed.name
        self.output = Output(no_changes(self.codec), NO_PROGRESS)
        self.frontiers = [NO_PROGRESS] * len(self.frontiers)

    def emitting(self, emit: Emit) -> Changes | None:
        """Emit all that `emit` does from now on: what it emits because of it, if that depends on the policy."""
        self.moved = (*(each for each in self.moved if each is not emit), emit)
        return self.placed.operator.emitting(emit, self.frontiers)

    def rest(self) -> None:
        """Emit nothing new."""
        if len(self.output.changes) or self.output.frontier.promises:
            self.output = Output(no_changes(self.codec), Frontier(self.output.frontier.time))

    def snapshot(self) -> dict[str, Any]:
        measured = self.measured if self.gauge is None else self.gauge.snapshot()
        return ({} if measured is None else {"measured": measured}) | {
            "state": self.placed.operator.snapshot(),
            "frontiers": [each.time for each in self.frontiers],
            "frontier": self.output.frontier.time,
            "moved": [emit.value for emit in self.moved],
            **{name: getattr(self, name) for name in _KEPT},
        }

    def restore(self, part: Mapping[str, Any]) -> None:
        for emit in part.get("moved", ()):  # it has emitted nothing yet, so nothing is emitted because of it
            self.emitting(Emit(emit))
        self.placed.operator.restore(part["state"])
        self.frontiers = [Frontier(time) for time in part["frontiers"]]
        self.output = Output(no_changes(self.codec), Frontier(part["frontier"]))
        for name in _KEPT:
            setattr(self, name, part[name])
        self.measured = part.get("measured")
        self.woken = self.placed.operator.unfinished


_KEPT: Final = ("since", "exact", "max_end", "tau", "rows_in", "rows_out")


def cut(changes: Changes, since: int) -> Changes:
    """Changes restricted to the instants from `since` on."""
    if since == NEVER or not len(changes) or int(changes.lo.min()) >= since:
        return changes
    left = changes.take(changes.hi > since)
    return replace(left, lo=np.maximum(left.lo, since))


Below = Mapping[str, Sequence[Port]]
"""By root, its port and all ports that it needs."""


def snapshot_nodes(nodes: Mapping[int, OperatorNode], below: Below) -> list[dict[str, Any]]:
    """The state of all operators below some roots, each once."""
    return [{"name": name, **nodes[number].snapshot()} for number, name in _names(nodes, below).items()]


def restore_nodes(nodes: Mapping[int, OperatorNode], below: Below, parts: Iterable[Mapping[str, Any]]) -> bool:
    """Fill operators that have not been stepped; whether the parts are those of these operators, all of them."""
    listed = list(parts)
    if listed and "position" in listed[0]:
        return _restore_by_position(nodes, below, listed)
    given = {part["name"]: part for part in listed}
    names = _names(nodes, below)
    if given.keys() != set(names.values()) or len(names) != len(nodes):
        return False
    for number, name in names.items():
        nodes[number].restore(given[name])
    return True


def _names(nodes: Mapping[int, OperatorNode], below: Below) -> dict[int, str]:
    order = [port.operator for ports in below.values() for port in ports if port.source is None]
    return operator_names({number: nodes[number].placed for number in order}, order)


def _restore_by_position(nodes: Mapping[int, OperatorNode], below: Below, parts: Sequence[Mapping[str, Any]]) -> bool:
    given = {(part["root"], part["position"]): part for part in parts}
    done: set[int] = set()
    for place, number in _positions(below):
        if place in given and number not in done:
            done.add(number)
            nodes[number].restore(given[place])
    return len(done) == len(given) == len(nodes)


def _positions(below: Below) -> Iterator[tuple[tuple[str, int], int]]:
    for root, ports in below.items():
        for position, port in enumerate(ports):
            if port.source is None:
                yield (root, position), port.operator
