"""Conditions of a join that read one side only become filters of that side.

    inner        either side
    semi         either side: a left row that fails has no partner
    anti, left   the right side: a left row that fails is kept, without a partner
    full         neither

A condition that may fail stays: it was evaluated for pairs with equal keys only.
"""

from __future__ import annotations

from everwhen.algebra.expressions.build import conjuncts
from everwhen.algebra.nodes import Join, Node
from everwhen.rewrite.facts.conditions import is_true, may_fail, renamed
from everwhen.rewrite.facts.pairs import ownership, rejoined
from everwhen.rewrite.filters.push_filter_join import filtered
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    if not isinstance(node, Join) or node.residual is None:
        return None
    own = ownership(node)
    left, right, stay = [], [], []
    for each in conjuncts(node.residual):
        if is_true(each):
            continue
        safe = node.kind != "full" and not may_fail(each, node.pair_schema)
        if safe and own.reads_right_only(each):
            right.append(renamed(each, own.right))
        elif safe and own.reads_left_only(each) and node.kind in ("inner", "semi"):
            left.append(renamed(each, own.left))
        else:
            stay.append(each)
    if len(stay) == len(conjuncts(node.residual)):
        return None
    return rejoined(node, filtered(node.left, left), filtered(node.right, right), residual=stay)[0]


PUSH_RESIDUAL = Rule("push_residual", "a join's conditions on one side filter that side", _apply)
