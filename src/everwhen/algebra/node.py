"""What every logical node is: a frozen value that knows its inputs and its schema; and how plans are walked."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice

from everwhen.core.schema import Schema


@dataclass(frozen=True, eq=False)
class Node:
    """Base of all logical nodes.  Nodes are compared by identity: a shared node is computed once."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes among its fields, alone or in tuples, in the order of the fields."""
        known: tuple[Node, ...] | None = vars(self).get("_inputs")  # plans are walked often
        if known is None:
            known = tuple(node for each in fields(self) for node in _nodes(getattr(self, each.name)))
            vars(self)["_inputs"] = known
        return known

    @cached_property
    def schema(self) -> Schema:
        raise AssertionError(f"{type(self).__name__} does not say what its columns are")

    @property
    def keeps_events(self) -> bool:
        """Whether an output event is one input event with its boundaries, so that AlterLifetime may follow."""
        return False


@dataclass(frozen=True, eq=False)
class SameColumns(Node):
    """A node over one input that has the input's columns."""

    input: Node

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema


def over(node: Node, *inputs: Node) -> Node:
    """The node over other inputs; the node itself if they are its own."""
    if len(inputs) == len(node.inputs) and all(map(operator.is_, inputs, node.inputs)):
        return node
    rest, new = iter(inputs), {}
    for each in fields(node):
        value = getattr(node, each.name)
        if nodes := _nodes(value):
            taken = tuple(islice(rest, len(nodes)))
            new[each.name] = taken if isinstance(value, tuple) else taken[0]
    return replace(node, **new)


def rebuilt(other: Callable[[Node], Node | None], *roots: Node) -> list[Node]:
    """Plans with other nodes in the place of some, for which `other` gives them; what is shared stays shared."""
    done: dict[int, Node] = {}
    for node in walk(*roots):
        found = other(node)
        done[id(node)] = over(node, *(done[id(each)] for each in node.inputs)) if found is None else found
    return [done[id(root)] for root in roots]


def _nodes(value: object) -> tuple[Node, ...]:
    """A field's nodes: a tuple of nodes is one of several inputs."""
    if isinstance(value, Node):
        return (value,)
    if isinstance(value, tuple) and value and all(isinstance(each, Node) for each in value):
        return value
    return ()


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
