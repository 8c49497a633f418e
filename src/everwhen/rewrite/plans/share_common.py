"""Common subplans become one node (Krämer, 10.4.3): what is written the same way is computed once.

Every node gets a key made of its kind, its parameters, its expressions and its inputs; nodes with equal keys are the
same plan.  Expressions are compared as written (`Expr.equals`, and the type of constants), Python functions by
identity.  `a AND b` and `b AND a` are two plans.  Groupings that differ only in the names of their results are one.
Loops are equal if they are so once one is given the other's token; where the text names a recursion does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, replace
from typing import Any

from everwhen.algebra.expressions.build import Expr, Literal, col
from everwhen.algebra.nodes import Aggregate, Fixpoint, LoopToken, Map, Node, Recursion, over, rebuilt, walk
from everwhen.rewrite.rule import PlanRule, Roots


class Sharing:
    """Nodes by what they are; the first one of its kind stands for all.

    With `by_any_name`, groupings that differ only in the names of their results are one, and the others rename it.
    """

    def __init__(self, kept: Roots = (), by_any_name: bool = False) -> None:
        self._by_any_name = by_any_name
        self._by_key: dict[Hashable, Node] = {}
        self._same: dict[int, Node] = {}
        self._alive: list[Node] = []
        self._loops: dict[Hashable, list[Fixpoint]] = {}
        for node in walk(*kept):
            self._settle(node, node)

    def node(self, root: Node) -> Node:
        """The one node that stands for this plan; equal plans give the same node."""
        for node in walk(root):
            if id(node) not in self._same:
                self._settle(node, over(node, *(self._same[id(child)] for child in node.inputs)))
        return self._same[id(root)]

    def _settle(self, node: Node, rebuilt: Node) -> None:
        found = self._like(rebuilt) if isinstance(rebuilt, Fixpoint) else None
        found = found or self._by_key.setdefault(self._key(rebuilt), rebuilt)
        if found.schema != rebuilt.schema:
            names = zip(rebuilt.schema.names, found.schema.names, strict=True)
            renaming = Map(found, tuple((name, col(other)) for name, other in names))
            found = self._by_key.setdefault(self._key(renaming), renaming)
        self._same[id(node)] = self._same[id(rebuilt)] = self._same[id(found)] = found
        self._alive += [node, rebuilt, found]  # ids are keys: they must not be given to other nodes

    def _like(self, loop: Fixpoint) -> Node | None:
        """A loop that is the same but for its token."""
        alike = self._loops.setdefault((self._part(loop.base), loop.kind, loop.value, loop.options, loop.schema), [])
        for other in alike:
            if other.token is loop.token:
                continue
            step = _reading(loop.step, loop.token, other.token)
            if self.node(step) is self.node(other.step):
                return other
        alike.append(loop)
        return None

    def _key(self, node: Node) -> Hashable:
        if isinstance(node, Recursion):
            return (Recursion, node.token, node.columns)
        if self._by_any_name and isinstance(node, Aggregate):
            functions = tuple((each.function, each.columns, each.parameters) for each in node.aggregations)
            return (Aggregate, self._part(node.input), node.keys, functions)
        return (type(node), *(self._part(getattr(node, each.name)) for each in fields(node)))

    def _part(self, value: Any) -> Hashable:
        if isinstance(value, Node):
            return id(self._same.get(id(value), value))
        return frozen(value)


def _reading(step: Node, old: LoopToken, new: LoopToken) -> Node:
    """The step of one loop, as if it read another."""

    def read(node: Node) -> Node | None:
        return replace(node, token=new) if isinstance(node, Recursion) and node.token is old else None

    return rebuilt(read, step)[0]


def frozen(value: Any) -> Hashable:
    """A part of a node as something that can be compared and hashed."""
    match value:
        case Literal(constant, type_, untyped):  # by its text: 1, 1.0 and True are equal, but different constants
            return (Literal, type_, untyped, type(constant), repr(constant))
        case Expr():
            return (type(value), *(frozen(getattr(value, each.name)) for each in fields(value)))
        case tuple():
            return tuple(map(frozen, value))
        case _ if callable(value):
            return id(value)
    return (type(value), value)


def same_plans(before: Roots, after: Roots) -> bool:
    """Whether the plans are written the same way."""
    sharing = Sharing()
    return all(sharing.node(a) is sharing.node(b) for a, b in zip(before, after, strict=True))


def _apply(roots: Roots, kept: Roots) -> Roots:
    sharing = Sharing(kept, by_any_name=True)
    return tuple(map(sharing.node, roots))


SHARE_COMMON = PlanRule("share_common", "equal subplans are computed once", _apply)
