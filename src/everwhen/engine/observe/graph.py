"""The running graph of a session as plain data: sources, operators and queries, each once, with what they have done.

Who draws it needs no more: `inputs` name the nodes before a node, and a node that several queries use says which.

    >>> import everwhen as ew
    >>> session = ew.SqlSession()
    >>> _ = session.execute("CREATE STREAM S (x INT); SELECT MAX(x) AS m FROM S WINDOW(RANGE 10)")
    >>> for node in session.graph():
    ...     print(node.kind, node.id, "<-", *node.inputs)
    source source S <-
    operator 0 window <- source S
    operator 1 aggregate <- 0 window
    query query q1 <- 1 aggregate
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from everwhen.algebra.explain import describe
from everwhen.algebra.nodes import Node
from everwhen.core.time import INF, NEVER
from everwhen.engine.dataflow import Dataflow
from everwhen.engine.ingress import Ingress
from everwhen.engine.output_port import OutputPort
from everwhen.operators.contract import StateSize
from everwhen.plan.physical import Port

Sizes = Mapping[str, StateSize]
"""By the ids of nodes."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A source at a level, an operator, or the end of a query.

    `progress` is its promise, `largest_start` the largest start it has seen, `waits_for` the inputs that hold its
    promise back.  `rows_in`, `rows_out` and `seconds` count since it began; `silent` is how many seconds ago the last
    element of a source came, `dropped` how many it gave up.
    """

    id: str
    kind: Literal["source", "operator", "query"]
    name: str
    inputs: tuple[str, ...]
    queries: tuple[str, ...]
    rows_in: int
    rows_out: int
    seconds: float
    state_rows: int
    state_bytes: int
    keeps: str
    progress: int
    largest_start: int
    waits_for: tuple[str, ...]
    silent: float | None = None
    ended: bool = False
    dropped: int = 0
    does: str = ""
    """What an operator computes, as EXPLAIN says it."""


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """Where a query leaves the dataflow: the ports that its output reads, and how many elements it has said."""

    name: str
    ports: tuple[Port, ...]
    output: OutputPort
    rows_out: int


def graph(
    flow: Dataflow[Any, Any], ingress: Ingress, ends: Sequence[QueryEnd], sizes: Sizes | None = None
) -> tuple[GraphNode, ...]:
    """All nodes, inputs before their users.  `sizes`: what nodes kept a moment ago, which costs a look at all of it."""
    known = sizes or {}
    users: dict[int, dict[str, None]] = {}
    readers: dict[str, dict[str, None]] = {}
    for end in ends:
        for port in {port: None for each in end.ports for port in flow.below(each)}:
            names = users.setdefault(port.operator, {}) if port.source is None else readers.setdefault(port.source, {})
            names[end.name] = None
    sources = [_source(ingress, name, tuple(names), known) for name, names in readers.items()]
    operators = [_operator(flow, number, tuple(users.get(number, ())), known) for number in flow.nodes]
    return (*sources, *operators, *(_query(flow, ingress, end, known) for end in ends))


def _id(flow: Dataflow[Any, Any], port: Port) -> str:
    return f"source {port.source}" if port.source is not None else flow.port_name(port)


def _source(ingress: Ingress, name: str, queries: tuple[str, ...], known: Sizes) -> GraphNode:
    entry = ingress.inputs[name]
    size, ended = known.get(f"source {name}") or entry.intake.state_size(), entry.source in ingress.ended
    dropped = sum(sum(counts.values()) for counts in ingress.dropped([name]).values())
    return GraphNode(
        f"source {name}", "source", entry.source, (), queries, 0, 0, 0.0, size.rows, size.bytes,
        "events that may still be corrected", INF if ended else entry.intake.cti, entry.intake.guard.tau, (),
        ingress.silent_for(entry.source), ended, dropped,
    )  # fmt: skip


def _operator(flow: Dataflow[Any, Any], number: int, queries: tuple[str, ...], known: Sizes) -> GraphNode:
    node, id_ = flow.nodes[number], flow.port_name(Port(operator=number))
    placed, size = node.placed, known.get(id_) or node.placed.operator.state_size()
    return GraphNode(
        id_, "operator", placed.name,
        tuple(dict.fromkeys(_id(flow, port) for port in placed.inputs)), queries, node.rows_in, node.rows_out,
        node.seconds, size.rows, size.bytes, placed.operator.keeps, node.output.frontier.time, node.tau,
        tuple(_id(flow, placed.inputs[at]) for at in placed.operator.waits_for(node.frontiers)),
        does=described(placed.node),
    )  # fmt: skip


@lru_cache(4096)
def described(node: Node) -> str:
    """A step of a plan in words."""
    return describe(node)


def _query(flow: Dataflow[Any, Any], ingress: Ingress, end: QueryEnd, known: Sizes) -> GraphNode:
    output, before = end.output, tuple(dict.fromkeys(_id(flow, port) for port in end.ports))
    size, promised = known.get(f"query {end.name}") or output.state_size(), output.encoder.cti
    keeps = "events said that may still be taken back" + ("" if output.filter is None else ", and what waits")
    starts = [ingress.inputs[p.source].intake.tau if p.source else flow.nodes[p.operator].tau for p in end.ports]
    return GraphNode(
        f"query {end.name}", "query", end.name, before, (end.name,), output.rows_in, end.rows_out, 0.0, size.rows,
        size.bytes, keeps, promised, max(starts, default=NEVER), before if promised < INF else (),
    )  # fmt: skip
