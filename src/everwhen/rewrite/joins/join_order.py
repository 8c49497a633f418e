"""Join order: inner joins in a row are put in the order that a stated heuristic prefers.

There are no statistics yet, so this is the order (a cost model may replace it):

1. connected before not connected: a product is made only when nothing else is left;
2. first what is certainly small: one row at most; then what the joined rows find by a key (one partner each); then
   shorter windows before longer and unbounded ones; then what is filtered; then the order as written.

It starts with the smallest and always adds the best input that is connected to what is there (by an equality, else by
any condition).  The plan changes only if the new order is better by these measures, products first; the columns are
put back in their order and under their names above.  Joins with null-safe keys, and joins with conditions that may
fail (they stay behind their guards), are not reordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everwhen.algebra.expressions.build import Expr, col, conjunction, conjuncts
from everwhen.algebra.nodes import (
    AlterLifetime,
    Deletes,
    Exchange,
    Filter,
    Join,
    Map,
    Node,
    RowsWindow,
    Source,
    TimeWindow,
    walk,
)
from everwhen.algebra.properties.derive import properties
from everwhen.core.time import INF
from everwhen.rewrite.facts.conditions import may_fail
from everwhen.rewrite.facts.pairs import ownership, plain_columns
from everwhen.rewrite.facts.plans import unique_on
from everwhen.rewrite.rule import Rule

Place = tuple[int, str]
"""A column of an input: the input's number, the column's name there."""


@dataclass(frozen=True)
class _Condition:
    """A condition over columns called as in `names`."""

    expr: Expr
    names: dict[str, Place]

    @property
    def inputs(self) -> frozenset[int]:
        return frozenset(self.names[name][0] for name in self.expr.columns())


@dataclass(frozen=True)
class _Joins:
    """Inner joins in a row: their inputs as written, equal columns, other conditions; `output`: the columns above."""

    inputs: list[Node]
    equal: list[tuple[Place, Place]]
    conditions: list[_Condition]
    written: list[tuple[int, bool]]
    """For each join, the lowest first: how many inputs are below it, and whether anything connects its sides."""


def _apply(node: Node) -> Node | None:
    if not (isinstance(node, Join) and node.kind == "inner"):
        return None
    joins = _Joins([], [], [], [])
    output = _collect(node, joins)
    if output is None or len(joins.inputs) < 3:
        return None
    classes = _classes(joins.equal)
    order = _best(joins, classes)
    if _cost(joins, classes, order) >= _written_cost(joins, classes):
        return None
    return _build(joins, classes, order, [(name, output[name]) for name in node.schema.names])


def _collect(node: Node, joins: _Joins) -> dict[str, Place] | None:
    """The inputs of the joins below; for each column of the node where it comes from."""
    if isinstance(node, Map) and _continues(node.input):
        names = plain_columns(node)
        if names is not None:
            below = _collect(node.input, joins)
            return None if below is None else {name: below[other] for name, other in names.items()}
    if not (isinstance(node, Join) and _continues(node)):
        joins.inputs.append(node)
        return {name: (len(joins.inputs) - 1, name) for name in node.schema.names}
    first = len(joins.inputs)
    left, right = _collect(node.left, joins), _collect(node.right, joins)
    if left is None or right is None:
        return None
    linked = bool(node.left_keys) or node.residual is not None
    joins.written.append((len(joins.inputs) - first, linked))
    joins.equal.extend((left[a], right[b]) for a, b in zip(node.left_keys, node.right_keys, strict=True))
    own = ownership(node)
    output = {pair: left[name] for pair, name in own.left.items()}
    output |= {pair: right[name] for pair, name in own.right.items()}
    for each in conjuncts(node.residual) if node.residual is not None else []:
        if may_fail(each, node.pair_schema):
            return None
        joins.conditions.append(_Condition(each, output))
    return output


def _continues(node: Node) -> bool:
    """Whether a plan of joins goes on below."""
    if isinstance(node, Map):
        return plain_columns(node) is not None and _continues(node.input)
    return isinstance(node, Join) and node.kind == "inner" and not (node.null_safe and node.left_keys)


# -- the order ---------------------------------------------------------------------------------------------------------

Class = frozenset[Place]
"""Columns that are equal in every row of the answer."""
Rank = tuple[int, int, int, int, int]


def _classes(equal: Sequence[tuple[Place, Place]]) -> list[Class]:
    """What follows from equalities: a = b and b = c make a = c."""
    classes: list[Class] = []
    for pair in equal:
        touched = [each for each in classes if each & frozenset(pair)]
        classes = [each for each in classes if each not in touched] + [frozenset(pair).union(*touched)]
    return classes


def _rank(joins: _Joins, classes: list[Class], i: int, before: frozenset[int]) -> Rank:
    """How good it is to take input `i` next; smaller is better."""
    node = joins.inputs[i]
    found = properties(node)
    reached = [each for each in classes if any(place[0] in before for place in each)]
    equal = {name for each in reached for input, name in each if input == i}
    connected = 0 if not before or equal else 1 if _conditioned(joins, i, before) else 2
    one_partner = found.at_most_one or (bool(before) and unique_on(node, equal))
    return (
        connected,
        0 if found.at_most_one else 1,
        0 if one_partner else 1,
        _lifetime(node),
        0 if _filters(node) else 1,
    )


def _conditioned(joins: _Joins, i: int, before: frozenset[int]) -> bool:
    return any(i in each.inputs and each.inputs <= before | {i} and len(each.inputs) > 1 for each in joins.conditions)


def _lifetime(node: Node) -> int:
    """How long rows live, as far as windows say.  A stream without a window is meant as of now; a relation lasts."""
    known = properties(node).lifetime
    if known is not None:
        return known
    return max(map(_lasting, walk(node)), default=1)


def _lasting(node: Node) -> int:
    match node:
        case TimeWindow(_, size):
            return size
        case Source(kind=kind):
            return 1 if kind == "stream" else INF
        case RowsWindow() | Exchange() | AlterLifetime() | Deletes():
            return INF
    return 1


def _filters(node: Node) -> bool:
    return any(isinstance(each, Filter) for each in walk(node))


def _best(joins: _Joins, classes: list[Class]) -> list[int]:
    """The greedy order from the best start."""
    left = list(range(len(joins.inputs)))
    order: list[int] = []
    while left:
        before = frozenset(order)
        nearest = min(left, key=lambda i: (_rank(joins, classes, i, before), i))
        order.append(nearest)
        left.remove(nearest)
    return order


def _cost(joins: _Joins, classes: list[Class], order: Sequence[int]) -> tuple[int, list[Rank]]:
    """Products in the order, then the ranks of what is taken.  Which of the first two comes first is all the same."""
    ranks = [_rank(joins, classes, i, frozenset(order[:k])) for k, i in enumerate(order)]
    first, second = order[:2]
    exchanged = [_rank(joins, classes, second, frozenset()), _rank(joins, classes, first, frozenset((second,)))]
    return sum(rank[0] == 2 for rank in ranks), [*min(ranks[:2], exchanged), *ranks[2:]]


def _written_cost(joins: _Joins, classes: list[Class]) -> tuple[int, list[Rank]]:
    """The same for the plan as it is; one that is not a line of joins is only measured by its products."""
    products = sum(not linked for _, linked in joins.written)
    if [below for below, _ in joins.written] != list(range(2, len(joins.inputs) + 1)):
        return products, []
    return products, _cost(joins, classes, range(len(joins.inputs)))[1]


# -- the plan ----------------------------------------------------------------------------------------------------------


def _build(joins: _Joins, classes: list[Class], order: Sequence[int], output: Sequence[tuple[str, Place]]) -> Node:
    result = joins.inputs[order[0]]
    where: dict[Place, str] = {(order[0], name): name for name in result.schema.names}
    # for each class the columns that are there, in parts that are known to be equal
    parts = [[[place] for place in sorted(each) if place[0] == order[0]] for each in classes]
    conditions = list(joins.conditions)
    for i in order[1:]:
        right = joins.inputs[i]
        keys: list[tuple[str, str]] = []
        for k, each in enumerate(classes):
            new = sorted(place for place in each if place[0] == i)
            if new and parts[k]:
                keys += [(where[part[0]], new[0][1]) for part in parts[k]]
                keys += [(where[parts[k][0][0]], name) for _, name in new[1:]]
                parts[k] = [[*(place for part in parts[k] for place in part), *new]]
            else:
                parts[k] += [[place] for place in new]
        now = Join.pair_names(result.schema, right.schema).names[len(result.schema) :]
        where |= {(i, name): new_name for name, new_name in zip(right.schema.names, now, strict=True)}
        seen = {place[0] for place in where}
        ready = [each for each in conditions if each.inputs <= seen]
        conditions = [each for each in conditions if not each.inputs <= seen]
        residual = [
            each.expr.substitute({name: col(where[each.names[name]]) for name in each.expr.columns()}) for each in ready
        ]
        left_keys, right_keys = tuple(a for a, _ in keys), tuple(b for _, b in keys)
        result = Join(result, right, left_keys, right_keys, conjunction(residual) if residual else None)
    return Map(result, tuple((name, col(where[place])) for name, place in output))


JOIN_ORDER = Rule("join_order", "connected and small inputs are joined first", _apply)
