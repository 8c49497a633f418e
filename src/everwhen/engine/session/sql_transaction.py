"""A draft: what a text would change in an SQL session, found without changing anything.

All that a text can do wrong by itself is found here, statement by statement, each against the catalogue that the ones
before it leave: syntax, names, types, what still depends on a stream that is to go, state that nothing bounds, levels
that are none.  Every refusal is an `SqlError` with its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from everwhen.algebra.nodes import Filter, Map, Node, Source, TimeWindow, over, walk
from everwhen.core.consistency import LEVELS, Consistency, consistency
from everwhen.errors import LoopError, QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.catalog import Catalog, Entry
from everwhen.language.parse import parse
from everwhen.language.program import AskedConsistency, ask, declare
from everwhen.plan.sanity.bounded import require_bounded
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
    """What a statement did, and to what.  `warnings` tell of state that may grow."""

    kind: Literal["created", "replaced", "dropped", "kept", "started"]
    what: str
    name: str
    text: str
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "kept":
            return f"there is no {self.what} {self.name} to drop"
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


@dataclass
class SqlTransaction:
    """Call `read` once.  `running` gives by query the streams that it reads and its plan; `taken` all names."""

    text: str
    catalog: Catalog
    derived: dict[str, Planned]
    running: Mapping[str, tuple[Sequence[str], Node]]
    taken: frozenset[str]
    number: int
    tick: str
    level: Consistency
    optimize: bool
    allow_unbounded: bool
    starts: list[Start] = field(default_factory=list)
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

    def _declare(self, statement: s.CreateSource | s.CreateDerived | s.Drop) -> None:
        before = self._goes(statement)
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

    def _goes(self, statement: s.CreateSource | s.CreateDerived | s.Drop) -> Entry | None:
        """The entry that a statement takes away, if there is one."""
        if not isinstance(statement, s.Drop) and not statement.or_replace:
            return None
        try:
            return self.catalog.stream(statement.name.text, isinstance(statement, s.Drop) and statement.name.quoted)
        except QueryError as error:
            raise self._error(str(error), statement.name.span) from None

    def _require_unread(self, entry: Entry, what: str, name: s.Ident) -> None:
        readers = [query for query, (reads, _) in self.running.items() if entry.name in reads]
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
        self.outcomes.append(Outcome("started", "query", name, text, tuple(map(str, warnings))))
        self.last = "the query", plan

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
        used: dict[int, Planned] = {}
        placed: dict[int, Node] = {}
        for node in walk(written):
            plan = runs_as.get(id(node))
            if plan is not None:
                used[id(node)] = plan
                placed[id(node)] = plan.node
            else:
                placed[id(node)] = over(node, *(placed[id(child)] for child in node.inputs))
        kept = [plan.node for plan in used.values()]
        kept += [node for _, node in self.running.values()]
        kept += [start.plan.node for start in self.starts]
        root = placed[id(written)]
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
