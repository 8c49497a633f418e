"""μ_g(μ_f(S)) = μ_{g∘f}(S), and a map that changes nothing goes.

What the lower map computes is put into the upper one unless that would compute it twice: a column that is read more
than once must be a plain column or a constant.  What nobody reads is not computed any more.
"""

from __future__ import annotations

from collections import Counter

from everwhen.algebra.expressions.build import Column, Literal, walk
from everwhen.algebra.nodes import Map, Node
from everwhen.rewrite.facts.conditions import replaced
from everwhen.rewrite.rule import Rule


def is_identity(node: Map) -> bool:
    """Whether the columns are the input's, under their names and in their order."""
    same = node.schema.names == node.input.schema.names
    return same and all(isinstance(expr, Column) and expr.name == name for name, expr in node.columns)


def _apply(node: Node) -> Node | None:
    match node:
        case Map(input) if is_identity(node):
            return input
        case Map(Map(input, lower), upper):
            reads = Counter(each.name for _, expr in upper for each in walk(expr) if isinstance(each, Column))
            if any(reads[name] > 1 and not isinstance(expr, Column | Literal) for name, expr in lower):
                return None
            computed = dict(lower)
            merged = Map(input, tuple((name, replaced(expr, computed)) for name, expr in upper))
            return merged if merged.schema == node.schema else None
    return None


MERGE_MAPS = Rule("merge_maps", "projections in a row become one, empty ones go", _apply)
