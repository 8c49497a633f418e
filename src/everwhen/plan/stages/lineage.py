"""Which partition of a stage a row of its answer comes from, told by the row's own columns.

A stage's rows lie in partitions by a hash of some columns of its inputs.  Where an answer still carries all of these,
the same hash of the answer's columns names the partition that it comes from, and no other partition ever says such a
row.  So a promise that binds these columns to constants is known to hold as soon as that one partition has made it; any
other promise needs the word of all partitions.

None is always safe: then all partitions are asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column

Columns = tuple[str, ...]


def lain_by(node: n.Node, by: Mapping[str, Columns | None]) -> Columns | None:
    """The columns of a node, in the order of hashing, that tell the partition of a row; `by` is that of the inputs."""
    match node:
        case n.Source(name) | n.Exchange(name):
            return by.get(name) or None
        case n.Map(input, columns):
            found = lain_by(input, by)
            names: dict[str, str] = {}
            for name, expression in columns:
                if isinstance(expression, Column):
                    names.setdefault(expression.name, name)
            return None if found is None or not set(found) <= set(names) else tuple(names[each] for each in found)
        case n.Aggregate(input, keys):
            found = lain_by(input, by)
            return found if found is not None and set(found) <= set(keys) else None
        case (
            n.MatchRecognize(input, partition=partition)
            | n.Rank(input, partition=partition)
            | n.Over(input, partition=partition)
        ):
            found = lain_by(input, by)
            return found if found is not None and set(found) <= set(partition) else None
        case n.Join(left):
            if node.kind == "full":  # the left columns of a row without a partner are nulls
                return None
            return _named(lain_by(left, by), left, node)
        case n.Union(left, right) | n.SetOperation(left, right):
            first, second = _named(lain_by(left, by), left, node), _named(lain_by(right, by), right, node)
            return first if first == second else None
    if len(node.inputs) != 1 or node.inputs[0].schema.names != node.schema.names:
        return None
    return lain_by(node.inputs[0], by)


def _named(columns: Columns | None, input: n.Node, node: n.Node) -> Columns | None:
    """Columns of an input by the names that they have in the node's own schema, where they stand at the same places."""
    if columns is None:
        return None
    return tuple(node.schema.names[input.schema.index(name)] for name in columns)
