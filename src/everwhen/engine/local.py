"""The local runtime: a push graph in this process.

One `push` is one epoch: at most one batch per input, a consistent cut, through the intakes of the sources and the graph
of operators (`dataflow.py`).  Any cutting of the inputs into epochs gives the same histories.  The level of consistency
says what the intakes hold back and what they give up (`core/consistency.py`); it may change while the runtime runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from everwhen.algebra.builder import node_of
from everwhen.core.consistency import MIDDLE, Consistency, Duration, emit_named
from everwhen.core.emit import Emit
from everwhen.core.late_count import LateCount
from everwhen.core.time import NEVER
from everwhen.engine.change_emit import recalled
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.epochs import Epoch
from everwhen.engine.forward.needs import an_instant
from everwhen.engine.ingress import Ingress, OnDropped, SourceInput
from everwhen.engine.interruption import Steps
from everwhen.engine.latest_dropped import LatestDropped
from everwhen.engine.merge_inputs import grow, merge_port, restart, right_from, unknown_spans, with_copy
from everwhen.engine.migration.runtime import ChangingRuntime
from everwhen.engine.node import StepCheck
from everwhen.engine.observe.local_view import LocalView
from everwhen.engine.output_port import standing_elements
from everwhen.engine.source_levels import Bounds, Query, bounds_of
from everwhen.errors import QueryError
from everwhen.operators.ingress.finalize import Reason
from everwhen.plan.lower import lower
from everwhen.plan.physical import PhysicalPlan, Port
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch

__all__ = ["LocalRuntime", "Query"]


class LocalRuntime(ChangingRuntime, LocalView):
    """Queries over shared inputs, run step by step; call `push` any number of times, then `close` once.

    `emit`: the emission policy, if not that of `consistency`.  `dropped` is called with the input's name and the
    elements that were dropped.  After `idle` seconds without an element an input no longer holds the others back; what
    it sends later, behind their frontier, is dropped.  `check` sees every step (`everwhen.testing.step_invariants`).
    `keep_relations`: rows of constant and temporal relations are kept, so that a plan that joins later (`migrate`) has
    them.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> runtime = LocalRuntime(s.where(ew.col("x") > 1))
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": x}) for x in (1, 2)], s.schema)
    >>> print(*runtime.push({"S": batch})["out"].elements(), *runtime.close()["out"].elements())
    insert [0, 5) x=2 cti ∞
    """

    def __init__(
        self,
        queries: Query | Mapping[str, Query],
        emit: str | Emit | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        consistency: Consistency = MIDDLE,
        dropped: OnDropped | None = None,
        idle: float | None = None,
        check: StepCheck | None = None,
        keep_relations: bool = False,
    ) -> None:
        super().__init__()
        named = queries if isinstance(queries, Mapping) else {"out": queries}
        if not named:
            raise QueryError("there is no query to run")
        if emit is not None:
            consistency = consistency.emitting(emit if isinstance(emit, Emit) else emit_named(emit))
        self._queries = {name: legal_loops(node_of(q)) for name, q in named.items()}
        self._asked = self._queries
        self._consistency, self._built = consistency, consistency
        self._idle, self._keep_relations = idle is not None, keep_relations
        self._latest = LatestDropped(dropped)
        self._ingress = Ingress(clock, idle, self._latest.note, shared=True)
        self._check = check
        self._attached: list[tuple[str, str]] = []
        self._begin(lower(self._queries, consistency.emit))
        self._clock, self._since = clock, clock()
        self._observer = self._observed(clock)
        self._closed = False

    def _begin(self, plan: PhysicalPlan) -> None:
        """Run a plan from its beginning, over new inputs."""
        self._dataflow = FixedDataflow(plan, self._check)
        self._follow()
        self._logs = plan.shared_logs()
        self._ingress.inputs.clear()
        for name in plan.sources:
            self._ingress.add(name, self._opened(name))

    def _follow(self) -> None:
        """Let the inputs be what the plan that runs takes them for."""
        plan, read = self.plan, self._dataflow.sources
        self._waiting = plan.waiting_sources()
        self._paced = {name for name in read if not plan.sources[name].is_finite} - plan.merged_sources()

    def _bounds(self, name: str) -> Bounds:
        return bounds_of(name, self._consistency, self._waiting, idle=self._idle)

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by input name; returns the elements of each output.

        Without a batch it lets time pass: what has waited long enough by the clock goes on.  If a batch is wrong
        (`InputError`), none of the epoch's batches has been taken.
        """
        self._require_open("no more input is possible")
        self._ingress.check(batches)
        return self._epoch()

    def close(self) -> dict[str, ElementBatch]:
        """The end of all inputs: CTI(∞) on each."""
        if self._closed:
            return self._dataflow.nothing_new()
        self._end(self.inputs)
        self._dataflow.flow.finish()
        self._closed = True
        return self._epoch()

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one input."""
        self._end([name])
        return self._epoch()

    def _end(self, names: Collection[str]) -> None:
        self._finish_slices()
        self._ingress.end(names)
        self._dataflow.flow.end(self._ingress.ended)

    # -- inputs of a merge -------------------------------------------------------------------------------------

    def detach(self, name: str) -> dict[str, ElementBatch]:
        """An input of a merge goes away, before its end: from now on the merge follows the others only.

        >>> import everwhen as ew
        >>> a, b = (ew.source(name, {"x": "int64"}) for name in "ab")
        >>> runtime = LocalRuntime(ew.lmerge(a, b))
        >>> _ = runtime.detach("b")
        >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], a.schema)
        >>> print(*runtime.push({"a": batch})["out"].elements())
        insert [0, 5) x=1 cti 3
        >>> _ = runtime.attach("b", since=3)
        >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(9)], a.schema)
        >>> print(*runtime.push({"b": batch})["out"].elements())
        cti 9
        """
        self._require_open("its inputs cannot go any more")
        self.require_settled("inputs of a merge can go")
        merge_port(self.plan, name)
        if name in self._ingress.ended:
            raise QueryError(f"{name!r} has gone already")
        self._ingress.end([name])
        self._dataflow.flow.end(self._ingress.ended, leaving=[name])
        return self._epoch()

    def attach(self, name: str, since: int | None = None, like: str | None = None) -> dict[str, ElementBatch]:
        """An input of a merge begins anew, after it has gone; or a new one joins, a copy as `like` is one.

        `since`: from when on it is right; by default from the start.  It counts once the merge has come that far.
        """
        self._require_open("no input can join any more")
        self.require_settled("inputs of a merge can join")
        start = NEVER if since is None else since
        if like is None:
            merge_port(self.plan, name)
            if name not in self._ingress.ended:
                raise QueryError(f"{name!r} is there: it can begin anew once it has ended, or after detach({name!r})")
            fresh = lower(self._queries, self._built.emit, self.plan.pool)
            restart(self._dataflow, fresh, name, start)
            self._ingress.ended.discard(name)
        else:
            if name in self._ingress.inputs:
                raise QueryError(f"there is an input {name!r} already; without `like` it begins anew")
            merge_port(self.plan, like)
            self._grow(name, like, start)
        self._open(name)
        return self._epoch()

    def _open(self, name: str) -> None:
        if (log := self._logs.get(name)) is not None:
            log.begin_anew()
        self._ingress.add(name, self._opened(name))

    def _opened(self, name: str) -> SourceInput:
        source, codec, log = self.plan.sources[name], self.plan.codecs[name], self._logs.get(name)
        keep_all = self._keep_relations and source.is_finite
        return self._ingress.open(source, codec, self._bounds(name), keep_all=keep_all, log=log)

    def _grow(self, name: str, like: str, since: int) -> None:
        queries = {each: with_copy(query, name, like) for each, query in self._queries.items()}
        grow(self._dataflow, lower(queries, self._built.emit, self.plan.pool), name, since)
        self._queries = queries
        self._attached.append((name, like))
        self._follow()

    def _require_open(self, what: str) -> None:
        if self._closed:
            raise QueryError(f"the runtime is closed: {what}")

    @property
    def present(self) -> frozenset[str]:
        """The inputs that have neither ended nor gone."""
        return frozenset(self._ingress.inputs) - self._ingress.ended

    @property
    def merged(self) -> frozenset[str]:
        """The inputs that feed merges."""
        return self.plan.merged_sources()

    def right_from(self, since: Mapping[str, int]) -> int:
        """From when on the answer is right, if inputs are right from these instants on only; infinity: never."""
        return right_from(self.plan, since)

    def answers(self, epochs: Iterable[Epoch], steps: Steps | None = None) -> Iterator[ElementBatch]:
        """What a runtime with one query says to epochs; `steps`: how each step is done, in another way than at once."""
        do: Steps = steps or (lambda rows, step: step())
        for epoch in epochs:
            for step in [self.close] if epoch.last else [partial(self.close_input, name) for name in epoch.closes]:
                yield do(None, step)["out"]
            if epoch.batches and not epoch.last:
                yield do(sum(map(len, epoch.batches.values())), partial(self.push, epoch.batches))["out"]

    def _epoch(self) -> dict[str, ElementBatch]:
        ingress = self._ingress
        if self._under is not None:
            self._begin_slices()
        if self._observer.subscriptions:
            self._observer.begin()
        arrived = ingress.advance((self._paced,))
        inputs = {port: ingress.output(port, arrived) for port in self._dataflow.source_ports}
        starts = {name: ingress.inputs[name].intake.tau for name in self._dataflow.sources}
        results = self._dataflow.step(inputs, max(starts.values(), default=NEVER), starts)
        if self._dataflow.flow.merges:  # of copies that lag nothing is needed that has been promised by now
            self._ingress.raise_floors(self._dataflow.fast_forward())
        if self._under is not None:
            self._do_slices()
        if self._under is None or self._gradual is None:
            self.plan.pool.collect()  # rows are told apart by their codes while they go over
        if self._observer.subscriptions:
            self._observer.publish()
        return self._with_pending(results) if self._pending or self._under is not None else results

    def fast_forward(self, t: int) -> dict[str, ElementBatch]:
        """From now on the answer before `t` is of no interest: what each output says because of it.

        From `t` on every answer is what it would have been.  What is over by then is skipped where it comes in, and
        forgotten; windows of rows and other operators that need all of the past still get it.  What has been said
        before stands.  It is not taken back: an earlier `t` than before changes nothing.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> runtime = LocalRuntime(s.range(10).aggregate(total=ew.sum("x")))
        >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(1, 2, {"x": 1})], s.schema)})
        >>> print(*runtime.fast_forward(100)["out"].elements())
        adjust [1, ∞ -> 11) total=1 cti 91
        """
        self._require_open("there is nothing to skip any more")
        self._finish_slices()
        self._ingress.raise_floors(self._dataflow.fast_forward(an_instant(t)))
        return self._epoch()

    # -- consistency --------------------------------------------------------------------------------------------

    @property
    def consistency(self) -> Consistency:
        return self._consistency

    def change(
        self,
        block: Duration | None = None,
        remember: Duration | None = None,
        tick: str = "1ms",
        *,
        emit: str | Emit | None = None,
    ) -> dict[str, ElementBatch]:
        """Wait and remember for another time from now on, and say other things when; returns what each output says at
        once because of it.

        What has been said and promised stands.  To remember longer does not bring back what was forgotten.  A stricter
        emission policy takes nothing back; a laxer one says what is missing.  Without `emit` the policy stays as it is:
        a query that says only what is final goes on to do so, however short it blocks.
        """
        self._require_open("its consistency cannot change any more")
        self.require_settled("its consistency can change")
        asked = self._consistency.changed(block, remember, emit, tick)
        if asked.emit is not self._consistency.emit:
            for name, said in self._dataflow.change_emit(asked.emit, self._standing, self._known)[0].items():
                self._owe(name, said)
        self._consistency = asked
        for name in sorted(self._waiting):
            self._ingress.change(name, self._bounds(name))
        return self._epoch()

    def _standing(self, port: Port) -> Changes | None:
        """What a source has said that stands; of one that is never corrected nothing need be known."""
        intake = self._ingress.inputs[port.source or ""].intake
        if intake.guard.insert_only:
            return no_changes(intake.codec)
        return self._dataflow.flow.floors.known(port, intake.standing())

    @property
    def dropped(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each input were given up, by reason; inputs that lost none are left out."""
        return self._ingress.dropped(self._ingress.inputs)

    @property
    def late(self) -> dict[str, LateCount]:
        """The rows of each input that came behind its promises, where it declares what becomes of them."""
        return self._ingress.late

    def latest_dropped(self) -> Iterator[tuple[str, Element, Reason]]:
        """The elements that were given up last, with their inputs and reasons: the last thousand and some."""
        return self._latest.elements()

    # -- looking ------------------------------------------------------------------------------------------------

    def unknown_spans(self) -> dict[str, tuple[int, int]]:
        """The merges that wait because no input that is there knows a span of time, and the span: attach one that
        does."""
        return unknown_spans(self._dataflow)

    @property
    def plan(self) -> PhysicalPlan:
        """The operators that run."""
        return self._dataflow.plan

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._ingress.inputs)

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each input, forced or its own."""
        return self._ingress.progress

    @property
    def tau(self) -> int:
        """The largest start seen on any input, of what does not wait."""
        return self._dataflow.tau

    def standing(self) -> tuple[int, ElementBatch] | None:
        """What the one output has said that stands: an instant, and the events that live from then on as inserts, under
        the names by which they may still be adjusted, with the CTI.  Who hears this and all that is said later knows
        the answer from the instant on.  None: it is not kept.
        """
        (output,) = self._dataflow.flow.outputs.values()
        flow, intakes = self._dataflow.flow, {name: each.intake for name, each in self._ingress.inputs.items()}
        found = output.standing(lambda port: recalled(port, flow.nodes, flow.below(port), intakes))
        return None if found is None else (found[0], standing_elements(found[1], found[0], output.encoder.cti))

    # -- state --------------------------------------------------------------------------------------------------

    def _restore_inputs(self, state: Mapping[str, Any]) -> None:
        if (level := Consistency.from_plain(state["consistency"])) != self._consistency:
            self._consistency = level
            for name in sorted(self._waiting):
                self._ingress.change(name, self._bounds(name))
        self._ingress.ended |= set(state["ended"]) & self._dataflow.sources
