"""What operators at work have done and keep (Krämer, 13.4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everwhen.core.time import INF
from everwhen.engine.dataflow import Dataflow
from everwhen.engine.node import OperatorNode
from everwhen.engine.output_port import OutputPort
from everwhen.operators.contract import StateSize


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """What an operator has done and keeps.  Rates are per second of the clock; progress is its frontier.

    `queries` names those that use it, in a session.
    """

    name: str
    rows_in: int
    rows_out: int
    input_rate: float
    output_rate: float
    selectivity: float
    state_rows: int
    state_bytes: int
    progress: int
    keeps: str
    waits_for: tuple[str, ...]
    queries: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        rows: tuple[int, int],
        seconds: float,
        size: StateSize,
        progress: int,
        keeps: str,
        waits_for: tuple[str, ...],
        queries: Sequence[str] = (),
    ) -> OperatorMetadata:
        """With rates over so many seconds."""
        seconds = max(seconds, 1e-9)
        rows_in, rows_out = rows
        return cls(
            name, rows_in, rows_out, rows_in / seconds, rows_out / seconds, rows_out / rows_in if rows_in else 0.0,
            size.rows, size.bytes, progress, keeps, waits_for, tuple(queries),
        )  # fmt: skip


def filter_metadata(flow: Dataflow[Any, Any], output: OutputPort, seconds: float) -> OperatorMetadata | None:
    """The emission filter of an output, called by its policy: `emit final`."""
    if output.filter is None:
        return None
    progress, size = output.encoder.cti, output.filter.state_size()
    waits_for = (flow.port_name(output.port),) if progress < INF else ()
    name, rows = f"emit {output.filter.emit.value}", (output.rows_in, output.rows_out)
    return OperatorMetadata.of(name, rows, seconds, size, progress, output.filter.keeps, waits_for)


def node_metadata(
    flow: Dataflow[Any, Any], node: OperatorNode, seconds: float, queries: Sequence[str] = ()
) -> OperatorMetadata:
    """An operator is called by its number and its kind: `3 aggregate`."""
    placed = node.placed
    return OperatorMetadata.of(
        f"{node.number} {placed.name}",
        (node.rows_in, node.rows_out),
        seconds,
        placed.operator.state_size(),
        node.output.frontier.time,
        placed.operator.keeps,
        tuple(flow.port_name(placed.inputs[port]) for port in placed.operator.waits_for(node.frontiers)),
        queries,
    )
