"""Which columns a loop keeps: every row that follows has them from the rows that it follows from, all of them.

`r(n, m)`, begun with pairs and continued by `SELECT r.n, link.b FROM r JOIN link ON r.m = link.a`, keeps n.  Where the
step reads the loop twice, both readings must have the column, and the step must compare them.  A branch of the step
that does not read the loop begins rows of its own, so that nothing is kept.

A condition on kept columns may be put on the base; rows with different values never meet.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from everwhen.algebra.expressions.build import Column
from everwhen.algebra.nodes import (
    Distinct,
    Filter,
    Fixpoint,
    Join,
    Map,
    Node,
    Recursion,
    SetOperation,
    Union,
    reads_recursion,
)
from everwhen.rewrite.facts.pairs import ownership

Homes = Mapping[str, frozenset[str]]
"""For each column of the loop, the columns that certainly hold its value, the same for all rows read of the loop."""

_NOWHERE: frozenset[str] = frozenset()


def kept_columns(loop: Fixpoint) -> frozenset[str]:
    """The columns that are kept; of MIN and MAX never the value."""
    found = homes(loop.step, loop)
    places = dict(zip(loop.schema.names, loop.step.schema.names, strict=True))
    return frozenset(name for name in loop.keys if places[name] in found.get(name, _NOWHERE))


def homes(node: Node, loop: Fixpoint) -> Homes:
    """Where a part of the step, which reads the loop, has the loop's columns."""
    match node:
        case Recursion():
            return {name: frozenset({name}) for name in node.schema.names}
        case Filter(input) | Distinct(input):
            return homes(input, loop)
        case Map(input, columns):
            below = homes(input, loop)
            plain = [(name, expr.name) for name, expr in columns if isinstance(expr, Column)]
            return {p: frozenset(name for name, own in plain if own in held) for p, held in below.items()}
        case Union(left, right) | SetOperation(left, right, "intersect"):
            return _both(node, left, right, loop)
        case Join():
            return _joined(node, loop)
    return {}


def _both(node: Node, left: Node, right: Node, loop: Fixpoint) -> Homes:
    one, two = reads_recursion(left, loop.token), reads_recursion(right, loop.token)
    names = dict(zip(right.schema.names, left.schema.names, strict=True))
    mine = homes(left, loop) if one else {}
    theirs = {p: frozenset(names[name] for name in held) for p, held in (homes(right, loop) if two else {}).items()}
    if one and two:
        return {p: mine[p] & theirs[p] for p in mine.keys() & theirs.keys()}
    if isinstance(node, Union):
        return {}  # rows of the other side begin here
    return mine or theirs


def _joined(join: Join, loop: Fixpoint) -> Homes:
    if join.kind == "full":
        return {}
    own = ownership(join)
    pair_left = {name: pair for pair, name in own.left.items()}
    pair_right = {name: pair for pair, name in own.right.items()}
    mine = _placed(join.left, pair_left, loop)
    theirs = _placed(join.right, pair_right, loop)
    matched = join.kind in ("inner", "semi")
    equal = [
        (pair_left[a], pair_right[b])
        for a, b in zip(join.left_keys, join.right_keys, strict=True)
        if matched and not pa.types.is_floating(join.left.schema.field(a).type)
    ]
    found: dict[str, frozenset[str]] = {}
    for p in mine.keys() | theirs.keys():
        a, b = _with_equal(mine.get(p), equal), _with_equal(theirs.get(p), equal)
        # one column that holds the values of both sides holds that of all
        held = a & b if a is not None and b is not None else a or b or _NOWHERE
        found[p] = held & frozenset(join.schema.names)
    return found


def _placed(side: Node, names: Mapping[str, str], loop: Fixpoint) -> Homes:
    if not reads_recursion(side, loop.token):
        return {}
    held = {p: frozenset(names[name] for name in each) for p, each in homes(side, loop).items()}
    return {name: held.get(name, _NOWHERE) for name in loop.schema.names}


def _with_equal(held: frozenset[str] | None, equal: list[tuple[str, str]]) -> frozenset[str] | None:
    """And the columns that a join compares with one of them."""
    if held is None:
        return None
    return held | {b for a, b in equal if a in held} | {a for a, b in equal if b in held}
