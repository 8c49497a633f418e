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

An error of a query's operators stops it, with the error in `queries()`; the others go on.  A source is there as long as
some query reads it.  Left and read again, it goes on behind its CTI.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, overload

from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.late_count import LateCount
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, require_time, show
from everwhen.core.time_axis import times_shown
from everwhen.engine.ingress import SourceInput
from everwhen.engine.observe.analyze import Analysis
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.graph import GraphNode, QueryEnd, Sizes, graph
from everwhen.engine.observe.graph_html import MOST_TABLES, answer_html, graph_html
from everwhen.engine.observe.metadata import OperatorMetadata
from everwhen.engine.observe.observer import Metadata, Observer, Subscription
from everwhen.engine.observe.silence.find_waiting import SWITCHING, find_waiting
from everwhen.engine.observe.silence.situation import goes_on, own_copy, situation, sources_need
from everwhen.engine.observe.silence.waiting import Waiting
from everwhen.engine.observe.subjects import Subject, subjects
from everwhen.engine.output_port import standing_elements
from everwhen.engine.session import metrics
from everwhen.engine.session import snapshot as session_state
from everwhen.engine.session.cutover import lowered
from everwhen.engine.session.output_port import Cutover, EmittedBatch
from everwhen.engine.session.output_port import Subscription as Tail
from everwhen.engine.session.query_registry import Entry
from everwhen.engine.session.replaced_queries import ReplacedQueries
from everwhen.engine.source_levels import Query
from everwhen.errors import QueryError
from everwhen.operators.contract import StateSize
from everwhen.sinks.base import EpochSink
from everwhen.stream.element_batch import ElementBatch, empty_elements


class Session(ReplacedQueries):
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
        super().__init__(consistency.changed(emit=emit), optimize, clock, idle)
        self._analyzed: dict[str, Subscription] = {}
        self._books: dict[str, AnswerBook] = {}
        self._observer = Observer(clock, lambda: self._subjects(entry.name for entry in self._catalogue.running()))

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
        self._finish_switches()
        self._network.end([name])
        return self._epoch()

    def close(self) -> dict[str, ElementBatch]:
        """The end of all sources: CTI(∞) on each; then all queries stop."""
        if self._closed:
            return {}
        self._finish_switches()
        self._network.end(self.inputs)
        self._network.flow.finish()
        results = self._epoch()
        self._closed = True
        for entry in self._catalogue.running():
            self._leave(entry)
        self._tidy()
        return results

    def _epoch(self) -> dict[str, ElementBatch]:
        self._observer.begin()
        said, failed = self._network.step()
        self.epoch += 1
        heard: dict[str, ElementBatch | Exception] = {}
        for node, outlet in self._network.outlets.items():
            heard |= outlet.deliver(said[node]) if node in said else dict.fromkeys(outlet.subscriptions, failed[node])
        results: dict[str, ElementBatch] = {}
        over = False
        for entry in self._catalogue.running():
            found = heard[entry.name]
            try:
                if isinstance(found, Exception):
                    raise found
                results[entry.name] = entry.deliver(found)
            except Exception as error:  # of whatever kind: the other queries must go on
                self._leave(entry, error)
        for entry in self._catalogue.running():
            if entry.replaces is not None and entry.exit is not None:
                done = self._network.outlets[entry.exit].cutover is None
                entry.replaces, over = (None, True) if done else (entry.replaces, over)
            if entry.replaces is None and entry.whole:
                over = self._as_usual(entry) or over
        if over or len(results) < len(heard):
            self._tidy()
        if not self._is_switching:
            self._network.pool.collect()  # rows are told apart by their codes while they go over
        self._observer.publish()
        for name, batch in results.items():
            if name in self._books:
                self._books[name].take(batch, self._largest_start(name))
        for watcher in self.watchers:
            watcher()
        return results

    # -- looking ------------------------------------------------------------------------------------------------

    def schema_of(self, source: str) -> Schema:
        """The payload columns that a source must have."""
        return self._network.ingress.of(source)[0].intake.codec.schema

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each source that is read, as those know it who remember longest."""
        return self._network.ingress.progress

    @property
    def late(self) -> dict[str, LateCount]:
        """The rows of each source that is read that came behind its promises, where it says what becomes of them."""
        return self._network.ingress.late

    def latest_dropped(self, source: str) -> list[ElementBatch]:
        """The elements of a source that were given up last, because they came late or a level had forgotten their
        time: the last twenty thousand and some of all sources; of a source at several levels, those of the first."""
        return self._latest.of(source)

    def state_size(self) -> StateSize:
        """All that is kept: intakes, operators and chains."""
        return self._network.ingress.state_size() + self._network.flow.state_size()

    @overload
    def metadata(self) -> dict[str, OperatorMetadata]: ...
    @overload
    def metadata(self, name: str) -> Metadata: ...
    def metadata(self, name: str | None = None) -> dict[str, OperatorMetadata] | Metadata:
        """By name, per operator, per output's chain, and per query for its last filters: which queries use it, rates,
        selectivity, state, progress, what it waits for.  Names stay as long as the operator runs.

        Of a query by name: its operators and inputs, to subscribe to, while it runs (`Metadata`).
        """
        if name is not None:
            _ = self._catalogue[name]
            return Metadata(self._observer, lambda: self._subjects([name]))
        return metrics.collect(self._network, self._catalogue.running(), self._clock())

    def _subjects(self, names: Iterable[str]) -> list[Subject]:
        network = self._network
        exits = (self._catalogue[name].exit for name in names)
        outlets = [network.outlets[exit] for exit in exits if exit is not None]
        ports = [below for outlet in outlets for port in outlet.ports for below in network.below(port)]
        return subjects(network.flow.nodes, network.ingress, ports, network.port_name)

    def graph(self, sizes: Sizes | None = None) -> tuple[GraphNode, ...]:
        """What runs, as a graph: sources, operators and queries with what they have done, inputs before their users.
        `sizes`: what nodes kept a moment ago, if that is good enough."""
        ends = []
        for entry in self._catalogue.running():
            assert entry.exit is not None and entry.subscription is not None, "it runs"
            outlet = self._network.outlets[entry.exit]
            said = entry.subscription.rows_out if entry.steps else outlet.rows_out
            ends.append(QueryEnd(entry.name, outlet.ports, outlet, said))
        return graph(self._network.flow, self._network.ingress, ends, sizes)

    def answer(self, name: str) -> AnswerBook:
        """What a running query has answered and is kept: from the first time that this is asked on, and what stood
        then."""
        entry = self._catalogue[name]
        if name not in self._books:
            book = self._books[name] = AnswerBook(entry.node.schema, entry.level.emit)
            if entry.exit is not None:
                book.take(self._standing(entry), self._largest_start(name))
        self._books[name].emit = entry.level.emit
        return self._books[name]

    def _standing(self, entry: Entry) -> ElementBatch:
        """What a query has said that may still change, from an instant on; nothing where that is not kept."""
        assert entry.exit is not None and entry.subscription is not None, "it runs"
        outlet = self._network.outlets[entry.exit]
        since, events = self._network.said(outlet)
        if since == INF:
            return empty_elements(entry.node.schema)
        said = standing_elements(events, since, outlet.encoder.cti)
        tail = Tail(entry.steps, entry.node.schema, entry.subscription.since, self._clock())
        return tail.take(EmittedBatch.of(said))

    def _largest_start(self, name: str) -> int:
        exit = self._catalogue[name].exit
        ports = () if exit is None else self._network.outlets[exit].ports
        return max((self._network.tau(port) for port in ports), default=NEVER)

    def _repr_html_(self) -> str:
        """The graph and the answers, for notebooks."""
        running = [entry.name for entry in self._catalogue.running()]
        words = f"{len(running)} quer{'y runs' if len(running) == 1 else 'ies run'}, {self.epoch} epochs"
        with times_shown(self.axis(*running)):
            tables = [answer_html(name, self.answer(name)) for name in running[:MOST_TABLES]]
            return graph_html(words, self.graph()) + "".join(tables)

    def analyze(self, name: str) -> Analysis:
        """What the operators and inputs of a running query have done, those that it shares with others included: rows
        and time since they began; lifetimes, corrections and late rows since this was asked first."""
        entry = self._catalogue[name]
        if entry.exit is None:
            raise QueryError(f"the query {name!r} {entry.how}, so there is nothing to look at; start it")
        outlet = self._network.outlets[entry.exit]
        below = [self._network.running(port) for port in self._network.below(outlet.port)]
        seconds = self._clock() - min(each.began for each in below)
        read = sum(each.rows for each in below if isinstance(each, SourceInput))
        last = metrics.last_filters(entry, self._clock(), outlet.encoder.cti, "")
        passed = None if last is None else (last.rows_in, last.rows_out)
        said = outlet.rows_out if last is None else last.rows_out
        remark = "" if name in self._analyzed else "Of inputs, lifetimes and corrections all is measured from now on."
        if name not in self._analyzed:
            self._analyzed[name] = self.metadata(name).subscribe()
        return Analysis(read, said, seconds, self._analyzed[name].observed(seconds), remark, passed)

    def _forget(self, name: str) -> None:
        self._books.pop(name, None)
        if (wanted := self._analyzed.pop(name, None)) is not None:
            wanted.cancel()

    def waiting(self, name: str) -> Waiting:
        """Why a running query says nothing at the moment: which source holds it back, and which promise would bring
        something (`engine/observe`).  It copies the session's state, and tries."""
        return self.waiting_later(name)()

    def waiting_later(self, name: str) -> Callable[[], Waiting]:
        """The same in two parts: the state is copied now, between two epochs; what is returned tries, on any thread,
        also while epochs run."""
        entry = self._catalogue[name]
        if entry.exit is None:
            raise QueryError(f"the query {name!r} {entry.how}, so it waits for nothing; start it")
        network, now = self._network, self._clock()
        idle, spoke = network.ingress.idle.seconds, network.ingress.idle.spoke
        before = {each: made.replaces for each, made in self._catalogue.entries.items()}
        queries = {
            each: made.node if (old := before[each]) is None else (old.node, made.node)
            for each, made in self._catalogue.entries.items()
        }

        def copy() -> Session:
            copied = Session(optimize=self._optimize, clock=lambda: now, idle=idle)
            copied.restore(state, queries)
            copied._network.ingress.idle.resume(spoke)
            return copied

        outlet = network.outlets[entry.exit]
        found = situation(name, network.flow, network.ingress, outlet, copy, {}, entry.valid_from)
        found = replace(found, untried=SWITCHING if self._is_switching else "")
        state = {} if found.why_untried else own_copy(self.snapshot())
        last = metrics.last_filters(entry, now, outlet.encoder.cti, "")
        if last is not None:  # behind all operators
            found = replace(found, operators=[*found.operators, last])
        return partial(find_waiting, found)

    def needs(self, t: int, name: str) -> Mapping[str, int]:
        """What sources have to promise so that a running query promises all before `t`, by the rules of its operators,
        without trying."""
        require_time(t)
        entry, network = self._catalogue[name], self._network
        if entry.exit is None:
            raise QueryError(f"the query {name!r} {entry.how}, so it needs no promise; start it")
        return sources_need(network.flow, network.ingress, network.outlets[entry.exit], t)

    def goes_on(self, name: str) -> bool:
        """Whether the next epoch does something for a query although nothing may come."""
        exit = self._catalogue[name].exit
        return exit is not None and goes_on(self._network.flow, self._network.outlets[exit])

    def error_of(self, name: str) -> str:
        """Why a query has failed."""
        return self.query(name).error

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere but the queries themselves, as plain data."""
        self._require_open()
        self._finish_switches()
        return {
            "epoch": self.epoch,
            "moves": self._moves,
            "idle": self._idle,
            **session_state.snapshot(self._network, self._catalogue.entries.values()),
        }

    def restore(
        self,
        state: Mapping[str, Any],
        queries: Mapping[str, Query | tuple[Query, Query]],
        sinks: Mapping[str, EpochSink] | None = None,
    ) -> None:
        """Go on from a snapshot, in a new session: all its queries are given again, and run at their levels.

        A query that was being replaced is given as a pair: the old one and the new one.

        QueryError: the session is not new, or these are other queries.
        """
        session_state.require_fit(state, queries, self._idle, bool(self._catalogue.entries or self.epoch))
        for name, query in state["queries"].items():
            self._begin_again(name, query, queries[name], (sinks or {}).get(name))
        session_state.restore(self._network, self._catalogue.entries, state)
        self.epoch, self._moves = state["epoch"], state["moves"]

    def _begin_again(
        self, name: str, state: Mapping[str, Any], query: Query | tuple[Query, Query], sink: EpochSink | None
    ) -> None:
        """Enter a query as a snapshot tells of it, and start it if it ran; its state is put in later."""
        level, cutover = Consistency.from_plain(state["level"]), state["cutover"]
        old, new = query if isinstance(query, tuple) else (None, query)
        if (old is None) != (cutover is None):
            if cutover is None:
                raise QueryError(f"the query {name!r} was not being replaced: give one query, not a pair")
            since = f"the query {name!r} was being replaced from {show(cutover['at'])} on"
            raise QueryError(f"{since}: give a pair, the old and the new one")
        entry = self._enter(name, new, sink, level, state["whole"])
        if state["state"] != "running":
            return
        self._start(entry, *session_state.built(state))
        if old is None or entry.exit is None:
            return
        outlet = self._network.outlets[entry.exit]
        before = self._made(name, old, None, level, cutover["whole"])
        self._start(before, *session_state.built(cutover))
        assert before.exit is not None, "it was started"
        left = self._network.outlets[before.exit]
        port, before.over = left.port, left.over
        outlet.cutover = Cutover(port, lowered(before.steps, self._network.pool), cutover["at"])
        entry.replaces = before
        self._network.outlets[before.exit].leave(name)
        self._tidy()
