"""The body of a loop: operators stepped in order, again and again within an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everwhen.core.punctuation import NO_PROGRESS, Frontier
from everwhen.core.time import NEVER
from everwhen.operators.contract import Operator, Output, StateSize, advance
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, slots=True)
class BodyOperator:
    """An operator and where its inputs come from: an earlier operator's number, or -1 - i for the body's input i."""

    name: str
    operator: Operator
    inputs: tuple[int, ...]


class _Seat:
    """An operator at work."""

    __slots__ = ("frontiers", "of", "output", "tau")

    def __init__(self, of: BodyOperator) -> None:
        self.of = of
        self.frontiers: Sequence[Frontier] = [NO_PROGRESS] * len(of.inputs)
        self.output = Output(no_changes(of.operator.codec), NO_PROGRESS)
        self.tau = NEVER


class LoopBody:
    """Operators in an order in which inputs come first; `result` is the one (or the input) that derives."""

    def __init__(self, operators: Sequence[BodyOperator], result: int, codec: RowCodec) -> None:
        self.codec = codec
        self._seats = [_Seat(each) for each in operators]
        self._result = result

    @property
    def operators(self) -> list[BodyOperator]:
        return [seat.of for seat in self._seats]

    def step(self, inputs: Sequence[Output], tau: int) -> Changes:
        """One round: what is derived because of what the inputs bring."""
        for seat in self._seats:
            given = [self._given(at, inputs) for at in seat.of.inputs]
            changes = [each.changes for each in given]
            frontiers = [each.frontier for each in given]
            if not any(map(len, changes)) and frontiers == seat.frontiers and tau == seat.tau:
                if len(seat.output.changes) or seat.output.frontier.promises:
                    seat.output = Output(no_changes(seat.of.operator.codec), Frontier(seat.output.frontier.time))
                continue
            reached = seat.output.frontier.time
            seat.output = advance(seat.of.operator, changes, frontiers, tau, reached)
            # promises about data are news in one round only
            seat.frontiers = [Frontier(each.time) for each in frontiers]
            seat.tau = tau
        return self._given(self._result, inputs).changes

    def _given(self, at: int, inputs: Sequence[Output]) -> Output:
        return inputs[-1 - at] if at < 0 else self._seats[at].output

    def state_size(self) -> StateSize:
        return sum((seat.of.operator.state_size() for seat in self._seats), StateSize())

    def snapshot(self) -> list[dict[str, Any]]:
        return [
            {
                "state": seat.of.operator.snapshot(),
                "frontiers": [each.time for each in seat.frontiers],
                "frontier": seat.output.frontier.time,
                "tau": seat.tau,
            }
            for seat in self._seats
        ]

    def restore(self, parts: Sequence[dict[str, Any]]) -> None:
        for seat, part in zip(self._seats, parts, strict=True):
            seat.of.operator.restore(part["state"])
            seat.frontiers = [Frontier(time) for time in part["frontiers"]]
            seat.output = Output(no_changes(seat.of.operator.codec), Frontier(part["frontier"]))
            seat.tau = part["tau"]
