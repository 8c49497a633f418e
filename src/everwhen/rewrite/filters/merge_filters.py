"""σ_q(σ_p(S)) = σ_{p ∧ q}(S): one pass over the rows instead of two, and conjuncts side by side for other rules.

TRUE and repeated conjuncts go.  A filter whose condition may fail stays on its own: AND goes on to its right side where
the left one is null, and would evaluate it for rows that the lower filter took out.
"""

from __future__ import annotations

from everwhen.algebra.expressions.build import conjunction, conjuncts
from everwhen.algebra.nodes import Filter, Node
from everwhen.rewrite.facts.conditions import may_fail, without_repeats
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    if not isinstance(node, Filter):
        return None
    own = conjuncts(node.predicate)
    kept = without_repeats(own)
    if not kept:
        return node.input
    match node.input:
        case Filter(input, first) if not may_fail(node.predicate, node.schema):
            return Filter(input, conjunction(without_repeats([*conjuncts(first), *own])))
    return Filter(node.input, conjunction(kept)) if len(kept) < len(own) else None


MERGE_FILTERS = Rule("merge_filters", "filters in a row become one", _apply)
