"""ω_1(S) = S (10.7): the window of one instant holds what is alive at that instant.

A granule of one tick shows every instant, so it goes as well.
"""

from __future__ import annotations

from everwhen.algebra.nodes import Granularity, Node, TimeWindow
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case TimeWindow(input, 1, 1) | Granularity(input, 1):
            return input
    return None


DROP_NOW_WINDOW = Rule("drop_now_window", "a window of one instant changes nothing (10.7)", _apply)
