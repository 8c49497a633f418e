"""Which promises of sources let an answer promise so much: from the output downwards, each operator is asked for the
inverse of its rule (`Operator.needs`).

A port that several read needs the most that any of them does.  What an operator has promised already needs nothing.  Of
a merge one input is enough: the one that has come furthest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from everwhen.core.time import INF, NEVER
from everwhen.engine.node import OperatorNode
from everwhen.plan.physical import Port


def needed_promises(nodes: Mapping[int, OperatorNode], wanted: Mapping[Port, int]) -> dict[str, int]:
    """By source, what it has to promise so that these ports promise so much.  `nodes` has inputs before their users."""
    found = dict(wanted)
    for number, node in reversed(list(nodes.items())):
        t = found.get(Port(operator=number), NEVER)
        if t <= node.output.frontier.time:
            continue
        needs = node.placed.operator.needs(t)
        ports = [_furthest(node, needs)] if node.placed.operator.merges else range(len(needs))
        for at in ports:
            port = node.placed.inputs[at]
            found[port] = max(found.get(port, NEVER), needs[at])
    sources: dict[str, int] = {}
    for port, t in found.items():
        if port.source is not None:
            sources[port.source] = max(sources.get(port.source, NEVER), t)
    return sources


def _furthest(node: OperatorNode, needs: Sequence[int]) -> int:
    """The port of a merge that has come furthest, of those that can bring it further before they end."""
    return max(range(len(needs)), key=lambda at: (needs[at] < INF, node.frontiers[at].time))
