"""Where an expression stands: the rows it is about, the groups they were made into, the query around it.

A subquery in an expression widens the rows it stands in by a column (see `subqueries`), so `Rows.node` changes while
expressions are bound; columns once there stay under their names.

A subquery may read columns of the query around it.  It is then evaluated for all values that those columns have, at
once: the set of values, `Correlation.values`, joins the subquery's own streams, and takes part in its groups and its
duplicate elimination.  Which columns are read is found by binding: the first use of one that is not yet among them
raises `Wanted`, and the subquery is bound anew.  Conditions of the form `inner = outer` need no such set: the inner
side itself is the value (`Correlation.links`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding.scope import NameProblem, Scope, Table
from everwhen.language.catalog import Catalog


@dataclass(frozen=True, slots=True)
class OutColumn:
    """A column of a query's answer; `origin` is the table it was written with."""

    name: str
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """How a row of a subquery finds the rows around it: `outer`, an expression there, equals the column `inner`.

    Nulls are equal if `null_safe`, else they find nothing.
    """

    outer: Expr
    inner: str
    null_safe: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """A query as a plan: the columns of `keys` first, then those of the answer."""

    node: n.Node
    columns: tuple[OutColumn, ...]
    keys: tuple[Key, ...] = ()

    @property
    def answer(self) -> tuple[str, ...]:
        """The plan's names of the answer's columns."""
        return self.node.schema.names[len(self.keys) :]


Named = n.Node | Callable[[s.Ident], n.Node]
"""What a name of WITH stands for: a plan, or one made for each place where it is read."""

Names = tuple[tuple[str, Named], ...]
"""The names of WITH that can be read somewhere, the nearest last."""


class Binding(Protocol):
    """What expressions need of the binder."""

    text: str
    catalog: Catalog
    tick: str
    stamped: set[s.Span]  # where streams stand in FROM whose time is read as a column
    spans: dict[int, tuple[Expr, s.Span]]  # where each expression was written; holding it keeps its id its own

    def error(self, problem: str, span: s.Span) -> SqlError: ...

    def stream(self, name: s.Ident) -> n.Node | None: ...

    def query(self, query: s.Query, correlation: Correlation | None = None) -> Bound: ...

    def single(self, query: s.Query) -> bool:
        """Whether the query is one row of aggregates, over nothing too."""

    def aggregated(self, query: s.Query, correlation: Correlation) -> Aggregated:
        """A query that is `single`."""

    def expression(self, e: s.Expression, rows: Rows) -> Expr: ...

    def compared(self, symbol: str, a: Expr, b: Expr, rows: Rows) -> Expr: ...

    def name(self, what: str) -> str:
        """A column name that nothing else has."""

    def hidden_time(self, name: s.Ident) -> str:
        """What to say of a name that is no column here, but the time of a stream that is read; else nothing."""

    @property
    def names(self) -> Names:
        """The names of WITH that can be read here."""

    def naming(self, names: Names) -> AbstractContextManager[None]:
        """Within it, these are the names of WITH."""


class Wanted(Exception):
    """A column of the query around is read for the first time."""

    def __init__(self, correlation: Correlation, outer: Expr) -> None:
        super().__init__("a column of the query around")
        self.correlation = correlation
        self.outer = outer


@dataclass
class Correlation:
    """What a subquery reads of the rows around it."""

    rows: Rows
    wanted: list[tuple[str, Expr]] = field(default_factory=list)
    linking: bool = True

    def column(self, outer: Expr) -> Expr:
        """The column that stands for an expression over the rows around."""
        for name, known in self.wanted:
            if known.equals(outer):
                return col(name)
        raise Wanted(self, outer)

    def values(self) -> n.Node | None:
        """All values that the columns wanted have; None if there are none."""
        if not self.wanted:
            return None
        return n.Distinct(n.Map(self.rows.node, tuple(self.wanted)))

    def keys(self) -> tuple[Key, ...]:
        return tuple(Key(outer, name, True) for name, outer in self.wanted)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows that were grouped: expressions over them are keys or aggregates."""

    before: Rows
    keys: tuple[tuple[Expr, str], ...]
    aggregates: dict[int, Expr]  # by the identity of the call in the syntax
    counts: frozenset[str] = frozenset()  # the names of those that are 0 over nothing
    absent: tuple[tuple[Expr, Expr], ...] = ()  # keys of other grouping sets, and the nulls that they are here


@dataclass
class Rows:
    """The rows that expressions are bound over."""

    binding: Binding
    node: n.Node
    scope: Scope
    correlation: Correlation | None = None
    groups: Groups | None = None
    place: str = "here"  # for messages: WHERE, SELECT, …
    overs: dict[int, Expr] = field(default_factory=dict)  # calls with OVER, by their identity in the syntax

    def column(self, name: s.Name) -> Expr:
        """The column that the name means, here or in a query around."""
        for loose in (False, True):
            found = self.find(name, loose)
            if found is None and self.correlation is not None:
                around = self.correlation.rows.around(name, loose)
                found = None if around is None else self.correlation.column(around)
            if found is not None:
                return found
        hint = self.binding.hidden_time(name.parts[-1])
        raise self.binding.error(self.known().unknown(name.parts) + hint, name.span)

    def term(self, e: s.Expression) -> Expr | None:
        """What an expression is that has a meaning of its own among these rows."""
        return None

    def around(self, name: s.Name, loose: bool) -> Expr | None:
        """The column that a subquery's name means in the query around it, or further out."""
        found = self.find(name, loose)
        if found is not None or self.correlation is None:
            return found
        further = self.correlation.rows.around(name, loose)
        return None if further is None else self.correlation.column(further)

    def own(self, name: s.Name) -> bool:
        """Whether the name means a column of these rows, or a field of one, and none of a query around."""
        for width in range(len(name.parts), 0, -1):
            head = s.Name(name.parts[:width], name.span)
            if self.find(head, False) is not None:
                return True
            if self.correlation is not None and self.correlation.rows.around(head, False) is not None:
                return False
        return self.find(name, True) is not None

    def known(self) -> Scope:
        return self.scope if self.groups is None else self.groups.before.scope

    def find(self, name: s.Name, loose: bool = True) -> Expr | None:
        """The column of these rows that the name means, if there is one."""
        try:
            if self.groups is None:
                found = self.scope.column(name.parts, loose)
                return None if found is None else col(found.physical)
            inner = self.groups.before.scope.column(name.parts, loose)
        except NameProblem as problem:
            raise self.binding.error(str(problem), name.span) from None
        if inner is None:
            return None
        for expr, key in self.groups.keys:
            if expr.equals(col(inner.physical)):
                return col(key)
        for expr, null in self.groups.absent:
            if expr.equals(col(inner.physical)):
                return null
        raise self.binding.error(
            f"{name.parts[-1].text} is neither grouped by nor inside an aggregate; add it to GROUP BY, or write for "
            f"example MAX({name.parts[-1].text})",
            name.span,
        )

    def check(self, expr: Expr, span: s.Span) -> Expr:
        """The expression itself; SqlError at the smallest part that does not fit."""
        try:
            expr.bind(self.node.schema)
        except QueryError as error:
            raise self._problem(expr, span, error) from None
        return expr

    def _problem(self, expr: Expr, span: s.Span, error: QueryError) -> SqlError:
        for operand in expr.operands:
            at = self.binding.spans.get(id(operand), (operand, span))[1]
            try:
                operand.bind(self.node.schema)
            except QueryError as inner:
                return self._problem(operand, at, inner)
        at = self.binding.spans.get(id(expr), (expr, span))[1]
        return self.binding.error(str(error), at)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """A subquery that is one row of aggregates: over no rows at all it still has that row.

    `values` are the columns of the answer and `having` its condition, as expressions over the aggregates; `counts`
    are those that are 0, not null, where there are no rows.
    """

    node: n.Node
    keys: tuple[Key, ...]
    values: tuple[Expr, ...]
    having: Expr | None
    counts: frozenset[str]


def column_of(table: Table, name: s.Name, binding: Binding) -> str:
    """The column that a name means of a table, as the plan calls it; an error at its place if there is none."""
    scope = Scope((table,))
    try:
        found = scope.column(name.parts)
    except NameProblem as problem:
        raise binding.error(str(problem), name.span) from None
    if found is None:
        raise binding.error(scope.unknown(name.parts), name.span)
    return found.physical
