"""A runtime with a fixed plan that goes over to another one while it runs, and its state.

Old plan P, new plan P'.  P' joins: from an instant v on it is exact.  Both run on all input, and P speaks.  When P has
promised everything before an instant T, not before v, P' takes over: what P has said of instants from T on is taken
back and what P' has said there is said, in one step and netted, so that where both say the same nothing is said at all.
What only P needs is dropped, and the runtime is as if it had always had P'.  If P' means something else (`replace`),
the answer is cut at an instant that is told before: P says what is before it, and P' what is from there on.  The
argument is in `engine/session/cutover.py`; sessions do the same.  A large switch goes in slices, as theirs do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from everwhen.algebra.builder import node_of
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Consistency
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, require_time, show
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.ingress import Ingress
from everwhen.engine.merge_inputs import with_copy
from everwhen.engine.migration.joining import BothPlans, FixedNetwork, both_plans
from everwhen.engine.node import cut
from everwhen.engine.output_port import OutputPort
from everwhen.engine.session.cutover import Migration, take_over
from everwhen.engine.session.joining.as_of import AsOf
from everwhen.engine.session.joining.gradual import GradualCutover
from everwhen.engine.session.output_port import Cutover, SharedOutput
from everwhen.engine.source_levels import Query
from everwhen.errors import QueryError
from everwhen.plan.lower import lower
from everwhen.plan.physical import PhysicalPlan, Sink
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.stream.batch_state import batch_of_state, batch_state
from everwhen.stream.element_batch import ElementBatch, joined


@dataclass(frozen=True, slots=True)
class _Under:
    """A migration under way: of which output, from which query, with which plans."""

    name: str
    left: Node
    plans: BothPlans
    built: Emit
    """The policy that the plan left was built for."""
    output: SharedOutput
    at: int


class ChangingRuntime(ABC):
    """What a local runtime does with its plan; `LocalRuntime` runs it."""

    _queries: dict[str, Node]
    _asked: dict[str, Node]
    _consistency: Consistency
    _built: Consistency
    _waiting: frozenset[str]
    _ingress: Ingress
    _dataflow: FixedDataflow
    _attached: list[tuple[str, str]]
    _clock: Callable[[], float]
    _closed: bool
    _keep_relations: bool

    def __init__(self) -> None:
        self._under: _Under | None = None
        self._pending: dict[str, ElementBatch] = {}

    def migrate(self, query: Query, name: str = "out") -> Migration:
        """Go over to another plan of the same query, one that means the same, without a stop or a gap.

        Both plans run until everything before the instant `at` is promised; then the old one goes.  What they say
        differently (ends that only one of them tells) comes with the next epoch.  QueryError: the new plan has other
        columns, or needs a past that is not kept, or a migration is under way; then nothing has changed.

        >>> import everwhen as ew
        >>> s, r = (ew.source(name, {"k": "int64", f"v{name}": "int64"}) for name in "sr")
        >>> a, b = s.range(10), r.range(10)
        >>> late = ew.LocalRuntime(a.join(b, on="k").where(ew.col("vs") > 1).select("k", "vs", "vr"))
        >>> batches = {each.node.name: ew.ElementBatch.of([ew.Insert(1, 2, {"k": 1, f"v{each.node.name}": 5}),
        ...                                                ew.Cti(4)], each.schema) for each in (s, r)}
        >>> print(*late.push(batches)["out"].elements())
        insert [1, 11) k=1 vs=5 vr=5 cti 4
        >>> early = a.where(ew.col("vs") > 1).join(b, on="k").select("k", "vs", "vr")
        >>> went = late.migrate(early)
        >>> went.at >= went.valid_from >= 4, len(late.push({})["out"])
        (True, 0)
        """
        return self._go_over(name, query, None, silently=True)

    def replace(self, query: Query, at: int | None = None, name: str = "out") -> Migration:
        """Become another query with the same columns: the answer is the old one's before an instant and the new one's
        from there on: `at`, else the earliest that is possible.

        What the two say differently comes with the next epoch.  QueryError: as with `migrate`, or the new query cannot
        take over at that instant; then nothing has changed.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> runtime = ew.LocalRuntime(s.where(ew.col("x") > 1))
        >>> batch = ew.ElementBatch.of([*(ew.Insert(0, 9, {"x": x}) for x in (1, 2)), ew.Cti(5)], s.schema)
        >>> _ = runtime.push({"S": batch})
        >>> runtime.replace(s.where(ew.col("x") < 2)).at
        5
        >>> print(*runtime.push({})["out"].elements(), sep=chr(10))
        adjust [0, 9 -> 5) x=2
        insert [5, 9) x=1
        """
        if at is not None:
            require_time(at)
        return self._go_over(name, query, at)

    @property
    def migrating(self) -> tuple[str, int] | None:
        """The output that is going over to another plan, and the instant at which it does; None: none is."""
        return None if self._under is None else (self._under.name, self._under.at)

    @property
    def owes(self) -> bool:
        """Whether a change of plan has brought something that has not been said yet: the next epoch says it."""
        return any(map(len, self._pending.values()))

    def _left(self) -> Query | None:
        return None if self._under is None else self._under.left

    def require_settled(self, what: str) -> None:
        """QueryError while a migration is under way."""
        if self._under is not None:
            raise QueryError(
                f"the query {self._under.name!r} is going over to another plan, at {show(self._under.at)}: {what} when "
                f"that is done, once its inputs have promised everything before"
            )

    # -- going over ---------------------------------------------------------------------------------------------

    def _go_over(self, name: str, query: Query, at: int | None, silently: bool = False) -> Migration:
        if self._closed:
            raise QueryError("the runtime is closed: it has no plan any more")
        if name not in self._queries:
            raise QueryError(f"there is no query {name!r} here; there is {', '.join(sorted(self._queries))}")
        self.require_settled("it can go over to a third one")
        asked = legal_loops(node_of(query))
        if asked.schema != self._queries[name].schema:
            raise QueryError(
                f"the query {name!r} has the columns {self._queries[name].schema}; one with {asked.schema} cannot "
                "take over: give it the same columns, or start it in a runtime of its own"
            )
        level = self._consistency
        others = self._queries.keys() - {name}
        if level.emit is not self._built.emit and others:
            raise QueryError(
                f"the runtime says other things than it was built for (change), and runs {', '.join(sorted(others))} "
                "beside: give each query a runtime of its own, then it can go over"
            )
        queries = {**self._queries, name: self._with_copies(asked)}
        old = self._dataflow.plan
        plans = both_plans(old, lower(queries, level.emit, old.pool))
        if unknown := sorted(plans.plan.sources.keys() - old.sources.keys()):
            raise QueryError(
                f"the new plan reads {', '.join(unknown)}, which is no input of this runtime; it has "
                f"{', '.join(sorted(old.sources))}. Start the new query in a runtime of its own, or in a session"
            )
        self._require_alike(plans, name)
        (sink,) = (each for each in plans.plan.sinks if each.name == name)
        output = self._output(sink)
        network = self._network
        loading = network.loaded(plans, output)
        nothing = None if loading is None else AsOf(output.since, network.nothing(sink.port))
        past = nothing or network.joined(plans, sink.port)
        was = self._dataflow.flow.outputs[name]
        try:
            began = take_over(network, was, output, past, level.emit, at, silently=silently, loading=loading)
        except BaseException:
            self._dataflow.flow.detach(plans.joining)
            raise
        self._owe(name, began.said.batch)
        self._under = _Under(name, self._asked[name], plans, self._built.emit, output, began.at)
        self._queries, self._asked = queries, {**self._asked, name: asked}
        self._built = replace(self._built, emit=level.emit)
        self._go_beside(self._under)
        if loading is None and was.encoder.cti >= began.at:  # everything before is promised, so all of it is out
            output.cutover, output.since = None, max(output.since, began.at)
            self._settle()
        return Migration(began.at, began.valid_from, self._under is None)

    @property
    def _network(self) -> FixedNetwork:
        return FixedNetwork(self._dataflow, self._ingress, self._clock)

    def _known(self, output: OutputPort) -> int:
        """From when on all that an output has said is known."""
        return self._network.said(output)[0]

    def _output(self, sink: Sink) -> SharedOutput:
        return SharedOutput(sink.port, sink.encoder, sink.filter, began=self._clock())

    def _require_alike(self, plans: BothPlans, name: str) -> None:
        """QueryError unless other queries run on as they do, and sources wait and are forgotten as before."""
        ports = {sink.name: sink.port for sink in self._dataflow.plan.sinks}
        for sink in plans.plan.sinks:
            if sink.name != name and sink.port != ports[sink.name]:
                raise QueryError(
                    f"the query {sink.name!r} would need other operators, because it shares some with {name!r}: give "
                    "each of them a runtime of its own, then it can go over"
                )
        bounds, waiting = self._consistency, plans.new.waiting_sources()
        if (bounds.finalizes or bounds.aligns or self._ingress.may_rest) and waiting != self._waiting:
            changed = ", ".join(sorted(waiting ^ self._waiting))
            raise QueryError(
                f"the new plan keeps {changed} waiting, or does not, other than the old one: at a level that waits or "
                "forgets it cannot take over; start it in a runtime of its own"
            )

    def _go_beside(self, under: _Under) -> None:
        """Run both plans."""
        dataflow, output = self._dataflow, under.output
        assert output.cutover is not None
        dataflow.before = {under.name: output.cutover.port}
        dataflow.flow.outputs[under.name] = output
        dataflow.plan = under.plans.plan
        self._follow()

    @property
    def _gradual(self) -> GradualCutover | None:
        """A switch that goes in slices."""
        found = None if self._under is None else self._under.output.cutover
        return found if isinstance(found, GradualCutover) else None

    @property
    def is_switching(self) -> bool:
        return self._gradual is not None

    def _begin_slices(self) -> None:
        """An epoch begins."""
        if (gradual := self._gradual) is not None:
            gradual.loading.pace.begin()

    def _do_slices(self) -> None:
        """Let a plan that is being loaded take what came in an epoch, and some of the past."""
        if (gradual := self._gradual) is not None and gradual.is_loading:
            gradual.epoch({port: self._dataflow.given(port) for port in gradual.loading.ports})

    def _finish_slices(self) -> None:
        """Let all that goes over in slices go over now: what comes next has to find plans that are whole."""
        under = self._under
        if under is None or (gradual := self._gradual) is None:
            return
        changes, output = gradual.finish(), under.output
        said = output.encode(cut(changes, output.since), self._dataflow.tau, Frontier(output.encoder.cti))
        self._owe(under.name, said)
        self._settle()

    def _settle(self) -> None:
        """If everything before the instant is promised, the old plan goes."""
        under = self._under
        if under is not None and under.output.cutover is None:
            self._dataflow.go_on_with(under.plans.new, under.plans.numbers)
            self._follow()
            self._under = None

    def _owe(self, name: str, said: ElementBatch) -> None:
        """The next epoch says it, behind what waits for that already."""
        waiting = self._pending.get(name)
        self._pending[name] = said if waiting is None else joined(waiting, said)

    def _with_pending(self, results: dict[str, ElementBatch]) -> dict[str, ElementBatch]:
        """An epoch's elements, behind those that waited for it."""
        if self._pending:
            results |= {name: joined(batch, results[name]) for name, batch in self._pending.items()}
            self._pending = {}
        if self._under is not None:
            self._settle()
        return results

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere but the queries themselves, as plain data."""
        self._finish_slices()
        under = self._under
        read = self._dataflow.sources
        return {
            "consistency": self._consistency.to_plain(),
            "built": self._built.emit.value,
            "attached": list(self._attached),
            "ended": sorted(self._ingress.ended & read),
            "ingress": {name: each for name, each in self._ingress.snapshot().items() if name in read},
            "dataflow": self._dataflow.snapshot(),
            "ends": True,
            "keeps_relations": self._keep_relations,
            "migrating": None if under is None else (under.name, under.at),
            "left_built": None if under is None else under.built.value,
            "pending": {name: batch_state(batch) for name, batch in self._pending.items()},
        }

    def restore(self, state: Mapping[str, Any], replaced: Query | None = None) -> None:
        """Go on from a snapshot of a runtime with the same queries, at the level that it had then.

        `replaced`: of a runtime that was going over to another plan, the query that it left.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> short, long = (s.range(size).aggregate(n=ew.count()) for size in (5, 9))
        >>> runtime = ew.LocalRuntime(short)
        >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(0, 1, {"x": 1}), ew.Cti(0)], s.schema)})
        >>> runtime.replace(long).done
        False
        >>> again = ew.LocalRuntime(long)
        >>> again.restore(runtime.snapshot(), replaced=short)
        >>> again.migrating
        ('out', 8)
        """
        migrating = state.get("migrating")
        if (migrating is None) != (replaced is None):
            raise QueryError(
                "the runtime was not going over to another plan: nothing was replaced"
                if migrating is None
                else f"the runtime was going over to another plan, at {show(migrating[1])}: give the query that it "
                "left, restore(state, replaced=query)"
            )
        if self._keep_relations and not state.get("keeps_relations", False):
            raise QueryError(
                "the runtime that was saved did not keep the rows of relations, so this one cannot know them: leave "
                "keep_relations out"
            )
        self._repeat_plan(state, None if replaced is None else legal_loops(node_of(replaced)))
        self._restore_inputs(state)
        self._ingress.restore(state["ingress"])
        if not state.get("ends", False):  # up to Everwhen 0.5 nobody noted them
            for entry in self._ingress.inputs.values():
                entry.max_end = INF
        self._dataflow.restore(state["dataflow"])
        self._pending = {name: batch_of_state(each) for name, each in state.get("pending", {}).items()}

    @abstractmethod
    def _begin(self, plan: PhysicalPlan) -> None:
        """Run a plan from its beginning, over new inputs."""

    @abstractmethod
    def _follow(self) -> None:
        """Let the inputs be what the plan that runs takes them for."""

    @abstractmethod
    def _restore_inputs(self, state: Mapping[str, Any]) -> None:
        """The level and the inputs as they were."""

    def _repeat_plan(self, state: Mapping[str, Any], left: Node | None) -> None:
        """Run what ran when a snapshot was taken: built as it was, with its copies, beside the query that it left."""
        built = Emit(state.get("built", self._built.emit.value))
        if left is None and built is self._built.emit and not state["attached"]:
            return  # it runs
        self._built = replace(self._built, emit=built)
        self._attached = [(name, like) for name, like in state["attached"]]
        self._queries = {name: self._with_copies(query) for name, query in self._queries.items()}
        now = lower(self._queries, built)
        if left is None:
            self._begin(now)
            return
        (name, at), left_built = state["migrating"], Emit(state.get("left_built", built.value))
        old = lower({**self._queries, name: self._with_copies(left)}, left_built, now.pool)
        plans = both_plans(old, now)
        (sink,) = (each for each in plans.plan.sinks if each.name == name)
        (before,) = (each.port for each in old.sinks if each.name == name)
        output = self._output(sink)
        output.by_rows(built)
        output.cutover = Cutover(before, (), at)
        self._begin(plans.plan)
        self._under = _Under(name, left, plans, left_built, output, at)
        self._go_beside(self._under)

    def _with_copies(self, query: Node) -> Node:
        """A query whose merges have the inputs that have joined them."""
        for copy, like in self._attached:
            query = with_copy(query, copy, like)
        return query
