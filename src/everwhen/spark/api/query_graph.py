"""The graph of a query on Spark as plain data: sources, the operators of all stages, queries, each once.

An operator runs in every partition of its stage; it is one node here, with what all partitions measure together
(`driver/partition_metadata.py`).  An exchange is an edge.  What Spark SQL computes before the first stage (filters,
windows, partial sums) is part of the edge from the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.graph import GraphNode, described
from everwhen.engine.observe.sample import Sample
from everwhen.plan.physical import Port
from everwhen.plan.stages.model import Stage, StagePlan
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.partition_gauges import stream_label

_NOTHING: Final = Sample()


@dataclass(frozen=True, slots=True)
class KnownSource:
    """What is known of a source: its promise, when it was last heard, what was given up of it."""

    progress: int
    silent: float | None
    dropped: int = 0


def plan_shape(plan: StagePlan, emit: Emit) -> tuple[GraphNode, ...]:
    """All nodes without figures, inputs before their users."""
    nodes: dict[str, GraphNode] = {
        f"source {each.name}": _node(f"source {each.name}", "source", each.name, ()) for each in plan.sources
    }
    writers: dict[str, str] = {}
    ends: dict[str, str] = {}
    for stage in plan.stages:
        partition = StagePartition(stage, emit)
        for placed, subject in zip(partition.plan.operators, partition.gauges.operators, strict=True):
            before = _before(stage, subject.reads, writers)
            known = tuple(dict.fromkeys(name for name in before if name in nodes))  # what goes round a loop comes later
            made = _node(subject.name, "operator", placed.name, known, subject.keeps)
            nodes[subject.name] = replace(made, does=described(placed.node))
        names = [subject.name for subject in partition.gauges.operators]
        for handed in partition.plan.handed:
            writers[handed.name] = _end(stage, handed.port, names, writers)
        for sink in partition.plan.sinks:
            ends[sink.name] = _end(stage, sink.port, names, writers)
    for name, end in ends.items():
        nodes[f"query {name}"] = _node(f"query {name}", "query", name, (end,) if end in nodes else ())
    return _with_queries(tuple(nodes.values()))


def _node(id_: str, kind: str, name: str, inputs: tuple[str, ...], keeps: str = "") -> GraphNode:
    return GraphNode(id_, kind, name, inputs, (), 0, 0, 0.0, 0, 0, keeps, NEVER, NEVER, ())  # type: ignore[arg-type]


def _before(stage: Stage, reads: Sequence[str], writers: Mapping[str, str]) -> list[str]:
    """The nodes that an operator reads, in the words of the gauges: sources by name, exchanges by number."""
    found = {stream_label(s): _origin(stage, s.name, writers) for s in stage.inputs}
    return [found.get(name, name) for name in reads]


def _origin(stage: Stage, stream: str, writers: Mapping[str, str]) -> str:
    feed = next(s.feed for s in stage.inputs if s.name == stream)
    return writers.get(stream, "") if feed is None else f"source {feed.source.name}"


def _end(stage: Stage, port: Port, names: Sequence[str], writers: Mapping[str, str]) -> str:
    return names[port.operator] if port.source is None else _origin(stage, port.source, writers)


def _with_queries(nodes: tuple[GraphNode, ...]) -> tuple[GraphNode, ...]:
    users: dict[str, dict[str, None]] = {node.id: {} for node in nodes}
    for node in reversed(nodes):
        if node.kind == "query":
            users[node.id][node.name] = None
        for name in node.inputs:
            users[name] |= users[node.id]
    return tuple(replace(node, queries=tuple(users[node.id])) for node in nodes)


def query_graph(
    shape: Sequence[GraphNode],
    samples: Mapping[str, Sample],
    sources: Mapping[str, KnownSource],
    answered: Mapping[str, int],
    said: Mapping[str, int],
    tau: int,
) -> tuple[GraphNode, ...]:
    """A shape with its figures.  `samples`: what operators and inputs have measured, by name; `answered`: what each
    query has promised, `said`: how many elements it has said."""
    found: dict[str, GraphNode] = {}
    for node in shape:
        sample = samples.get(node.name if node.kind == "source" else node.id, _NOTHING)
        least = min((found[name].progress for name in node.inputs), default=INF)
        slow = tuple(name for name in node.inputs if found[name].progress == least < INF)
        start = sample.tau if sample.tau != NEVER else tau
        if node.kind == "source":
            known = sources.get(node.name, KnownSource(NEVER, None))
            made = replace(
                node, progress=known.progress, largest_start=start, silent=known.silent,
                ended=known.progress == INF, dropped=known.dropped, keeps="events that may still be corrected",
            )  # fmt: skip
        elif node.kind == "query":
            made = replace(
                node, progress=answered.get(node.name, NEVER), largest_start=tau, waits_for=slow,
                rows_in=said.get(node.name, 0), rows_out=said.get(node.name, 0),
            )  # fmt: skip
        else:
            progress = sample.promise if node.id in samples else min(least, max(answered.values(), default=NEVER))
            made = replace(
                node, rows_in=sample.rows_in, rows_out=sample.rows_out, seconds=sample.seconds,
                state_rows=sample.state_rows or 0, state_bytes=sample.state_bytes or 0, progress=progress,
                largest_start=start, waits_for=slow,
            )  # fmt: skip
        found[node.id] = made
    return tuple(found.values())
