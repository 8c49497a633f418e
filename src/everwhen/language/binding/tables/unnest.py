"""UNNEST, series and LATERAL: tables in FROM that may read the tables before them.

UNNEST and series are one node over the rows before them.  A LATERAL subquery is bound as one in an expression is: for
all values that it reads at once, and then joined with the rows around.
"""

from __future__ import annotations

from typing import Literal

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col, conjunction, lit
from everwhen.algebra.table_nodes import UnnestKind
from everwhen.core.kinds import kind
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding import expressions, subqueries
from everwhen.language.binding.context import Binding, Rows
from everwhen.language.binding.scope import Scope, ScopeColumn, Table

_KINDS: dict[str, UnnestKind] = {"unnest": "list", "generate_series": "series", "range": "range"}


def is_lateral(item: s.FromItem) -> bool:
    """Whether it reads, or may read, what stands before it."""
    return isinstance(item, s.TableFunction | s.Lateral)


def lateral(item: s.TableFunction | s.Lateral, rows: Rows, binding: Binding, outer: bool = False) -> Rows:
    """The rows with what the item makes of each; `outer`: also those of which it makes nothing."""
    if item.modifiers:
        raise binding.error("a window stands behind its stream; these rows live as those they are made of", item.span)
    rows.place = "FROM"
    return _unnested(item, rows, outer) if isinstance(item, s.TableFunction) else _subquery(item, rows, outer)


def joined(item: s.JoinItem, rows: Rows, binding: Binding) -> Rows:
    """`rows JOIN UNNEST(…) ON …`: the condition is on the pairs; a LEFT JOIN has none but TRUE."""
    right = item.right
    assert isinstance(right, s.TableFunction | s.Lateral)
    kind_: Literal["inner", "left"] | None = {"inner": "inner", "cross": "inner", "left": "left"}.get(item.kind)  # type: ignore[assignment]
    if kind_ is None or item.using or item.natural or item.asof:
        raise binding.error("what reads the tables before it is joined by CROSS, INNER or LEFT JOIN … ON", item.span)
    test = None if isinstance(item.on, s.Constant) and item.on.value is True else item.on
    if kind_ == "left" and test is not None:
        raise binding.error(
            "a LEFT JOIN with UNNEST or LATERAL has ON TRUE; put the condition into WHERE of the LATERAL subquery",
            test.span,
        )
    found = lateral(right, rows, binding, outer=kind_ == "left")
    if test is not None:
        found.place = "ON"
        tests = [expressions.condition(each, found) for each in expressions.conjuncts(test)]
        found.node = n.Filter(found.node, conjunction(tests))
    return found


# -- UNNEST and series -------------------------------------------------------------------------------------------------


def _unnested(item: s.TableFunction, rows: Rows, outer: bool) -> Rows:
    binding = rows.binding
    args = [expressions.value(arg, rows) for arg in item.args]
    if item.name != "unnest":
        args = _series(item, args, rows)
    element = binding.name("element")
    place = binding.name("place") if item.ordinality else None
    wanted = 1 + item.ordinality
    if len(item.columns) > wanted:
        raise binding.error(f"{item.name.upper()} has {wanted} columns here, not {len(item.columns)}", item.span)
    named = [each.text for each in item.columns]
    if not named:
        named = [item.alias.text if item.alias is not None else item.name]
    if item.ordinality and len(named) == 1:
        named.append("ordinality")
    try:
        node = n.Unnest(rows.node, _KINDS[item.name], tuple(args), element, place, outer)
    except QueryError as error:
        raise binding.error(str(error), item.span) from None
    columns = [ScopeColumn(named[0], element)]
    if place is not None:
        columns.append(ScopeColumn(named[1], place))
    table = Table(item.alias.text if item.alias is not None else None, tuple(columns), item.name)
    return Rows(binding, node, Scope((*rows.scope.tables, table)), rows.correlation)


def _series(item: s.TableFunction, args: list[Expr], rows: Rows) -> list[Expr]:
    least = 1 if item.name == "range" else 2
    if not least <= len(args) <= 3:
        raise rows.binding.error(f"{item.name} takes where it begins, where it ends, and maybe a step", item.span)
    if len(args) == 1:
        args = [lit(0), args[0]]
    kinds = [kind(arg.bind(rows.node.schema)) for arg in args]
    if len(args) == 2 and kinds[0] == "integer":
        args.append(lit(1))
    elif len(args) == 2:
        raise rows.binding.error(f"{item.name} of times needs a step, such as INTERVAL '1' HOUR", item.span)
    return args


# -- LATERAL -----------------------------------------------------------------------------------------------------------


def _subquery(item: s.Lateral, rows: Rows, outer: bool) -> Rows:
    binding = rows.binding
    names = _aggregated(item, rows) if binding.single(item.query) else _joined(item, rows, outer)
    if item.columns:
        if len(item.columns) != len(names):
            raise binding.error(f"{len(item.columns)} names for a query of {len(names)} columns", item.columns[0].span)
        names = [(each.text, physical) for each, (_, physical) in zip(item.columns, names, strict=True)]
    columns = tuple(ScopeColumn(name, physical) for name, physical in names)
    table = Table(item.alias.text if item.alias is not None else None, columns)
    return Rows(binding, rows.node, Scope((*rows.scope.tables, table)), rows.correlation)


def _joined(item: s.Lateral, rows: Rows, outer: bool) -> list[tuple[str, str]]:
    bound = subqueries.correlated(rows, lambda correlation: rows.binding.query(item.query, correlation))
    there = subqueries.attach(rows, bound.node, bound.keys, item.span, "left" if outer else "inner")
    return [(column.name, there[name]) for column, name in zip(bound.columns, bound.answer, strict=True)]


def _aggregated(item: s.Lateral, rows: Rows) -> list[tuple[str, str]]:
    """One row of aggregates beside each row, over nothing too."""
    select = item.query
    while isinstance(select, s.With):
        select = select.body
    assert isinstance(select, s.Select)
    found = subqueries.correlated(rows, lambda correlation: rows.binding.aggregated(item.query, correlation))
    there = subqueries.attach(rows, found.node, found.keys, item.span)
    added = [(rows.binding.name("value"), subqueries.beside(value, found, there)) for value in found.values]
    before = tuple((name, col(name)) for name in rows.node.schema.names)
    if found.having is not None:
        raise rows.binding.error("HAVING of a LATERAL subquery needs GROUP BY; write a condition in WHERE", item.span)
    rows.node = n.Map(rows.node, (*before, *added))
    names = [_column_name(each, at) for at, each in enumerate(select.items, 1) if isinstance(each, s.Item)]
    return list(zip(names, (name for name, _ in added), strict=True))


def _column_name(item: s.Item, at: int) -> str:
    if item.alias is not None:
        return item.alias.text
    if isinstance(item.expression, s.Name):
        return item.expression.parts[-1].text
    return item.expression.name if isinstance(item.expression, s.Function) else f"column{at}"
