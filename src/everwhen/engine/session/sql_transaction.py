"""A draft: what a text would change in an SQL session, found without changing anything.

All that a text can do wrong by itself is found here, statement by statement, each against the catalogue that the ones
before it leave: syntax, names, types, what still depends on a stream that is to go, state that nothing bounds, levels
that are none.  Every refusal is an `SqlError` with its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from everwhen.algebra.nodes import Filter, Map, Node, Source, TimeWindow, rebuilt, walk
from everwhen.core.consistency import LEVELS, Consistency, consistency
from everwhen.core.time import NEVER, show
from everwhen.engine.session.stream_info import SqlQuery
from everwhen.errors import LoopError, QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.catalog import Catalog, Entry
from everwhen.language.parse import parse
from everwhen.language.program import AskedConsistency, ask, declare
from everwhen.plan.sanity.bounded import require_bounded
from everwhen.plan.sanity.instants import one_instant
from everwhen.rewrite.driver import Applied, rewrite_all
from everwhen.rewrite.filters.push_filter import PUSH_FILTER
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rewrite.plans.prune_columns import PRUNE_COLUMNS
from everwhen.rewrite.rule_order import SHARING_RULES
from everwhen.sinks.base import EpochSink

_CHEAP: Final = (Source, Filter, Map, TimeWindow)
_CHEAP_RULES: Final = tuple(rule for rule in SHARING_RULES if rule not in (PUSH_FILTER, PRUNE_COLUMNS))
"""For plans of such steps only: a filter stays last, where many are looked up at once (`filter_index.py`); to push it
below a window would save little, and give each its own window."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement did, and to what.  `warnings` tell of state that may grow, and of rows that hardly meet."""

    kind: Literal["created", "replaced", "dropped", "kept", "started", "altered", "explained"]
    what: str
    name: str
    text: str
    warnings: tuple[str, ...] = ()
    at: int | None = None
    """From when on a query that was altered, or those that read a stream that was replaced, are the new ones."""
    told: str = ""
    """What EXPLAIN tells."""

    def __str__(self) -> str:
        if self.at is not None:
            when = "from the beginning" if self.at == NEVER else f"from {show(self.at)} on"
            if self.kind == "replaced":
                return f"replaced {self.what} {self.name}: what reads it gives the new answer {when}"
            return f"altered query {self.name}: its answer is the new one's {when}"
        if self.kind == "kept":
            return f"there is no {self.what} {self.name} to drop"
        if self.kind == "explained":
            return self.told
        return f"{self.kind} {self.what} {self.name}"


@dataclass(frozen=True)
class Planned:
    """A plan as written and as it runs, and the rules that led there."""

    written: Node
    node: Node
    applied: tuple[Applied, ...]


@dataclass(frozen=True)
class Start:
    """A query to be started."""

    name: str
    text: str
    reads: tuple[str, ...]
    plan: Planned
    sink: EpochSink | None
    span: s.Span
    level: Consistency


@dataclass(frozen=True)
class Asked:
    """A query as it was asked for, and the plan that it runs by."""

    text: str
    reads: tuple[str, ...]
    plan: Planned
    sink: EpochSink | None
    ended: SqlQuery | None = None
    """How it was when it stopped."""


@dataclass
class SqlTransaction:
    """Call `read` once.  `running` has the queries that run; `taken` all names."""

    text: str
    catalog: Catalog
    derived: dict[str, Planned]
    running: Mapping[str, Asked]
    taken: frozenset[str]
    number: int
    tick: str
    level: Consistency
    optimize: bool
    allow_unbounded: bool
    starts: list[Start] = field(default_factory=list)
    altered: list[Start] = field(default_factory=list)
    """Running queries that become others, all at one instant; their sinks and their levels stay."""
    replaced: str | None = None
    """The derived stream because of which they do."""
    forgotten: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    last: tuple[str, Planned] | None = None
    """What the last statement computes."""

    def read(
        self,
        *,
        single: bool = False,
        name: str | None = None,
        sink: EpochSink | None = None,
        explaining: bool = False,
    ) -> None:
        """Find out what the statements would do.

        `single`: the text ends with one query and has no other, which gets the name and the sink.  `explaining`: state
        that nothing bounds is not refused, for EXPLAIN tells of it.
        """
        statements = parse(self.text)
        for at, statement in enumerate(statements, 1):
            if isinstance(statement, s.AlterQuery) and not single:
                self._alter(statement, explaining)
                continue
            if not isinstance(statement, s.Ask):
                if single and at == len(statements):
                    raise self._error("the text ends without a query; add a SELECT", statement.span)
                if isinstance(statement, s.CreateSink | s.InsertInto):
                    declare(statement, self.text, self.catalog, self.tick)  # says why not
                    continue
                self._declare(statement)
                continue
            if single and at < len(statements):
                raise self._error("a text that is one query ends with it; use execute() for several", statement.span)
            self._ask(statement, name, sink, explaining)

    # -- statements ---------------------------------------------------------------------------------------------

    def _declare(self, statement: s.CreateSource | s.CreateDerived | s.Drop | s.AlterQuery) -> None:
        if isinstance(statement, s.AlterQuery):
            raise self._error("ALTER QUERY stands by itself, or in execute()", statement.span)
        before = self._goes(statement)
        if before is not None and isinstance(statement, s.CreateDerived) and self._readers(before):
            self._replace(statement, before)
            return
        if before is not None:
            self._require_unread(before, "dropped" if isinstance(statement, s.Drop) else "replaced", statement.name)
        self.catalog = declare(statement, self.text, self.catalog, self.tick)
        self.last = None
        text = self._text(statement.span)
        if before is not None:
            self.derived.pop(before.name, None)
            if isinstance(before.node, Source) and before.node.name == before.name:
                self.forgotten.append(before.name)
        if isinstance(statement, s.Drop):
            kind: Literal["dropped", "kept"] = "kept" if before is None else "dropped"
            self.outcomes.append(Outcome(kind, "stream", statement.name.text if before is None else before.name, text))
            return
        entry = self.catalog.entries[statement.name.text]
        what = "stream"
        if isinstance(statement, s.CreateDerived):
            what = "derived stream"
            self.derived[entry.name] = plan = self._planned(entry.node)
            self.last = entry.name, plan
        elif statement.kind != "stream":
            what = f"{statement.kind} relation"
        self.outcomes.append(Outcome("created" if before is None else "replaced", what, entry.name, text))

    def _readers(self, entry: Entry) -> list[str]:
        """The running queries that read a derived stream, or what is made from it."""
        if entry.declaration is not None:
            return []
        made = {entry.name, *self._made_from(entry.name)}
        return [name for name, asked in self.running.items() if not made.isdisjoint(asked.reads)]

    def _replace(self, statement: s.CreateDerived, before: Entry) -> None:
        """A derived stream gets another meaning, and with it all that is made from it, and the queries that read it."""
        if self.altered:
            raise self._error(
                "a text changes running queries once; the other ALTER QUERY and CREATE OR REPLACE go into texts of "
                "their own",
                statement.span,
            )
        statement = replace(statement, name=replace(statement.name, text=before.name))  # as others name it
        readers = self._readers(before)
        made = self._made_from(before.name)
        if new := [start.name for start in self.starts if not {before.name, *made}.isdisjoint(start.reads)]:
            raise self._error(
                f"{before.name} cannot be replaced: {new[0]}, which this text starts, reads it, or what is made from "
                "it; put the one or the other into a text of its own",
                statement.name.span,
            )
        self._require_no_circle(statement, before, made)
        old = self.catalog.entries
        entries = {name: each for name, each in old.items() if name not in made}
        found = declare(statement, self.text, replace(self.catalog, entries=entries), self.tick)
        entry = found.entries[statement.name.text]
        if entry.node.schema != before.node.schema:
            raise self._error(
                f"{before.name} has the columns {before.node.schema}, and {', '.join(readers)} "
                f"read{'s' * (len(readers) == 1)} it; with {entry.node.schema} it cannot be replaced: give it the same "
                "columns, or stop what reads it first",
                statement.name.span,
            )
        for name in made:  # compiled again, as the queries are: it depends on the plan of what is read
            (made_as,) = parse(old[name].text)
            assert isinstance(made_as, s.CreateDerived)
            made_as = replace(made_as, name=replace(made_as.name, text=name))
            found = declare(made_as, old[name].text, found, self.tick)
        order = [entry.name if name == before.name else name for name in old]
        self.catalog = replace(found, entries={name: found.entries[name] for name in (*order, *found.entries)})
        for name in [before.name, *made]:
            self.derived.pop(name, None)
        for name in [entry.name, *made]:
            self.derived[name] = self._planned(self.catalog.entries[name].node)
        for name in readers:
            text = self.running[name].text
            (query,) = parse(text)
            assert isinstance(query, s.Ask)
            answer, _ = ask(query, text, self.catalog, self.tick)
            plan = self._planned(answer.node)
            self._require_bounded(plan.node, statement.span)
            reads = tuple(sorted(answer.reads))
            self.altered.append(Start(name, "", reads, plan, None, statement.span, self.level))
        self.last, self.replaced = (entry.name, self.derived[entry.name]), entry.name
        self.outcomes.append(Outcome("replaced", "derived stream", entry.name, self._text(statement.span)))

    def _require_no_circle(self, statement: s.CreateDerived, before: Entry, made: list[str]) -> None:
        answer, _ = ask(s.Ask(statement.query, None, statement.span), self.text, self.catalog, self.tick)
        if circle := [name for name in made if name in answer.reads]:
            raise self._error(
                f"{before.name} cannot be made from {circle[0]}, which is made from {before.name}", statement.query.span
            )

    def _made_from(self, name: str) -> list[str]:
        """The derived streams that are made from one, or from those; each behind what it is made from."""
        entries, made = self.catalog.entries, {name}
        while more := {other.name for other in entries.values() if other.reads & made} - made:
            made |= more
        found: list[str] = []
        left = made - {name}
        while left:
            found += [other for other in entries if other in left and not entries[other].reads & left]
            left.difference_update(found)
        return found

    def _require_bounded(self, node: Node, span: s.Span) -> None:
        try:
            require_bounded(node, self.allow_unbounded)
        except QueryError as error:
            raise self._error(str(error), span) from None

    def _goes(self, statement: s.CreateSource | s.CreateDerived | s.Drop) -> Entry | None:
        """The entry that a statement takes away, if there is one."""
        if not isinstance(statement, s.Drop) and not statement.or_replace:
            return None
        try:
            return self.catalog.stream(statement.name.text, isinstance(statement, s.Drop) and statement.name.quoted)
        except QueryError as error:
            raise self._error(str(error), statement.name.span) from None

    def _require_unread(self, entry: Entry, what: str, name: s.Ident) -> None:
        readers = [query for query, asked in self.running.items() if entry.name in asked.reads]
        readers += [start.name for start in self.starts if entry.name in start.reads]
        if not readers:
            return  # derived streams that read it are the catalogue's affair
        made = [other.name for other in self.catalog.entries.values() if entry.name in other.reads]
        also = f"{', '.join(made)} {'is' if len(made) == 1 else 'are'} made from it, and " if made else ""
        one = len(readers) == 1
        whose = f"the {'query' if one else 'queries'} {', '.join(readers)} read{'s' * one} it"
        raise self._error(
            f"{entry.name} cannot be {what}: {also}{whose}; stop {'it' if one else 'them'} first", name.span
        )

    def _ask(self, statement: s.Ask, name: str | None, sink: EpochSink | None, explaining: bool) -> None:
        answer, self.catalog = ask(statement, self.text, self.catalog, self.tick)
        level = self.level
        if statement.consistency is not None and answer.consistency is not None:
            level = self._level(answer.consistency, statement.consistency.span)
        plan = self._planned(answer.node)
        try:
            warnings = require_bounded(plan.node, self.allow_unbounded or explaining)
        except QueryError as error:
            raise self._error(str(error), statement.span) from None
        if name is None:
            name = next(each for each in self._names() if each not in self.taken and self.catalog.stream(each) is None)
        text = self._text(statement.span)
        self.starts.append(Start(name, text, tuple(sorted(answer.reads)), plan, sink, statement.span, level))
        told = (*map(str, warnings), *one_instant(answer.node))
        self.outcomes.append(Outcome("started", "query", name, text, told))
        self.last = "the query", plan

    def _alter(self, statement: s.AlterQuery, explaining: bool) -> None:
        """A query becomes another one; one of them in a text, because what has taken over cannot be taken back."""
        name = statement.name.text
        if self.altered:
            raise self._error(
                "a text has one ALTER QUERY, or one CREATE OR REPLACE of a stream that is read; the others go into "
                "texts of their own",
                statement.span,
            )
        if name not in self.running:
            there = f"there is {', '.join(self.running)}" if self.running else "none is running"
            known = "does not run" if name in self.taken else "is not there"
            raise self._error(f"the query {name!r} {known}; {there}", statement.name.span)
        self._ask(s.Ask(statement.query, None, statement.span), name, None, explaining)
        self.altered = [replace(self.starts.pop(), text=self._text(statement.query.span))]
        self.outcomes[-1] = replace(self.outcomes[-1], kind="altered")

    def _names(self) -> Iterator[str]:
        while True:
            self.number += 1
            yield f"q{self.number}"

    def _level(self, asked: AskedConsistency, span: s.Span) -> Consistency:
        """The level that a clause asks for."""
        if asked.level is not None:
            return LEVELS[asked.level]
        try:
            return consistency(asked.block, asked.remember)
        except QueryError as error:
            raise self._error(str(error), span) from None

    # -- plans --------------------------------------------------------------------------------------------------

    def _planned(self, written: Node) -> Planned:
        """The plan over derived streams as they run, rewritten beside all that runs."""
        if not self.optimize:
            return Planned(written, self._legal(written), ())
        runs_as = {id(plan.written): plan for plan in self.derived.values()}
        used = {id(node): runs_as[id(node)] for node in walk(written) if id(node) in runs_as}
        root = _swapped(written, {at: plan.node for at, plan in used.items()})
        kept = [plan.node for plan in used.values()]
        kept += [asked.plan.node for asked in self.running.values()]
        kept += [start.plan.node for start in self.starts]
        rules = _CHEAP_RULES if all(isinstance(node, _CHEAP) for node in walk(root)) else SHARING_RULES
        found = rewrite_all({"": root}, rules, kept)
        before = [applied for plan in used.values() for applied in plan.applied]
        return Planned(written, self._legal(found.nodes[""]), (*before, *found.applied))

    def _legal(self, node: Node) -> Node:
        try:
            return legal_loops(node)
        except LoopError as error:
            raise error.within(self.text) from None

    # -- places -------------------------------------------------------------------------------------------------

    def _text(self, span: s.Span) -> str:
        return self.text[span.start : span.end].strip().rstrip(";").rstrip()

    def _error(self, problem: str, span: s.Span) -> SqlError:
        return SqlError(problem, self.text, span.start, span.end)


def _swapped(node: Node, swap: Mapping[int, Node]) -> Node:
    """A plan with other nodes in the place of some."""
    return rebuilt(lambda each: swap.get(id(each)), node)[0]
