"""Moving: a query in a network goes over to another level, without contradicting what it has said or promised.

It may share its operators with others, who stay as they are.  So its plan is forked: once more in the network, over
sources of its own, in the same state.  The fork goes on exactly as the plan would have; then its intakes are told to
wait and remember for another time, and its outlet and operators to say more, or less (`emission.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from everwhen.core.emit import Emit
from everwhen.core.promise import Frontier
from everwhen.engine.change_emit import Place, brought_out, standing_at
from everwhen.engine.node import Inflow, cut
from everwhen.engine.session.network import Levels, Network
from everwhen.engine.session.output_port import Exit, Outlet, Said
from everwhen.engine.source_levels import Bounds
from everwhen.operators.contract import Output
from everwhen.operators.ingress.guard import Guard
from everwhen.operators.ingress.pipeline import Intake
from everwhen.operators.punctuate.punctuator import source_punctuators
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, no_changes


def fork(network: Network, old: Exit, new: Exit, levels: Levels) -> Outlet:
    """Let a plan that runs run once more, over sources of its own at other levels, as if it had always been there.

    Both plans have the same structure.
    """
    before = network.outlets[old]
    outlet = network.outlet(new, before.over)
    repeat(network, outlet, before.moved)
    operators = network.operators
    for was, port in zip(network.below(before.port), network.below_placed(outlet.port), strict=True):
        if port.source is not None:
            if port.source not in network.inflows:
                _open(network, port.source, *levels[port.source], network.inflows[was.source or ""])
            continue
        running, placed = network.running[was.operator], operators[port.operator]
        placed.operator.restore(running.placed.operator.snapshot())
        output = Output(no_changes(placed.operator.codec), running.output.frontier)
        network.running[port.operator] = replace(running, placed=placed, output=output)
    network.running = dict(sorted(network.running.items()))  # inputs before their users
    outlet.chain.restore(before.chain.snapshot())
    if before.flow.gate is not None and outlet.flow.gate is not None:
        outlet.flow.gate.restore(before.flow.gate.snapshot())
    outlet.since = before.since
    network.outlets[new] = outlet
    return outlet


def _open(network: Network, name: str, source: str, bounds: Bounds, other: Inflow) -> None:
    """Open a source that goes on as another one does, and then at its own level."""
    guard = other.intake.guard
    punctuator = source_punctuators(network.sources[name])
    intake = Intake(Guard(source, guard.codec, guard.insert_only, guard.chronons, guard.whole, punctuator=punctuator))
    intake.restore(other.intake.snapshot())
    if bounds.aligns:
        intake.block()
    if bounds.finalizes:
        intake.remember(bounds.remember)
    network.inflows[name] = Inflow(source, bounds, intake, other.exact, other.reach)


def emitting(network: Network, outlet: Outlet, emit: Emit) -> Said:
    """Let an outlet that has its operators for itself follow another policy: what it says because of it."""
    ports = [port for port in network.below(outlet.port) if port.source is None]
    running = {port.operator: network.running[port.operator] for port in ports}
    places = {number: Place(number, each.placed, each.frontiers, each.tau) for number, each in running.items()}

    def source(port: Port) -> Changes:
        intake = network.inflows[port.source or ""].intake
        return intake.standing() or no_changes(intake.codec)

    outlet.flow.emitting(emit, lambda port: standing_at(port, places, source))
    news = brought_out([places[number] for number in sorted(places)], emit, network.nothing)
    for number, changes in news.items():
        running[number].reach = max(running[number].reach, int(changes.hi.max()))
    _note(outlet, emit)
    changes = news.get(outlet.port.operator) or network.nothing(outlet.port)
    return Said.of(outlet.flow.step(cut(changes, outlet.since), network.tau(outlet.port), Frontier(outlet.chain.cti)))


def repeat(network: Network, outlet: Outlet, moved: Iterable[Emit]) -> None:
    """Let an outlet that has not said anything yet be as one that was moved."""
    operators = network.operators
    placed = sorted(port.operator for port in network.below_placed(outlet.port) if port.source is None)
    for emit in moved:
        outlet.flow.emitting(emit, network.nothing)
        for number in placed:
            operators[number].operator.emitting(Emit.CURRENT if emit is Emit.ENDED else emit, [])
        _note(outlet, emit)


def _note(outlet: Outlet, emit: Emit) -> None:
    outlet.moved = (*(each for each in outlet.moved if each is not emit), emit)
