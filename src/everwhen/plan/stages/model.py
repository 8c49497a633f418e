"""A plan in stages: what each stage reads, computes and hands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from everwhen.algebra import nodes as n
from everwhen.core.schema import Schema
from everwhen.plan.stages.copies import Copies
from everwhen.plan.stages.feed_window import FeedWindow
from everwhen.plan.stages.partial import Partial


@dataclass(frozen=True, slots=True)
class Trait:
    """What is known of a source: that nothing is corrected, that every event lives for one tick; that it may promise
    something about its data, so that all its rows must be seen whole by a guard, and by operators that use promises."""

    insert_only: bool = False
    chronons: bool = False
    promising: bool = False


@dataclass(frozen=True)
class Feed:
    """The bottom of a plan: filters and projections of a source, then perhaps a window and partial aggregates."""

    source: n.Source
    node: n.Node
    window: FeedWindow | None = None
    partial: Partial | None = None

    @property
    def schema(self) -> Schema:
        if self.partial is None:
            return self.node.schema
        return n.Aggregate(self.node, self.partial.keys, self.partial.lanes).schema


@dataclass(frozen=True)
class StreamIn:
    """What crosses into a stage: from a feed, or from the stage before it (then `feed` is None)."""

    tag: int
    schema: Schema
    form: Literal["elements", "segments", "events"]
    by: tuple[str, ...] | None
    feed: Feed | None = None
    sources: frozenset[str] = frozenset()
    """The sources that it comes from."""
    rounds: bool = False
    """Whether an epoch's rows were said round by round, so that some take others back."""
    returning: bool = False
    """Whether it is what goes round a loop."""

    @property
    def name(self) -> str:
        return f"@{self.tag}"


@dataclass(frozen=True)
class LoopRange:
    """A loop whose rounds cross exchanges: the levels that a round passes, the streams that go back from the last of
    them, and how many rounds and rows there may be in an epoch."""

    name: str
    first: int
    last: int
    streams: frozenset[str]
    most_rounds: int
    most_rows: int


@dataclass(frozen=True)
class Stage:
    """What the partitions of a level run: streams in, nodes whose changes go to the next level, queries answered."""

    level: int
    inputs: tuple[StreamIn, ...]
    handed: Mapping[str, n.Node]
    queries: Mapping[str, n.Node]
    facing: frozenset[str] = frozenset()
    """Streams handed on that meet nothing but filters, projections and sinks."""
    merged: frozenset[str] = frozenset()
    """The sources of the whole plan below a merge: their frontiers are never forced, and are no measure for others."""
    loops: tuple[str, ...] = ()
    """Of every loop that runs here, where its rows lie and why."""
    loop: int | None = None
    """Which of the plan's loops has its rounds here."""
    circulating: frozenset[str] = frozenset()
    """Streams that lie on it."""
    returns: frozenset[str] = frozenset()
    """Streams that go back to the beginning of a round."""


@dataclass(frozen=True)
class StagePlan:
    """All stages, the first first; queries are answered in the last."""

    stages: tuple[Stage, ...]
    copies: Copies = field(default_factory=Copies)
    loops: tuple[LoopRange, ...] = ()
    """Loops whose rounds cross exchanges, one behind the other."""

    @property
    def sources(self) -> tuple[n.Source, ...]:
        """Each source once, in the order of first use."""
        found = {s.feed.source.name: s.feed.source for stage in self.stages for s in stage.inputs if s.feed}
        return tuple(found.values())

    def stream(self, name: str) -> StreamIn:
        """The stream that an `Exchange` node names."""
        return next(s for stage in self.stages for s in stage.inputs if s.name == name)
