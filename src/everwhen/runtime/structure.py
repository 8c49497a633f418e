"""One node for equal plans: what lets queries that were built apart share their operators.

Nodes are compared by identity, and lowering computes a node once.  An `Interner` gives for every plan the same plan
made of nodes that it has given before, wherever the structure is equal: the same operator with the same parameters
over the same inputs.  Python functions are equal only if they are the same object.  It does not know that two plans
mean the same (`a AND b`, `b AND a`): that is for rewriting.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from everwhen.algebra.nodes import Node, over, walk


class Interner:
    """Nodes by their structure."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Node] = {}

    def one(self, root: Node) -> Node:
        """The plan in nodes that equal plans have in common."""
        done: dict[int, Node] = {}
        for node in walk(root):
            found = over(node, *(done[id(child)] for child in node.inputs))
            done[id(node)] = self._known.setdefault(_key(found), found)
        return done[id(root)]

    def keep(self, roots: Iterable[Node]) -> None:
        """Forget all nodes but those of these plans."""
        used = {id(node) for node in walk(*roots)}
        self._known = {key: node for key, node in self._known.items() if id(node) in used}

    def __len__(self) -> int:
        return len(self._known)


def _key(node: Node) -> Hashable:
    return type(node), tuple(_part(getattr(node, each.name)) for each in fields(node))


def _part(value: Any) -> Hashable:
    match value:
        case Node():  # interned before, and kept with the key's own node
            return "node", id(value)
        case tuple() | list():
            return type(value), tuple(map(_part, value))
        case float():  # a zero has a sign, and NaN equals itself here
            return float, repr(value)
        case dict():
            return dict, tuple((_part(k), _part(v)) for k, v in value.items())
        case _ if callable(value):
            return "function", id(value)
        case _ if is_dataclass(value):  # expressions, schemas, aggregations
            return type(value), tuple(_part(getattr(value, each.name)) for each in fields(value))
    return type(value), value  # 1, 1.0 and TRUE are equal in Python
