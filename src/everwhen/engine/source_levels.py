"""Sources at levels: several consumers of one source, each with its own B and M.

A query at a level reads its sources through an intake of that level, so in the graph of a session a source stands once
per level, under a name that says so, and plans at different levels have different sources.  Plans at one level have the
same, and share their operators as ever.  What is said when (`emit`) is no part of it: it is a matter of operators.

    level below operators with state    name
    none (strong, middle)               Bid
    block 5, remember 60                Bid [block 5, remember 60]
    the same of a query that was moved  Bid [block 5, remember 60, #3]

Elements that wait do so together with those of the query's other sources, because one may be late for the other; so
queries that wait share a source only if they read the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Node, Source, rebuilt
from everwhen.core.consistency import LEVELS, MIDDLE, Consistency, consistency
from everwhen.core.time import INF, show_length
from everwhen.errors import QueryError
from everwhen.plan.lower import lower

Query = Stream | Node


def chosen(query: Query, asked: Consistency | None) -> Consistency:
    """The level asked for, else the one that the query's text asks for, else MIDDLE."""
    if not isinstance(query, Stream | Node):
        raise QueryError(f"{query!r:.40} is no query: a text becomes one by ew.sql(text, streams…)")
    if not isinstance(asked, Consistency | None):
        raise QueryError(f"{asked!r:.40} is no level: give ew.STRONG, ew.MIDDLE, ew.WEAK or ew.consistency(B, M)")
    if asked is not None:
        return asked
    level = query.level if isinstance(query, Stream) else None
    if isinstance(level, tuple):
        block, remember = level
        return consistency(block, remember)
    return LEVELS[level or MIDDLE.name]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What stands between a source and a graph.

    `waits_with`: the sources whose elements wait together; `own`: the number of a query's move, if it has been moved.
    """

    block: int = 0
    remember: int = INF
    finalizes: bool = False
    aligns: bool = False
    within: float | None = None
    waits_with: tuple[str, ...] = ()
    own: int = 0

    def name(self, source: str) -> str:
        """What a source is called at this level."""
        said = []
        if self.finalizes or self.aligns:
            said.append(f"block {show_length(self.block)}, remember {show_length(self.remember)}")
        if self.within is not None:
            said.append(f"within {self.within} s")
        others = [each for each in self.waits_with if each != source]
        said += [f"with {', '.join(others)}"] * bool(others) + [f"#{self.own}"] * bool(self.own)
        return f"{source} [{', '.join(said)}]" if said else source


PLAIN = Bounds()


def at_level(
    node: Node, level: Consistency, own: int = 0, *, idle: bool = False
) -> tuple[Node, dict[str, tuple[str, Bounds]]]:
    """A plan over the sources of a level; by the name of each of these its own name and bounds.

    Only sources below operators with state wait or are forgotten, and never relations.  `idle`: sources may rest, so
    all of these need Finalize.
    """
    bounded: frozenset[str] = frozenset()
    if level.finalizes or level.aligns or idle:
        bounded = lower({"": node}, level.emit).waiting_sources()
    found: dict[str, tuple[str, Bounds]] = {}

    def placed(each: Node) -> Node | None:
        if not isinstance(each, Source):
            return None
        bounds = bounds_of(each.name, level, bounded, idle=idle, own=own)
        if not bounds.aligns:  # nothing waits, whatever B is
            bounds = replace(bounds, block=0)
        name = bounds.name(each.name)
        found[name] = each.name, bounds
        return each if name == each.name else replace(each, name=name)

    return rebuilt(placed, node)[0], found


def bounds_of(source: str, level: Consistency, bounded: frozenset[str], *, idle: bool = False, own: int = 0) -> Bounds:
    """What stands between a source and a graph at a level; only sources in `bounded` wait or are forgotten."""
    if source not in bounded:
        return replace(PLAIN, own=own)
    return Bounds(
        level.block,
        level.remember,
        level.finalizes or idle,
        level.aligns,
        level.within if level.aligns else None,
        tuple(sorted(bounded)) if level.aligns else (),
        own,
    )
