"""The SQL session: a running graph that is told by text what to declare, answer and drop (Krämer, 7.2.2 to 7.2.4).

    >>> import everwhen as ew
    >>> from everwhen.stream.element_batch import batch_of
    >>> session = SqlSession()
    >>> for outcome in session.execute('''
    ...     CREATE STREAM Bid (item INT, price INT);
    ...     CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item;
    ...     SELECT item FROM Best WHERE price > 5'''):
    ...     print(outcome)
    created stream Bid
    created derived stream Best
    started query q1
    >>> bids = [ew.Insert(1, 2, {"item": 7, "price": 9}), ew.Insert(2, 3, {"item": 8, "price": 3})]
    >>> for element in session.push({"Bid": batch_of(bids, session.schema_of("Bid"))})["q1"].elements():
    ...     print(element)
    insert [1, ∞) item=7
    >>> session.execute("DROP STREAM Best")
    Traceback (most recent call last):
    everwhen.errors.SqlError: line 1, column 13: Best cannot be dropped: the query q1 reads it; stop it first
      DROP STREAM Best
                  ^^^^

**Guarantee.**  A text takes effect whole, or raises an `SqlError` that names the place and has changed nothing.

A derived stream is one part of the graph, for all who read it: it is rewritten once, by itself, it runs as long as
somebody reads it, and rewriting a query leaves it as it is.  Queries are rewritten by the rules that keep apart what
others can share, against all that runs.  A query runs at the level that its CONSISTENCY clause asks for, else at the
session's, beside others at other levels; `change` moves it to another one while it runs.

This is not where data comes from: `push` takes it.  A relation that is known whole (constant, temporal) is forgotten
when its last reader stops, so that it can be handed in again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import overload

from everwhen.algebra.nodes import Source
from everwhen.core.consistency import MIDDLE, Consistency, Duration
from everwhen.core.emit import Emit
from everwhen.core.late_count import LateCount
from everwhen.core.schema import Schema
from everwhen.engine.observe.analyze import Analysis
from everwhen.engine.observe.asked import quoting, to_explain, told_of_running
from everwhen.engine.observe.graph import GraphNode, Sizes
from everwhen.engine.observe.metadata import OperatorMetadata
from everwhen.engine.observe.observer import Metadata
from everwhen.engine.observe.silence.waiting import Waiting
from everwhen.engine.session.session import Session
from everwhen.engine.session.sql_transaction import Asked, Outcome, Planned, SqlTransaction, Start
from everwhen.engine.session.stream_info import SqlQuery, StreamInfo, looked_at, stream_infos
from everwhen.errors import QueryError, SqlError
from everwhen.language.catalog import Catalog, Found
from everwhen.language.program import Functions
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import Reason
from everwhen.plan.explain import explain_text
from everwhen.sinks.base import EpochSink
from everwhen.stream.element_batch import ElementBatch

__all__ = ["Outcome", "SqlQuery", "SqlSession", "StreamInfo"]


class SqlSession:
    """Execute texts, push batches, stop queries, in any order; `close` once.

    `emit`, `consistency`: the default level of queries.  `tick`: the length of one tick.  `functions`: Python functions
    and aggregates that texts may call.  `optimize`: whether plans are rewritten.  `allow_unbounded`: run queries with
    unbounded state.  `catalog`: initial declarations.  `found` is called for streams that are not declared.  `idle`:
    seconds after which a source without elements no longer holds others back.

    >>> session = SqlSession()
    >>> print(*session.execute("CREATE STREAM S (x INT); SELECT x FROM S WHERE x > 1"), sep=" / ")
    created stream S / started query q1
    """

    def __init__(
        self,
        emit: str | Emit | None = None,
        tick: str = "1ms",
        functions: Functions | None = None,
        optimize: bool = True,
        allow_unbounded: bool = False,
        catalog: Catalog | None = None,
        found: Found | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        consistency: Consistency = MIDDLE,
        idle: float | None = None,
    ) -> None:
        self.consistency = consistency.changed(emit=emit)
        known = catalog or Catalog()
        self._catalog = Catalog(known.entries, {**known.functions, **(functions or {})}, found or known.found)
        self._tick = self.tick = tick
        self._optimize = optimize
        self._allow_unbounded = allow_unbounded
        self._session = Session(clock=clock, consistency=self.consistency, idle=idle)
        self.watchers = self._session.watchers
        self._derived: dict[str, Planned] = {}
        self._asked: dict[str, Asked] = {}
        self._number = 0

    # -- statements ---------------------------------------------------------------------------------------------

    def execute(self, text: str) -> list[Outcome]:
        """Run the statements of a text: CREATE, DROP, ALTER QUERY, SELECT, which starts a query under a name of its
        own; or tell what EXPLAIN, which stands by itself, asks."""
        if to_explain(text) is not None:
            return [Outcome("explained", "", "", text, told=self.explain(text))]
        draft = self._draft(text)
        draft.read()
        self._commit(draft)
        return draft.outcomes

    def start(self, name: str | None, text: str | None = None, sink: EpochSink | None = None) -> Outcome:
        """Start the query that a text ends with under this name (None: a generated one); its sink gets every epoch.

        Without a text, start a query again that was stopped or failed; streams are found as they are declared now.
        """
        if text is None:
            again = self._known(name)
            if name is not None and self.query(name).state == "running":
                raise QueryError(f"the query {name!r} is running")
            text, sink = again.text, sink or again.sink
        elif name is not None and name in self._asked:
            raise QueryError(f"there is a query {name!r} already; take another name, or remove it first")
        draft = self._draft(text)
        draft.read(single=True, name=name, sink=sink)
        self._commit(draft)
        return draft.outcomes[-1]

    def subscribe(self, stream: str, name: str | None = None, sink: EpochSink | None = None) -> Outcome:
        """Start a query that is the stream itself, such as a derived one's answer."""
        quoted = stream.replace('"', '""')
        return self.start(name, f'SELECT * FROM "{quoted}"', sink)

    def stop(self, name: str) -> None:
        """Stop a query and drop what only it needs; it stays in the catalogue."""
        if self._known(name) and (state := self.query(name).state) != "running":
            raise QueryError(f"the query {name!r} is {state} already")
        self._retire(name)
        self._forget_relations()

    def change(
        self,
        name: str,
        block: Duration | None = None,
        remember: Duration | None = None,
        *,
        emit: str | Emit | None = None,
    ) -> None:
        """Move a running query to another level; see `Session.change`."""
        self._known(name)
        self._session.change(name, block, remember, self._tick, emit=emit)

    def is_replaced(self, name: str) -> bool:
        """Whether a running query is being replaced; see `Session.is_replaced`."""
        return self._session.is_replaced(name)

    def dropped(self, name: str) -> dict[str, dict[Reason, int]]:
        """How many elements of each source were given up for a running query, by reason."""
        return self._session.dropped(name) if self._known(name).ended is None else {}

    def late(self) -> dict[str, LateCount]:
        """The rows of each source that is read that came behind its promises, where it says what becomes of them."""
        return self._session.late

    def latest_dropped(self, source: str) -> list[ElementBatch]:
        """The elements of a source that were given up last; see `Session.latest_dropped`."""
        return self._session.latest_dropped(source)

    def remove(self, name: str) -> None:
        """Take a query out of the catalogue, stopped if it was running."""
        if self._known(name).ended is None:
            self._session.remove(name)
        del self._asked[name]
        self._forget_relations()

    def forget(self, source: str) -> None:
        """Let a source that nobody reads begin anew when it is read again."""
        self._session.forget(source)

    def _draft(self, text: str) -> SqlTransaction:
        running = {name: asked for name, asked in self._asked.items() if self.query(name).state == "running"}
        return SqlTransaction(
            text,
            self._catalog,
            dict(self._derived),
            running,
            taken=frozenset(self._asked),
            number=self._number,
            tick=self._tick,
            level=self.consistency,
            optimize=self._optimize,
            allow_unbounded=self._allow_unbounded,
        )

    def _commit(self, draft: SqlTransaction) -> None:
        """All of a draft, or nothing: only joining the graph can still be refused."""
        for start in draft.starts:
            if start.name in self._asked:  # it has stopped or failed; retired, it looks the same from outside
                self._retire(start.name)
        undo: list[Callable[[], None]] = []
        asked = dict(self._asked)
        try:
            for source in draft.forgotten:
                undo.append(self._session.forget(source))
            for start in draft.starts:
                undo.append(self._register(start, draft))
            if draft.altered:  # last, because it is not undone
                self._alter(draft.altered, draft)
        except BaseException:
            for step in reversed(undo):
                step()
            self._asked = asked
            raise
        self._catalog, self._derived, self._number = draft.catalog, draft.derived, draft.number

    def _register(self, start: Start, draft: SqlTransaction) -> Callable[[], None]:
        try:
            self._session.register(start.name, start.plan.node, start.sink, start.level)
        except Exception as error:  # also of a function of the user's, called on what stands
            why = "" if isinstance(error, QueryError) else "the query fails on what there is already: "
            raise SqlError(f"{why}{error}", draft.text, start.span.start, start.span.end) from error
        self._asked[start.name] = Asked(start.text, start.reads, start.plan, start.sink)
        return lambda: self._session.remove(start.name)

    def _alter(self, altered: Sequence[Start], draft: SqlTransaction) -> None:
        """Queries become others, all at one instant; the outcome tells from when on."""
        try:
            at = self._session.replace_all({new.name: new.plan.node for new in altered})
        except QueryError as error:
            span = altered[0].span
            raise SqlError(str(error), draft.text, span.start, span.end) from error
        for new in altered:
            before = self._asked[new.name]
            self._asked[new.name] = replace(before, text=new.text or before.text, reads=new.reads, plan=new.plan)
        for i, each in enumerate(draft.outcomes):
            if each.kind == "altered" or (each.kind == "replaced" and each.name == draft.replaced):
                draft.outcomes[i] = replace(each, at=at)

    def _retire(self, name: str) -> None:
        """Keep a query as it is now, and take it out of the graph's catalogue."""
        asked = self._asked[name]
        if asked.ended is None:
            now = self.query(name)
            self._session.remove(name)
            self._asked[name] = replace(asked, ended=replace(now, state="failed" if now.error else "stopped"))

    def _forget_relations(self) -> None:
        for name, entry in self._catalog.entries.items():
            if isinstance(entry.node, Source) and entry.node.is_finite and name not in self._session.inputs:
                self._session.forget(name)

    def _known(self, name: str | None) -> Asked:
        if name is None or name not in self._asked:
            raise QueryError(f"there is no query {name!r}; there is {', '.join(self._asked) or 'none'}")
        return self._asked[name]

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by source; returns the elements of each running query.  See `Session.push`."""
        return self._after(self._session.push(batches))

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one source."""
        return self._after(self._session.close_input(name))

    def close(self) -> dict[str, ElementBatch]:
        """The end of all sources; then all queries stop."""
        return self._session.close()

    def _after(self, results: dict[str, ElementBatch]) -> dict[str, ElementBatch]:
        self._forget_relations()  # a query may have failed, and with it the last reader of one
        return results

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """What queries may name."""
        return self._catalog

    @property
    def epoch(self) -> int:
        """How many epochs have run."""
        return self._session.epoch

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sources that are read now."""
        return self._session.inputs

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each source that is read."""
        return self._session.progress

    def schema_of(self, source: str) -> Schema:
        """The payload columns that a source that is read must have."""
        return self._session.schema_of(source)

    def state_size(self) -> StateSize:
        return self._session.state_size()

    @overload
    def metadata(self) -> dict[str, OperatorMetadata]: ...
    @overload
    def metadata(self, name: str) -> Metadata: ...
    def metadata(self, name: str | None = None) -> dict[str, OperatorMetadata] | Metadata:
        """Per operator, by name; of one query, to subscribe to.  See `Session.metadata`."""
        return self._session.metadata() if name is None else self._session.metadata(name)

    def graph(self, sizes: Sizes | None = None) -> tuple[GraphNode, ...]:
        """What runs, as a graph; see `Session.graph`."""
        return self._session.graph(sizes)

    def _repr_html_(self) -> str:
        return self._session._repr_html_()

    def queries(self) -> list[SqlQuery]:
        """All queries, stopped and failed ones too."""
        return [self.query(name) for name in self._asked]

    def query(self, name: str) -> SqlQuery:
        asked = self._known(name)
        if asked.ended is not None:
            return asked.ended
        info = self._session.query(name)
        times = info.state, info.since, info.valid_from
        return SqlQuery(name, asked.text, info.schema, *times, asked.reads, info.reads, info.error, info.consistency)

    def streams(self) -> list[StreamInfo]:
        """The catalogue, in the order of its declarations."""
        readers = {query.name: query.reads for query in self.queries() if query.state == "running"}
        return stream_infos(self._catalog.entries, readers, self._derived)

    def waiting(self, name: str) -> Waiting:
        """Why a running query says nothing at the moment; see `Session.waiting`."""
        return self.waiting_later(name)()

    def waiting_later(self, name: str) -> Callable[[], Waiting]:
        return self._session.waiting_later(looked_at(self.query(name)))

    def analyze(self, name: str) -> Analysis:
        """What the operators of a running query have done; see `Session.analyze`."""
        return self._session.analyze(looked_at(self.query(name)))

    def explain(self, what: str) -> str:
        """EXPLAIN, with or without that word, of a query or derived stream by its name, or of the last statement of a
        text, which is not run; with WAITING or ANALYZE, why a query that runs, or each, is silent, and what it did."""
        return self.explain_later(what)()

    def explain_later(self, what: str) -> Callable[[], str]:
        """The same in two parts, as `waiting_later`."""
        with quoting(what):
            named = self._named(what)
            return self._explain(to_explain(what) or what) if named is None else lambda: named

    def _explain(self, what: str) -> Callable[[], str]:
        """EXPLAIN of what stands behind that word."""
        if (named := self._named(what.strip(" \t\r\n;"))) is not None:
            return lambda: named
        states: dict[str, str] = {query.name: query.state for query in self.queries()}
        if (told := told_of_running(what, states, self.waiting_later, self.analyze)) is not None:
            return told
        draft = self._draft(what)
        draft.read(explaining=True)
        if draft.last is None:
            raise SqlError("there is nothing to explain: give a SELECT or a CREATE STREAM … AS", what, 0, len(what))
        plan = self._explained(*draft.last)
        return lambda: plan

    def _named(self, name: str) -> str | None:
        """EXPLAIN of a query or a stream."""
        if name in self._asked:
            return self._explained(name, self._asked[name].plan)
        entry = self._catalog.stream(name, quoted=True) or self._catalog.stream(name)
        if entry is None:
            return None
        return self._explained(entry.name, self._derived.get(entry.name) or Planned(entry.node, entry.node, ()))

    def _explained(self, title: str, plan: Planned) -> str:
        rules = [(applied.name, applied.reason) for applied in plan.applied]
        rewritten = plan.node if self._optimize else None
        level = self.query(title).consistency if title in self._asked else self.consistency
        return explain_text(title, plan.written, rewritten, rules, emit=level.emit)
