"""What a running plan can tell another one of the past of a source.

The guard of a stream keeps the events that may still be corrected, as the stream has them: behind the filters and with
the columns of its feed.  Another plan can take them for its own past if it needs no other column of the source and
drops whatever the running one drops.  Or both have the very same feeds: then the events of a stream are those of the
other one's, whatever they were made of.

A plan that means the same as the running one gives the same answer over the rows that the running one keeps: it may
drop them, too (`narrowed_like`), and then adjusts of dropped rows name nothing in either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from everwhen.algebra import nodes as n
from everwhen.algebra.explain import explain
from everwhen.algebra.expressions.build import Column, Expr
from everwhen.plan.stages.model import Feed, StagePlan, StreamIn
from everwhen.plan.stages.unpunctuated import over_sources


@dataclass(frozen=True)
class Told:
    """The stream, by its stage, whose guard knows a source; its columns have the names of the source's."""

    stage: int
    stream: StreamIn


def told_by(running: StagePlan, source: str, insert_only: bool, new: StagePlan) -> Told | str:
    """Who knows the past of a source that another plan needs; or why nobody does."""
    if insert_only:
        return "of a source that is never corrected no events are kept"
    wanted, dropped = needed_of(new, source)
    why = "no stage keeps its events"
    for stage in running.stages:
        for stream in stage.inputs:
            if stream.feed is None or stream.feed.source.name != source or stream.form != "elements":
                continue
            if not _plain(stream.feed):
                why = "the running query keeps only what it computes of its columns"
                continue
            if missing := sorted(wanted - set(stream.schema.names)):
                why = f"the running query does not keep its column {missing[0]!r}"
                continue
            if extra := sorted(_conditions(stream.feed.node) - dropped):
                why = f"the running query keeps only rows with {extra[0]}"
                continue
            return Told(stage.level, stream)
    return why


def same_feeds(running: StagePlan, source: str, new: StagePlan) -> dict[int, Told] | None:
    """Who knows the events of each feed that another plan has of a source, by tag; None if it has a feed of its own."""
    there = [(stage.level, s) for stage in running.stages for s in stage.inputs if s.feed and s.form == "elements"]
    found: dict[int, Told] = {}
    for stage in new.stages:
        for stream in stage.inputs:
            if stream.feed is None or stream.feed.source.name != source:
                continue
            known = [Told(level, s) for level, s in there if s.feed and _alike(s.feed, stream.feed)]
            if stream.form != "elements" or not known:
                return None
            found[stream.tag] = known[0]
    return found


def _alike(one: Feed, other: Feed) -> bool:
    """Whether two feeds give the same rows."""
    windows = (one.window, one.partial) == (other.window, other.partial) == (None, None)
    return windows and one.source.name == other.source.name and explain(one.node) == explain(other.node)


def narrowed_like(queries: Mapping[str, n.Node], new: StagePlan, running: StagePlan) -> dict[str, n.Node]:
    """Queries that mean the same as the running ones, over the rows that these keep: with the conditions of all feeds
    of a source on the source itself, where their own feeds do not have them."""
    found: dict[str, list[Expr]] = {}
    for source in running.sources:
        _, shared = needed_of(running, source.name)
        mine = needed_of(new, source.name)[1]
        feeds = [s.feed for stage in running.stages for s in stage.inputs if s.feed]
        for node in (feed.node for feed in feeds if feed.source.name == source.name):
            for text, predicate in _predicates(node).items():
                if text in shared and text not in mine:
                    found.setdefault(source.name, []).append(predicate)
                    mine = mine | {text}

    def kept(source: n.Source) -> n.Node:
        node: n.Node = source
        for predicate in found.get(source.name, ()):
            node = n.Filter(node, predicate)
        return node

    return over_sources(queries, kept) if found else dict(queries)


def _predicates(node: n.Node) -> dict[str, Expr]:
    """The conditions of a feed over the source's own columns, by their texts."""
    found: dict[str, Expr] = {}
    while not isinstance(node, n.Source):
        if isinstance(node, n.Filter):
            found[str(node.predicate)] = node.predicate
        elif isinstance(node, n.Map) and any(not isinstance(e, Column) or e.name != m for m, e in node.columns):
            found = {}
        (node,) = node.inputs
    return found


def needed_of(plan: StagePlan, source: str) -> tuple[set[str], set[str]]:
    """The columns of a source that a plan reads, and the conditions that all of its feeds have."""
    feeds = [s.feed for stage in plan.stages for s in stage.inputs if s.feed and s.feed.source.name == source]
    read = {name for feed in feeds for name in _read(feed.node)}
    conditions = [_conditions(feed.node) for feed in feeds]
    return read, set.intersection(*conditions) if conditions else set()


def _read(node: n.Node) -> Iterator[str]:
    """The columns of the source that a feed reads or gives."""
    match node:
        case n.Source():
            yield from node.schema.names
        case n.Filter(n.Source() as source, predicate):
            yield from source.schema.names
            yield from predicate.columns()
        case n.Map(n.Source(), columns):
            for _, expr in columns:
                yield from expr.columns()
        case n.Filter(input, predicate):
            yield from _read(input)
        case n.Map(input, _):
            yield from _read(input)


def _plain(feed: Feed) -> bool:
    """Whether all columns are the source's own, under their names."""
    node = feed.node
    while not isinstance(node, n.Source):
        if isinstance(node, n.Map) and any(not isinstance(e, Column) or e.name != name for name, e in node.columns):
            return False
        (node,) = node.inputs
    return True


def _conditions(node: n.Node) -> set[str]:
    """The conditions of a feed, by their text; one over a computed column is not comparable."""
    found: set[str] = set()
    while not isinstance(node, n.Source):
        if isinstance(node, n.Filter):
            found.add(str(node.predicate))
        elif isinstance(node, n.Map) and any(not isinstance(e, Column) or e.name != m for m, e in node.columns):
            found = {f"{each} over computed columns {id(node)}" for each in found}
        (node,) = node.inputs
    return found
