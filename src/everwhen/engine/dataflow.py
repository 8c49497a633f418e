"""The dataflow: operators at work, stepped in an order in which inputs come first.  Every runtime has one.

One `step` is one epoch.  Every operator is stepped at most once, after its inputs, so a diamond (S - S, a self-join)
sees both its sides of a change at once and emits nothing that it would have to retract.  Plans are attached and
detached while it runs: a fixed plan once (`attach`), a session's plans whenever they join (`session/network.py`).

    LocalRuntime   = Ingress + Dataflow with a fixed plan
    Session        = Ingress + Dataflow with plans that come and go
    Spark partition = Dataflow with a fixed plan, fed by the exchange

**τ.**  "The present" of an operator is the largest τ of the inputs below it.

**Errors.**  With `isolate`, an operator that fails is broken with all that needs it, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from everwhen.core.emit import Emit
from everwhen.engine.change_emit import Standing, flush_suppressed, standing_at
from everwhen.engine.node import OperatorNode, StepCheck
from everwhen.engine.output_port import OutputPort
from everwhen.operators.contract import Output, StateSize
from everwhen.plan.physical import PlacedOperator, Port
from everwhen.rows.changes import Changes

Key = TypeVar("Key", bound=Hashable)
Flow = TypeVar("Flow", bound=OutputPort)


@dataclass(frozen=True, slots=True)
class EpochInputs:
    """What the sources bring in an epoch, by port, and the largest start seen, of one source or of all."""

    outputs: Mapping[Port, Output]
    tau: int | Mapping[str, int]

    def tau_of(self, source: str) -> int:
        return self.tau if isinstance(self.tau, int) else self.tau[source]


class Dataflow(Generic[Key, Flow]):
    """Operators by number and output ports by key."""

    def __init__(self, check: StepCheck | None = None, isolate: bool = False) -> None:
        self.nodes: dict[int, OperatorNode] = {}
        """Inputs before their users."""
        self.outputs: dict[Key, Flow] = {}
        self._check = check
        self._isolate = isolate

    # -- attaching ----------------------------------------------------------------------------------------------

    def add(self, node: OperatorNode) -> None:
        """Let an operator run; its inputs are there."""
        if self._check is not None:
            self._check.begin(node.number, node.placed.operator)
        self.nodes[node.number] = node

    def detach(self, numbers: Collection[int]) -> None:
        """Drop operators with their state."""
        self.nodes = {number: node for number, node in self.nodes.items() if number not in numbers}

    # -- running ------------------------------------------------------------------------------------------------

    def step(self, inputs: EpochInputs) -> dict[int, Exception]:
        """Step every operator; those that failed, with their errors, if errors are isolated."""
        if not self._isolate:
            for node in self.nodes.values():
                ports = node.placed.inputs
                tau = max([self.tau(port, inputs) for port in ports])
                node.step([self.given(port, inputs) for port in ports], tau, self._check)
            return {}
        broken: dict[int, Exception] = {}
        for number, node in self.nodes.items():
            ports = node.placed.inputs
            culprit = next((broken[port.operator] for port in ports if port.operator in broken), None)
            if culprit is not None:
                broken[number] = culprit
                continue
            try:
                tau = max([self.tau(port, inputs) for port in ports])
                node.step([self.given(port, inputs) for port in ports], tau, self._check)
            except Exception as error:  # whatever it is, also in a function of the user's: the others must go on
                broken[number] = error
        return broken

    def given(self, port: Port, inputs: EpochInputs) -> Output:
        """What a port brings in this epoch."""
        return self.nodes[port.operator].output if port.source is None else inputs.outputs[port]

    def tau(self, port: Port, inputs: EpochInputs) -> int:
        return self.nodes[port.operator].tau if port.source is None else inputs.tau_of(port.source)

    # -- emission -----------------------------------------------------------------------------------------------

    def change_emit(
        self,
        numbers: Iterable[int],
        outputs: Iterable[OutputPort],
        emit: Emit,
        standing: Standing,
        nothing: Callable[[Port], Changes],
    ) -> dict[int, Changes]:
        """Let operators and outputs, which nobody else uses, follow another policy: what operators emit because of it.

        `standing` tells what the ports of sources have brought that stands; `nothing` gives no changes of a port.
        """
        nodes = {number: self.nodes[number] for number in sorted(numbers)}
        for output in outputs:
            output.change_emit(emit, lambda port: standing_at(port, nodes, standing))
        news = flush_suppressed(nodes.values(), emit, nothing)
        for number, changes in news.items():
            nodes[number].max_end = max(nodes[number].max_end, int(changes.hi.max()))
        return news

    # -- looking ------------------------------------------------------------------------------------------------

    def below(self, port: Port) -> Iterator[Port]:
        """The port and all that it needs, each once; users before inputs."""
        return ports_below(port, lambda number: self.nodes[number].placed)

    def port_name(self, port: Port) -> str:
        return port.source or f"{port.operator} {self.nodes[port.operator].placed.name}"

    def state_size(self) -> StateSize:
        """What operators and output ports keep."""
        parts = [node.placed.operator.state_size() for node in self.nodes.values()]
        return sum([*parts, *(output.state_size() for output in self.outputs.values())], StateSize())

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self, roots: Mapping[str, Port]) -> list[dict[str, Any]]:
        """The operators' state, as plain data.  An operator is found by a root and its position below it, so numbers
        need not be the same where it is restored; of roots that share it, one tells."""
        seen: set[int] = set()
        found = []
        for root, port in roots.items():
            for position, node in self._positions(port):
                if node.number not in seen:
                    seen.add(node.number)
                    found.append({"root": root, "position": position, **node.snapshot()})
        return found

    def restore(self, parts: Iterable[Mapping[str, Any]], roots: Mapping[str, Port]) -> bool:
        """Fill operators that have not been stepped; whether the state is that of these operators."""
        given = {(part["root"], part["position"]): part for part in parts}
        done: set[int] = set()
        for root, port in roots.items():
            for position, node in self._positions(port):
                if (root, position) in given and node.number not in done:
                    done.add(node.number)
                    node.restore(given[root, position])
        return len(done) == len(given) == len(self.nodes)

    def _positions(self, port: Port) -> Iterator[tuple[int, OperatorNode]]:
        """The operators below a port by their position: a matter of the plan's structure alone."""
        for position, each in enumerate(self.below(port)):
            if each.source is None:
                yield position, self.nodes[each.operator]


def ports_below(port: Port, placed: Callable[[int], PlacedOperator]) -> Iterator[Port]:
    """A port and all that it needs, each once; users before inputs."""
    seen = {port: None}
    waiting = [port]
    while waiting:
        at = waiting.pop()
        yield at
        for each in placed(at.operator).inputs if at.source is None else ():
            if each not in seen:
                seen[each] = None
                waiting.append(each)
