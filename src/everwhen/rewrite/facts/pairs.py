"""Names around a join: which column of a pair belongs to which side, and a join over changed sides.

The names of pairs depend on the names of both sides (a name that is taken gets a suffix), so a rule that gives a join
other sides must rename what reads the pairs.  `rejoined` does it in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everwhen.algebra.expressions.build import Column, Expr, col, conjunction
from everwhen.algebra.nodes import Join, Map, Node
from everwhen.rewrite.facts.conditions import renamed

Names = dict[str, str]


@dataclass(frozen=True)
class Ownership:
    """For each column of the pairs its name on its own side."""

    left: Names
    right: Names

    def readers(self, expr: Expr) -> tuple[bool, bool]:
        """Whether the expression reads the left side, and the right side."""
        columns = expr.columns()
        return not columns.isdisjoint(self.left), not columns.isdisjoint(self.right)

    def reads_left_only(self, expr: Expr) -> bool:
        return self.readers(expr) == (True, False)

    def reads_right_only(self, expr: Expr) -> bool:
        return self.readers(expr) == (False, True)


def ownership(join: Join) -> Ownership:
    """Which side the columns of pairs come from, and what they are called there."""
    names, width = join.pair_schema.names, len(join.left.schema)
    return Ownership(
        dict(zip(names[:width], join.left.schema.names, strict=True)),
        dict(zip(names[width:], join.right.schema.names, strict=True)),
    )


def rejoined(
    join: Join,
    left: Node,
    right: Node,
    *,
    keys: Sequence[tuple[str, str]] | None = None,
    residual: Sequence[Expr],
) -> tuple[Join, Names]:
    """The join over other sides, whose columns have their old names (some may be gone, some new).

    `residual` are conditions over the old pairs, `keys` pairs of the sides' columns (the join's own, unless given).
    With the join comes the new name of each old column of the pairs that is still there.
    """
    names = moved_names(join, left, right)
    pairs = list(zip(join.left_keys, join.right_keys, strict=True)) if keys is None else keys
    condition = renamed(conjunction(residual), names) if residual else None
    found = Join(
        left,
        right,
        tuple(a for a, _ in pairs),
        tuple(b for _, b in pairs),
        condition,
        join.kind,
        join.null_safe,
    )
    return found, names


def moved_names(join: Join, left: Node, right: Node) -> Names:
    """Old name of a column of pairs to its name over the new sides."""
    now = Join.pair_names(left.schema, right.schema).names
    width = len(left.schema)
    by_left = dict(zip(left.schema.names, now[:width], strict=True))
    by_right = dict(zip(right.schema.names, now[width:], strict=True))
    own = ownership(join)
    found = {pair: by_left[name] for pair, name in own.left.items() if name in by_left}
    return found | {pair: by_right[name] for pair, name in own.right.items() if name in by_right}


def restored(node: Node, wanted: Sequence[str], names: Mapping[str, str]) -> Node:
    """The columns `wanted` again, of a node that has them under new names."""
    if node.schema.names == tuple(wanted) and all(names[name] == name for name in wanted):
        return node
    return Map(node, tuple((name, col(names[name])) for name in wanted))


def plain_columns(node: Map) -> Names | None:
    """Output name to input column, if the map computes nothing."""
    if all(isinstance(expr, Column) for _, expr in node.columns):
        return {name: expr.name for name, expr in node.columns if isinstance(expr, Column)}
    return None


def mirrored(join: Join) -> tuple[Join, Names]:
    """The join with its sides exchanged, and the new names of its columns."""
    width = len(join.right.schema)
    now = Join.pair_names(join.right.schema, join.left.schema).names
    own = ownership(join)
    names = dict(zip(own.right, now[:width], strict=True)) | dict(zip(own.left, now[width:], strict=True))
    residual = None if join.residual is None else renamed(join.residual, names)
    swapped = Join(join.right, join.left, join.right_keys, join.left_keys, residual, join.kind, join.null_safe)
    return swapped, names
