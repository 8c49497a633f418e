"""The network: a graph of running operators to which plans are added, and from which they are taken, while it runs.

**Joining.**  A plan attaches where the graph already computes part of it, and its new operators have not seen the past.
For every port there is an instant from which on its past is known, with what stands from then on (`AsOf`):

* `max_end`, the largest end that ever passed the port.  All segments so far end there or earlier, so nothing stands
  from then on: the past, restricted to [max_end, ∞), is empty.
* an earlier instant, where something that runs remembers what stands: a guard its events, an operator what it has
  said (`Operator.standing`), a chain its events; an operator without state is applied to what stands at its inputs;
  who reads the port remembers what came (`Operator.remembers`).
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
from functools import partial
from itertools import count

from everwhen.algebra.nodes import Source
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.engine.change_emit import standing_at
from everwhen.engine.dataflow import Dataflow, EpochInputs
from everwhen.engine.ingress import Ingress, OnDropped, SourceInput
from everwhen.engine.node import OperatorNode, cut
from everwhen.engine.output_port import OutputPort
from everwhen.engine.session.joining.as_of import AsOf, DetachedSource, earliest
from everwhen.engine.session.joining.gradual import SLICE_ROWS, load
from everwhen.engine.session.joining.memory import endless, needs_past, told
from everwhen.engine.session.joining.pace import Pace
from everwhen.engine.session.output_port import EmittedBatch, OutputKey, SharedOutput
from everwhen.engine.source_levels import Bounds
from everwhen.errors import QueryError
from everwhen.operators.contract import Output
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.plan.lower import Lowering
from everwhen.plan.physical import PlacedOperator, Port, ports_below
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

Levels = Mapping[str, tuple[str, Bounds]]
"""By the names that sources have in a plan, what they are and at which level."""


class Network:
    """Sources, operators and outlets by name, number and node."""

    def __init__(self, clock: Callable[[], float], idle: float | None = None, dropped: OnDropped | None = None) -> None:
        self.pool, self.pace = Interner(), Pace(lambda: 0)
        self.ingress = Ingress(clock, idle, dropped, shared=True)
        self.flow: Dataflow[OutputKey, SharedOutput] = Dataflow(shared=True)
        self.left: dict[str, DetachedSource] = {}
        self.clock, self.slice_rows = clock, SLICE_ROWS
        self._lowerings: dict[Emit, Lowering] = {}
        self._numbers = count()

    @property
    def outlets(self) -> dict[OutputKey, SharedOutput]:
        return self.flow.outputs

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

    def attach(self, exit: OutputKey, levels: Levels, over: Emit | None = None) -> tuple[int, EmittedBatch]:
        """Let a plan run that ends in an outlet: the instant from which on its answer is right, and what must be heard
        before that which the outlet says from now on.

        `levels` tells of each source of the plan what it is and what stands before it.  `over`: the policy of the
        operators; by default of those that run, if they say more.  If the plan is refused, nothing has changed.
        """
        if exit in self.outlets:
            outlet = self.outlets[exit]
            past = self._said(outlet)
            if past.since == INF:
                raise self._unknown(outlet.port)
            return past.since, outlet.again(past.changes, past.since)
        outlet, past = self.join(exit, levels, over)
        try:
            changes = cut(past.changes, past.since)
            said = outlet.step(changes, self.tau(outlet.port), self.frontier(outlet.port))
        except BaseException:
            self.drop(exit)
            raise
        return past.since, said

    def join(self, exit: OutputKey, levels: Levels, over: Emit | None = None) -> tuple[SharedOutput, AsOf]:
        """Let a plan run: its outlet, which has said nothing yet, and what is known at its port."""
        operators, sources = set(self.flow.nodes), set(self.ingress.inputs)
        try:
            outlet = self.outlet(exit, over or self._shared(exit))
            for name in [each for each in levels if each not in sources]:
                self._open(name, *levels[name])
            pasts: dict[Port, AsOf] = {}
            for number, placed in self.operators.items():
                if number not in operators:
                    self._start(number, placed, pasts)
            past = self.past_of(outlet.port, pasts)
            if past.since == INF:
                raise self._unknown(outlet.port)
            outlet.since = past.since
            self.outlets[exit] = outlet
        except BaseException:
            self.outlets.pop(exit, None)
            self._keep(operators, sources)
            raise
        return outlet, past

    def drop(self, exit: OutputKey) -> None:
        """Let a plan that has just joined leave again."""
        self.keep(self.outlets.keys() - {exit})

    def outlet(self, exit: OutputKey, over: Emit | None) -> SharedOutput:
        """An outlet for a plan, with all its operators placed."""
        node, emit = exit
        if over in (None, emit):
            sink = self.lowering(emit).sink("", node)
            return SharedOutput(sink.port, sink.encoder, sink.filter, began=self.clock())
        sink = self.lowering(over).sink("", node)
        codec = sink.encoder.codec
        encoder, filter = ChangelogEncoder(codec, ordered=True), EmitFilter(codec, emit)
        return SharedOutput(sink.port, encoder, filter, began=self.clock(), over=over)

    def _shared(self, exit: OutputKey) -> Emit | None:
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
        entry = self.opened(name, source, bounds)
        intake = entry.intake
        beside = [each for each in self.ingress.inputs.values() if each.source == source]
        if beside:  # the one that remembers most tells what stands
            other = min(beside, key=lambda each: (each.intake.finalize is not None, max(each.exact, each.intake.cti)))
            intake.begin(other.intake)
            entry.exact, entry.max_end = other.exact, other.largest_end
            self.ingress.add(name, entry)
            return
        before = self.left.get(source, DetachedSource())
        if before.max_end == INF:
            raise QueryError(
                f"the source {source!r} had been read and left, and some of its events have no end: what stands is not "
                f"known any more; call forget({source!r}) to let it begin anew"
            )
        guard = intake.guard
        guard.resume(before.cti, before.tau, before.promises)
        if intake.finalize is not None:
            intake.finalize.begin(guard.cti, guard.tau, None)
        entry.exact = entry.max_end = before.max_end
        self.ingress.add(name, entry)

    def opened(self, name: str, source: str, bounds: Bounds) -> SourceInput:
        """A new input of a source; a finite one is kept, so that whoever joins later knows all of it."""
        declared = self.sources[name]
        return self.ingress.open(declared, self.codec_of(name), bounds, source=source, keep_all=declared.is_finite)

    def _start(self, number: int, placed: PlacedOperator, pasts: dict[Port, AsOf]) -> None:
        """Let a new operator take what stands at its inputs."""
        given = [self.past_of(port, pasts) for port in placed.inputs]
        for port, past in zip(placed.inputs, given, strict=True):
            if past.since == INF:
                raise self._unknown(port)
        since = max((past.since for past in given), default=NEVER)
        exact = self.exact_after(placed, since)
        if exact == INF:
            raise needs_past(placed.name)
        running = OperatorNode.of(number, placed, self.clock())
        running.since, running.exact = since, exact
        if placed.inputs:  # constant rows come with the next epoch, as those of a source do
            ports = zip(placed.inputs, given, strict=True)
            self.flow.step_one(
                running, [(Output(past.changes, self.frontier(port)), self.tau(port)) for port, past in ports]
            )
        self.flow.add(running)
        pasts[Port(operator=number)] = AsOf(exact, running.output.changes)

    def exact_after(self, placed: PlacedOperator, since: int) -> int:
        return since if since in (NEVER, INF) else placed.operator.exact_from(since)

    def past_of(self, port: Port, pasts: dict[Port, AsOf]) -> AsOf:
        """What is known of a port, from the earliest instant for which it can be told."""
        if port not in pasts:
            past = self._source_past(port.source) if port.source else self._recalled(port, pasts)
            if port.form == "segments" and past.since > self.frontier(port).time:
                past = earliest(self.running(port).exact, past, *told(self.flow, port, past.changes.codec))
            pasts[port] = past
        return pasts[port]

    def _source_past(self, name: str) -> AsOf:
        entry = self.ingress.inputs[name]
        nothing = AsOf(entry.max_end, no_changes(entry.intake.codec))
        events = entry.intake.standing()
        return earliest(entry.exact, nothing, None if events is None else AsOf(entry.intake.known_from, events))

    def _recalled(self, port: Port, pasts: dict[Port, AsOf]) -> AsOf:
        running = self.flow.nodes[port.operator]
        placed = running.placed
        found = placed.operator.standing(running.frontiers)
        ways = [AsOf(running.max_end, no_changes(running.codec)), None if found is None else AsOf(*found)]
        ended = running.output.frontier.time == INF
        if placed.operator.stateless or ended:
            given = [self.past_of(each, pasts) for each in placed.inputs]
            since = max([running.since, *(past.since for past in given)])
            exact = self.exact_after(placed, since)
            changes = [cut(past.changes, since) for past in given]
            if placed.operator.stateless and exact < INF:
                ways.append(AsOf(exact, placed.operator.step(changes, running.frontiers, running.tau).changes))
            elif ended and not any(map(len, changes)):  # all is settled, and of nothing comes nothing
                ways.append(AsOf(exact, no_changes(running.codec)))
        for outlet in self.outlets.values():
            if outlet.port == port and isinstance(outlet.encoder, ChangelogEncoder) and outlet.filter is None:
                since, said = outlet.encoder.standing()
                ways.append(AsOf(max(outlet.since, since), said))
        return earliest(running.exact, *ways)

    def _unknown(self, port: Port) -> QueryError:
        if self.frontier(port).time == INF:
            return endless(f"{self.port_name(port)} has ended, and some of what it said has no end")
        return endless(f"some of what {self.port_name(port)} said has no end, and is not kept")

    def said(self, outlet: OutputPort) -> tuple[int, Changes]:
        """The events that an outlet has said and that may still change, by the names that it uses for them; and from
        when on these are all that stand."""
        known, encoder = self._said(outlet), outlet.encoder
        if encoder.cti == INF:
            return known.since, known.changes
        if isinstance(encoder, ChangelogEncoder):
            return known.since, encoder.standing()[1]
        if (found := standing_at(outlet.port, self.flow.nodes, self.standing)) is None:
            return known.since, known.changes
        found = cut(found, outlet.since)
        return known.since, found if isinstance(encoder, EventChangelogEncoder) else encoder.said(found)

    def standing(self, port: Port) -> Changes:
        """The events of a source that may still be corrected."""
        intake = self.ingress.inputs[port.source or ""].intake
        return self.flow.floors.known(port, intake.standing()) or no_changes(intake.codec)

    def _said(self, outlet: OutputPort) -> AsOf:
        """The events that an outlet has said, by the names that it uses for them."""
        encoder, port = outlet.encoder, outlet.port
        since = max(outlet.since, self.running(port).exact)
        nothing = AsOf(self.running(port).max_end, no_changes(encoder.codec))
        if encoder.cti == INF or isinstance(encoder, EventChangelogEncoder):
            return earliest(since, nothing, self.past_of(port, {}))
        if isinstance(encoder, ChangelogEncoder):
            return earliest(since, nothing, AsOf(*encoder.standing()))
        pieces = self.past_of(port, {})
        return earliest(since, nothing, AsOf(pieces.since, encoder.said(pieces.changes)))

    # -- running ------------------------------------------------------------------------------------------------

    def step(self) -> tuple[dict[OutputKey, EmittedBatch], dict[OutputKey, Exception]]:
        """One epoch, with what the intakes have checked: what each outlet says, or the error that broke it."""
        self.pace.begin()
        ingress = self.ingress
        arrived = ingress.advance(self._read_together())
        ports = {port for node in self.flow.nodes.values() for port in node.placed.inputs}
        ports |= {port for outlet in self.outlets.values() for port in outlet.ports}
        outputs = self.flow.cut({port: ingress.output(port, arrived) for port in ports if port.source})
        inputs = EpochInputs(outputs, {name: each.intake.tau for name, each in ingress.inputs.items()})
        broken = self.flow.step(inputs)
        given = partial(self.flow.given, inputs=inputs)
        said: dict[OutputKey, EmittedBatch] = {}
        failed: dict[OutputKey, Exception] = {}
        for exit, outlet in self.outlets.items():
            culprit = next((broken[port.operator] for port in outlet.ports if port.operator in broken), None)
            if culprit is not None:
                failed[exit] = culprit
                continue
            try:
                said[exit] = outlet.take(*map(given, outlet.ports))
            except Exception as error:
                failed[exit] = error
        failed |= load(self.outlets, given)
        if self.flow.merges:  # of copies that lag nothing is needed that has been promised by now
            self.fast_forward()
        return {exit: each for exit, each in said.items() if exit not in failed}, failed

    def fast_forward(self) -> None:
        """Skip what no query needs: each has said from when on it cares, and merges of copies need less and less.

        Who joins later knows of nothing before.
        """
        wanted = [(port, outlet.wanted) for outlet in self.outlets.values() for port in outlet.ports]
        floors = self.flow.fast_forward(wanted, self.codec_of)
        self.ingress.raise_floors(floors)
        for number, node in self.flow.nodes.items() if floors else ():
            if node.placed.operator.merges:  # whatever its inputs skip, it has the answer
                node.exact = max(node.exact, self.flow.skipped(number))
            else:
                since = max([node.since, *(self.running(port).exact for port in node.placed.inputs)])
                node.exact = max(node.exact, self.exact_after(node.placed, since))

    def end(self, sources: Collection[str]) -> None:
        """These sources have ended."""
        self.ingress.end(sources)
        self.flow.end({name for name, each in self.ingress.inputs.items() if each.source in self.ingress.ended})

    def _read_together(self) -> list[set[str]]:
        """The sources that each query reads, where idle ones are to hold nobody back."""
        inputs = self.ingress.inputs
        if not self.ingress.may_rest:
            return []
        below = (self.below(outlet.port) for outlet in self.outlets.values())
        return [{inputs[port.source].source for port in ports if port.source} for ports in below]

    def tau(self, port: Port) -> int:
        return self.ingress.inputs[port.source].intake.tau if port.source else self.flow.nodes[port.operator].tau

    def frontier(self, port: Port) -> Frontier:
        if port.source:
            return Frontier(max(self.ingress.frontier(port.source).time, self.flow.floors.time(port)))
        return self.flow.nodes[port.operator].output.frontier

    def running(self, port: Port) -> SourceInput | OperatorNode:
        return self.ingress.inputs[port.source] if port.source else self.flow.nodes[port.operator]

    # -- leaving ------------------------------------------------------------------------------------------------

    def keep(self, exits: Collection[OutputKey]) -> None:
        """Drop all outlets but these, with all that only the others needed."""
        self.flow.outputs = {exit: outlet for exit, outlet in self.outlets.items() if exit in exits}
        used = {port for outlet in self.outlets.values() for each in outlet.ports for port in self.below(each)}
        self._keep({port.operator for port in used}, {port.source for port in used if port.source})
        self.fast_forward()  # who has left may have been the one who needed more

    def _keep(self, operators: Collection[int], sources: Collection[str]) -> None:
        inputs = self.ingress.inputs
        for name in inputs.keys() - set(sources):
            entry = inputs.pop(name)
            guard = entry.intake.guard
            if not any(each.source == entry.source for each in inputs.values()):
                end = max(entry.largest_end, guard.floor)
                self.left[entry.source] = DetachedSource(guard.cti, guard.tau, end, guard.promised)
        self.flow.floors.keep(inputs)
        self.flow.detach(self.flow.nodes.keys() - set(operators))
        for lowering in self._lowerings.values():
            lowering.keep(operators, sources)

    # -- looking ------------------------------------------------------------------------------------------------

    def below(self, port: Port) -> Iterator[Port]:
        """The port and all that it needs, each once; users before inputs."""
        return self.flow.below(port)

    def below_placed(self, port: Port) -> Iterator[Port]:
        """The same, where operators are placed and do not run yet."""
        operators = self.operators
        return ports_below(port, lambda number: operators[number])

    def nothing(self, port: Port) -> Changes:
        """No changes, as a port would say them."""
        return no_changes(
            self.operators[port.operator].operator.codec if port.source is None else self.codec_of(port.source)
        )

    def codec_of(self, name: str) -> RowCodec:
        return next(each.codecs[name] for each in self._lowerings.values() if name in each.codecs)

    def port_name(self, port: Port) -> str:
        return self.flow.port_name(port)
