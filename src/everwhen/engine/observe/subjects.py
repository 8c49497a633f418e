"""What can be observed: operators and inputs of a dataflow at work, by name.

`operator_labels` is the one place that says what an operator is called in metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from everwhen.engine.ingress import Ingress
from everwhen.engine.node import OperatorNode
from everwhen.engine.observe.gauge import Counters, Gauge, Ticking, Window
from everwhen.engine.observe.sample import Item, Sample
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes


def operator_labels(nodes: Mapping[int, OperatorNode]) -> dict[int, str]:
    """What operators are called: number and kind, `3 aggregate`."""
    return {number: f"{number} {node.placed.name}" for number, node in nodes.items()}


class Subject(Protocol):
    """An operator or an input.  `reads`: the names of what it reads."""

    name: str
    kind: str
    reads: tuple[str, ...]

    @property
    def key(self) -> int | str:
        """The same as long as it runs."""

    @property
    def tau(self) -> int: ...
    @property
    def promise(self) -> int: ...
    @property
    def gauge(self) -> Gauge | None: ...
    def open(self, window: Window, clock: Ticking) -> None:
        """Measure in a window from now on, or go on with what was measured before."""

    def close(self, windows: Iterable[Window]) -> None:
        """Measure in these windows only."""

    def state_size(self) -> StateSize: ...
    def key_count(self) -> int | None: ...
    @property
    def keeps(self) -> str:
        """What state is kept, for people."""

    def counted(self) -> Counters | None:
        """What is counted since it began, whether anybody asked or not."""


class OperatorSubject:
    """An operator at work."""

    kind = "operator"

    def __init__(self, node: OperatorNode, name: str, reads: tuple[str, ...]) -> None:
        self._node, self.name, self.reads = node, name, reads

    @property
    def key(self) -> int:
        return self._node.number

    @property
    def tau(self) -> int:
        return self._node.tau

    @property
    def promise(self) -> int:
        return self._node.output.frontier.time

    @property
    def gauge(self) -> Gauge | None:
        return self._node.gauge

    def open(self, window: Window, clock: Ticking) -> None:
        gauge = self.gauge or Gauge(clock, self.counted)
        gauge.recall(window, self._node.measured)
        gauge.open(window, self.tau)
        self._node.gauge = gauge

    def close(self, windows: Iterable[Window]) -> None:
        self._node.gauge = _kept(self.gauge, windows)

    def counted(self) -> Counters:
        node = self._node
        return Counters(node.rows_in, node.rows_out, 0, node.seconds)

    def state_size(self) -> StateSize:
        return self._node.placed.operator.state_size()

    def key_count(self) -> int | None:
        return self._node.placed.operator.key_count()

    @property
    def keeps(self) -> str:
        return self._node.placed.operator.keeps


class InputGauge(Gauge):
    """A gauge that counts what comes itself."""

    def __init__(self, clock: Ticking, lost: Callable[[], tuple[int, int]]) -> None:
        super().__init__(clock, self._counted)
        self._came, self._lost = 0, lost

    def _counted(self) -> Counters:
        dropped, late = self._lost()
        return Counters(self._came + dropped, self._came, late)

    def take(self, given: Changes, tau: int) -> None:
        super().take(given, tau)
        self._came += len(given.lo)

    def take_elements(self, given: CheckedBatch, tau: int) -> None:
        super().take_elements(given, tau)
        self._came += len(given.op)


class InputSubject:
    """An input, as it comes out of its intake: what was dropped there is counted as late."""

    kind = "input"
    reads: tuple[str, ...] = ()

    def __init__(self, ingress: Ingress, at: str) -> None:
        self._ingress, self._at = ingress, at
        self.name = ingress.inputs[at].source

    @property
    def key(self) -> str:
        return self._at

    @property
    def tau(self) -> int:
        return self._ingress.inputs[self._at].intake.tau

    @property
    def promise(self) -> int:
        return self._ingress.inputs[self._at].intake.cti

    @property
    def gauge(self) -> Gauge | None:
        return self._ingress.gauges.get(self._at)

    def open(self, window: Window, clock: Ticking) -> None:
        gauge = self.gauge or InputGauge(clock, self._lost)
        gauge.recall(window, self._ingress.inputs[self._at].measured)
        gauge.open(window, self.tau)
        self._ingress.gauges[self._at] = gauge

    def close(self, windows: Iterable[Window]) -> None:
        if _kept(self.gauge, windows) is None:
            self._ingress.gauges.pop(self._at, None)

    def _lost(self) -> tuple[int, int]:
        """How many elements were dropped, and how many were late, those that were moved among them."""
        intake = self._ingress.inputs[self._at].intake
        given_up = 0 if intake.finalize is None else sum(intake.finalize.counts.values())
        if intake.late is None:
            return given_up, given_up
        return given_up + intake.late.count.dropped, given_up + intake.late.count.late

    def state_size(self) -> StateSize:
        return self._ingress.inputs[self._at].intake.state_size()

    def key_count(self) -> int | None:
        return None

    @property
    def keeps(self) -> str:
        return "events that may still be corrected"

    def counted(self) -> None:
        return None


def _kept(gauge: Gauge | None, windows: Iterable[Window]) -> Gauge | None:
    if gauge is None:
        return None
    for window in gauge.recordings.keys() - set(windows):
        gauge.close(window)
    return gauge if gauge.recordings else None


def subjects(
    nodes: Mapping[int, OperatorNode], ingress: Ingress | None, ports: Iterable[Port], port_name: Callable[[Port], str]
) -> list[Subject]:
    """The inputs and operators at some ports, inputs first, each once."""
    below = list(dict.fromkeys(ports))
    labels = operator_labels(nodes)

    def named(port: Port) -> str:
        if port.source is None:
            return labels[port.operator]
        return port_name(port) if ingress is None else ingress.inputs[port.source].source

    names = dict.fromkeys(port.source for port in below if port.source is not None)
    inputs = [] if ingress is None else [InputSubject(ingress, name) for name in names]
    numbers = sorted({port.operator for port in below if port.source is None})
    operators = [OperatorSubject(nodes[at], labels[at], tuple(map(named, nodes[at].placed.inputs))) for at in numbers]
    return [*sorted(inputs, key=lambda each: each.name), *operators]


def sample(subject: Subject, window: Window, wanted: Iterable[Item]) -> Sample:
    """What is known of an operator or input; state and keys only if somebody wants them."""
    names = {item.name for item in wanted}
    gauge = subject.gauge
    found = (
        Sample(tau=subject.tau) if gauge is None or window not in gauge.recordings else gauge.read(window, subject.tau)
    )
    now: dict[str, Any] = {"promise": subject.promise}
    if "keys" in names:
        now["keys"] = subject.key_count()
    if names & {"state_rows", "state_bytes"}:
        size = subject.state_size()
        now |= {"state_rows": size.rows, "state_bytes": size.bytes}
    return replace(found, **now)
