"""An outer join whose padded rows a filter drops anyway is an inner join (or, of a full one, a left join).

A condition that cannot be true where all columns of a side are null rejects the rows padded on that side.  A full
join that loses only the rows padded on the right becomes a left join with the sides exchanged.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra.expressions.build import conjuncts
from everwhen.algebra.nodes import Filter, Join, Node
from everwhen.algebra.properties.nullability import never_true
from everwhen.rewrite.facts.conditions import renamed
from everwhen.rewrite.facts.pairs import mirrored, ownership, restored
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return None
    join, predicate = node.input, node.predicate
    own = ownership(join)
    no_right = any(never_true(each, own.right.keys()) for each in conjuncts(predicate))
    no_left = any(never_true(each, own.left.keys()) for each in conjuncts(predicate))
    match join.kind:
        case "left" if no_right:
            return Filter(replace(join, kind="inner"), predicate)
        case "full" if no_left and no_right:
            return Filter(replace(join, kind="inner"), predicate)
        case "full" if no_left:
            return Filter(replace(join, kind="left"), predicate)
        case "full" if no_right:
            swapped, names = mirrored(replace(join, kind="left"))
            return restored(Filter(swapped, renamed(predicate, names)), join.schema.names, names)
    return None


OUTER_TO_INNER = Rule("outer_to_inner", "padded rows that a filter drops are not made", _apply)
