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
    found = n.rebuilt(lambda node: changed(node) if isinstance(node, n.Source) else None, *queries.values())
    return dict(zip(queries, found, strict=True))
