"""A plan whose sources say themselves, or are told by someone before it, what follows from their schemes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from everwhen.algebra import nodes as n


def without_schemes(queries: Mapping[str, n.Node], names: Collection[str] | None = None) -> dict[str, n.Node]:
    """The plans with sources, all or those named, that declare no schemes; shared nodes stay shared."""
    removal = _Removal(names)
    return {query: removal.of(node) for query, node in queries.items()}


class _Removal:
    def __init__(self, names: Collection[str] | None) -> None:
        self._names = names
        self._done: dict[int, n.Node] = {}

    def of(self, node: n.Node) -> n.Node:
        if id(node) not in self._done:
            self._done[id(node)] = self._made(node)
        return self._done[id(node)]

    def _made(self, node: n.Node) -> n.Node:
        if isinstance(node, n.Source):
            chosen = node.schemes and (self._names is None or node.name in self._names)
            return replace(node, schemes=()) if chosen else node
        inputs = [self.of(child) for child in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        return node if same else n.over(node, *inputs)
