"""An operator at work: what it got and emitted last, from which instant on it is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from everwhen.core.punctuation import NO_PROGRESS, Frontier
from everwhen.core.time import NEVER
from everwhen.operators.contract import Operator, Output
from everwhen.plan.physical import PlacedOperator
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec


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
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    """How long its steps took, in this process."""

    @classmethod
    def of(cls, number: int, placed: PlacedOperator, began: float = 0.0) -> OperatorNode:
        """A node that has not been stepped."""
        nothing = Output(no_changes(placed.operator.codec), NO_PROGRESS)
        return cls(number, placed, nothing, [NO_PROGRESS] * len(placed.inputs), began)

    @property
    def codec(self) -> RowCodec:
        return self.placed.operator.codec

    def begin_anew(self) -> None:
        """Go on as if nothing had come yet; for operators that remember nothing."""
        assert self.placed.operator.stateless, self.placed.name
        self.output = Output(no_changes(self.codec), NO_PROGRESS)
        self.frontiers = [NO_PROGRESS] * len(self.frontiers)

    def rest(self) -> None:
        """Emit nothing new."""
        if len(self.output.changes) or self.output.frontier.promises:
            self.output = Output(no_changes(self.codec), Frontier(self.output.frontier.time))

    def snapshot(self) -> dict[str, Any]:
        return {
            "state": self.placed.operator.snapshot(),
            "frontiers": [each.time for each in self.frontiers],
            "frontier": self.output.frontier.time,
            **{name: getattr(self, name) for name in _KEPT},
        }

    def restore(self, part: Mapping[str, Any]) -> None:
        self.placed.operator.restore(part["state"])
        self.frontiers = [Frontier(time) for time in part["frontiers"]]
        self.output = Output(no_changes(self.codec), Frontier(part["frontier"]))
        for name in _KEPT:
            setattr(self, name, part[name])
        self.woken = self.placed.operator.unfinished


_KEPT: Final = ("since", "exact", "max_end", "tau", "rows_in", "rows_out")


def cut(changes: Changes, since: int) -> Changes:
    """Changes restricted to the instants from `since` on."""
    if since == NEVER or not len(changes) or int(changes.lo.min()) >= since:
        return changes
    left = changes.take(changes.hi > since)
    return replace(left, lo=np.maximum(left.lo, since))
