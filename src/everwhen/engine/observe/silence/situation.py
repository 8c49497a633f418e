"""What the search for the reason of a silence needs to know of a dataflow and its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF, NEVER
from everwhen.engine.dataflow import Dataflow
from everwhen.engine.ingress import Ingress
from everwhen.engine.observe.metadata import OperatorMetadata, node_metadata
from everwhen.engine.observe.silence.find_waiting import Situation, next_final
from everwhen.engine.observe.silence.needed_promises import needed_promises
from everwhen.engine.observe.silence.waiting import SourceStatus
from everwhen.engine.output_port import OutputPort
from everwhen.errors import QueryError
from everwhen.plan.physical import Port
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch, batch_of


class Pushed(Protocol):
    """A runtime or a session, a copy of which is tried."""

    def push(self, batches: Mapping[str, ElementBatch]) -> Mapping[str, ElementBatch]:
        """One epoch."""

    def schema_of(self, name: str, /) -> Any:
        """The columns of a source."""

    def needs(self, t: int, query: str, /) -> Mapping[str, int]:
        """What sources have to promise so that a query promises all before an instant."""

    def goes_on(self, query: str, /) -> bool:
        """Whether the next epoch does something for a query although nothing may come."""

    def error_of(self, query: str, /) -> str:
        """Why a query has failed, where others go on."""


class CopyTrial:
    """A copy that is pushed, and goes on until nothing goes round."""

    def __init__(self, copy: Pushed, query: str) -> None:
        self._copy, self._query = copy, query

    def push(self, elements: Mapping[str, Sequence[Element]]) -> ElementBatch:
        batches = {name: batch_of(each, self._copy.schema_of(name), name) for name, each in elements.items()}
        said = self._copy.push(batches)
        if self._query not in said:
            raise QueryError(self._copy.error_of(self._query))
        return said[self._query]

    def needs(self, t: int) -> Mapping[str, int]:
        return self._copy.needs(t, self._query)

    def goes_on(self) -> bool:
        return self._copy.goes_on(self._query)


def own_copy(state: Any) -> Any:
    """A snapshot that shares no memory with what goes on."""
    match state:
        case dict():
            return {name: own_copy(each) for name, each in state.items()}
        case list():
            return [own_copy(each) for each in state]
        case tuple():
            return tuple(own_copy(each) for each in state)
        case np.ndarray():
            return state.copy()
        case pa.Array():
            return state.take(pa.array(np.arange(len(state))))
    return state


def situation(
    query: str,
    flow: Dataflow[Any, Any],
    ingress: Ingress,
    output: OutputPort,
    copy: Callable[[], Pushed],
    unknown: Mapping[str, tuple[int, int]],
    begins: int = NEVER,
) -> Situation:
    """Of a query with this output; `begins`: from when on its answer is right."""
    below = list(dict.fromkeys(each for port in output.ports for each in flow.below(port)))
    inputs = [ingress.inputs[port.source] for port in below if port.source is not None]
    read = {each.source for each in inputs}
    names = list(dict.fromkeys(each.source for each in ingress.inputs.values() if each.source in read))
    given_up = {
        name: sum(counts.values())
        for name, counts in ingress.dropped(port.source for port in below if port.source is not None).items()
    }
    for name, late in ingress.late.items():
        if name in read and late.dropped:
            given_up[name] = given_up.get(name, 0) + late.dropped
    rows = sum(flow.nodes[port.operator].placed.operator.state_size().rows for port in below if port.source is None)
    sources = [_status(name, ingress) for name in names]
    final = output.encoder.cti
    return Situation(
        query,
        sources,
        {name: ingress.of(name)[0].intake.codec.schema for name in names},
        _operators(flow, below),
        lambda: CopyTrial(copy(), query),
        rows + sum(each.intake.state_size().rows for each in inputs),
        given_up,
        unknown,
        begins,
        final=final,
        further=sources_need(flow, ingress, output, next_final(final, sources)),
    )


def sources_need(flow: Dataflow[Any, Any], ingress: Ingress, output: OutputPort, t: int) -> dict[str, int]:
    """What sources have to promise so that an output promises all before `t`, in the order of their names."""
    needs = needed_promises(flow.nodes, dict.fromkeys(output.ports, t))
    found: dict[str, int] = {}
    for name, need in needs.items():
        source = ingress.inputs[name].source
        found[source] = max(found.get(source, NEVER), need)
    return dict(sorted(found.items()))


def goes_on(flow: Dataflow[Any, Any], output: OutputPort) -> bool:
    """Whether an operator of an output does something in the next epoch although nothing may come."""
    below = {each.operator for port in output.ports for each in flow.below(port) if each.source is None}
    return any(flow.nodes[number].woken for number in below)


def _status(name: str, ingress: Ingress) -> SourceStatus:
    inputs = ingress.of(name)
    ended = name in ingress.ended
    promised = INF if ended else min(each.intake.cti for each in inputs)
    start = max(each.intake.guard.tau for each in inputs)
    late = inputs[0].intake.late
    within = None if late is None else late.policy.within
    return SourceStatus(name, promised, start, ingress.silent_for(name), ended, ingress.rests(name), within=within)


def _operators(flow: Dataflow[Any, Any], ports: Iterable[Port]) -> list[OperatorMetadata]:
    numbers = sorted({port.operator for port in ports if port.source is None})
    return [node_metadata(flow, flow.nodes[number], 1.0) for number in numbers]
