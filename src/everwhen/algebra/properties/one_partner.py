"""Joins in which each left row meets at most one right row at a time: the nearest of its key.

The condition says `t >= near AND (nearer IS NULL OR t < nearer)` (or < <= >), and the right side tells each row the
`near` of its neighbour: along an order of times that fall (rise, for < and <=) at most one row lies on the right side
of the inequality while the one before it does not.  ASOF JOIN is bound so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Call, Column, Expr, conjuncts

_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Neighbours(NamedTuple):
    """The columns that a condition compares, and whether t is above near."""

    t: str
    near: str
    nearer: str
    above: bool


def neighbours(condition: Expr | None) -> Neighbours | None:
    """What a condition says, if it says that among others.

    >>> from everwhen.algebra.expressions.build import col
    >>> neighbours((col("t") >= col("a")) & (col("b").is_null() | (col("t") < col("b"))))
    Neighbours(t='t', near='a', nearer='b', above=True)
    """
    tests = [] if condition is None else [each for each in conjuncts(condition) if isinstance(each, Call)]
    for each in tests:
        if each.name != "or" or len(each.operands) != 2:
            continue
        absent, farther = each.operands
        if not (isinstance(absent, Call) and absent.name == "is_null" and isinstance(farther, Call)):
            continue
        (nearer,) = absent.operands
        if farther.name not in _NEGATED or not isinstance(nearer, Column):
            continue
        symbol = _NEGATED[farther.name]
        t, other = farther.operands
        for test in tests:
            if test.name != symbol or not (isinstance(t, Column) and isinstance(other, Column)):
                continue
            a, near = test.operands
            if isinstance(near, Column) and a.equals(t) and other.equals(nearer):
                return Neighbours(t.name, near.name, nearer.name, symbol in (">", ">="))
    return None


def one_partner(join: n.Join) -> bool:
    """Whether each left row of an inner or a left join has at most one partner at a time, because of its condition."""
    found = neighbours(join.residual)
    if found is None:
        return False
    width = len(join.left.schema)
    own = dict(zip(join.pair_schema.names[width:], join.right.schema.names, strict=True))
    if found.t in own or found.near not in own or found.nearer not in own:
        return False
    names = {name: name for name in join.right.schema.names}  # as they are further down
    node = join.right
    while isinstance(node, n.Map | n.Filter):
        if isinstance(node, n.Map):
            plain = {name: expr.name for name, expr in node.columns if isinstance(expr, Column)}
            names = {name: plain[there] for name, there in names.items() if there in plain}
        node = node.input
    near, nearer = names.get(own[found.near]), names.get(own[found.nearer])
    if not isinstance(node, n.Over) or near is None or not {*node.partition} <= {names.get(k) for k in join.right_keys}:
        return False
    said = [each for each in node.functions if each.name == nearer]
    if not said or (said[0].function, said[0].column, said[0].places, said[0].default) != ("lag", near, 1, None):
        return False
    return node.order[0][:2] == (near, found.above)
