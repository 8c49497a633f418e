"""The queries of a session: they are registered, start and stop, move to other levels, and are replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from everwhen.algebra.builder import Stream, node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node, Source, sources_of, walk
from everwhen.core.consistency import Consistency, Duration
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time_axis import TimeAxis, common_axis
from everwhen.engine.forward.needs import an_instant
from everwhen.engine.latest_dropped import LatestDropped
from everwhen.engine.node import cut
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.graph import GraphNode, Sizes
from everwhen.engine.session import migrate
from everwhen.engine.session.cutover import Migration
from everwhen.engine.session.joining.gradual import GradualCutover
from everwhen.engine.session.network import Levels, Network
from everwhen.engine.session.output_port import EmittedBatch, OutputKey, Subscription, split_tail
from everwhen.engine.session.query_handle import QueryHandle
from everwhen.engine.session.query_registry import Entry, QueryInfo, QueryRegistry
from everwhen.engine.source_levels import Query, at_level, chosen
from everwhen.errors import QueryError
from everwhen.operators.ingress.finalize import Reason
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rewrite.plans.share_common import Sharing
from everwhen.sinks.base import EpochSink
from everwhen.stream.element_batch import ElementBatch, joined

LATEST_DROPPED: Final = 20_000
"""So many elements that were given up are kept for who wants to see them."""


class SessionQueries(ABC):
    """What a session does with queries; `Session` runs them."""

    def __init__(
        self,
        consistency: Consistency,
        optimize: Callable[[Node], Node] | None,
        clock: Callable[[], float],
        idle: float | None,
    ) -> None:
        self.epoch = 0
        self.consistency = consistency
        self._optimize = optimize
        self._clock = clock
        self._latest = LatestDropped(most=LATEST_DROPPED)
        self._network = Network(clock, idle, self._latest.note)
        self._idle = idle is not None
        self._moves = 0
        self._catalogue = QueryRegistry()
        self._nodes = Sharing()
        self._streams: WeakKeyDictionary[Node, str] = WeakKeyDictionary()
        self._closed = False
        self.watchers: list[Callable[[], None]] = []
        """Called after every epoch."""

    @abstractmethod
    def _epoch(self) -> dict[str, ElementBatch]:
        """Run one epoch with what has been checked."""

    @abstractmethod
    def replace(self, name: str, query: Query, at: int | None = None) -> int:
        """Let a running query become another one."""

    @abstractmethod
    def migrate(self, name: str, query: Query) -> Migration:
        """Let a running query go over to another plan."""

    @abstractmethod
    def answer(self, name: str) -> AnswerBook:
        """What a running query has answered and is kept."""

    @abstractmethod
    def graph(self, sizes: Sizes | None = None) -> tuple[GraphNode, ...]:
        """What runs, as a graph."""

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

    def _enter(self, name: str, query: Query, sink: EpochSink | None, level: Consistency, whole: bool = False) -> Entry:
        entry = self._made(name, query, sink, level, whole)
        self._catalogue.entries[name] = entry
        return entry

    def _made(self, name: str, query: Query, sink: EpochSink | None, level: Consistency, whole: bool) -> Entry:
        """An entry that is not in the catalogue.  `whole`: it shares its output with nobody."""
        node = legal_loops(node_of(query))
        self._require_same_sources(node)
        plan = node if self._optimize is None else self._optimize(node)
        outlet, steps = (plan, ()) if whole else split_tail(plan)
        depends_on = tuple(dict.fromkeys(self._derived_from(node)))
        reads = tuple(sorted(sources_of(plan)))
        return Entry(name, node, depends_on, reads, outlet, steps, level, sink, whole=whole)

    def _placed(self, entry: Entry, emit: Emit, own: int = 0) -> tuple[OutputKey, Levels]:
        """Where a query leaves the network, and its sources at their levels."""
        node, levels = at_level(entry.outlet, entry.level, own, idle=self._idle)
        shared = self._nodes.node(node)
        return (replace(shared) if entry.whole else shared, emit), levels

    def start(self, name: str) -> QueryHandle:
        """Start a stopped query again; it joins as a new one would."""
        self._require_open()
        entry = self._catalogue[name]
        if entry.state == "running":
            raise QueryError(f"the query {name!r} is running")
        self._require_same_sources(entry.node)
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
        self._forget(name)
        if self._catalogue[name].state == "running":
            self.stop(name)
        del self._catalogue.entries[name]

    @abstractmethod
    def _forget(self, name: str) -> None:
        """A query goes for good, with what was kept for those who look at it."""

    def forget(self, source: str) -> Callable[[], None]:
        """Let a source that nobody reads begin anew when it is read again, as if it had never been there.  What is
        returned takes that back."""
        if source in self.inputs:
            readers = [entry.name for entry in self._catalogue.running() if source in entry.reads]
            raise QueryError(f"the source {source!r} cannot be forgotten: {', '.join(readers)} read it")
        left = self._network.left
        before = left.pop(source, None)
        return lambda: None if before is None else left.update({source: before})

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

    def axis(self, *names: str) -> TimeAxis:
        """On which axis the times of queries are shown: with timestamps if one of their sources has them."""
        nodes = walk(*(self._catalogue[name].node for name in names))
        return common_axis(node.axis for node in nodes if isinstance(node, Source))

    def _start(self, entry: Entry, emit: Emit | None = None, over: Emit | None = None, own: int = 0) -> None:
        """Let a query join.  `emit`, `over` and `own` tell of one that goes on how it was built."""
        self._finish_switches()
        self._catalogue.require_running(entry.depends_on)
        exit, levels = self._placed(entry, emit or entry.level.emit, own)
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
        self._finish_switches()
        level = entry.level.changed(block, remember, emit, tick)
        if level == entry.level:
            return
        old, self._moves = entry.exit, self._moves + 1
        if self._network.outlets[old].cutover is not None:
            raise QueryError(f"the query {name!r} is being replaced: it can be moved when that is done")
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

    @property
    def _is_switching(self) -> bool:
        """Whether another plan takes over in slices, which a snapshot would end."""
        return any(isinstance(each.cutover, GradualCutover) for each in self._network.outlets.values())

    def _finish_switches(self) -> None:
        """Let all that goes over in slices go over now: what comes next has to find plans that are whole."""
        over = False
        for entry in self._catalogue.running():
            outlet = None if entry.exit is None else self._network.outlets[entry.exit]
            if outlet is None or entry.subscription is None or not isinstance(outlet.cutover, GradualCutover):
                continue
            changes, tau = outlet.cutover.finish(), max(map(self._network.tau, outlet.ports))
            said = EmittedBatch.of(outlet.encode(cut(changes, outlet.since), tau, Frontier(outlet.encoder.cti)))
            batch = entry.subscription.take(said)
            entry.pending = batch if entry.pending is None else joined(entry.pending, batch)
            if outlet.cutover is None:
                entry.replaces, over = None, True
        if over:
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
        >>> session = ew.Session()
        >>> query = session.register("total", s.range(10).aggregate(total=ew.sum("x")))
        >>> print(*session.fast_forward("total", 100)["total"].elements())
        cti 91
        """
        self._require_open()
        if (tail := self._catalogue[name].subscription) is None:
            raise QueryError(f"the query {name!r} is {self._catalogue[name].state}: it has nothing to skip")
        self._finish_switches()
        tail.wanted = max(tail.wanted, an_instant(t))
        self._network.fast_forward()
        return self._epoch()

    def _require_same_sources(self, node: Node) -> None:
        """A source that is read already is declared in the same way."""
        for each in walk(node):
            if not isinstance(each, Source):
                continue
            at = next((name for name, entry in self._network.ingress.inputs.items() if entry.source == each.name), None)
            if at is None:
                continue
            known = self._network.sources[at]  # that of a query with a plan of its own is another node that is equal
            if self._nodes.node(replace(each, name=at)) is not self._nodes.node(known):
                known = replace(known, name=each.name)
                raise QueryError(
                    f"a source has one declaration: what is read now is {explain(known)}, not {explain(each)}"
                )

    def _leave(self, entry: Entry, error: Exception | None = None) -> None:
        assert entry.exit is not None, "it runs"
        self._network.outlets[entry.exit].leave(entry.name)
        entry.leave(error)

    def _tidy(self) -> None:
        """Drop what no running query needs."""
        running = self._catalogue.running()
        self._network.keep({entry.exit for entry in running if entry.exit is not None})
        entries = [each for entry in running for each in (entry, entry.replaces) if each is not None]
        self._nodes = Sharing(tuple(node for entry in entries for node in entry.shared_nodes()))  # forgets all others

    def _require_open(self) -> None:
        if self._closed:
            raise QueryError("the session is closed")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sources that are read now."""
        return tuple(dict.fromkeys(each.source for each in self._network.ingress.inputs.values()))
