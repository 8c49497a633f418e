"""Queries of a session that become others while they run: another plan of the same query, or another query."""

from __future__ import annotations

from collections.abc import Mapping

from everwhen.core.time import require_time
from everwhen.engine.change_emit import standing_at
from everwhen.engine.session.cutover import Migration, Replaced, Takeover, replace_plans
from everwhen.engine.session.joining.usual_form import put_off, rename, to_usual_form, usual_sink
from everwhen.engine.session.output_port import Subscription
from everwhen.engine.session.query_registry import Entry
from everwhen.engine.session.session_queries import SessionQueries
from everwhen.engine.source_levels import Query
from everwhen.errors import QueryError
from everwhen.stream.element_batch import joined


class ReplacedQueries(SessionQueries):
    """Replace and migrate queries of a session."""

    def replace(self, name: str, query: Query, at: int | None = None) -> int:
        """Let a running query become another one with the same columns: the answer is the old one's before an instant
        and the new one's from there on.  Returns the instant: `at`, else the earliest that is possible.

        What the two say differently comes with the next epoch.  QueryError: the new query has other columns, or cannot
        take over at that instant; then nothing has changed.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> session = ew.Session()
        >>> handle = session.register("q", s.where(ew.col("x") > 1))
        >>> batch = ew.ElementBatch.of([*(ew.Insert(0, 9, {"x": x}) for x in (1, 2)), ew.Cti(5)], s.schema)
        >>> print(*session.push({"S": batch})["q"].elements())
        insert [0, 9) x=2 cti 5
        >>> handle.replace(s.where(ew.col("x") < 2))
        5
        >>> print(*session.push({})["q"].elements(), sep=chr(10))
        adjust [0, 9 -> 5) x=2
        insert [5, 9) x=1
        """
        self._catalogue.require_unread(name, "replaced")
        return self._go_over(name, query, at).at

    def migrate(self, name: str, query: Query) -> Migration:
        """Let a running query go over to another plan, one that means the same, without a stop or a gap.

        Both plans run until everything before the instant `at` is promised; then the old one goes, with all that no
        other query needs.  What they say differently (ends that only one of them tells) comes with the next epoch.
        Queries that read its stream stay with the operators that they have.  QueryError: the new plan has other
        columns, or needs a past that is not kept, or the query is being replaced; then nothing has changed.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> session = ew.Session()
        >>> handle = session.register("q", s.range(5).where(ew.col("x") > 1).distinct())
        >>> batch = ew.ElementBatch.of([*(ew.Insert(0, 1, {"x": x}) for x in (1, 2)), ew.Cti(3)], s.schema)
        >>> print(*session.push({"S": batch})["q"].elements())
        insert [0, ∞) x=2 cti 3
        >>> went = handle.migrate(s.where(ew.col("x") > 1).range(5).distinct())
        >>> went.at >= went.valid_from >= 3, len(session.push({})["q"])
        (True, 0)
        """
        return self._go_over(name, query, None, silently=True)

    def replace_all(self, queries: Mapping[str, Query], at: int | None = None) -> int:
        """Let several running queries become others at one instant: `at`, else the earliest that all of them can.

        QueryError: one of them cannot; then none has changed.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> session = ew.Session()
        >>> for name, least in (("a", 1), ("b", 2)):
        ...     _ = session.register(name, s.where(ew.col("x") > least))
        >>> _ = session.push({"S": ew.ElementBatch.of([ew.Insert(0, 9, {"x": 2}), ew.Cti(5)], s.schema)})
        >>> session.replace_all({name: s.where(ew.col("x") > 3) for name in "ab"})
        5
        >>> {name: len(batch) for name, batch in session.push({}).items()}
        {'a': 1, 'b': 0}
        """
        for name in queries:
            readers = [each.name for each in self._catalogue.running() if name in each.depends_on]
            if set(readers) - queries.keys():
                self._catalogue.require_unread(name, "replaced")
        return self._go_over_all(queries, at, silently=False).at

    def _go_over(self, name: str, query: Query, at: int | None, silently: bool = False) -> Migration:
        return self._go_over_all({name: query}, at, silently)

    def _go_over_all(self, queries: Mapping[str, Query], at: int | None, silently: bool) -> Migration:
        """Let other plans take over from those of running queries, together.  `silently`: they mean the same."""
        self._require_open()
        if at is not None:
            require_time(at)
        if not queries:
            raise QueryError("name the queries that are to become others, and what")
        steps = [self._joins(name, query) for name, query in queries.items()]
        for _, new, _ in steps:  # whoever becomes another one with it, or is it, is not read any more
            new.depends_on = tuple(each for each in new.depends_on if each not in queries)
        began = replace_plans(self._network, [step for _, _, step in steps], at, silently)
        for (old, new, step), done in zip(steps, began, strict=True):
            self._took_over(old, new, step, done)
        self._tidy()
        return Migration(max(each.at for each in began), max(each.valid_from for each in began), False)

    def _joins(self, name: str, query: Query) -> tuple[Entry, Entry, Takeover]:
        entry = self._catalogue[name]
        if entry.state != "running" or entry.exit is None or entry.subscription is None:
            raise QueryError(f"the query {name!r} is {entry.state}: only one that runs can be replaced; start it")
        self._finish_switches()
        new = self._made(name, query, entry.sink, entry.level, whole=True)
        if new.node.schema != entry.node.schema:
            raise QueryError(
                f"the query {name!r} has the columns {entry.node.schema}; one with {new.node.schema} cannot replace "
                "it: give it the same columns, or start another query"
            )
        exit, levels = self._placed(new, entry.level.emit)
        return entry, new, Takeover(entry.exit, entry.subscription, entry.steps, exit, levels)

    def _took_over(self, entry: Entry, new: Entry, step: Takeover, began: Replaced) -> None:
        name, tail = entry.name, step.tail
        entry.over = self._network.outlets[step.old].over
        self._network.outlets[step.old].leave(name)
        new.subscription = Subscription((), new.node.schema, tail.since, self._clock())
        new.subscription.wanted = tail.wanted
        self._network.outlets[step.new].subscribe(name, new.subscription)
        said = new.subscription.take(began.said)
        new.pending = said if entry.pending is None else joined(entry.pending, said)
        new.exit, new.valid_from, new.next_commit = step.new, entry.valid_from, entry.next_commit
        new.state, new.since, new.replaces = "running", entry.since, entry
        self._catalogue.entries[name] = new

    def _as_usual(self, entry: Entry) -> bool:
        """Let a query that has replaced another one run as a new one of its plan would, and be shared again; whether
        something has changed.  It is tried now and then, until what was said during the cutover allows it.

        One whose last filters are operators keeps them: what it has said is known behind the filters only.  One that
        was moved to another policy stays as it is: a new one would not say what that policy does.
        """
        assert entry.exit is not None, "it runs"
        (top, emit), network = entry.exit, self._network
        outlet, lowering = network.outlets[entry.exit], network.lowering(emit)
        if outlet.moved:  # its operators say what another policy does
            return False
        if outlet.delay > 0 or (entry.split and not outlet.rows):
            outlet.delay = max(outlet.delay - 1, 0)
            return False
        outlet.delay = outlet.patience = put_off(outlet.patience)
        if outlet.rows:
            sink = usual_sink(lowering, top)
            outlet.rows = not to_usual_form(
                outlet, sink, lambda: standing_at(outlet.port, network.flow.nodes, network.standing)
            )
        usual = self._made(entry.name, entry.node, entry.sink, entry.level, whole=False)
        entry.split = bool(usual.steps)
        if outlet.rows or entry.split:
            return False
        exit, _ = self._placed(usual, emit, entry.own)
        if exit in network.outlets or not rename(lowering, top, exit[0]):
            return False
        network.flow.outputs = {exit if key == entry.exit else key: each for key, each in network.outlets.items()}
        entry.exit, entry.outlet, entry.whole = exit, usual.outlet, False
        return True

    def is_replaced(self, name: str) -> bool:
        """Whether a query is being replaced: up to an instant the old one still speaks."""
        return self._catalogue[name].replaces is not None
