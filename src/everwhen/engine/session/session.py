"""The session: many queries over shared streams in one running graph.

Queries come and go while it runs.  Plans with equal parts share their operators, whoever built them; a new query
attaches to what runs already, and says from which instant on its answer is right (`valid_from`; the proof is in
`network.py`).  Queries that differ only in their last filters share all but these (`output_port.py`).

    >>> import everwhen as ew
    >>> from everwhen.stream.element_batch import batch_of
    >>> bids = ew.source("Bid", {"item": "string", "price": "int64"})
    >>> best = bids.range(10).group_by("item").agg(best=ew.max("price"))
    >>> session = Session()
    >>> q = session.register("best", best)
    >>> bid = lambda t, item, price: ew.Insert(t, t + 1, {"item": item, "price": price})
    >>> batch = lambda *elements: batch_of(elements, bids.schema)
    >>> for element in session.push({"Bid": batch(bid(1, "a", 3), bid(2, "b", 4), ew.Cti(3))})["best"].elements():
    ...     print(element)
    insert [1, ∞) item='a' best=3
    insert [2, ∞) item='b' best=4
    cti 3
    >>> late = session.register("only a", best.where(ew.col("item") == "a"))
    >>> late.valid_from
    3
    >>> for element in session.push({"Bid": batch(bid(4, "a", 9))})["only a"].elements():
    ...     print(element)
    insert [3, ∞) item='a' best=3
    cti 3
    adjust [3, ∞ -> 4) item='a' best=3
    insert [4, ∞) item='a' best=9
    >>> session.stop("best")
    >>> [(each.name, each.state, each.reads) for each in session.queries()]
    [('best', 'stopped', ('Bid',)), ('only a', 'running', ('Bid',))]

An error of one query's operators stops that query, with the error in `queries()`; the others go on.  A source is there
as long as some query reads it.  Left and read again, it goes on behind its CTI.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Node, Source, walk
from everwhen.core.consistency import MIDDLE, Consistency, Duration
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.engine.forward.needs import an_instant
from everwhen.engine.local import Query
from everwhen.engine.metadata import OperatorMetadata
from everwhen.engine.run import chosen
from everwhen.engine.session import metrics, migrate
from everwhen.engine.session import snapshot as session_state
from everwhen.engine.session.network import Network
from everwhen.engine.session.output_port import Subscription, split_tail
from everwhen.engine.session.query_handle import QueryHandle
from everwhen.engine.session.query_registry import Entry, QueryInfo, QueryRegistry
from everwhen.engine.source_levels import at_level
from everwhen.errors import QueryError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import Reason
from everwhen.rewrite.plans.share_common import Sharing
from everwhen.sinks.base import EpochSink
from everwhen.stream.element_batch import ElementBatch, joined


class Session:
    """Register queries, push batches, stop queries, in any order; `close` once.

    `emit`, `consistency`: the default level of queries.  `optimize` rewrites a plan before it joins; it must leave
    common parts of queries alone.  After `idle` seconds without an element a source no longer holds back the sources
    that are read together with it; what it sends later, behind their frontier, is dropped.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> session = Session()
    >>> query = session.register("large", s.where(ew.col("x") > 1))
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": x}) for x in (1, 2)], s.schema)
    >>> print(*session.push({"S": batch})["large"].elements())
    insert [0, 5) x=2
    """

    def __init__(
        self,
        emit: str | Emit | None = None,
        optimize: Callable[[Node], Node] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        consistency: Consistency = MIDDLE,
        idle: float | None = None,
    ) -> None:
        self.epoch = 0
        self.consistency = consistency.changed(emit=emit)
        self._optimize = optimize
        self._clock = clock
        self._network = Network(clock, idle)
        self._idle = idle is not None
        self._moves = 0
        self._catalogue = QueryRegistry()
        self._nodes = Sharing()
        self._streams: WeakKeyDictionary[Node, str] = WeakKeyDictionary()
        self._closed = False

    # -- queries ------------------------------------------------------------------------------------------------

    def register(
        self, name: str | None, query: Query, sink: EpochSink | None = None, consistency: Consistency | None = None
    ) -> QueryHandle:
        """Add a query and start it.  Without a name it gets one.  A sink is handed every epoch's elements.

        It runs at the level asked for, else at that of its own text, else at the session's.

        QueryError: the name is taken, a source is declared in another way, or the query would need a past that is not
        kept.  Then nothing has changed.
        """
        self._require_open()
        level = consistency
        if level is None:
            asks = isinstance(query, Stream) and query.level is not None
            level = chosen(query, None) if asks else self.consistency
        entry = self._enter(self._catalogue.free_name(name), query, sink, level)
        try:
            self._start(entry)
        except BaseException:
            del self._catalogue.entries[entry.name]
            raise
        return QueryHandle(entry.name, self)

    def _enter(self, name: str, query: Query, sink: EpochSink | None, level: Consistency) -> Entry:
        node = query.node if isinstance(query, Stream) else query
        self._network.require_same_sources(node, self._nodes)
        plan = node if self._optimize is None else self._optimize(node)
        outlet, steps = split_tail(plan)
        depends_on = tuple(dict.fromkeys(self._derived_from(node)))
        reads = tuple(sorted({each.name for each in walk(plan) if isinstance(each, Source)}))
        entry = Entry(name, node, depends_on, reads, outlet, steps, level, sink)
        self._catalogue.entries[name] = entry
        return entry

    def start(self, name: str) -> QueryHandle:
        """Start a stopped query again; it joins as a new one would."""
        self._require_open()
        entry = self._catalogue[name]
        if entry.state == "running":
            raise QueryError(f"the query {name!r} is running")
        self._network.require_same_sources(entry.node, self._nodes)
        self._start(entry)
        return QueryHandle(name, self)

    def stop(self, name: str) -> None:
        """Stop a query and drop what only it needs; it stays in the catalogue.

        QueryError: other queries read its stream.
        """
        entry = self._catalogue[name]
        if entry.state != "running":
            raise QueryError(f"the query {name!r} is {entry.state} already")
        self._catalogue.require_unread(name, "stopped")
        self._leave(entry)
        self._tidy()

    def remove(self, name: str) -> None:
        """Take a query out of the catalogue; stop it first if it is running."""
        self._catalogue.require_unread(name, "removed")
        if self._catalogue[name].state == "running":
            self.stop(name)
        del self._catalogue.entries[name]

    def forget(self, source: str) -> Callable[[], None]:
        """Let a source that nobody reads begin anew when it is read again, as if it had never been there.  What is
        returned takes that back."""
        if source in self.inputs:
            readers = [entry.name for entry in self._catalogue.running() if source in entry.reads]
            raise QueryError(f"the source {source!r} cannot be forgotten: {', '.join(readers)} read it")
        before = self._network.left.pop(source, None)
        return lambda: None if before is None else self._network.left.update({source: before})

    def stream(self, name: str) -> Stream:
        """A query's answer as a stream: a query built on it shares its operators and depends on it."""
        # a node of its own tells who was built on it; equal structure makes it the same operator
        node = replace(self._catalogue[name].node)
        self._streams[node] = name
        return Stream(node)

    def _derived_from(self, node: Node) -> Iterator[str]:
        """The queries whose streams a plan reads; not what those read in turn."""
        if node in self._streams:
            yield self._streams[node]
        else:
            for each in node.inputs:
                yield from self._derived_from(each)

    def queries(self) -> list[QueryInfo]:
        """All queries, stopped and failed ones too, in the order in which they were registered."""
        return [entry.info() for entry in self._catalogue.entries.values()]

    def query(self, name: str) -> QueryInfo:
        return self._catalogue[name].info()

    def _start(self, entry: Entry, emit: Emit | None = None, over: Emit | None = None, own: int = 0) -> None:
        """Let a query join.  `emit`, `over` and `own` tell of one that goes on how it was built."""
        self._catalogue.require_running(entry.depends_on)
        node, levels = at_level(entry.outlet, entry.level, own, idle=self._idle)
        exit = self._nodes.node(node), emit or entry.level.emit
        try:
            since, said = self._network.attach(exit, levels, over)
            subscription = Subscription(entry.steps, entry.node.schema, since, self._clock())
            entry.pending = subscription.take(said)
            if entry.sink is not None:
                entry.sink.prepare(entry.node.schema)
                entry.next_commit = entry.sink.committed() + 1
        except BaseException:
            self._tidy()
            raise
        self._network.outlets[exit].subscribe(entry.name, subscription)
        entry.exit, entry.own, entry.subscription, entry.valid_from = exit, own, subscription, since
        entry.state, entry.since, entry.error = "running", self.epoch, None

    def change(
        self,
        name: str,
        block: Duration | None = None,
        remember: Duration | None = None,
        tick: str = "1ms",
        *,
        emit: str | Emit | None = None,
    ) -> None:
        """Move a running query to another level; what it says because of it comes with the next epoch.

        What it has said and promised stands; to remember longer does not bring back what was forgotten.  From now on it
        has its operators for itself: others that shared them stay as they are.
        """
        self._require_open()
        entry = self._catalogue[name]
        if entry.state != "running" or entry.exit is None or entry.subscription is None:
            raise QueryError(f"the query {name!r} is {entry.state}: only one that runs can be moved")
        level = entry.level.changed(block, remember, emit, tick)
        if level == entry.level:
            return
        old, self._moves = entry.exit, self._moves + 1
        node, levels = at_level(entry.outlet, level, self._moves, idle=self._idle)
        exit = self._nodes.node(node), old[1]
        outlet = migrate.fork(self._network, old, exit, levels)
        if level.emit is not entry.level.emit:
            said = entry.subscription.take(migrate.change_emit(self._network, outlet, level.emit))
            entry.pending = said if entry.pending is None else joined(entry.pending, said)
        self._network.outlets[old].leave(name)
        outlet.subscribe(name, entry.subscription)
        entry.exit, entry.own, entry.level = exit, self._moves, level
        self._tidy()

    def dropped(self, name: str) -> dict[str, dict[Reason, int]]:
        """How many elements of each source were given up for a running query, by reason.

        Queries at one level share a source's memory, so they have lost the same.
        """
        entry = self._catalogue[name]
        if entry.exit is None:
            return {}
        ports = self._network.below(self._network.outlets[entry.exit].port)
        return self._network.ingress.dropped([port.source for port in ports if port.source])

    def fast_forward(self, name: str, t: int) -> dict[str, ElementBatch]:
        """From now on a running query's answer before `t` is of no interest; returns what queries say because of it.

        What it shares with others is skipped as far as all of them ask for it.  See `LocalRuntime.fast_forward`.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> session = Session()
        >>> query = session.register("total", s.range(10).aggregate(total=ew.sum("x")))
        >>> print(*session.fast_forward("total", 100)["total"].elements())
        cti 91
        """
        self._require_open()
        if (tail := self._catalogue[name].subscription) is None:
            raise QueryError(f"the query {name!r} is {self._catalogue[name].state}: it has nothing to skip")
        tail.wanted = max(tail.wanted, an_instant(t))
        self._network.fast_forward()
        return self._epoch()

    def _leave(self, entry: Entry, error: Exception | None = None) -> None:
        assert entry.exit is not None, "it runs"
        self._network.outlets[entry.exit].leave(entry.name)
        entry.leave(error)

    def _tidy(self) -> None:
        """Drop what no running query needs."""
        used = [entry.exit for entry in self._catalogue.running() if entry.exit is not None]
        self._network.keep(set(used))
        self._nodes = Sharing(tuple(node for node, _ in used))  # forgets all other nodes

    def _require_open(self) -> None:
        if self._closed:
            raise QueryError("the session is closed")

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by source; returns the elements of each running query.

        If a batch is wrong (`InputError`), none of the epoch's batches has been taken.
        """
        self._require_open()
        self._network.ingress.check(batches)
        return self._epoch()

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one source."""
        self._require_open()
        self._network.end([name])
        return self._epoch()

    def close(self) -> dict[str, ElementBatch]:
        """The end of all sources: CTI(∞) on each; then all queries stop."""
        if self._closed:
            return {}
        self._network.end(self.inputs)
        results = self._epoch()
        self._closed = True
        for entry in self._catalogue.running():
            self._leave(entry)
        self._tidy()
        return results

    def _epoch(self) -> dict[str, ElementBatch]:
        said, failed = self._network.step()
        self.epoch += 1
        heard: dict[str, ElementBatch | Exception] = {}
        for node, outlet in self._network.outlets.items():
            heard |= outlet.deliver(said[node]) if node in said else dict.fromkeys(outlet.subscriptions, failed[node])
        results: dict[str, ElementBatch] = {}
        for entry in self._catalogue.running():
            found = heard[entry.name]
            try:
                if isinstance(found, Exception):
                    raise found
                results[entry.name] = entry.deliver(found)
            except Exception as error:  # of whatever kind: the other queries must go on
                self._leave(entry, error)
        if len(results) < len(heard):
            self._tidy()
        self._network.pool.collect()
        return results

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sources that are read now."""
        return tuple(dict.fromkeys(each.source for each in self._network.ingress.inputs.values()))

    def schema_of(self, source: str) -> Schema:
        """The payload columns that a source must have."""
        return self._network.ingress.of(source)[0].intake.codec.schema

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each source that is read, as those know it who remember longest."""
        return self._network.ingress.progress

    def state_size(self) -> StateSize:
        """All that is kept: intakes, operators and chains."""
        return self._network.ingress.state_size() + self._network.flow.state_size()

    def metadata(self) -> dict[str, OperatorMetadata]:
        """By name, per operator, per output's chain, and per query for its last filters: which queries use it, rates,
        selectivity, state, progress, what it waits for.  Names stay as long as the operator runs."""
        return metrics.collect(self._network, self._catalogue.running(), self._clock())

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere but the queries themselves, as plain data."""
        self._require_open()
        return {
            "epoch": self.epoch,
            "moves": self._moves,
            "idle": self._idle,
            **session_state.snapshot(self._network, self._catalogue.entries.values()),
        }

    def restore(
        self, state: Mapping[str, Any], queries: Mapping[str, Query], sinks: Mapping[str, EpochSink] | None = None
    ) -> None:
        """Go on from a snapshot, in a new session: all its queries are given again, and run at their levels.

        QueryError: the session is not new, or these are other queries.
        """
        session_state.require_fit(state, queries, self._idle, bool(self._catalogue.entries or self.epoch))
        for name, query in state["queries"].items():
            level = Consistency.from_plain(query["level"])
            entry = self._enter(name, queries[name], (sinks or {}).get(name), level)
            if query["state"] == "running":
                self._start(entry, *session_state.built(query))
        session_state.restore(self._network, self._catalogue.entries, state)
        self.epoch, self._moves = state["epoch"], state["moves"]
