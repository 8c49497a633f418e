"""The dataflow: operators at work, stepped in an order in which inputs come first.  Every runtime has one.

One `step` is one epoch.  Every operator is stepped at most once, after its inputs, so a diamond (S - S, a self-join)
sees both its sides of a change at once and emits nothing that it would have to retract.  Plans are attached and
detached while it runs: a fixed plan once (`attach`), a session's plans whenever they join (`session/network.py`).

    LocalRuntime = Ingress + Dataflow with a fixed plan         Session = Ingress + Dataflow with plans that come and go
    Spark partition = Dataflow with a fixed plan, fed by the exchange.  "The present": the largest τ of its inputs

**Shared.**  Where plans come and go, an operator that fails breaks what needs it only, and largest ends are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Generic, TypeVar

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.engine.change_emit import Standing, below_others, flush_suppressed, standing_at
from everwhen.engine.forward.floors import CodecOf, Floors
from everwhen.engine.forward.needs import Leads, Wanted, leading, needed_from
from everwhen.engine.interruption import require_sound
from everwhen.engine.node import OperatorNode, Step, StepCheck, cut, restore_nodes, snapshot_nodes
from everwhen.engine.output_port import OutputPort
from everwhen.errors import StateError
from everwhen.operators.contract import Output, StateSize, advance
from everwhen.plan.physical import PhysicalPlan, Port, ports_below
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element_batch import ElementBatch, empty_elements

Key = TypeVar("Key", bound=Hashable)
Flow = TypeVar("Flow", bound=OutputPort)
Known = Callable[[OutputPort], int]


@dataclass(frozen=True, slots=True)
class EpochInputs:
    """What the sources bring in an epoch, by port, and the largest start seen, of one source or of all.  `starts`: of
    each source, where `tau` is of all."""

    outputs: Mapping[Port, Output]
    tau: int | Mapping[str, int]
    starts: Mapping[str, int] = field(default_factory=dict)

    def start(self, sources: Iterable[str]) -> int:
        """The largest start of some sources."""
        known = self.starts if isinstance(self.tau, int) else self.tau
        return max((known.get(source, NEVER) for source in sources), default=NEVER)


class Dataflow(Generic[Key, Flow]):
    """Operators by number and output ports by key."""

    def __init__(self, check: StepCheck | None = None, shared: bool = False) -> None:
        self.nodes: dict[int, OperatorNode] = {}  # inputs before their users
        self.outputs: dict[Key, Flow] = {}
        self.floors = Floors()
        self._merged: dict[int, int] = {}  # merges that were told to fast-forward, and until when
        self._check = check
        self._shared = shared
        self._cleared_up = False  # an operator has cleared up much in this epoch

    # -- attaching ----------------------------------------------------------------------------------------------

    def add(self, node: OperatorNode) -> None:
        """Let an operator run; its inputs are there."""
        if self._check is not None:
            self._check.begin(node.number, node.placed.operator)
        self.nodes[node.number] = node

    def detach(self, numbers: Collection[int]) -> None:
        """Drop operators with their state."""
        self._merged = {number: t for number, t in self._merged.items() if number not in numbers}
        self.nodes = {number: node for number, node in self.nodes.items() if number not in numbers}

    def renumber(self, nodes: dict[int, OperatorNode], before: Mapping[int, int]) -> None:
        """Have these operators instead; `before` tells which numbers those had that have been there."""
        self._merged = {now: self._merged[was] for now, was in before.items() if was in self._merged}
        self.nodes = nodes

    # -- running ------------------------------------------------------------------------------------------------

    def step(self, inputs: EpochInputs) -> dict[int, Exception]:
        """Step every operator; those that failed, with their errors, if errors are isolated."""
        broken: dict[int, Exception] = {}
        self._cleared_up = False
        forced = self.floors.forced() if self.floors.ports else ()
        for number, node in self.nodes.items():
            ports = node.placed.inputs
            culprit = next((broken[p.operator] for p in ports if p.operator in broken), None) if broken else None
            try:
                if node.loading:
                    continue
                if culprit is None:
                    if node.placed.operator.merges:
                        starts = [inputs.start(found) for found in self.sources_below(node)]
                        node.woken = node.placed.operator.reach(starts) or node.woken
                    given = [self.given(port, inputs) for port in ports]
                    merges = forced and node.placed.operator.merges
                    self.step_one(node, self._unforced(node, given, forced) if merges else given)
                else:
                    broken[number] = culprit
            except Exception as error:  # whatever it is, also in a function of the user's: the others must go on
                require_sound(error)
                if not self._shared:
                    raise
                broken[number] = error
        return broken

    def step_one(self, node: OperatorNode, inputs: Iterable[tuple[Output, int]]) -> None:
        """One operator's epoch: what each port brings, and its τ.  One that gets nothing new, neither changes nor
        progress, is left alone."""
        changes: list[Changes] = []
        frontiers: list[Frontier] = []
        rows, tau, promised = 0, node.tau, False
        for given, reached in inputs:
            changes.append(given.changes if node.since == NEVER else cut(given.changes, node.since))
            frontiers.append(given.frontier)
            promised = promised or bool(given.frontier.promises)
            rows += len(changes[-1].lo)
            tau = max(tau, reached)
        if not rows and tau == node.tau and frontiers == node.frontiers and not node.woken:
            node.rest()
            return
        operator, began = node.placed.operator, perf_counter()
        operator.puts_off = self._cleared_up
        output = advance(operator, changes, frontiers, tau, node.output.frontier.time)
        node.seconds += perf_counter() - began
        self._cleared_up = self._cleared_up or operator.cleared_up
        if node.gauge is not None:
            node.gauge.take(output.changes, tau)
        node.output, node.tau, node.woken = output, tau, operator.unfinished
        node.rows_in += rows
        node.rows_out += len(output.changes.lo)
        # promises about data are news in this step only
        node.frontiers = [Frontier(each.time) for each in frontiers] if promised else frontiers
        if self._shared and len(output.changes.lo):
            node.max_end = max(node.max_end, int(output.changes.hi.max()))
        if self._check is not None:
            self._check.after(Step(node.number, operator, changes, frontiers, tau, output))

    def end(self, sources: Collection[str], leaving: Collection[str] = ()) -> None:
        """Tell operators which of their ports have ended, because all sources below have; `leaving`: some of these go
        before their end."""
        for node in self.nodes.values():
            below = self.sources_below(node)
            ended = [port for port, found in enumerate(below) if found <= set(sources)]
            node.placed.operator.end([port for port in ended if not below[port] & set(leaving)])
            node.placed.operator.leave([port for port in ended if below[port] & set(leaving)])
            node.woken = node.woken or node.placed.operator.merges  # also if what it had promised was everything

    def finish(self) -> None:
        """All sources have ended, and no other will come."""
        for node in self.nodes.values():
            node.placed.operator.finish()

    def sources_below(self, node: OperatorNode) -> list[set[str]]:
        """The sources that each port of an operator needs."""
        return [{p.source for p in self.below(port) if p.source} for port in node.placed.inputs]

    def given(self, port: Port, inputs: EpochInputs) -> tuple[Output, int]:
        """What a port brings in this epoch, and its τ."""
        if port.source is None:
            node = self.nodes[port.operator]
            return node.output, node.tau
        return inputs.outputs[port], inputs.tau if isinstance(inputs.tau, int) else inputs.tau[port.source]

    # -- fast-forward -------------------------------------------------------------------------------------------

    def fast_forward(self, wanted: Wanted, codec_of: CodecOf) -> dict[str, int]:
        """Skip what nobody needs: by source, before which instant.  `wanted` has the ports of all outputs, with the
        instants from which on they are of interest (-∞: all is); merges of copies have their own.

        Where a port leads to merges only, through operators that keep nothing, it stays as it is: a merge skips what it
        does not need, and must see what its inputs have promised themselves.  A source whose events are read by such a
        merge and by others is left alone, because they would know its events by different starts.
        """
        wanted = list(wanted)
        needs, leads = needed_from(self.nodes, wanted), leading(self.nodes, [port for port, _ in wanted])
        for number, node in self.nodes.items():
            t = needs.get(Port(operator=number), INF)
            if NEVER < t < INF:
                node.placed.operator.fast_forward(t)
                if node.placed.operator.merges and t > self.skipped(number):
                    self._merged[number], node.woken = t, True  # it is decided with the next step
        found: dict[str, int] = {}
        for port, t in needs.items():
            if port.source is not None:
                both = port.form == "events" and leads[port] == Leads.TO_MERGE | Leads.ELSEWHERE
                found[port.source] = min(found.get(port.source, INF), NEVER if both else t)
        for port in needs:
            if port.source is not None and leads[port] != Leads.TO_MERGE:
                self.floors.raise_to(port, found[port.source], codec_of)
        return {source: t for source, t in found.items() if t > NEVER}

    def cut(self, outputs: Mapping[Port, Output]) -> Mapping[Port, Output]:
        """What sources bring, without what is skipped."""
        return self.floors.applied(outputs) if self.floors.ports else outputs

    def skipped(self, number: int) -> int:
        """Before which instant a merge was told that nothing is of interest."""
        return self._merged.get(number, NEVER)

    @property
    def merges(self) -> bool:
        """Whether copies are merged somewhere."""
        return any(node.placed.operator.merges for node in self.nodes.values())

    def _unforced(
        self, node: OperatorNode, given: list[tuple[Output, int]], forced: Collection[Port]
    ) -> list[tuple[Output, int]]:
        """What a merge gets of inputs that lag: nothing is promised because it was skipped.  That is never more than
        the merge has promised itself, but it would take the input for one of those that lead."""
        skipped = max(node.output.frontier.time, self.skipped(node.number))
        found = []
        for port, (output, tau), before in zip(node.placed.inputs, given, node.frontiers, strict=True):
            if output.frontier.time <= skipped and any(each in forced for each in self.below(port)):
                output = Output(output.changes, Frontier(before.time, output.frontier.promises))
            found.append((output, tau))
        return found

    # -- emission -----------------------------------------------------------------------------------------------

    def change_emit(
        self,
        numbers: Iterable[int],
        outputs: Iterable[OutputPort],
        emit: Emit,
        standing: Standing,
        nothing: Callable[[Port], Changes],
        known: Known = lambda _: NEVER,
    ) -> dict[int, Changes]:
        """Let operators and outputs, which nobody else uses, follow another policy: what operators emit because of it.

        `standing` tells what the ports of sources have brought that stands; `nothing` gives no changes of a port;
        `known` from when on that is all that an output has said.
        """
        nodes = {number: self.nodes[number] for number in sorted(numbers)}
        for output in outputs:
            output.change_emit(emit, lambda port: standing_at(port, nodes, standing), known(output))
        news = flush_suppressed(nodes.values(), emit, nothing)
        for number, changes in news.items():
            nodes[number].max_end = max(nodes[number].max_end, int(changes.hi.max()))
        return news

    # -- looking ------------------------------------------------------------------------------------------------

    def below(self, port: Port) -> Iterator[Port]:
        """The port and all that it needs, each once; users before inputs."""
        return ports_below(port, lambda number: self.nodes[number].placed)

    def port_name(self, port: Port) -> str:
        return port.source or f"{port.operator} {self.nodes[port.operator].placed.name}"

    def state_size(self) -> StateSize:
        """What operators and output ports keep."""
        parts = [node.placed.operator.state_size() for node in self.nodes.values()]
        parts += [output.state_size() for output in self.outputs.values()]
        return sum(parts, self.floors.state_size())

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self, roots: Mapping[str, Port]) -> list[dict[str, Any]]:
        """The operators' state, as plain data, by their stable names (`plan/names.py`)."""
        return snapshot_nodes(self.nodes, self._below_roots(roots))

    def restore(self, parts: Iterable[Mapping[str, Any]], roots: Mapping[str, Port]) -> bool:
        """Fill operators that have not been stepped; whether the state is that of these operators."""
        return restore_nodes(self.nodes, self._below_roots(roots), parts)

    def _below_roots(self, roots: Mapping[str, Port]) -> dict[str, list[Port]]:
        return {root: list(self.below(port)) for root, port in roots.items()}


class FixedDataflow:
    """A dataflow with one plan from its beginning: what the local runtime and a Spark partition run."""

    def __init__(self, plan: PhysicalPlan, check: StepCheck | None = None) -> None:
        self.before: dict[str, Port] = {}
        """The ports of plans that still say what is before an instant, by the names of their sinks."""
        self.plan = plan
        self.flow: Dataflow[str, OutputPort] = Dataflow(check)
        for number, placed in enumerate(plan.operators):
            self.flow.add(OperatorNode.of(number, placed))
        self.flow.outputs = {sink.name: OutputPort(sink.port, sink.encoder, sink.filter) for sink in plan.sinks}
        self.tau = NEVER
        self._wanted: dict[str, int] = {}
        self._given = EpochInputs({}, NEVER)

    @property
    def plan(self) -> PhysicalPlan:
        return self._plan

    @plan.setter
    def plan(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._roots = {f"sink {sink.name}": sink.port for sink in plan.sinks}
        self._roots |= {f"stream {handed.name}": handed.port for handed in plan.handed}
        self._roots |= {f"before {name}": port for name, port in self.before.items()}
        ports = [port for placed in plan.operators for port in placed.inputs]
        self.source_ports: tuple[Port, ...] = tuple(
            dict.fromkeys(port for port in [*ports, *self._roots.values()] if port.source is not None)
        )
        """The ports at which sources come in, each in the form that it is read in."""
        self.sources = frozenset(port.source for port in self.source_ports if port.source is not None)
        """The sources that are read: of those of the plan some may have been read by one before it only."""

    def step(
        self, inputs: Mapping[Port, Output], tau: int, starts: Mapping[str, int] | None = None
    ) -> dict[str, ElementBatch]:
        """One epoch: the elements of each sink; `handed` gives the rest.  `starts`: the largest of each source."""
        self.tau = tau
        self._given = given = EpochInputs(self.flow.cut(inputs), tau, starts or {})
        self.flow.step(given)
        outputs = self.flow.outputs.items()
        return {name: output.hear(*map(self.given, output.ports)) for name, output in outputs}

    def given(self, port: Port) -> tuple[Output, int]:
        """What a port brought in the last step, and its τ."""
        return self.flow.given(port, self._given)

    def handed(self) -> dict[str, Output]:
        """What the last step has for other stages."""
        return {each.name: self.given(each.port)[0] for each in self.plan.handed}

    def fast_forward(self, t: int | Mapping[str, int] = NEVER) -> dict[str, int]:
        """From now on the answer before `t` is of no interest, of all sinks and streams handed on, or of each by its
        name.  Returns before which instants sources may be skipped; the frontiers that follow from it come with the
        next step.  Without `t`: merges of copies may have become indifferent to more."""
        for root in self._roots:
            asked = t if isinstance(t, int) else t.get(root.split(" ", 1)[1], NEVER)
            self._wanted[root] = max(self._wanted.get(root, NEVER), asked)
        wanted = [(port, self._wanted[root]) for root, port in self._roots.items()]
        return self.flow.fast_forward(wanted, self.plan.codecs.__getitem__)

    def change_emit(
        self, emit: Emit, standing: Standing, known: Known = lambda _: NEVER
    ) -> tuple[dict[str, ElementBatch], dict[str, Changes]]:
        """Follow another policy from now on: what sinks emit at once because of it, and what is handed on.
        `standing` and `known` as of `Dataflow.change_emit`."""
        outputs = self.flow.outputs.values()
        news = self.flow.change_emit(self.flow.nodes, outputs, emit, standing, self._nothing, known)
        results = {}
        for name, output in self.flow.outputs.items():
            changes = news.get(output.port.operator) or self._nothing(output.port)
            results[name] = output.encode(cut(changes, output.since), self.tau, Frontier(output.encoder.cti))
        handed = {each.name: news[each.port.operator] for each in self.plan.handed if each.port.operator in news}
        return results, handed

    def cares_from(self) -> int:
        """Before which instant operators may not know the answer, because it is of no interest to some sink."""
        return max(self._wanted.values(), default=NEVER)

    def go_on_with(self, plan: PhysicalPlan, numbers: Mapping[int, int]) -> None:
        """Run no other operators than these from now on; `numbers`: which ones they have been."""
        nodes: dict[int, OperatorNode] = {}
        for number, placed in enumerate(plan.operators):
            node = nodes[number] = self.flow.nodes[numbers[number]]
            node.number, node.placed = number, replace(placed, operator=node.placed.operator)
        self.flow.renumber(nodes, numbers)
        for sink in plan.sinks:
            self.flow.outputs[sink.name].port = sink.port
        self.before = {}
        self.plan = replace(plan, operators=tuple(each.placed for each in nodes.values()))
        self.flow.floors.keep(self.sources)

    def nothing_new(self) -> dict[str, ElementBatch]:
        """No elements for any sink."""
        return {name: empty_elements(output.encoder.codec.schema) for name, output in self.flow.outputs.items()}

    def _nothing(self, port: Port) -> Changes:
        codec = self.plan.operators[port.operator].operator.codec if port.source is None else None
        return no_changes(codec or self.plan.codecs[port.source or ""])

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "tau": self.tau,
            "operators": self.flow.snapshot(self._roots),
            "outputs": {name: output.snapshot() for name, output in self.flow.outputs.items()},
            "wanted": dict(self._wanted),
            "floors": self.flow.floors.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of the same plan."""
        self._wanted = dict(state.get("wanted", {}))
        self.flow.floors.restore(state.get("floors", ()), self.plan.codecs.__getitem__)
        for emit in state.get("moved", ()):  # up to Everwhen 0.5 operators did not note them
            for node in self.flow.nodes.values():
                node.emitting(below_others(Emit(emit)))
        self.tau = state["tau"]
        if not self.flow.restore(state["operators"], self._roots):
            raise StateError("the snapshot is of another plan: its operators compute something else than these")
        for name, output in self.flow.outputs.items():
            output.restore(state["outputs"][name])
