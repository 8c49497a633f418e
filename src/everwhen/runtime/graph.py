"""A lowered plan, stepped: the part that every runtime shares.

One `step` is one epoch.  Every operator is stepped at most once, in an order in which its inputs come first, so a
diamond (S - S, a self-join) sees both its sides at once and says nothing it would have to take back.  An operator that
got nothing new, neither changes nor progress, is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everwhen.model.changes import no_changes
from everwhen.model.elements import ElementBatch, empty_elements
from everwhen.model.punctuation import NO_PROGRESS, Frontier
from everwhen.model.time import NEVER
from everwhen.operators.base import Output, StateSize
from everwhen.plan.physical import Form, PhysicalPlan, Port

Inputs = Mapping[tuple[str, Form], Output]


class Graph:
    """The operators and sinks of a plan with what they have said last."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self.plan = plan
        self.tau = NEVER
        self.outputs = [Output(no_changes(p.operator.codec), NO_PROGRESS) for p in plan.operators]
        self.frontiers: list[list[Frontier]] = [[NO_PROGRESS] * len(p.inputs) for p in plan.operators]
        self.rows_in = [0] * len(plan.operators)
        self.rows_out = [0] * len(plan.operators)
        ports = [port for placed in plan.operators for port in placed.inputs]
        ports += [sink.port for sink in plan.sinks] + [handed.port for handed in plan.handed]
        self.forms: frozenset[tuple[str, Form]] = frozenset((p.source, p.form) for p in ports if p.source is not None)

    def step(self, inputs: Inputs, tau: int) -> dict[str, ElementBatch]:
        """Take what each input says in each form; the elements of each sink.  `handed` gives the rest."""
        moved = tau > self.tau
        self.tau = tau
        for at, placed in enumerate(self.plan.operators):
            given = [self._given(port, inputs) for port in placed.inputs]
            frontiers = [output.frontier for output in given]
            changes = [output.changes for output in given]
            rows = sum(map(len, changes))
            if not rows and not moved and frontiers == self.frontiers[at]:
                previous = self.outputs[at]
                if len(previous.changes):
                    self.outputs[at] = Output(no_changes(placed.operator.codec), previous.frontier)
                continue
            output = placed.operator.step(changes, frontiers, tau)
            self.outputs[at] = output
            self.frontiers[at] = frontiers
            self.rows_in[at] += rows
            self.rows_out[at] += len(output.changes)
        results = {}
        for sink in self.plan.sinks:
            output = self._given(sink.port, inputs)
            results[sink.name] = sink.chain.step(output.changes, output.frontier.time)
        return results

    def handed(self, inputs: Inputs) -> dict[str, Output]:
        """What the last step has for other stages."""
        return {handed.name: self._given(handed.port, inputs) for handed in self.plan.handed}

    def silence(self) -> dict[str, ElementBatch]:
        """No elements for any sink."""
        return {sink.name: empty_elements(sink.chain.codec.schema) for sink in self.plan.sinks}

    def _given(self, port: Port, inputs: Inputs) -> Output:
        return inputs[port.source, port.form] if port.source else self.outputs[port.operator]

    def port_name(self, port: Port) -> str:
        return port.source or f"{port.operator} {self.plan.operators[port.operator].name}"

    def state_size(self) -> StateSize:
        """What operators and chains keep."""
        parts = [placed.operator.state_size() for placed in self.plan.operators]
        return sum([*parts, *(sink.chain.state_size() for sink in self.plan.sinks)], StateSize())

    def snapshot(self) -> dict[str, Any]:
        return {
            "tau": self.tau,
            "operators": [placed.operator.snapshot() for placed in self.plan.operators],
            "frontiers": [list(frontiers) for frontiers in self.frontiers],
            "promises": [output.frontier for output in self.outputs],
            "chains": {sink.name: sink.chain.snapshot() for sink in self.plan.sinks},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.tau = state["tau"]
        for placed, part in zip(self.plan.operators, state["operators"], strict=True):
            placed.operator.restore(part)
        self.frontiers = [list(frontiers) for frontiers in state["frontiers"]]
        self.outputs = [
            Output(no_changes(placed.operator.codec), frontier)
            for placed, frontier in zip(self.plan.operators, state["promises"], strict=True)
        ]
        for sink in self.plan.sinks:
            sink.chain.restore(state["chains"][sink.name])
