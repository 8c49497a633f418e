"""A condition on a rank becomes its limit: rows behind it are never looked at.

`rn <= 3`, `rn < 4`, `rn = 2`, `rn > 1` and the like, with constants, over a rank named `rn`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from everwhen.algebra.expressions.build import Call, Column, Expr, Literal, conjunction, conjuncts
from everwhen.algebra.nodes import Filter, Node, Rank
from everwhen.rewrite.rule import Rule

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_MOST: Final = 2**31


def _apply(node: Node) -> Node | None:
    if not (isinstance(node, Filter) and isinstance(node.input, Rank) and node.input.name is not None):
        return None
    rank = node.input
    low, high = rank.offset, rank.last
    stay: list[Expr] = []
    for each in conjuncts(node.predicate):
        bounds = _bounds(each, rank.name)
        if bounds is None:
            stay.append(each)
            continue
        low = max(low, bounds[0])
        high = bounds[1] if high is None else high if bounds[1] is None else min(high, bounds[1])
    if (low, high) == (rank.offset, rank.last):
        if len(stay) == len(conjuncts(node.predicate)):
            return None
        return Filter(rank, conjunction(stay)) if stay else rank
    found = replace(rank, offset=low, limit=None if high is None else max(0, high - low))
    return Filter(found, conjunction(stay)) if stay else found


def _bounds(e: Expr, name: str | None) -> tuple[int, int | None] | None:
    """How much a number is at least more than, and at most, where a condition on it is true."""
    if not (isinstance(e, Call) and e.name in _MIRRORED and len(e.operands) == 2):
        return None
    a, b = e.operands
    symbol = e.name
    if isinstance(a, Literal):
        a, b, symbol = b, a, _MIRRORED[symbol]
    if not (isinstance(a, Column) and a.name == name and isinstance(b, Literal)):
        return None
    k = b.constant
    if type(k) is not int or not 0 <= k < _MOST:
        return None
    match symbol:
        case "<=":
            return 0, k
        case "<":
            return 0, max(0, k - 1)
        case ">":
            return k, None
        case ">=":
            return max(0, k - 1), None
    return (k - 1, k) if k else (0, 0)


LIMIT_RANK = Rule("limit_rank", "rows whose rank is asked for nowhere are not ranked", _apply)
