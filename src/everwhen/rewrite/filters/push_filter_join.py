"""Conditions that read one side of a join go to that side: joins keep fewer rows and make fewer pairs.

    inner        to the left and to the right
    left         to the left: a condition on the right side would drop the padded rows (see outer_to_inner)
    semi, anti   to the left, whose rows these are
    full         nowhere: rows of either side may be padding

A condition on key columns holds for the partner's key columns too, so the other side is filtered by it as well: its
other rows find no partner.  Not so for floating-point keys (0.0 and -0.0 are equal, but a cast can tell them apart).

A condition that may fail stays above the join, which kept rows without a partner away from it; only a left join
shows it every row.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from everwhen.algebra.expressions.build import Expr, conjunction, conjuncts
from everwhen.algebra.nodes import Filter, Join, Node
from everwhen.rewrite.facts.conditions import has_udf, may_fail, parted, renamed
from everwhen.rewrite.facts.pairs import ownership
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    if not (isinstance(node, Filter) and isinstance(node.input, Join)) or node.input.kind == "full":
        return None
    join = node.input
    own = ownership(join)
    all_of = conjuncts(node.predicate)
    wanted = [
        own.reads_left_only(each)
        if join.kind == "left"
        else not may_fail(each, node.schema) and (own.reads_left_only(each) or own.reads_right_only(each))
        for each in all_of
    ]
    moved, stay = parted(node.predicate, wanted, node.schema)
    if not moved:
        return None
    left = [renamed(each, own.left) for each in moved if own.reads_left_only(each)]
    right = [renamed(each, own.right) for each in moved if own.reads_right_only(each)]
    more_left, more_right = _for_partners(join, right, True), _for_partners(join, left, False)
    result: Node = replace(
        join, left=filtered(join.left, [*left, *more_left]), right=filtered(join.right, [*right, *more_right])
    )
    return Filter(result, conjunction(stay)) if stay else result


def _for_partners(join: Join, conditions: list[Expr], to_left: bool) -> list[Expr]:
    """What conditions on one side's key columns say of the other side."""
    keys = (join.right_keys, join.left_keys) if to_left else (join.left_keys, join.right_keys)
    side = join.right if to_left else join.left
    names = {
        mine: other for mine, other in zip(*keys, strict=True) if not pa.types.is_floating(side.schema.field(mine).type)
    }
    return [
        renamed(each, names)
        for each in conditions
        if each.columns() <= names.keys() and not has_udf(each) and not may_fail(each, side.schema)
    ]


def filtered(node: Node, conditions: list[Expr]) -> Node:
    """The node behind a filter, if there is anything to filter by."""
    return Filter(node, conjunction(conditions)) if conditions else node


PUSH_FILTER_JOIN = Rule("push_filter_join", "rows are dropped before they are joined", _apply)
