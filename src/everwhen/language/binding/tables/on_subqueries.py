"""Subqueries in ON: conditions on pairs, of any join.

The pairs that fulfil all of ON are an inner join with a filter.  An outer join adds, padded with nulls, the rows of a
side that are in none of them; a semi-join keeps the left rows that are in one, an anti-join the others.  Equal rows
have the same partners, so they are found by all their columns.
"""

from __future__ import annotations

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import col, conjunction, lit
from everwhen.language import syntax as s
from everwhen.language.binding import expressions
from everwhen.language.binding.context import Rows
from everwhen.language.binding.joins import join
from everwhen.language.binding.scope import Scope
from everwhen.language.binding.subqueries import inside


def with_subqueries(item: s.JoinItem, a: Rows, b: Rows, scope: Scope) -> Rows:
    """The join of two sides whose ON has subqueries; `scope` has both sides' names, in a plan of pairs."""
    assert item.on is not None
    binding = a.binding
    pairs = Rows(binding, n.Join(a.node, b.node), scope, place="ON")
    names = pairs.node.schema.names
    tests = expressions.conjuncts(item.on)
    plain = [expressions.condition(test, pairs) for test in tests if not inside(test)]
    if plain:
        pairs.node = join(a.node, b.node, conjunction(plain), "inner", binding.name)
    nested = [expressions.condition(test, pairs) for test in tests if inside(test)]
    matched = n.Map(n.Filter(pairs.node, conjunction(nested)), tuple((name, col(name)) for name in names))
    mine, theirs = names[: len(a.node.schema)], names[len(a.node.schema) :]
    match item.kind:
        case "semi" | "anti":
            node: n.Node = n.Join(a.node, matched, a.node.schema.names, mine, None, item.kind, null_safe=True)
            return Rows(binding, node, a.scope, a.correlation)
        case "left" | "full":
            node = n.Union(matched, _padded(a.node, matched, mine))
        case _:
            node = matched
    if item.kind in ("right", "full"):
        node = n.Union(node, _padded(b.node, matched, theirs))
    return Rows(binding, node, scope, a.correlation)


def _padded(side: n.Node, matched: n.Node, names: tuple[str, ...]) -> n.Node:
    """The rows of a side that have no partner, with nulls for the other's columns."""
    alone = n.Join(side, matched, side.schema.names, names, None, "anti", null_safe=True)
    own = dict(zip(names, side.schema.names, strict=True))
    fields = matched.schema.fields
    return n.Map(alone, tuple((f.name, col(own[f.name]) if f.name in own else lit(None).cast(f.type)) for f in fields))
