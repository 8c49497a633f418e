"""The fixed point of a recursion at one instant: apply base and step to what is known, from nothing, until nothing
changes (Chandramouli, Goldstein, Maier, 3.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from everwhen.algebra.nodes import Fixpoint, Node, Recursion, reads_recursion
from everwhen.errors import QueryError
from everwhen.reference.logical import Snapshot
from everwhen.reference.order import Row, value_order

Given = Callable[[Node], Snapshot]
Apply = Callable[..., Snapshot]


def fixpoint(node: Fixpoint, given: Given, apply: Apply) -> Snapshot:
    """The least fixed point.  `given`: the snapshot of what does not read the recursion; `apply`: a node on snapshots
    of its inputs."""

    def value(each: Node, known: Snapshot) -> Snapshot:
        if isinstance(each, Recursion) and each.token is node.token:
            return known
        if not reads_recursion(each, node.token):
            return given(each)
        return apply(each, *(value(child, known) for child in each.inputs))

    known: Snapshot = Counter()
    for _ in range(node.options.max_level + 1):
        found = given(node.base) + value(node.step, known)
        if node.kind != "union all":
            found = Counter(_best(node, found))
        if found == known:
            return known
        known = found
    raise QueryError(f"the recursion {node.token.name!r} has not ended after {node.options.max_level} rounds")


def _best(node: Fixpoint, found: Snapshot) -> list[Row]:
    """Each row once; of MIN and MAX the best row of each key, nulls left out if there is another."""
    if node.value is None:
        return list(found)
    at = node.schema.index(node.value)
    best: dict[Row, Row] = {}
    for row in found:
        key = row[:at] + row[at + 1 :]
        held = best.get(key)
        if held is None or _better(node.kind, row[at], held[at]):
            best[key] = row
    return list(best.values())


def _better(kind: str, one: object, other: object) -> bool:
    if one is None or other is None:
        return other is None and one is not None
    first, second = value_order(one), value_order(other)
    return first < second if kind == "min" else second < first
