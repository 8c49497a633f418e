"""Another emission policy for operators that run: what has to be emitted because of it.

To emit more, operators are asked to bring out what they hold back, from the sources upwards, each on top of what those
below it have brought out (`brought_out`).  To emit less is a matter of output ports (`output_port.py`).  So a dataflow
may always emit more than its outputs do, and never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from everwhen.core.emit import Emit
from everwhen.engine.node import OperatorNode, cut
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, concat

Standing = Callable[[Port], Changes | None]
"""What a port has brought that stands; None: that is not known."""


def below_others(emit: Emit) -> Emit:
    """The policy of operators whose output faces the policy `emit`.

    Below others, an operator that emits pieces when they have ended would seem to end them where it has not spoken.
    """
    return Emit.CURRENT if emit is Emit.ENDED else emit


def flush_suppressed(
    nodes: Iterable[OperatorNode], emit: Emit, nothing: Callable[[Port], Changes]
) -> dict[int, Changes]:
    """What operators emit, by number, when from now on they emit all that `emit` does; inputs stand before users.

    `nothing` gives no changes, as a port would bring them.
    """
    news: dict[int, Changes] = {}
    for node in nodes:
        operator, ports = node.placed.operator, node.placed.inputs
        own = node.emitting(below_others(emit))
        if any(port.operator in news for port in ports):
            given = [cut(news.get(port.operator) or nothing(port), node.since) for port in ports]
            changes = operator.step(given, node.frontiers, node.tau).changes
            own = changes if own is None else concat(own, changes)
        if own is not None and len(own):
            news[node.number] = own
    return news


def standing_at(port: Port, nodes: Mapping[int, OperatorNode], sources: Standing) -> Changes | None:
    """What a port has brought that stands, from what operators keep; `sources` tells it of ports of sources."""
    if port.source is not None:
        return sources(port)
    node = nodes[port.operator]
    found = node.placed.operator.standing(node.frontiers)
    if found is not None:
        return found[1]
    if not node.placed.operator.stateless:
        return None
    given = [standing_at(each, nodes, sources) for each in node.placed.inputs]
    known = [each for each in given if each is not None]
    return node.placed.operator.step(known, node.frontiers, node.tau).changes if len(known) == len(given) else None


def recalled(
    port: Port, nodes: Mapping[int, OperatorNode], below: Iterable[Port], intakes: Mapping[str, SourcePipeline]
) -> tuple[int, Changes] | None:
    """What a port has brought that stands, and from when on that is all; None: that is not known.  `below`: all ports
    that it needs."""
    if port.source is None:
        found = nodes[port.operator].placed.operator.standing(nodes[port.operator].frontiers)
        if found is not None:
            return found
    sources = [intakes[each.source] for each in below if each.source]
    if any(intake.standing() is None for intake in sources):
        return None
    changes = standing_at(port, nodes, lambda each: intakes[each.source or ""].standing())
    return None if changes is None else (max(intake.known_from for intake in sources), changes)
