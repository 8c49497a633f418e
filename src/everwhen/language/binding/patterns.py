"""MATCH_RECOGNIZE in FROM as a plan: names that mean columns, variables, the row before, the match so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast, get_args

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col
from everwhen.algebra.patterns.pattern import Pattern, variables
from everwhen.algebra.patterns.program import compile_program
from everwhen.algebra.patterns.terms import Function, Term, over_last, term
from everwhen.core.schema import Field, Schema
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding import expressions, subqueries
from everwhen.language.binding.context import Binding, Rows, column_of
from everwhen.language.binding.scope import Scope, ScopeColumn, Table, same

FromItem = Callable[[s.FromItem, Binding], Rows]
Ticks = Callable[[s.Length, Binding], int]

_FUNCTIONS: Final = get_args(Function)
_REFUSED: Final = {
    "next": "NEXT is not part of the language: name the row behind by a variable of its own, as in PATTERN (A B)",
    "classifier": "CLASSIFIER is not part of the language: COUNT(A.*) tells whether rows are mapped to A",
    "match_number": "MATCH_NUMBER is not part of the language: matches have no order; FIRST(t) tells where each begins",
}


def matches(item: s.Matched, binding: Binding, from_item: FromItem, ticks: Ticks) -> tuple[n.Node, Table]:
    """The matches, and their columns: those of the partition, then the measures."""
    below = from_item(item.item, binding)
    (table,) = below.scope.tables
    node = below.node
    if item.within is not None:
        if any(isinstance(each, s.RangeWindow | s.RowsWindow) for each in item.item.modifiers):
            problem = (
                "WITHIN is a window, and the stream has one already: a row would be there several times; leave one out"
            )
            raise binding.error(problem, item.within.span)
        try:
            node = n.TimeWindow(node, ticks(item.within, binding))
        except QueryError as error:
            raise binding.error(str(error), item.within.span) from None
    partition = tuple(column_of(table, name, binding) for name in item.partition)
    order = tuple((column_of(table, name, binding), falling) for name, falling in item.order)
    define: list[tuple[str, Expr]] = []
    for each in item.define:
        variable = _variable(each.name, item.pattern)
        if variable is None:
            raise binding.error(_unknown(each.name, item.pattern, "DEFINE names a variable"), each.name.span)
        if any(variable == known for known, _ in define):
            raise binding.error(f"{variable} has a condition already; join the two with AND", each.name.span)
        rows = _rows(binding, node, table, item.pattern, variable)
        condition = _checked(each.expression, rows)
        found = condition.bind(rows.node.schema)
        if pa.types.is_null(found):
            condition = condition.cast("bool")
        elif not pa.types.is_boolean(found):
            raise binding.error(f"a condition is true or false; this is of type {found}", each.expression.span)
        _compiled(item.pattern, {variable: condition}, (), node, each.expression, binding)
        define.append((variable, condition))
    measures: list[tuple[str, Expr]] = []
    for each in item.measures:
        taken = [*partition, *(name for name, _ in measures)]
        if each.name.text in taken:
            raise binding.error(f"two columns of the match are called {each.name.text}", each.name.span)
        measure = over_last(_checked(each.expression, _rows(binding, node, table, item.pattern, None)))
        _compiled(item.pattern, {}, ((each.name.text, measure),), node, each.expression, binding)
        measures.append((each.name.text, measure))
    try:
        found_node = n.MatchRecognize(node, item.pattern, partition, order, tuple(define), tuple(measures))
    except QueryError as error:
        raise binding.error(str(error), item.place) from None
    names = tuple(table_column.name for table_column in (_shown(table, name) for name in partition))
    columns = tuple(
        ScopeColumn(name, physical)
        for name, physical in zip((*names, *(name for name, _ in measures)), found_node.schema.names, strict=True)
    )
    return found_node, Table(item.alias.text if item.alias else None, columns)


def _shown(table: Table, physical: str) -> ScopeColumn:
    return next(column for column in table.columns if column.physical == physical)


def _checked(e: s.Expression, rows: PatternRows) -> Expr:
    if subqueries.inside(e):
        raise rows.binding.error("a subquery cannot stand in MATCH_RECOGNIZE; join the stream with it before", e.span)
    return expressions.value(e, rows)


def _compiled(
    pattern: Pattern,
    define: dict[str, Expr],
    measures: tuple[tuple[str, Expr], ...],
    node: n.Node,
    e: s.Expression,
    binding: Binding,
) -> None:
    """Refuse at its place what cannot be computed."""
    try:
        compile_program(pattern, define, measures, node.schema)
    except QueryError as error:
        raise binding.error(str(error), e.span) from None


def _variable(name: s.Ident, pattern: Pattern) -> str | None:
    return next((each for each in variables(pattern) if same(name, each)), None)


def _unknown(name: s.Ident, pattern: Pattern, what: str) -> str:
    return f"{what} {name.text} that PATTERN does not have; there is {', '.join(variables(pattern))}"


def _rows(binding: Binding, node: n.Node, table: Table, pattern: Pattern, variable: str | None) -> PatternRows:
    place = "MEASURES" if variable is None else "DEFINE"
    return PatternRows(binding, node, Scope((table,)), place=place, pattern=pattern, variable=variable)


@dataclass
class PatternRows(Rows):
    """Rows as the conditions of a variable see them, or as measures do (`variable` is None).

    Terms become columns of `node`, so that expressions over them are checked as all others.  `inside`: the variables
    that were named inside a term.
    """

    pattern: Pattern = field(kw_only=True)
    variable: str | None = None
    inside: list[str] | None = None

    def term(self, e: s.Expression) -> Expr | None:
        if not isinstance(e, s.Function):
            return None
        if e.name in _REFUSED:
            raise self.binding.error(_REFUSED[e.name], e.span)
        if e.name not in _FUNCTIONS:
            return None
        if self.inside is not None:
            raise self.binding.error(f"{e.name.upper()} cannot stand inside another function of the match", e.span)
        if e.distinct or e.where is not None:
            what = "DISTINCT" if e.distinct else "FILTER"
            raise self.binding.error(f"{e.name.upper()} in MATCH_RECOGNIZE takes no {what}", e.span)
        if e.name == "prev" and self.variable is None:
            raise self.binding.error("PREV stands in DEFINE only; map the row before to a variable", e.span)
        return self._known(self._term(cast(Function, e.name), e), e)

    def _term(self, function: Function, e: s.Function) -> Term:
        error = self.binding.error
        if e.star or (len(e.args) == 1 and isinstance(e.args[0], s.Name) and e.args[0].parts[-1].text == "*"):
            if function != "count":
                raise error(f"only COUNT takes *; write for example {function.upper()}(A.price)", e.span)
            return term(function, None if e.star else self._qualifier(cast(s.Name, e.args[0])), None)
        if len(e.args) != 1:
            remedy = "; name the rows between by variables" if function in ("prev", "first", "last") else ""
            raise error(f"{function.upper()} takes one value of a row here, not {len(e.args)}{remedy}", e.span)
        inner = PatternRows(
            self.binding,
            self.node,
            self.scope,
            place=self.place,
            pattern=self.pattern,
            variable=self.variable,
            inside=[],
        )
        argument = inner.check(expressions.bind(e.args[0], inner), e.args[0].span)
        assert inner.inside is not None
        named = set(inner.inside)
        if len(named) > 1:
            raise error(
                f"{function.upper()} reads the rows of one variable, not of {' and '.join(sorted(named))}", e.span
            )
        variable = next(iter(named), None)
        if function == "prev":
            if variable not in (None, self.variable):
                raise error(f"PREV reads the row before this one; write PREV without {variable}", e.span)
            variable = None
        return term(function, variable, argument)

    def _known(self, found: Term, e: s.Expression) -> Expr:
        """The term as a column."""
        if found.name not in self.node.schema:
            try:
                type_ = found.type(self.node.schema)
            except QueryError as error:
                raise self.binding.error(str(error), e.span) from None
            self.node = n.Exchange("rows", Schema((*self.node.schema.fields, Field(found.name, type_))))
        return found

    def _qualifier(self, name: s.Name) -> str | None:
        """The variable before the point, None if that is the stream's name."""
        if len(name.parts) < 2:
            return None
        variable = _variable(name.parts[0], self.pattern)
        if variable is None and self.scope.qualified(name.parts[0]) is None:
            problem = _unknown(name.parts[0], self.pattern, f"{self.place} reads a variable")
            raise self.binding.error(problem, name.parts[0].span)
        return variable

    def column(self, name: s.Name) -> Expr:
        variable = self._qualifier(name)
        if variable is None:
            return super().column(name)
        plain = s.Name((name.parts[-1],), name.span)
        found = super().column(plain)
        if self.inside is not None:
            self.inside.append(variable)
            return found
        if variable == self.variable:
            return found  # the row itself
        return self._known(term("last", variable, col(str(found))), name)
