"""Column pruning: a plan that carries only what is needed above.

A projection to fewer columns keeps every row with its multiplicity, so it may stand below anything that does not
look at whole rows.  Aggregates and projections ask for columns; filters, windows and unions hand the question down;
duplicate elimination, differences, windows of rows and the like need all.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col

Names = frozenset[str]


def narrow(node: n.Node) -> n.Node:
    """The same answer from fewer columns."""
    return _Narrowing().needed(node, frozenset(node.schema.names))


class _Narrowing:
    """Shared nodes that are asked for the same columns stay shared."""

    def __init__(self) -> None:
        self._done: dict[tuple[int, Names], tuple[n.Node, n.Node]] = {}

    def needed(self, node: n.Node, names: Names) -> n.Node:
        """A node with at least the columns asked for, in their order."""
        key = (id(node), names)
        if key not in self._done:
            self._done[key] = (node, self._needed(node, names))
        return self._done[key][1]

    def exactly(self, node: n.Node, names: Names) -> n.Node:
        """A node with just the columns asked for."""
        found = self.needed(node, names)
        if set(found.schema.names) == names or not names:
            return found
        return n.Map(found, tuple((name, col(name)) for name in found.schema.names if name in names))

    def _needed(self, node: n.Node, names: Names) -> n.Node:
        match node:
            case n.Source() | n.Exchange():
                if names and names < set(node.schema.names):
                    return n.Map(node, tuple((name, col(name)) for name in node.schema.names if name in names))
                return node
            case n.Filter(input, predicate):
                return n.Filter(self.needed(input, names | predicate.columns()), predicate)
            case n.Map(input, columns):
                kept = tuple((name, e) for name, e in columns if name in names) or columns[:1]
                return n.Map(self.needed(input, _read(*(e for _, e in kept)) or _any(input)), kept)
            case n.TimeWindow(input) | n.Granularity(input):
                return replace(node, input=self.needed(input, names or _any(input)))
            case n.Aggregate(input, keys, aggregations):
                read = frozenset(keys) | {column for a in aggregations for column in a.columns}
                return n.Aggregate(self.exactly(input, read or _any(input)), keys, aggregations)
            case n.MatchRecognize(input):
                return n.over(node, self.exactly(input, frozenset(node.reads)))
            case n.Join():
                return self._join(node, names)
        return n.over(node, *(self._all(child) for child in node.inputs))

    def _all(self, node: n.Node) -> n.Node:
        return self.exactly(node, frozenset(node.schema.names))

    def _join(self, node: n.Join, names: Names) -> n.Node:
        """Each side without the columns that nobody reads, as long as the names of pairs stay what they are."""
        asked = names | (node.residual.columns() if node.residual is not None else frozenset())
        pairs, n_left = node.pair_schema.names, len(node.left.schema)
        left = frozenset(node.left_keys) | {name for name in pairs[:n_left] if name in asked}
        right = frozenset(node.right_keys) | {
            own for own, name in zip(node.right.schema.names, pairs[n_left:], strict=True) if name in asked
        }
        if node.kind in ("semi", "anti"):
            left = frozenset(node.left_keys) | names | left
        sides = self.exactly(node.left, left or _any(node.left)), self.exactly(node.right, right or _any(node.right))
        kept = n.Join.pair_names(sides[0].schema, sides[1].schema).names
        before = [name for name in pairs[:n_left] if name in sides[0].schema]
        before += [
            name for own, name in zip(node.right.schema.names, pairs[n_left:], strict=True) if own in sides[1].schema
        ]
        if tuple(before) != kept:
            sides = self._all(node.left), self._all(node.right)
        return replace(node, left=sides[0], right=sides[1])


def _read(*expressions: Expr) -> Names:
    return frozenset(name for e in expressions for name in e.columns())


def _any(node: n.Node) -> Names:
    """Some column, where only the rows count."""
    return frozenset(node.schema.names[:1])
