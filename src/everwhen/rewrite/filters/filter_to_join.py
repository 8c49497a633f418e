"""σ over a product becomes a join (8.10), and equalities between the sides become its keys.

With keys a join looks partners up instead of trying all.  A key is a column; where an expression of one side equals an
expression of the other, or types differ, both sides get a column that holds it, and a projection above takes it
away again.  Types that differ are widened as the comparison does it (integers; floats); other mixtures stay conditions.

The rest of the condition is evaluated by the join, for the same pairs.  An expression that may fail is no key, since
keys are computed for all rows; but a sum of integers that does not fit has no partner, so it is one.  A condition that
may fail stays above a join that has a condition already.  Joins with null-safe keys get no further keys: a condition
`a = b` is not null-safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Cast, Column, Expr, col, conjunction, conjuncts
from everwhen.algebra.expressions.lenient import without_overflow
from everwhen.algebra.nodes import Filter, Join, Map, Node
from everwhen.core.schema import Schema
from everwhen.rewrite.facts.conditions import may_fail, renamed
from everwhen.rewrite.facts.pairs import ownership, rejoined, restored
from everwhen.rewrite.rule import Rule


@dataclass
class _Side:
    """A side of the join, with the columns that are added to it."""

    node: Node
    added: list[tuple[str, Expr]] = field(default_factory=list)

    def key(self, expr: Expr) -> str:
        """The column that holds the expression."""
        if isinstance(expr, Column):
            return expr.name
        for name, known in self.added:
            if known.equals(expr):
                return name
        taken = {*self.node.schema.names, *(name for name, _ in self.added)}
        number = 1
        while (name := f"key_{number}") in taken:
            number += 1
        self.added.append((name, expr))
        return name

    def built(self) -> Node:
        if not self.added:
            return self.node
        return Map(self.node, (*((name, col(name)) for name in self.node.schema.names), *self.added))


def _apply(node: Node) -> Node | None:
    match node:
        case Filter(Join(kind="inner") as join, predicate):
            given = [] if join.residual is None else conjuncts(join.residual)
            # AND goes on where its left side is null: a guarded condition must not come behind another one
            over_it = [each for each in conjuncts(predicate) if given and may_fail(each, node.schema)]
            moved = [each for each in conjuncts(predicate) if not any(each is other for other in over_it)]
            if not moved:
                return None
            result = _joined(join, [*given, *moved])
            return Filter(result, conjunction(over_it)) if over_it else result
        case Join(residual=Expr() as residual):
            found = conjuncts(residual)
            if not any(_key(node, each) for each in found):
                return None
            return _joined(node, found)
    return None


def _joined(join: Join, conditions: Sequence[Expr]) -> Node:
    left, right = _Side(join.left), _Side(join.right)
    keys = list(zip(join.left_keys, join.right_keys, strict=True))
    rest: list[Expr] = []
    for each in conditions:
        pair = _key(join, each)
        if pair is None:
            rest.append(each)
        elif (found := (left.key(pair[0]), right.key(pair[1]))) not in keys:
            keys.append(found)
    result, names = rejoined(join, left.built(), right.built(), keys=keys, residual=rest)
    return restored(result, join.schema.names, names)


def _key(join: Join, condition: Expr) -> tuple[Expr, Expr] | None:
    """The two sides of an equality that can be a key, each over its own side's columns."""
    if join.null_safe and join.left_keys:
        return None
    match condition:
        case Call("=", (a, b)):
            own = ownership(join)
            if own.reads_right_only(a) and own.reads_left_only(b):
                a, b = b, a
            if not (own.reads_left_only(a) and own.reads_right_only(b)):
                return None
            schemas = join.left.schema, join.right.schema
            pair = (
                without_overflow(renamed(a, own.left), schemas[0]),
                without_overflow(renamed(b, own.right), schemas[1]),
            )
            if any(may_fail(each, schema) for each, schema in zip(pair, schemas, strict=True)):
                return None
            return _of_one_type(pair, schemas)
    return None


def _of_one_type(pair: tuple[Expr, Expr], schemas: tuple[Schema, Schema]) -> tuple[Expr, Expr] | None:
    types = pair[0].bind(schemas[0]), pair[1].bind(schemas[1])
    if types[0] == types[1]:
        return pair
    if all(map(pa.types.is_integer, types)) and pa.uint64() not in types:
        target = pa.int64()
    elif all(map(pa.types.is_floating, types)):
        target = pa.float64()
    else:
        return None
    a, b = (each if type_ == target else Cast(each, target) for each, type_ in zip(pair, types, strict=True))
    return a, b


FILTER_TO_JOIN = Rule("filter_to_join", "pairs are looked up by key instead of all being tried", _apply)
