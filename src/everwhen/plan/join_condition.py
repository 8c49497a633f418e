"""The condition of a join, read and turned round: what lowering asks of semi- and outer joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Call, Column, Expr, col

_MIRROR: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def comparison_of(node: n.Join) -> tuple[str, str, str] | None:
    """The condition as `left column < right column` (or > <= >=), if it is just that; the right one by its own name."""
    condition = node.residual
    if not (isinstance(condition, Call) and condition.name in _MIRROR):
        return None
    first, second = condition.operands
    if not (isinstance(first, Column) and isinstance(second, Column)):
        return None
    names = node.pair_schema.names
    n_left = len(node.left.schema)
    a, b, operator = names.index(first.name), names.index(second.name), condition.name
    if b < n_left <= a:
        a, b, operator = b, a, _MIRROR[operator]
    if not a < n_left <= b:
        return None
    return names[a], operator, node.right.schema.names[b - n_left]


def mirrored(node: n.Join) -> n.Join:
    """The same join seen from the right, for its rows without a partner."""
    residual = node.residual
    if residual is not None:
        pair = node.pair_schema.names
        n_left = len(node.left.schema)
        swapped = n.Join(node.right, node.left).pair_schema.names
        n_right = len(node.right.schema)
        names = {pair[j]: swapped[j + n_right] for j in range(n_left)}
        names |= {pair[n_left + j]: swapped[j] for j in range(n_right)}
        residual = _renamed(residual, names)
    return n.Join(node.right, node.left, node.right_keys, node.left_keys, residual, "anti", node.null_safe)


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over columns of other names."""
    if isinstance(expr, Column):
        return col(names[expr.name])
    return expr.rebuild([_renamed(operand, names) for operand in expr.operands]) if expr.operands else expr
