"""μ_f(ω_rows(S)) = ω_rows(μ_f(S)) (10.11, 10.12), where it is so.

The rules of the thesis assume that no two rows are alive at one instant.  Here rows of one instant are ordered by their
values, column by column (semantics, decision 7), and a map may turn that order round.  So the map goes down only if

* the input is known to have at most one row at any instant, and the map keeps the PARTITION BY columns; or
* the map keeps all columns first, in their order, under any names: what follows them decides no tie.

Then columns are computed once for each row, not again when it leaves the window, and the map meets what is below.
An expression that may fail stays above: a row may never be among the last ones.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra.expressions.build import Column
from everwhen.algebra.nodes import Map, Node, RowsWindow
from everwhen.algebra.properties.derive import properties
from everwhen.rewrite.facts.conditions import may_fail
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Map(RowsWindow(input, partition=partition) as window, columns):
            kept = {expr.name: name for name, expr in reversed(columns) if isinstance(expr, Column)}
            if not all(name in kept for name in partition):
                return None
            if not (properties(input).at_most_one or _leads_with_all(node, input)):
                return None
            if any(may_fail(expr, input.schema) for _, expr in columns):
                return None
            return replace(window, input=Map(input, columns), partition=tuple(kept[name] for name in partition))
    return None


def _leads_with_all(node: Map, input: Node) -> bool:
    names = input.schema.names
    first = [expr.name for _, expr in node.columns[: len(names)] if isinstance(expr, Column)]
    return tuple(first) == names


ROWS_MAP = Rule("rows_map", "columns are computed once per row, before the window (10.11, 10.12)", _apply)
