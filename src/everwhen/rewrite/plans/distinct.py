"""Duplicate elimination where it does nothing, or where nobody can tell: δ goes, and its state with it.

* over rows of which no two are equal at any instant (a key is known, or δ has been there);
* on the right side of semi- and anti-joins, where one partner is as good as two;
* on the sides of a union under another δ;
* below aggregates to which duplicates are nothing: min, max, first, last, count_distinct, or groups alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from everwhen.algebra.nodes import Aggregate, Distinct, Join, Node, Union
from everwhen.rewrite.facts.plans import has_duplicates
from everwhen.rewrite.rule import Rule

_SET_FUNCTIONS: Final = frozenset(("min", "max", "first", "last", "count_distinct"))


def ignores_duplicates(node: Aggregate) -> bool:
    """Whether the answer is the same however often a row is there."""
    return all(each.function in _SET_FUNCTIONS for each in node.aggregations)


def _apply(node: Node) -> Node | None:
    match node:
        case Distinct(input) if not has_duplicates(input):
            return input
        case Distinct(Union(left, right)) if isinstance(left, Distinct) or isinstance(right, Distinct):
            return Distinct(Union(_once(left), _once(right)))
        case Join(right=Distinct(input), kind="semi" | "anti"):
            return replace(node, right=input)
        case Aggregate(Distinct(input), keys, aggregations) if ignores_duplicates(node):
            return Aggregate(input, keys, aggregations)
    return None


def _once(node: Node) -> Node:
    return node.input if isinstance(node, Distinct) else node


DROP_DISTINCT = Rule("drop_distinct", "there are no duplicates, or nobody could tell", _apply)
