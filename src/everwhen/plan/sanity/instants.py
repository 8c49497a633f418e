"""Queries whose rows hardly ever meet: rows of a stream with ORDERED BY live one tick unless a window prolongs them.

Other systems keep such rows until a time-out, so that a join finds earlier ones and a count goes on.  Here a query is
about what is alive at each instant.  Where rows of one tick are joined, grouped or ranked, only those of the same
instant are together.  That is right if it is meant; `one_instant` says it where it may not be.
"""

from __future__ import annotations

from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.nodes import Call, Cast, Column, Expr, Literal
from everwhen.algebra.properties.derive import properties

_WHAT: Final = {
    n.Join: "only rows of the same instant meet in the join",
    n.Aggregate: "every instant has groups of its own",
    n.Rank: "every instant has ranks of its own",
    n.Over: "every instant has neighbours of its own",
}


def one_instant(node: n.Node) -> list[str]:
    """What to say of the first operators that see rows of one tick each, and what to write."""
    return list(dict.fromkeys(_told(each) for each in _first(node)))


def _first(node: n.Node) -> list[n.Node]:
    below = [found for input in node.inputs for found in _first(input)]
    return below or ([node] if type(node) in _WHAT and _sees_one_tick(node) else [])


def _sees_one_tick(node: n.Node) -> bool:
    if not all(properties(input).chronon and _sources(input) for input in node.inputs):
        return False
    keys = node.keys if isinstance(node, n.Aggregate) else node.left_keys if isinstance(node, n.Join) else ()
    return not any(_is_time(key, node.inputs[0]) for key in keys)


def _sources(node: n.Node) -> list[str]:
    found = (each for each in n.walk(node) if isinstance(each, n.Source))
    return list(dict.fromkeys(each.name for each in found if each.chronons and not each.is_finite))


def _is_time(column: str, node: n.Node) -> bool:
    """Whether a column is the very time of its row: then groups of one instant are what is meant."""
    expr: Expr = Column(column)
    while True:
        while isinstance(expr, Cast) or (isinstance(expr, Call) and isinstance(expr.operands[-1], Literal)):
            if isinstance(expr, Call) and expr.name != "*":
                return False
            expr = expr.operands[0]
        if not isinstance(expr, Column):
            return False
        if isinstance(node, n.Stamp) and expr.name == node.start:
            return True
        if isinstance(node, n.Map):
            expr = dict(node.columns)[expr.name]
        elif not isinstance(node, n.Filter | n.Stamp):
            return False
        node = node.inputs[0]


def _told(node: n.Node) -> str:
    names = _sources(node)
    told = f"rows of {' and '.join(names)} live one tick, so {_WHAT[type(node)]}; "
    if isinstance(node, n.Join):
        return told + f"to meet those of the last hour write {names[-1]} WINDOW(RANGE 1 HOUR)"
    clock = next(each.times.start for each in n.walk(node) if isinstance(each, n.Source) and each.name == names[0])
    hours = f", for every hour TABLE(TUMBLE(TABLE {names[0]}, DESCRIPTOR({clock}), INTERVAL '1' HOUR))" if clock else ""
    return told + f"for the last hour write {names[0]} WINDOW(RANGE 1 HOUR){hours}"
