"""The column of ORDERED BY, where a query reads it: `SELECT ts …`, `ORDER BY ts`, `a.ts >= b.ts`.

Such a column is the start of a row's lifetime, and no column of the stream: kept there, rows that are equal but for
their time would differ in every DISTINCT and EXCEPT.  Where it is read, the events are stamped with their starts, below
all windows.  `*` does not show it, and another column of the name comes first.

Whether it is read is known when a name is found to mean it (`TimeWanted`).  The text is then bound again, with that
place in FROM stamped: other places that read the same stream stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col
from everwhen.core.kinds import kind
from everwhen.core.time import ticks
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding
from everwhen.language.binding.scope import ScopeColumn
from everwhen.language.catalog import Declaration


def with_time(node: n.Node, name: s.Ident, binding: Binding) -> tuple[n.Node, tuple[ScopeColumn, ...]]:
    """A stream's rows, stamped where the query is known to read their time here, and the column that is their time."""
    declaration = _declaration(node, binding)
    if declaration is None or declaration.ordered_by is None:
        return node, ()
    column, type_ = declaration.ordered_by
    if name.span not in binding.stamped:
        return node, (ScopeColumn(column, column, unlisted=True, stamps=name.span),)
    at = binding.name("at")
    time = shown_time(node, binding)(col(at))
    kept = tuple((each, col(each)) for each in node.schema.names)
    found = n.Map(n.Stamp(node, at), (*kept, (column, time.cast(type_))))
    return found, (ScopeColumn(column, column, unlisted=True),)


def shown_time(node: n.Node, binding: Binding) -> Callable[[Expr], Expr]:
    """Ticks as a user reads them: timestamps where a source is ordered by one, else numbers."""
    for source in n.walk(node):
        declaration = _declaration(source, binding)
        if declaration is not None and declaration.ordered_by is not None:
            if kind(declaration.ordered_by[1]) != "timestamp":
                continue
            try:
                unit, factor = "us", ticks(binding.tick, "1us")
            except QueryError:
                unit, factor = "ns", ticks(binding.tick, "1ns")
            return lambda time: (time * factor).cast(pa.timestamp(unit))
    return lambda time: time


def _declaration(node: n.Node, binding: Binding) -> Declaration | None:
    entry = binding.catalog.entries.get(node.name) if isinstance(node, n.Source) else None
    return None if entry is None else entry.declaration
