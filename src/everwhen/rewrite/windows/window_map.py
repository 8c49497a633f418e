"""μ_f(ω_w(S)) = ω_w(μ_f(S)) (10.9): maps go below time windows.

Downwards, because a lifetime of n instants leaves the window as up to n overlapping ones, so the map has less to do
below; the window carries fewer columns; and the map meets the filters and maps at the source.  Not upwards, although it
holds both ways, and not below a window that others read too: it would have to be there twice (Example 10.2).

Below a sliding window, which may never show a row, an expression that may fail is not moved.
"""

from __future__ import annotations

from everwhen.algebra.nodes import Map, Node, TimeWindow, over
from everwhen.rewrite.facts.conditions import may_fail
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Map(TimeWindow(input, _, slide) as window, columns):
            if slide != 1 and any(may_fail(expr, input.schema) for _, expr in columns):
                return None
            return over(window, Map(input, columns))
    return None


WINDOW_MAP = Rule("window_map", "columns are computed and dropped before the window (10.9)", _apply)
