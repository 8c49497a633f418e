"""Another emission policy for operators that run: what has to be said because of it, and where.

Of two policies one says all that the other does, and more (`Emit.rank`).  To say more, operators are asked to bring out
what they hold back, from the sources upwards, each on top of what those below it have brought out (`brought_out`).  To
say less, nothing in the graph changes: a `Gate` before the sink lets less through, and takes nothing back that is not
wrong.  So a graph may always say more than its sinks do, and never less.

A chain that knows groups cannot stand behind a gate, which knows rows only; `by_rows` makes it one of rows, with the
events that it has said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from everwhen.core.emit import Emit
from everwhen.core.promise import Frontier
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import Chain, EventChain
from everwhen.operators.output.emit_gate import Gate
from everwhen.operators.output.group_changelog import GroupChain
from everwhen.plan.physical import PlacedOperator, Port
from everwhen.rows.changes import Changes, concat
from everwhen.stream.element_batch import ElementBatch

Standing = Callable[[Port], Changes | None]
"""What a port has said that stands; None: that is not known."""


@dataclass
class Outflow:
    """The way from a port to the elements of an output: perhaps a gate, then the chain.

    `nets`: the port says whole events, and what follows takes segments.
    """

    name: str
    port: Port
    chain: Chain | GroupChain | EventChain
    gate: Gate | None = None
    nets: bool = False

    def step(self, changes: Changes, tau: int, frontier: Frontier) -> ElementBatch:
        """The elements; behind a gate a promise about data is said if nothing waits there that it covers."""
        if self.gate is not None:
            gate = self.gate
            changes = gate.step(netted(changes) if self.nets else changes, tau, frontier.time)
            frontier = Frontier(frontier.time, tuple(p for p in frontier.promises if not gate.holds(p)))
        return self.chain.step(changes, frontier.time, frontier.promises)

    def emitting(self, emit: Emit, standing: Standing) -> None:
        """Let through from now on what `emit` says."""
        last = emit is Emit.FINAL
        if isinstance(self.chain, EventChain) and not last:
            return  # events are said as they come, whatever the policy
        if isinstance(self.chain, EventChain):
            said = standing(self.port)
            assert said is not None, "what may still be corrected is kept"
            self.nets = True
            self.chain = by_rows(self.chain, said, last)
        elif isinstance(self.chain, GroupChain):
            pieces = standing(self.port)
            assert pieces is not None, "an operator that knows groups knows what it has said"
            self.chain = by_rows(self.chain, self.chain.said(pieces) if len(pieces) else pieces, last)
        else:
            self.chain.takes_all(last)
        if self.gate is None:
            self.gate = Gate(self.chain.codec, emit)
        self.gate.emit = emit


def by_rows(chain: Chain | GroupChain | EventChain, said: Changes, ordered: bool) -> Chain:
    """A chain of rows that goes on for another one, which has said these events."""
    return Chain.going_on(chain.codec, chain.cti, said.take(said.hi > chain.cti), ordered)


@dataclass(frozen=True, slots=True)
class Place:
    """An operator where it runs."""

    number: int
    placed: PlacedOperator
    frontiers: list[Frontier]
    tau: int


def brought_out(places: Iterable[Place], emit: Emit, nothing: Callable[[Port], Changes]) -> dict[int, Changes]:
    """What operators say, by number, when from now on they say all that `emit` does; inputs stand before users.

    `nothing` gives no changes, as a port would say them.
    """
    # Below others, an operator that says pieces when they have ended would seem to end them where it has not spoken.
    lax = Emit.CURRENT if emit is Emit.ENDED else emit
    news: dict[int, Changes] = {}
    for place in places:
        operator, ports = place.placed.operator, place.placed.inputs
        own = operator.emitting(lax, place.frontiers)
        if any(port.operator in news for port in ports):
            given = [news.get(port.operator) or nothing(port) for port in ports]
            changes = operator.step(given, place.frontiers, place.tau).changes
            own = changes if own is None else concat(own, changes)
        if own is not None and len(own):
            news[place.number] = own
    return news


def standing_at(port: Port, places: Mapping[int, Place], sources: Standing) -> Changes | None:
    """What a port has said that stands, from what operators keep; `sources` tells it of ports of sources."""
    if port.source is not None:
        return sources(port)
    place = places[port.operator]
    found = place.placed.operator.standing(place.frontiers)
    if found is not None:
        return found[1]
    if not place.placed.operator.stateless:
        return None
    given = [standing_at(each, places, sources) for each in place.placed.inputs]
    known = [each for each in given if each is not None]
    return place.placed.operator.step(known, place.frontiers, place.tau).changes if len(known) == len(given) else None
