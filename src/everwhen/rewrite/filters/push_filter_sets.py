"""Filters go down through duplicate elimination and set operations: fewer rows are counted and kept.

These decide row by row from the multiplicities of equal rows, and equal rows pass a filter together.  So the filter may
stand on either side or on both; it stands on both, since both sides keep state.  (A condition that may fail goes down
only where every row that it will see would come out: duplicate elimination and max-union.)

A merge of copies decides row by row too, so the filter goes into every copy.  Not where copies are audited: rows that
the filter drops are compared as well.  A function of the user's would be called once per copy, so it stays above.
"""

from __future__ import annotations

from everwhen.algebra.expressions.build import conjunction, conjuncts
from everwhen.algebra.nodes import Distinct, Filter, LMerge, Node, SetOperation, over
from everwhen.rewrite.facts.conditions import has_udf, may_fail, parted, renamed
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Filter(Distinct(input), predicate):
            return Distinct(Filter(input, predicate))
        case Filter(SetOperation(left, right, kind) as below, predicate):
            wanted = [kind == "max_union" or not may_fail(each, node.schema) for each in conjuncts(predicate)]
            moved, stay = parted(predicate, wanted, node.schema)
            if not moved:
                return None
            names = dict(zip(left.schema.names, right.schema.names, strict=True))
            condition = conjunction(moved)
            result = over(below, Filter(left, condition), Filter(right, renamed(condition, names)))
            return Filter(result, conjunction(stay)) if stay else result
        case Filter(LMerge(copies, _, policy) as below, predicate) if not policy.audit:
            wanted = [not may_fail(each, node.schema) and not has_udf(each) for each in conjuncts(predicate)]
            moved, stay = parted(predicate, wanted, node.schema)
            if not moved:
                return None
            result = over(below, *(Filter(copy, conjunction(moved)) for copy in copies))
            return Filter(result, conjunction(stay)) if stay else result
    return None


PUSH_FILTER_SETS = Rule("push_filter_sets", "rows are dropped before they are counted", _apply)
