"""Joins of two plans on a condition: which parts of it are keys.

An equality between something of the left and something of the right is a key: of columns where both are plain and of
one type, else of computed columns, which the result does not show; a sum of integers that does not fit has no partner.
Everything else is the join's residual condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Call, Column, Expr, col, conjunction, conjuncts
from everwhen.algebra.expressions.lenient import without_overflow
from everwhen.core.kinds import common
from everwhen.errors import QueryError

Kind = Literal["inner", "left", "right", "full", "semi", "anti"]


def join(left: n.Node, right: n.Node, on: Expr | None, kind: Kind, fresh: Callable[[str], str]) -> n.Node:
    """The join; `on` reads the columns of pairs, and so does the result, in their order (semi, anti: the left's)."""
    pair = n.Join.pair_names(left.schema, right.schema).names
    width = len(left.schema)
    keys: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for condition in [] if on is None else conjuncts(on):
        found = key_of(condition, left, right)
        if found is None:
            rest.append(condition)
        else:
            keys.append(found)
    mine, left_keys = with_keys(left, [a for a, _ in keys], fresh)
    theirs, right_keys = with_keys(right, [b for _, b in keys], fresh)
    if kind == "right":
        swapped = n.Join.pair_names(theirs.schema, mine.schema).names
        width_right = len(theirs.schema)
        now = dict(zip(pair[width:], swapped, strict=False)) | dict(
            zip(pair[:width], swapped[width_right:], strict=False)
        )
        joined = n.Join(theirs, mine, right_keys, left_keys, _residual(rest, now), "left")
    else:
        names = n.Join.pair_names(mine.schema, theirs.schema).names
        now = dict(zip(pair[:width], names, strict=False)) | dict(
            zip(pair[width:], names[len(mine.schema) :], strict=False)
        )
        joined = n.Join(mine, theirs, left_keys, right_keys, _residual(rest, now), kind)
    wanted = pair[:width] if kind in ("semi", "anti") else pair
    # Equal names are not enough: of a right join with the same names on both sides they stand for the other side.
    if joined.schema.names == wanted and all(now[name] == name for name in wanted):
        return joined
    return n.Map(joined, tuple((name, col(now[name])) for name in wanted))


def _residual(rest: list[Expr], names: dict[str, str]) -> Expr | None:
    if not rest:
        return None
    return conjunction(rest).substitute({old: col(new) for old, new in names.items()})


def key_of(condition: Expr, left: n.Node, right: n.Node) -> tuple[Expr, Expr] | None:
    """The condition on pairs as an equality of something on the left and something on the right, of one type."""
    if not (isinstance(condition, Call) and condition.name == "="):
        return None
    a, b = condition.operands
    if not (a.columns() and b.columns()):
        return None
    pair, width = n.Join.pair_names(left.schema, right.schema).names, len(left.schema)
    sides = (
        dict(zip(pair[:width], left.schema.names, strict=True)),
        dict(zip(pair[width:], right.schema.names, strict=True)),
    )
    if a.columns() <= sides[1].keys() and b.columns() <= sides[0].keys():
        a, b = b, a
    if not (a.columns() <= sides[0].keys() and b.columns() <= sides[1].keys()):
        return None
    a, b = (
        e.substitute({pair: col(own) for pair, own in names.items()}) for e, names in zip((a, b), sides, strict=True)
    )
    a, b = without_overflow(a, left.schema), without_overflow(b, right.schema)
    one, two = a.bind(left.schema), b.bind(right.schema)
    try:
        type_ = common(one, two, str(condition))
    except QueryError:
        return None
    return a if one == type_ else a.cast(type_), b if two == type_ else b.cast(type_)


def with_keys(node: n.Node, keys: list[Expr], fresh: Callable[[str], str]) -> tuple[n.Node, tuple[str, ...]]:
    """The node with the keys among its columns, behind its own, and their names."""
    names: list[str] = []
    added: list[tuple[str, Expr]] = []
    for key in keys:
        if isinstance(key, Column):
            names.append(key.name)
        else:
            added.append((fresh("key"), key))
            names.append(added[-1][0])
    if added:
        node = n.Map(node, (*((c, col(c)) for c in node.schema.names), *added))
    return node, tuple(names)
