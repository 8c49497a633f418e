"""The network: a graph of running operators to which plans are added, and from which they are taken, while it runs.

**Joining.**  A plan attaches where the graph already computes part of it, and its new operators have not seen the past.
For every port there is an instant from which on its past is known, with what stands from then on (`Past`):

* `reach`, the largest end that ever passed the port.  All segments said so far end there or earlier, so nothing stands
  from then on: the past, restricted to [reach, ∞), is empty.
* an earlier instant, where something that runs remembers what stands: a guard its events, an operator what it has
  said (`Operator.standing`), a chain its events; an operator without state is applied to what stands at its inputs.
  Each forgets what the CTI has passed, and what a promise about data has settled before that.  So the instant is the
  CTI or the largest end of what was forgotten because of such promises, whichever is later.

A new operator first gets the past of its inputs and then all changes, both cut at the latest of these instants, V.  So
it sees exactly its inputs' histories restricted to [V, ∞), and nothing else.  An operator on snapshots is then exact
from V on.  A window needs a past of its own length, a window of rows more than can be stated: `Operator.exact_from`
says from which instant on the output is what it would be had the operator run from the start.  By induction over the
plan, the answer at every instant from there on is right, whatever comes later, because later changes pass the same way.
If that instant is never, the plan is refused, and the message names the operator that cannot know.

**Leaving.**  Operators and sources that no plan needs any more are dropped with their state.

**τ.**  "The present" of an operator is the largest start seen on the sources below it, so that what a query says does
not depend on which other queries run.

**Errors.**  An operator that fails is broken, with all that needs it.  The others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count

from everwhen.algebra.nodes import Source
from everwhen.errors import QueryError
from everwhen.model.changes import Changes, no_changes
from everwhen.model.pool import Pool
from everwhen.model.punctuation import Frontier
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import Emit, Output
from everwhen.operators.chain import Chain, EventChain
from everwhen.operators.guard import Guard, Guarded
from everwhen.operators.hold import HoldOperator
from everwhen.operators.intake import Intake
from everwhen.operators.punctuator import source_punctuators
from everwhen.plan.lower import Lowering
from everwhen.plan.physical import PlacedOperator, Port
from everwhen.runtime.emission import Outflow
from everwhen.runtime.horizon import Horizon
from everwhen.runtime.idleness import Idleness
from everwhen.runtime.levels import WHOLE, Bounds
from everwhen.runtime.outlet import Exit, Outlet, Said
from everwhen.runtime.running import Inflow, Left, Past, Running, cut, earliest

Levels = Mapping[str, tuple[str, Bounds]]
"""By the names that sources have in a plan, what they are and at which level."""


class Network:
    """Sources, operators and outlets by name, number and node."""

    def __init__(self, clock: Callable[[], float], idle: float | None = None) -> None:
        self.pool = Pool()
        self.inflows: dict[str, Inflow] = {}
        self.running: dict[int, Running] = {}
        self.outlets: dict[Exit, Outlet] = {}
        self.left: dict[str, Left] = {}
        self._clock = clock
        self._lowerings: dict[Emit, Lowering] = {}
        self._numbers = count()
        self._horizons: dict[Bounds, Horizon] = {}
        self._idleness = Idleness(clock, idle)

    def lowering(self, emit: Emit) -> Lowering:
        """The lowering for a policy; operators of all of them have numbers of their own."""
        if emit not in self._lowerings:
            self._lowerings[emit] = Lowering(emit, self.pool, _numbers=self._numbers)
        return self._lowerings[emit]

    @property
    def sources(self) -> dict[str, Source]:
        """The sources as they are declared, under the names that they have at their levels."""
        return {name: node for each in self._lowerings.values() for name, node in each.sources.items()}

    # -- joining ------------------------------------------------------------------------------------------------

    def attach(self, exit: Exit, levels: Levels, over: Emit | None = None) -> tuple[int, Said]:
        """Let a plan run that ends in an outlet: the instant from which on its answer is right, and what must be heard
        before that which the outlet says from now on.

        `levels` tells of each source of the plan what it is and what stands before it.  `over`: build it on operators
        of another policy; by default on those that run, if they say more.  If the plan is refused, nothing has changed.
        """
        if exit in self.outlets:
            outlet = self.outlets[exit]
            past = self._said(outlet)
            if past.since == INF:
                raise self._unknown(outlet.port)
            return past.since, outlet.again(past.changes, past.since)
        operators, sources = set(self.running), set(self.inflows)
        try:
            outlet = self.outlet(exit, over or self._shared(exit))
            for name in levels.keys() - sources:
                self._open(name, *levels[name])
            self._idleness.read(each.source for each in self.inflows.values())
            pasts: dict[Port, Past] = {}
            for number, placed in self.operators.items():
                if number not in operators:
                    self._start(number, placed, pasts)
            past = self._past(outlet.port, pasts)
            if past.since == INF:
                raise self._unknown(outlet.port)
            outlet.since = past.since
            self.outlets[exit] = outlet
            changes = cut(past.changes, past.since)
            said = outlet.step(changes, self.tau(outlet.port), self._frontier(outlet.port))
        except BaseException:
            self.outlets.pop(exit, None)
            self._keep(operators, sources)
            raise
        return past.since, said

    def outlet(self, exit: Exit, over: Emit | None) -> Outlet:
        """An outlet for a plan, with all its operators placed."""
        node, emit = exit
        if over is None:
            sink = self.lowering(emit).sink("", node)
            return Outlet(Outflow("", sink.port, sink.chain), NEVER, self._clock())
        lowering = self.lowering(over)
        codec = lowering.codec(node.schema)
        port = lowering.place("hold", HoldOperator(codec), lowering.sink("", node).port)
        return Outlet(Outflow("", port, Chain(codec, ordered=True)), NEVER, self._clock(), over)

    def _shared(self, exit: Exit) -> Emit | None:
        """The policy of operators that run for the same plan and say more, where what is final can be told from it."""
        node, emit = exit
        if emit is Emit.FINAL and not node.keeps_events:
            for other in (Emit.CURRENT, Emit.ENDED, Emit.ALL):
                if (node, other) in self.outlets:
                    return other
        return None

    @property
    def operators(self) -> dict[int, PlacedOperator]:
        """All operators that are placed, inputs before their users."""
        found = {number: placed for each in self._lowerings.values() for number, placed in each.operators.items()}
        return dict(sorted(found.items()))

    def _open(self, name: str, source: str, bounds: Bounds) -> None:
        declared = self.sources[name]
        codec = self._codec(name)
        whole = declared.kind in WHOLE  # finite: kept, so that whoever joins later knows all of it
        guard = Guard(
            source, codec, declared.insert_only, declared.chronons, whole, punctuator=source_punctuators(declared)
        )
        intake = Intake(guard, bounds.remember, bounds.finalizes, bounds.aligns)
        beside = [each for each in self.inflows.values() if each.source == source]
        if beside:  # the one that remembers most tells what stands
            other = min(beside, key=lambda each: (each.intake.finalize is not None, each.intake.cti))
            intake.begin(other.intake)
            self.inflows[name] = Inflow(source, bounds, intake, other.exact, other.come)
            return
        before = self.left.get(source, Left())
        if before.reach == INF:
            raise QueryError(
                f"the source {source!r} had been read and left, and some of its events have no end: what stands is not "
                f"known any more; call forget({source!r}) to let it begin anew"
            )
        guard.resume(before.cti, before.tau, before.promises)
        if intake.finalize is not None:
            intake.finalize.begin(guard.cti, guard.tau, None)
        self.inflows[name] = Inflow(source, bounds, intake, before.reach, before.reach)

    def _start(self, number: int, placed: PlacedOperator, pasts: dict[Port, Past]) -> None:
        """Let a new operator take what stands at its inputs."""
        given = [self._past(port, pasts) for port in placed.inputs]
        for port, past in zip(placed.inputs, given, strict=True):
            if past.since == INF:
                raise self._unknown(port)
        since = max(past.since for past in given)
        exact = self._exact(placed, since)
        if exact == INF:
            raise _refused(f"the operator '{placed.name}' needs all of the past")
        frontiers = [Frontier()] * len(given)
        running = Running(placed, Output(no_changes(placed.operator.codec), Frontier()), frontiers, self._clock())
        running.since, running.exact = since, exact
        running.step(
            [Output(past.changes, self._frontier(port)) for port, past in zip(placed.inputs, given, strict=True)],
            max(self.tau(port) for port in placed.inputs),
        )
        self.running[number] = running
        pasts[Port(operator=number)] = Past(exact, running.output.changes)

    def _exact(self, placed: PlacedOperator, since: int) -> int:
        return since if since in (NEVER, INF) else placed.operator.exact_from(since)

    def _past(self, port: Port, pasts: dict[Port, Past]) -> Past:
        """What is known of a port, from the earliest instant for which it can be told."""
        if port not in pasts:
            pasts[port] = self.inflows[port.source].past() if port.source else self._recalled(port, pasts)
        return pasts[port]

    def _recalled(self, port: Port, pasts: dict[Port, Past]) -> Past:
        running = self.running[port.operator]
        placed = running.placed
        found = placed.operator.standing(running.frontiers)
        ways = [Past(running.reach, no_changes(running.codec)), None if found is None else Past(*found)]
        ended = running.output.frontier.time == INF
        if placed.operator.stateless or ended:
            given = [self._past(each, pasts) for each in placed.inputs]
            since = max(running.since, *(past.since for past in given))
            exact = self._exact(placed, since)
            changes = [cut(past.changes, since) for past in given]
            if placed.operator.stateless and exact < INF:
                ways.append(Past(exact, placed.operator.step(changes, running.frontiers, running.tau).changes))
            elif ended and not any(map(len, changes)):  # all is settled, and of nothing comes nothing
                ways.append(Past(exact, no_changes(running.codec)))
        for outlet in self.outlets.values():
            if outlet.port == port and isinstance(outlet.chain, Chain) and outlet.flow.gate is None:
                since, said = outlet.chain.standing()
                ways.append(Past(max(outlet.since, since), said))
        return earliest(running.exact, *ways)

    def _unknown(self, port: Port) -> QueryError:
        if self._frontier(port).time == INF:
            return _refused(f"{self.port_name(port)} has ended, and some of what it said has no end")
        return _refused(f"some of what {self.port_name(port)} said has no end, and is not kept")

    def _said(self, outlet: Outlet) -> Past:
        """The events that an outlet has said, by the names that it uses for them."""
        chain, port = outlet.chain, outlet.port
        nothing = Past(self._reach(port), no_changes(chain.codec))
        if chain.cti == INF or isinstance(chain, EventChain):
            return earliest(outlet.since, nothing, self._past(port, {}))
        if isinstance(chain, Chain):
            return earliest(outlet.since, nothing, Past(*chain.standing()))
        pieces = self._past(port, {})
        return earliest(outlet.since, nothing, Past(pieces.since, chain.said(pieces.changes)))

    # -- running ------------------------------------------------------------------------------------------------

    def step(self) -> tuple[dict[Exit, Said], dict[Exit, Exception]]:
        """One epoch, with what the intakes have checked: what each outlet says, or the error that broke it."""
        arrived = self._arrived()
        for name, guarded in arrived.items():
            self.inflows[name].take(guarded)
        inputs = _Inputs(self.inflows, arrived)
        broken: dict[int, Exception] = {}
        for number, running in self.running.items():
            ports = running.placed.inputs
            culprit = next((broken[port.operator] for port in ports if port.operator in broken), None)
            if culprit is not None:
                broken[number] = culprit
                continue
            try:
                running.step([self._given(port, inputs) for port in ports], max(map(self.tau, ports)))
            except Exception as error:  # whatever it is, also in a function of the user's: the others must go on
                broken[number] = error
        said: dict[Exit, Said] = {}
        failed: dict[Exit, Exception] = {}
        for node, outlet in self.outlets.items():
            if outlet.port.operator in broken:
                failed[node] = broken[outlet.port.operator]
                continue
            try:
                output = self._given(outlet.port, inputs)
                tau = self.tau(outlet.port)
                said[node] = outlet.step(cut(output.changes, outlet.since), tau, output.frontier)
            except Exception as error:
                failed[node] = error
        return said, failed

    def _arrived(self) -> dict[str, Guarded]:
        """What goes on to the graph: what does not wait, and of what waits that whose time has come."""
        arrived: dict[str, Guarded] = {}
        waiting: dict[Bounds, list[str]] = {}
        for name, inflow in self.inflows.items():
            said, _ = inflow.intake.take()
            if said is not None:
                arrived[name] = said
            if inflow.intake.align is not None:
                waiting.setdefault(inflow.bounds, []).append(name)
        self._hurry()
        self._horizons = {bounds: self._horizons.get(bounds) or Horizon(self._clock) for bounds in waiting}
        for bounds, names in waiting.items():
            intakes = [self.inflows[name].intake for name in names]
            latest = max(intake.latest for intake in intakes)
            horizon = self._horizons[bounds].reached(latest, bounds.block, bounds.within)
            promised = min(intake.cti for intake in intakes)
            for name, intake in zip(names, intakes, strict=True):
                released = intake.release(horizon, promised)
                if released is not None:
                    arrived[name] = released
        return arrived

    def heard(self, sources: Collection[str]) -> None:
        """These sources have spoken."""
        self._idleness.heard(sources)

    def _hurry(self) -> None:
        """Let sources that rest hold nobody back who is read together with them."""
        outlets = () if self._idleness.seconds is None else self.outlets.values()
        read = [{self.inflows[port.source].source for port in self.below(each.port) if port.source} for each in outlets]
        self._idleness.hurry(self.inflows.values(), read)

    def _given(self, port: Port, inputs: _Inputs) -> Output:
        return inputs[port] if port.source else self.running[port.operator].output

    def tau(self, port: Port) -> int:
        return self.inflows[port.source].intake.tau if port.source else self.running[port.operator].tau

    def _frontier(self, port: Port) -> Frontier:
        if port.source:
            return Frontier(self.inflows[port.source].intake.promise)
        return self.running[port.operator].output.frontier

    def _reach(self, port: Port) -> int:
        return self.inflows[port.source].reach if port.source else self.running[port.operator].reach

    # -- leaving ------------------------------------------------------------------------------------------------

    def keep(self, exits: Collection[Exit]) -> None:
        """Drop all outlets but these, with all that only the others needed."""
        self.outlets = {exit: outlet for exit, outlet in self.outlets.items() if exit in exits}
        used = {port for outlet in self.outlets.values() for port in self.below(outlet.port)}
        self._keep({port.operator for port in used}, {port.source for port in used if port.source})

    def _keep(self, operators: Collection[int], sources: Collection[str]) -> None:
        for name in self.inflows.keys() - set(sources):
            inflow = self.inflows.pop(name)
            guard = inflow.intake.guard
            if not any(each.source == inflow.source for each in self.inflows.values()):
                self.left[inflow.source] = Left(guard.cti, guard.tau, inflow.come, guard.promised)
        self.running = {number: running for number, running in self.running.items() if number in operators}
        for lowering in self._lowerings.values():
            lowering.keep(operators, sources)

    # -- looking ------------------------------------------------------------------------------------------------

    def below(self, port: Port) -> Iterator[Port]:
        """The port and all that it needs, each once; users before inputs."""
        return _below(port, lambda number: self.running[number].placed)

    def below_placed(self, port: Port) -> Iterator[Port]:
        """The same, where operators are placed and do not run yet."""
        operators = self.operators
        return _below(port, lambda number: operators[number])

    def nothing(self, port: Port) -> Changes:
        """No changes, as a port would say them."""
        return no_changes(
            self.operators[port.operator].operator.codec if port.source is None else self._codec(port.source)
        )

    def _codec(self, name: str) -> RowCodec:
        return next(each.codecs[name] for each in self._lowerings.values() if name in each.codecs)

    def port_name(self, port: Port) -> str:
        return port.source or f"{port.operator} {self.running[port.operator].placed.name}"


class _Inputs:
    """What the sources say in an epoch, in the forms that are asked for."""

    def __init__(self, inflows: Mapping[str, Inflow], arrived: Mapping[str, Guarded]) -> None:
        self._inflows = inflows
        self._arrived = arrived
        self._outputs: dict[Port, Output] = {}

    def __getitem__(self, port: Port) -> Output:
        if port not in self._outputs:
            assert port.source is not None
            intake = self._inflows[port.source].intake
            arrived = self._arrived.get(port.source)
            changes = no_changes(intake.codec)
            if arrived is not None:
                changes = arrived.segments() if port.form == "segments" else arrived.events()
            self._outputs[port] = Output(changes, intake.frontier)
        return self._outputs[port]


def _below(port: Port, placed: Callable[[int], PlacedOperator]) -> Iterator[Port]:
    seen = {port: None}
    waiting = [port]
    while waiting:
        at = waiting.pop()
        yield at
        for each in placed(at.operator).inputs if at.source is None else ():
            if each not in seen:
                seen[each] = None
                waiting.append(each)


def _refused(why: str) -> QueryError:
    return QueryError(
        f"this query cannot join now, because no instant is known from which on its answer would be right: {why}. "
        "Register it before the first batch; or take a window of time, so that the past comes to an end; or declare "
        "the source with insert_only=False, so that its live events are kept until promises settle them"
    )
