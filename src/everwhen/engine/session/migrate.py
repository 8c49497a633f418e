"""Moving: a query in a network goes over to another level, without contradicting what it has said or promised.

It may share its operators with others, who stay as they are.  So its plan is forked: once more in the network, over
sources of its own, in the same state.  The fork goes on exactly as the plan would have; then its intakes are told to
wait and remember for another time, and its outlet and operators to say more, or less (`change_emit.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.engine.change_emit import below_others
from everwhen.engine.ingress import SourceInput
from everwhen.engine.node import OperatorNode, cut
from everwhen.engine.session.network import Levels, Network
from everwhen.engine.session.output_port import EmittedBatch, OutputKey, SharedOutput
from everwhen.engine.source_levels import PLAIN, Bounds


def fork(network: Network, old: OutputKey, new: OutputKey, levels: Levels) -> SharedOutput:
    """Let a plan that runs run once more, over sources of its own at other levels, as if it had always been there.

    Both plans have the same structure.
    """
    before = network.outlets[old]
    outlet = network.outlet(new, before.over)
    operators = network.operators
    for was, port in zip(network.below(before.port), network.below_placed(outlet.port), strict=True):
        if port.source is not None:
            if port.source not in network.ingress.inputs:
                _open(network, port.source, *levels[port.source], network.ingress.inputs[was.source or ""])
            network.flow.floors.copy(was, port, network.codec_of)
            continue
        node = OperatorNode.of(port.operator, operators[port.operator], network.flow.nodes[was.operator].began)
        node.restore(network.flow.nodes[was.operator].snapshot())
        network.flow.nodes[port.operator] = node
    network.flow.nodes = dict(sorted(network.flow.nodes.items()))  # inputs before their users
    outlet.restore(before.snapshot())
    network.outlets[new] = outlet
    return outlet


def _open(network: Network, name: str, source: str, bounds: Bounds, other: SourceInput) -> None:
    """Open a source that goes on as another one does, and then at its own level."""
    entry = network.opened(name, source, PLAIN)
    entry.intake.restore(other.intake.snapshot())
    entry.exact, entry.max_end = other.exact, other.max_end
    network.ingress.add(name, entry)
    entry.began, entry.rows = other.began, other.rows
    network.ingress.change(name, bounds)


def change_emit(network: Network, outlet: SharedOutput, emit: Emit) -> EmittedBatch:
    """Let an outlet that has its operators for itself follow another policy: what it emits because of it."""
    numbers = [port.operator for port in network.below(outlet.port) if port.source is None]
    known = network.said(outlet)[0]
    news = network.flow.change_emit(numbers, [outlet], emit, network.standing, network.nothing, lambda _: known)
    changes = news.get(outlet.port.operator) or network.nothing(outlet.port)
    return EmittedBatch.of(
        outlet.encode(cut(changes, outlet.since), network.tau(outlet.port), Frontier(outlet.encoder.cti))
    )


def repeat(network: Network, outlet: SharedOutput, moved: Iterable[Emit]) -> None:
    """Let operators that have not emitted anything yet be as those below an outlet that was moved: up to Everwhen 0.5
    they did not note it."""
    operators = network.operators
    placed = sorted(port.operator for port in network.below_placed(outlet.port) if port.source is None)
    for emit in moved:
        for number in placed:
            operators[number].operator.emitting(below_others(emit), [])
