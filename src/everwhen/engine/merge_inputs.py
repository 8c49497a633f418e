"""Inputs of a merge that come and go while a fixed plan runs.

An input that leaves is one that has ended, except that it is not believed any more.  One that is attached begins anew:
a new guard, new operators between it and the merge, a port of the merge that knows nothing of what came before.  One
that the plan does not have yet is made like another copy, and the merge gets one more port.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.core.punctuation import NO_PROGRESS
from everwhen.core.time import INF, NEVER
from everwhen.engine.dataflow import Dataflow, FixedDataflow
from everwhen.engine.node import OperatorNode
from everwhen.engine.output_port import OutputPort
from everwhen.errors import QueryError
from everwhen.operators.merge.inputs import MergeOperator
from everwhen.plan.physical import PhysicalPlan, Port


def merge_port(plan: PhysicalPlan, name: str) -> tuple[int, int]:
    """The merge, by its number, and the port at which a source comes in, and nowhere else."""
    found = [
        (number, port)
        for number, placed in enumerate(plan.operators)
        if isinstance(placed.operator, MergeOperator)
        for port, each in enumerate(placed.inputs)
        if name in plan.sources_below(each)
    ]
    if name not in plan.sources:
        raise QueryError(f"there is no input {name!r}; the query reads {', '.join(sorted(plan.sources))}")
    if len(found) != 1 or name in plan.unmerged_sources():
        why = "in no merge" if not found else "in several merges" if len(found) > 1 else "beside the merge, too"
        raise QueryError(
            f"{name!r} is read {why}: only an input that one merge reads, and nothing else does, can come and go"
        )
    return found[0]


def restart(dataflow: FixedDataflow, fresh: PhysicalPlan, name: str, since: int) -> None:
    """Let an input that has gone begin anew.  `fresh`: the same plan, lowered again."""
    number, port = merge_port(dataflow.plan, name)
    flow = dataflow.flow
    flow.floors.keep(dataflow.plan.sources.keys() - {name})
    for each in flow.below(flow.nodes[number].placed.inputs[port]):
        if each.source is None:
            flow.add(OperatorNode.of(each.operator, fresh.operators[each.operator]))
    node = flow.nodes[number]
    _merge(node).begin_anew(port, since)
    node.frontiers[port] = NO_PROGRESS
    operators = tuple(each.placed for each in flow.nodes.values())
    dataflow.plan = replace(dataflow.plan, operators=operators)


def begin_anew(flow: Dataflow[str, OutputPort], sources: Collection[str], since: int) -> None:
    """Other streams come from these sources from now on, right from `since` on; they feed merges, by way of nothing
    that remembers."""
    for node in flow.nodes.values():
        below, operator = flow.sources_below(node), node.placed.operator
        anew = [port for port, found in enumerate(below) if found and found <= set(sources)]
        if isinstance(operator, MergeOperator):
            node.woken = node.woken or bool(anew)
            for port in anew:
                operator.begin_anew(port, since)
        elif anew:
            node.begin_anew()


def leave_at(flow: Dataflow[str, OutputPort], sources: Collection[str], until: int) -> None:
    """What these sources promise counts in merges up to an instant only."""
    for node in flow.nodes.values():
        operator = node.placed.operator
        if isinstance(operator, MergeOperator):
            for port, found in enumerate(flow.sources_below(node)):
                if found and found <= set(sources):
                    operator.leave_at(port, until)


def with_copy(query: n.Node, name: str, like: str) -> n.Node:
    """A plan whose merge has one more copy: as the one that reads `like`, over a source called `name`."""

    def renamed(node: n.Node) -> n.Node | None:
        return replace(node, name=name) if isinstance(node, n.Source) and node.name == like else None

    made: dict[int, n.Node] = {}
    for node in n.walk(query):
        found = n.over(node, *(made[id(each)] for each in node.inputs))
        if isinstance(node, n.LMerge) and isinstance(found, n.LMerge):
            for copy in found.copies:
                if like in n.sources_of(copy):
                    copies = (*found.copies, *n.rebuilt(renamed, copy))
                    found = replace(found, copies=copies, since=(*found.since, NEVER), names=(*found.names, name))
                    break
        made[id(node)] = found
    return made[id(query)]


def grow(dataflow: FixedDataflow, plan: PhysicalPlan, name: str, since: int) -> None:
    """Go on with a plan whose merge has one more input, right from `since` on: all others keep their state."""
    flow = dataflow.flow
    before = _counterparts(dataflow.plan, plan)
    nodes: dict[int, OperatorNode] = {}
    for number, placed in enumerate(plan.operators):
        if number not in before:
            nodes[number] = OperatorNode.of(number, placed)
            continue
        node = nodes[number] = flow.nodes[before[number]]
        if len(placed.inputs) > len(node.placed.inputs):
            _merge(node).add_input(name, since)
            node.frontiers.append(NO_PROGRESS)
        node.number, node.placed = number, replace(placed, operator=node.placed.operator)
    flow.renumber(nodes, before)
    sinks = []
    for sink in plan.sinks:
        output = flow.outputs[sink.name]
        output.port = sink.port
        sinks.append(replace(sink, encoder=output.encoder, filter=output.filter))
    dataflow.plan = replace(plan, operators=tuple(each.placed for each in nodes.values()), sinks=tuple(sinks))


def _counterparts(old: PhysicalPlan, new: PhysicalPlan) -> Mapping[int, int]:
    """By the numbers of operators in a plan with one more copy, those that they had."""
    found: dict[int, int] = {}
    ports = zip((each.port for each in old.sinks), (each.port for each in new.sinks), strict=True)
    waiting: list[tuple[Port, Port]] = list(ports)
    while waiting:
        was, now = waiting.pop()
        if now.source is None and now.operator not in found:
            found[now.operator] = was.operator
            waiting += zip(old.operators[was.operator].inputs, new.operators[now.operator].inputs, strict=False)
    return found


def right_from(plan: PhysicalPlan, since: Mapping[str, int]) -> int:
    """From when on a plan's answer is right, if sources are right from these instants on only; infinity: never."""
    known: list[int] = []

    def of(port: Port) -> int:
        return known[port.operator] if port.source is None else since.get(port.source, NEVER)

    for placed in plan.operators:
        ports = [of(port) for port in placed.inputs]
        given = min(ports) if isinstance(placed.operator, MergeOperator) else max(ports)
        known.append(given if given in (NEVER, INF) else placed.operator.exact_from(given))
    return max(of(sink.port) for sink in plan.sinks)


def unknown_spans(dataflow: FixedDataflow) -> dict[str, tuple[int, int]]:
    """By merge, the span of time that it waits for because no input that is there knows it."""
    found: dict[str, tuple[int, int]] = {}
    for node in dataflow.flow.nodes.values():
        operator = node.placed.operator
        if isinstance(operator, MergeOperator) and (span := operator.unknown) is not None:
            below = [", ".join(sorted(dataflow.plan.sources_below(port))) for port in node.placed.inputs]
            found[f"lmerge of {', '.join(below)}"] = span
    return found


def _merge(node: OperatorNode) -> MergeOperator:
    operator = node.placed.operator
    assert isinstance(operator, MergeOperator), "inputs come and go at a merge"
    return operator
