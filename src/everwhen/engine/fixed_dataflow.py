"""A dataflow with one plan from its beginning: what the local runtime and a Spark partition run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import NEVER
from everwhen.engine.change_emit import Standing
from everwhen.engine.dataflow import Dataflow, EpochInputs
from everwhen.engine.node import OperatorNode, StepCheck
from everwhen.engine.output_port import OutputPort
from everwhen.operators.contract import Output
from everwhen.plan.physical import PhysicalPlan, Port
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element_batch import ElementBatch, empty_elements


class FixedDataflow:
    """The operators and sinks of a plan."""

    def __init__(self, plan: PhysicalPlan, check: StepCheck | None = None) -> None:
        self.plan = plan
        self.flow: Dataflow[str, OutputPort] = Dataflow(check)
        for number, placed in enumerate(plan.operators):
            self.flow.add(OperatorNode.of(number, placed))
        self.flow.outputs = {sink.name: OutputPort(sink.port, sink.encoder, sink.filter) for sink in plan.sinks}
        self.tau = NEVER
        self._moved: tuple[Emit, ...] = ()
        self._roots = {f"sink {sink.name}": sink.port for sink in plan.sinks}
        self._roots |= {f"stream {handed.name}": handed.port for handed in plan.handed}
        ports = [port for placed in plan.operators for port in placed.inputs]
        self.source_ports: tuple[Port, ...] = tuple(
            dict.fromkeys(port for port in [*ports, *self._roots.values()] if port.source is not None)
        )
        """The ports at which sources come in, each in the form that it is read in."""

    def step(self, inputs: Mapping[Port, Output], tau: int) -> dict[str, ElementBatch]:
        """One epoch: the elements of each sink; `handed` gives the rest."""
        self.tau = tau
        given = EpochInputs(inputs, tau)
        self.flow.step(given)
        results = {}
        for name, output in self.flow.outputs.items():
            found = self.flow.given(output.port, given)
            results[name] = output.encode(found.changes, tau, found.frontier)
        return results

    def handed(self, inputs: Mapping[Port, Output]) -> dict[str, Output]:
        """What the last step has for other stages."""
        given = EpochInputs(inputs, self.tau)
        return {handed.name: self.flow.given(handed.port, given) for handed in self.plan.handed}

    def change_emit(self, emit: Emit, standing: Standing) -> tuple[dict[str, ElementBatch], dict[str, Changes]]:
        """Follow another policy from now on: what sinks emit at once because of it, and what is handed on.

        `standing` tells what the ports of sources have brought that stands.
        """
        news = self.flow.change_emit(self.flow.nodes, self.flow.outputs.values(), emit, standing, self._nothing)
        self._moved = (*(each for each in self._moved if each is not emit), emit)
        results = {}
        for name, output in self.flow.outputs.items():
            changes = news.get(output.port.operator) or self._nothing(output.port)
            results[name] = output.encode(changes, self.tau, Frontier(output.encoder.cti))
        handed = {each.name: news[each.port.operator] for each in self.plan.handed if each.port.operator in news}
        return results, handed

    def nothing_new(self) -> dict[str, ElementBatch]:
        """No elements for any sink."""
        return {name: empty_elements(output.encoder.codec.schema) for name, output in self.flow.outputs.items()}

    def _nothing(self, port: Port) -> Changes:
        codec = self.plan.operators[port.operator].operator.codec if port.source is None else None
        return no_changes(codec or self.plan.codecs[port.source or ""])

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "tau": self.tau,
            "operators": self.flow.snapshot(self._roots),
            "outputs": {name: output.snapshot() for name, output in self.flow.outputs.items()},
            "moved": [emit.value for emit in self._moved],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of the same plan."""
        for emit in state["moved"]:  # nothing has been emitted yet, so nothing is emitted because of it
            self.change_emit(Emit(emit), self._nothing)
        self.tau = state["tau"]
        complete = self.flow.restore(state["operators"], self._roots)
        assert complete, "the snapshot is of another plan"
        for name, output in self.flow.outputs.items():
            output.restore(state["outputs"][name])
