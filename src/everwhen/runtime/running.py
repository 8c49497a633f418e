"""What runs in a network: sources with their intakes, operators with what they have said last, and their pasts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from everwhen.model.changes import Changes, no_changes
from everwhen.model.elements import ADJUST
from everwhen.model.punctuation import Frontier
from everwhen.model.rows import RowCodec
from everwhen.model.time import NEVER
from everwhen.operators.base import Output, advance
from everwhen.operators.guard import Guarded
from everwhen.operators.intake import Intake
from everwhen.plan.physical import PlacedOperator
from everwhen.runtime.levels import Bounds


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a port: all that stands from the instant `since` on."""

    since: int
    changes: Changes


@dataclass(frozen=True, slots=True)
class Left:
    """What is remembered of a source that nobody reads any more."""

    cti: int = NEVER
    tau: int = NEVER
    reach: int = NEVER
    promises: Any = None


@dataclass
class Inflow:
    """A source at a level: its intake, from which instant on its history is known, the largest end that passed."""

    source: str
    bounds: Bounds
    intake: Intake
    exact: int = NEVER
    reach: int = NEVER

    def past(self) -> Past:
        nothing = Past(self.reach, no_changes(self.intake.codec))
        events = self.intake.standing()
        return earliest(self.exact, nothing, None if events is None else Past(self.intake.known_from, events))

    def take(self, arrived: Guarded) -> None:
        self.reach = max(self.reach, _end(arrived))

    @property
    def come(self) -> int:
        """The largest end of all that has come, what still waits included."""
        return self.reach if self.intake.align is None else max(self.reach, _end(self.intake.align.waiting()))


@dataclass
class Running:
    """An operator, cut in at `since`, with what it has said last.  Its output is exact from `exact` on."""

    placed: PlacedOperator
    output: Output
    frontiers: list[Frontier]
    began: float
    since: int = NEVER
    exact: int = NEVER
    reach: int = NEVER
    tau: int = NEVER
    rows_in: int = 0
    rows_out: int = 0

    @property
    def codec(self) -> RowCodec:
        return self.placed.operator.codec

    def step(self, given: list[Output], tau: int) -> None:
        changes = [cut(output.changes, self.since) for output in given]
        frontiers = [output.frontier for output in given]
        rows = sum(map(len, changes))
        if not rows and tau <= self.tau and frontiers == self.frontiers:
            self.rest()
            return
        self.tau = max(self.tau, tau)
        self.output = output = advance(self.placed.operator, changes, frontiers, self.tau, self.output.frontier.time)
        self.frontiers = [Frontier(frontier.time) for frontier in frontiers]
        self.rows_in += rows
        if len(output.changes):
            self.rows_out += len(output.changes)
            self.reach = max(self.reach, int(output.changes.hi.max()))

    def rest(self) -> None:
        """Say nothing new."""
        if len(self.output.changes) or self.output.frontier.promises:
            self.output = Output(no_changes(self.codec), Frontier(self.output.frontier.time))


def _end(arrived: Guarded) -> int:
    """The largest end that elements speak of."""
    found = int(arrived.ve.max()) if len(arrived.ve) else NEVER
    return max(found, int(arrived.vnew[arrived.op == ADJUST].max())) if arrived.adjusts else found


def cut(changes: Changes, since: int) -> Changes:
    """Changes restricted to the instants from `since` on."""
    if since == NEVER or not len(changes) or int(changes.lo.min()) >= since:
        return changes
    left = changes.take(changes.hi > since)
    return replace(left, lo=np.maximum(left.lo, since))


def earliest(exact: int, *ways: Past | None) -> Past:
    """Of several ways to know the past the one that knows most of it; nothing is known before `exact`."""
    known = [Past(max(way.since, exact), way.changes) for way in ways if way is not None]
    return min(known, key=lambda past: past.since)
