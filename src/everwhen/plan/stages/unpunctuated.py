"""A plan whose sources say themselves, or hear from someone before it, what follows from schemes and policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.core.source_policy import NO_POLICY


def without_schemes(queries: Mapping[str, n.Node], names: Collection[str] | None = None) -> dict[str, n.Node]:
    """The plans with sources, all or those named, that declare no schemes; shared nodes stay shared."""

    def plain(source: n.Source) -> n.Source:
        chosen = source.schemes and (names is None or source.name in names)
        return replace(source, schemes=()) if chosen else source

    return over_sources(queries, plain)


def without_policies(queries: Mapping[str, n.Node]) -> dict[str, n.Node]:
    """The plans with sources for whose progress and late rows someone else cares."""
    return over_sources(
        queries, lambda source: replace(source, policy=NO_POLICY) if source.policy.says_something else source
    )


def over_sources(queries: Mapping[str, n.Node], changed: Callable[[n.Source], n.Node]) -> dict[str, n.Node]:
    """The plans over other sources, or over what is made of them; shared nodes stay shared."""
    change = _Change(changed)
    return {query: change.of(node) for query, node in queries.items()}


class _Change:
    def __init__(self, changed: Callable[[n.Source], n.Node]) -> None:
        self._changed = changed
        self._done: dict[int, n.Node] = {}

    def of(self, node: n.Node) -> n.Node:
        if id(node) not in self._done:
            self._done[id(node)] = self._made(node)
        return self._done[id(node)]

    def _made(self, node: n.Node) -> n.Node:
        if isinstance(node, n.Source):
            return self._changed(node)
        inputs = [self.of(child) for child in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        return node if same else n.over(node, *inputs)
