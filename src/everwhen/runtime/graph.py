"""A lowered plan, stepped: the part that every runtime shares.

One `step` is one epoch.  Every operator is stepped at most once, in an order in which its inputs come first, so a
diamond (S - S, a self-join) sees both its sides at once and says nothing it would have to take back.  An operator that
got nothing new, neither changes nor progress, is left alone.  Promises about data are handed on in the step in which
they are new; only times are remembered here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from everwhen.model.changes import Changes, no_changes
from everwhen.model.elements import ElementBatch, empty_elements
from everwhen.model.punctuation import NO_PROGRESS, Frontier
from everwhen.model.time import NEVER
from everwhen.operators.base import Emit, Operator, Output, StateSize
from everwhen.operators.promised import settled
from everwhen.plan.physical import Form, PhysicalPlan, Port
from everwhen.runtime.emission import Outflow, Place, Standing, brought_out, standing_at

Inputs = Mapping[tuple[str, Form], Output]


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator, by its place in the plan, was given in a step, and what it said."""

    at: int
    operator: Operator
    inputs: Sequence[Changes]
    frontiers: Sequence[Frontier]
    tau: int
    output: Output


class StepCheck(Protocol):
    """Somebody who looks at every step, in tests: `everwhen.testing_invariants`."""

    def begin(self, plan: PhysicalPlan) -> None:
        """Before the first step."""

    def after(self, step: Step) -> None:
        """An operator has been stepped."""


class Graph:
    """The operators and sinks of a plan with what they have said last."""

    def __init__(self, plan: PhysicalPlan, check: StepCheck | None = None) -> None:
        self.plan = plan
        self._check = check
        if check is not None:
            check.begin(plan)
        self.tau = NEVER
        self.outputs = [Output(no_changes(p.operator.codec), NO_PROGRESS) for p in plan.operators]
        self.frontiers: list[list[Frontier]] = [[NO_PROGRESS] * len(p.inputs) for p in plan.operators]
        self.rows_in = [0] * len(plan.operators)
        self.rows_out = [0] * len(plan.operators)
        ports = [port for placed in plan.operators for port in placed.inputs]
        ports += [sink.port for sink in plan.sinks] + [handed.port for handed in plan.handed]
        self.outflows = [Outflow(sink.name, sink.port, sink.chain) for sink in plan.sinks]
        self.moved: tuple[Emit, ...] = ()
        """The emission policies that it was moved to, each once, the present one last; none: that of its lowering."""
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
            times = [Frontier(frontier.time) if frontier.promises else frontier for frontier in frontiers]
            if not rows and not moved and frontiers == self.frontiers[at]:
                previous = self.outputs[at]
                if len(previous.changes) or previous.frontier.promises:
                    self.outputs[at] = Output(no_changes(placed.operator.codec), Frontier(previous.frontier.time))
                continue
            output = placed.operator.step(changes, frontiers, tau)
            reached = self.outputs[at].frontier.time
            if output.frontier.time < reached:  # by promises about everything, which are news only once
                output = Output(output.changes, settled(reached, output.frontier.promises))
            if self._check is not None:
                self._check.after(Step(at, placed.operator, changes, frontiers, tau, output))
            self.outputs[at] = output
            self.frontiers[at] = times
            self.rows_in[at] += rows
            self.rows_out[at] += len(output.changes)
        results = {}
        for flow in self.outflows:
            output = self._given(flow.port, inputs)
            results[flow.name] = flow.step(output.changes, tau, output.frontier)
        return results

    def emitting(self, emit: Emit, sources: Standing) -> tuple[dict[str, ElementBatch], dict[str, Changes]]:
        """Say from now on what another policy says: what sinks say at once because of it, and what is handed on.

        `sources` tells what the ports of sources have said that stands.
        """
        places = {at: Place(at, placed, self.frontiers[at], self.tau) for at, placed in enumerate(self.plan.operators)}

        def standing(port: Port) -> Changes | None:
            return standing_at(port, places, sources)

        for flow in self.outflows:
            flow.emitting(emit, standing)
        news = brought_out(places.values(), emit, self._nothing)
        self.moved = (*(each for each in self.moved if each is not emit), emit)
        results = {}
        for flow in self.outflows:
            changes = news.get(flow.port.operator) or self._nothing(flow.port)
            results[flow.name] = flow.step(changes, self.tau, Frontier(flow.chain.cti))
        handed = {each.name: news[each.port.operator] for each in self.plan.handed if each.port.operator in news}
        return results, handed

    def _nothing(self, port: Port) -> Changes:
        codec = self.plan.operators[port.operator].operator.codec if port.source is None else None
        return no_changes(codec or self.plan.codecs[port.source or ""])

    def handed(self, inputs: Inputs) -> dict[str, Output]:
        """What the last step has for other stages."""
        return {handed.name: self._given(handed.port, inputs) for handed in self.plan.handed}

    def silence(self) -> dict[str, ElementBatch]:
        """No elements for any sink."""
        return {flow.name: empty_elements(flow.chain.codec.schema) for flow in self.outflows}

    def _given(self, port: Port, inputs: Inputs) -> Output:
        return inputs[port.source, port.form] if port.source else self.outputs[port.operator]

    def port_name(self, port: Port) -> str:
        return port.source or f"{port.operator} {self.plan.operators[port.operator].name}"

    def state_size(self) -> StateSize:
        """What operators and chains keep."""
        parts = [placed.operator.state_size() for placed in self.plan.operators]
        parts += [flow.chain.state_size() for flow in self.outflows]
        return sum([*parts, *(flow.gate.state_size() for flow in self.outflows if flow.gate)], StateSize())

    def snapshot(self) -> dict[str, Any]:
        return {
            "tau": self.tau,
            "operators": [placed.operator.snapshot() for placed in self.plan.operators],
            "frontiers": [[frontier.time for frontier in frontiers] for frontiers in self.frontiers],
            "promises": [output.frontier.time for output in self.outputs],
            "chains": {flow.name: flow.chain.snapshot() for flow in self.outflows},
            "moved": [emit.value for emit in self.moved],
            "gates": {flow.name: (flow.nets, flow.gate.snapshot()) for flow in self.outflows if flow.gate},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for emit in state["moved"]:  # nothing has been said yet, so nothing is said because of it
            self.emitting(Emit(emit), self._nothing)
        self.tau = state["tau"]
        for placed, part in zip(self.plan.operators, state["operators"], strict=True):
            placed.operator.restore(part)
        self.frontiers = [[Frontier(time) for time in times] for times in state["frontiers"]]
        self.outputs = [
            Output(no_changes(placed.operator.codec), Frontier(time))
            for placed, time in zip(self.plan.operators, state["promises"], strict=True)
        ]
        for flow in self.outflows:
            flow.chain.restore(state["chains"][flow.name])
            if flow.name in state["gates"]:
                flow.nets, gate = state["gates"][flow.name]
                assert flow.gate is not None, "it was made above"
                flow.gate.restore(gate)
