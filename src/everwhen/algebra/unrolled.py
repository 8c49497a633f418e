"""What a fixed point is when its step does not read it: one round of it."""

from __future__ import annotations

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.expressions.build import col
from everwhen.algebra.nodes import Aggregate, Distinct, FixpointKind, Map, Node, Union


def unrolled(base: Node, step: Node, kind: FixpointKind, value: str | None) -> Node:
    """The rows of base and step, as sets, as they are, or the best of each key."""
    both = Union(base, step)
    if kind == "union all":
        return both
    if value is None:
        return Distinct(both)
    keys = tuple(name for name in both.schema.names if name != value)
    assert kind in ("min", "max")
    best = Aggregate(both, keys, (Aggregation(value, kind, (value,)),))
    return best if best.schema.names == both.schema.names else Map(best, tuple((c, col(c)) for c in both.schema.names))
