"""ω_w(S) ∪ ω_w(T) = ω_w(S ∪ T) (10.10): equal windows of both sides become one above the union.

One window operator instead of two.  Where another step reads one of the windows, it must stay where it is (Example
10.2); the driver does not take shared nodes apart.
"""

from __future__ import annotations

from everwhen.algebra.nodes import Node, TimeWindow, Union
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Union(TimeWindow(left, size, slide), TimeWindow(right, other, step)) if (size, slide) == (other, step):
            return TimeWindow(Union(left, right), size, slide)
    return None


WINDOW_UNION = Rule("window_union", "one window above the union instead of two below (10.10)", _apply)
