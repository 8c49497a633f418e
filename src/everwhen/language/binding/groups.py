"""Groups as plans: one row per group with its aggregates; those that need rows of their own are taken apart and joined.

Aggregates of distinct values are over rows without duplicates.  The most frequent value is the one whose rows, counted
per value, are most; of several the smallest.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import AggregateCall
from everwhen.algebra.builder import GroupBy, Stream
from everwhen.algebra.expressions.build import Column, Expr, col
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.aggregates import AggregateUse
from everwhen.language.binding.context import Rows

Use = tuple[str, AggregateUse, s.Function]
"""An aggregate with the name of its column, and the call that it is of."""


def aggregate(keys: list[tuple[str, Expr]], uses: list[Use], rows: Rows) -> n.Node:
    """One row per group; aggregates over distinct values, and modes, are taken apart and joined by the keys."""
    plain = [use for use in uses if not use[1].apart]
    apart = [use for use in uses if use[1].apart]
    names = (*(name for name, _ in keys), *(name for name, _, _ in uses))
    if not plain and any(use[1].function == "mode" for use in apart):
        plain = [(rows.binding.name("rows"), AggregateUse("count", (), (), False), apart[0][2])]
    node: n.Node | None = _summed(rows.node, keys, plain, rows) if plain or not apart else None
    for use in apart:
        mode = use[1].function == "mode"
        other = (_mode if mode else _of_distinct)(keys, use, rows)
        by = tuple(name for name, _ in keys)
        node = other if node is None else _joined(node, other, by, use[0], outer=mode)
    assert node is not None
    return projected(node, tuple((name, col(name)) for name in names))


def _of_distinct(keys: list[tuple[str, Expr]], use: Use, rows: Rows) -> n.Node:
    args = tuple((f"_{i}", arg) for i, arg in enumerate(use[1].args))
    distinct = n.Distinct(n.Map(rows.node, (*keys, *args)))
    counted = args[:1] if use[1].function == "count" else args  # of several the first says whether they count
    call = replace(use[1], args=tuple(col(name) for name, _ in counted), distinct=False)
    return _summed(distinct, [(name, col(name)) for name, _ in keys], [(use[0], call, use[2])], rows)


def _mode(keys: list[tuple[str, Expr]], use: Use, rows: Rows) -> n.Node:
    value, count = rows.binding.name("value"), rows.binding.name("times")
    own = [(name, col(name)) for name, _ in keys]
    there = n.Filter(n.Map(rows.node, (*keys, (value, use[1].args[0]))), col(value).not_null())
    times = AggregateUse("count", (), (), False)
    counted = _summed(there, [*own, (value, col(value))], [(count, times, use[2])], rows)
    most = AggregateUse("last", (col(value), col(count)), (), False)
    return _summed(counted, own, [(use[0], most, use[2])], rows)


def _joined(node: n.Node, other: n.Node, keys: tuple[str, ...], name: str, outer: bool) -> n.Node:
    both = n.Join(node, other, keys, keys, kind="left" if outer else "inner", null_safe=True)
    return n.Map(both, tuple((c, col(c)) for c in (*node.schema.names, name)))


def _summed(node: n.Node, keys: list[tuple[str, Expr]], uses: list[Use], rows: Rows) -> n.Node:
    grouped = GroupBy(Stream(node), tuple(keys))
    calls = {name: AggregateCall(use.function, use.args, use.parameters) for name, use, _ in uses}
    try:
        return grouped.agg(**calls).node
    except QueryError as error:
        for name, _, call in uses:
            try:
                grouped.agg(**{name: calls[name]})
            except QueryError as inner:
                raise rows.binding.error(str(inner), call.span) from None
        raise rows.binding.error(str(error), uses[0][2].span if uses else s.Span(0, 0)) from None


def projected(node: n.Node, columns: tuple[tuple[str, Expr], ...]) -> n.Node:
    """The columns; the node itself if it has just those."""
    same = all(isinstance(expr, Column) and expr.name == name for name, expr in columns)
    if same and tuple(name for name, _ in columns) == node.schema.names:
        return node
    return n.Map(node, columns)
