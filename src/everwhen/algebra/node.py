"""What every logical node is: a frozen value that knows its inputs and its schema; and how plans are walked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from everwhen.core.schema import Schema


@dataclass(frozen=True, eq=False)
class Node:
    """Base of all logical nodes.  Nodes are compared by identity: a shared node is computed once."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(value for value in vars(self).values() if isinstance(value, Node))

    @cached_property
    def schema(self) -> Schema:
        raise AssertionError(f"{type(self).__name__} does not say what its columns are")

    @property
    def keeps_events(self) -> bool:
        """Whether an output event is one input event with its boundaries, so that AlterLifetime may follow."""
        return False


def over(node: Node, *inputs: Node) -> Node:
    """The node over other inputs; the node itself if they are its own."""
    names = [name for name, value in vars(node).items() if isinstance(value, Node)]
    new = dict(zip(names, inputs, strict=True))
    return node if all(vars(node)[name] is value for name, value in new.items()) else replace(node, **new)


def walk(*roots: Node) -> list[Node]:
    """Every node below the roots once, inputs before users."""
    seen: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in seen:
            for child in node.inputs:
                visit(child)
            seen[id(node)] = node

    for root in roots:
        visit(root)
    return list(seen.values())
