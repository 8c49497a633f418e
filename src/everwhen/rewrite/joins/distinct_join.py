"""δ(R ⋈ S) = δ(R) ⋈ δ(S) (10.6, and for any condition: it looks at rows, not at how often they are there).

Above the join, δ keeps a count for every pair alive; below, one for every row alive, of which the join keeps as many
anyway.  And each duplicate below saves all its pairs.  So it pays whenever the whole pair is kept; a side that has
no duplicates gets no δ.  With a projection in between it does not hold.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra.nodes import Distinct, Join, Node
from everwhen.rewrite.facts.plans import has_duplicates
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Distinct(Join(left, right, kind="inner") as join):
            return replace(join, left=_once(left), right=_once(right))
    return None


def _once(node: Node) -> Node:
    return Distinct(node) if has_duplicates(node) else node


DISTINCT_JOIN = Rule("distinct_join", "duplicates are dropped before they multiply (10.6)", _apply)
