"""Conditions on grouping columns go below the grouping: groups that nobody wants are never formed.

Such a condition keeps or drops a group with all its rows.  An aggregate without keys has no such conditions but
constant ones, and of an empty snapshot it yields nothing, before and after.

A rule of its own, because it makes two groupings of one where queries share it and differ in the filter.
"""

from __future__ import annotations

from everwhen.algebra.expressions.build import conjunction, conjuncts
from everwhen.algebra.nodes import Aggregate, Filter, Node
from everwhen.rewrite.facts.conditions import parted
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Filter(Aggregate(input, keys, aggregations), predicate):
            wanted = [each.columns() <= frozenset(keys) for each in conjuncts(predicate)]
            moved, stay = parted(predicate, wanted, node.schema)
            if not moved:
                return None
            result = Aggregate(Filter(input, conjunction(moved)), keys, aggregations)
            return Filter(result, conjunction(stay)) if stay else result
    return None


PUSH_FILTER_AGGREGATE = Rule("push_filter_aggregate", "groups that nobody wants are not formed", _apply)
