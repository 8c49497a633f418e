"""Stages: a plan cut where rows must come together.

A stage is run by `n` partitions at once, each with its share of the rows.  An operator with state needs certain rows in
one partition: a group's, an equi-join's partners, the equal rows of a distinct.  Where the rows do not lie so already,
the plan is cut: an `Exchange` brings them to the next stage, hashed by the columns `by` (no columns: all to one
partition; None: a copy to every partition).  Rows equal in some columns lie together when they were hashed by a subset
of these.

    want        asked of an input                        given by
    Together    rows equal in the columns                any hash over a subset of them
    Hashed      hashed by exactly these columns          a join, so that both sides agree
    Copied      every row in every partition                the other side of a join without keys
    (Together of all columns: an adjust must meet its event)

A stage's level is how many exchanges lie before it.  Everything is built at the level its reader asks for, so streams
cross one boundary at a time and each stage is run once per epoch.  The bottom of the plan, as far as `native`
allows, is a `Feed`: computed by the engine that reads the source, before the first exchange, and narrowed to what is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column, Expr, col
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.plan.stages.copies import Copies, copies_in
from everwhen.plan.stages.facts import constant, exact, facing_sinks
from everwhen.plan.stages.feed_window import HopWindow, SlidingWindow
from everwhen.plan.stages.hop_aggregate import hop_aggregate
from everwhen.plan.stages.loop_inputs import LoopInputs
from everwhen.plan.stages.loops_across import LoopsAcross, on_loop
from everwhen.plan.stages.model import Feed, Stage, StagePlan, StreamIn, Trait
from everwhen.plan.stages.partial import Partial, decompose
from everwhen.plan.stages.wants import ALONE, COPIED, Copied, Hashed, Part, Together, Want, agreed, renamed

Native = Callable[[Expr, Schema], bool]
"""Whether the engine that reads the sources computes an expression exactly as we do."""


def cut(queries: Mapping[str, n.Node], traits: Mapping[str, Trait], native: Native, across: bool = True) -> StagePlan:
    """The stages of named queries; nodes that they share are computed once per stage.  `across`: whether loops that ask
    for it may have their rounds across exchanges; else every loop runs inside one stage."""
    cutter = _Cutter(traits, native)
    cutter.across = LoopsAcross(cutter) if across else None
    parts = {name: cutter.part(node, Together(node.schema.names)) for name, node in queries.items()}
    last = max(part.lowest for part in parts.values())
    answers = {}
    for name, part in parts.items():
        if part.lowest < last:
            part = cutter.exchange(queries[name], part, Together(queries[name].schema.names))
        answers[name] = part.build(last)
    plan = cutter.plan(last, answers, copies_in(queries))
    if not plan.sources:
        raise QueryError("the query reads no stream, only constant rows: it runs in process (--engine local)")
    return plan


@dataclass
class _Cutter:
    traits: Mapping[str, Trait]
    native: Native
    streams: list[tuple[int, StreamIn]] = field(default_factory=list)
    handed: dict[int, dict[str, n.Node]] = field(default_factory=dict)
    loops: dict[int, list[str]] = field(default_factory=dict)
    across: LoopsAcross | None = None
    parts: dict[tuple[int, Want], Part] = field(default_factory=dict)
    built: dict[tuple[object, ...], n.Node] = field(default_factory=dict)
    _alive: list[object] = field(default_factory=list)

    def plan(self, last: int, answers: Mapping[str, n.Node], copies: Copies) -> StagePlan:
        stages = []
        facing = facing_sinks(list(answers.values()))
        circulating: set[str] = set()
        ranges = [] if self.across is None else self.across.ranges
        for level in range(1, last + 1):
            inputs = tuple(stream for at, stream in self.streams if at == level)
            ready = answers if level == last else {}
            near = facing if level == last - 1 else frozenset()
            loops = tuple(self.loops.get(level, ()))
            at = next((at for at, each in enumerate(ranges) if each.first <= level <= each.last), None)
            returns = ranges[at].streams if at is not None and level == ranges[at].last else frozenset()
            handed = self.handed.get(level, {})
            circulating |= {stream.name for stream in inputs if stream.returning}
            circulating |= {name for name, node in handed.items() if on_loop(node, circulating)}
            mine = frozenset(stream.name for stream in inputs) & circulating
            stages.append(Stage(level, inputs, handed, ready, near, copies.merged, loops, at, mine, returns))
        return StagePlan(tuple(stages), copies, tuple(ranges))

    # -- parts --------------------------------------------------------------------------------------------------

    def part(self, node: n.Node, want: Want) -> Part:
        """The node with its rows as wanted."""
        key = (id(node), want)
        if key not in self.parts:
            self._alive.append(node)
            self.parts[key] = self._shared(key, self._part(node, want))
        return self.parts[key]

    def _shared(self, key: tuple[object, ...], part: Part) -> Part:
        """The same part, built once per level."""

        def build(level: int) -> n.Node:
            if (*key, level) not in self.built:
                self.built[*key, level] = part.build(level)
            return self.built[*key, level]

        return Part(part.lowest, build)

    def _part(self, node: n.Node, want: Want) -> Part:
        feed = self._feed(node)
        if feed is not None:
            return self._leaf(feed, self.hash(node, want))
        match node:
            case n.Filter(input) | n.TimeWindow(input) | n.Granularity(input):
                return self._over(node, self.part(input, want))
            case n.AlterLifetime(input) | n.Deletes(input) | n.Span(input):
                return self._over(node, self.part(input, want))
            case n.Split(input, length) if length > 1:
                return self._over(node, self.part(input, want))
            case n.Map() | n.Stamp() | n.Unnest():
                return self._map(node, want)
            case n.Union(left, right):
                both = agreed(node, want)
                return self._over(node, self.part(left, both), self.part(right, renamed(both, left, right)))
            case n.Aggregate():
                return self._aggregate(node, want)
            case (
                n.RowsWindow(input, partition=partition)
                | n.MatchRecognize(input, partition=partition)
                | n.Rank(input, partition=partition)
                | n.Over(input, partition=partition)
            ):
                return self._keyed(node, want, partition, input)
            case n.Join():
                return self._join(node, want)
            case n.Values():
                return self._values(node, want)
            case n.SetOperation():
                return self._keyed(node, want, node.schema.names, *node.inputs)
            case n.LMerge():
                return self._merge(node, want)
            case n.Fixpoint():
                if self.across is not None and node.options.across:
                    return self.part(self.across.answer(node), want)
                return self._loop(node, want)
            case n.Exchange():
                assert self.across is not None, "only loops leave any"
                return self.across.part(node, want)
            case n.Sort() | n.Punctuate():
                what = "ORDER BY (sort)" if isinstance(node, n.Sort) else "punctuate() inside a plan"
                raise QueryError(f"{what} needs all rows in one place; it runs in process only (--engine local)")
        # distinct, coalesce, split into chronons, relation to stream: state by whole rows
        (only,) = node.inputs
        return self._keyed(node, want, node.schema.names, only)

    def _over(self, node: n.Node, *parts: Part) -> Part:
        """A node in the stage of its inputs."""
        return Part(max(part.lowest for part in parts), lambda level: n.over(node, *(p.build(level) for p in parts)))

    def _keyed(self, node: n.Node, want: Want, keys: tuple[str, ...], *inputs: n.Node) -> Part:
        """A node that needs the rows equal in `keys` together, and gives its rows hashed as its inputs are."""
        by = self._chosen(want, keys, node)
        if by is None:
            return self.exchange(node, self.part(node, Together(node.schema.names)), want)
        first = inputs[0]
        parts = [self.part(first, Hashed(by))]
        parts += [self.part(other, renamed(Hashed(by), first, other)) for other in inputs[1:]]
        if len(inputs) == 1 and isinstance(want, Together) and by == keys:
            parts = [self.part(first, Together(keys))]
        return self._over(node, *parts)

    def _values(self, node: n.Values, want: Want) -> Part:
        """Constant rows: every partition has them, or the first one hands them on."""
        if isinstance(want, Copied):
            return Part(1, lambda level: node)
        return self.exchange(node, Part(1, lambda level: replace(node, alone=True)), want)

    def _merge(self, node: n.LMerge, want: Want) -> Part:
        """Copies hashed alike.  The frontier of each must be the same in all partitions, else these would follow
        different copies: where it depends on rows an exchange makes it one."""
        if node.policy.kernel in ("R0", "R1", "R2"):
            raise QueryError(
                f"the kernel {node.policy.kernel} takes the order in which rows arrive for the order of the stream, "
                "and an exchange does not keep it: leave the kernel to the planner, or run in process (--engine local)"
            )
        by = self._chosen(want, node.schema.names, node)
        if by is None:
            return self.exchange(node, self.part(node, Together(node.schema.names)), want)
        parts = []
        for copy in node.copies:
            if any(isinstance(each, n.Coalesce) for each in n.walk(copy)):
                parts.append(self.exchange(copy, self.part(copy, Together(copy.schema.names)), Hashed(by)))
            else:
                parts.append(self.part(copy, Hashed(by)))
        return self._over(node, *parts)

    def _loop(self, node: n.Fixpoint, want: Want) -> Part:
        """A loop inside one stage, hashed by columns that it keeps, or in one partition."""
        inputs = LoopInputs(node)
        everything = Together(node.schema.names)
        match want:
            case Hashed(columns) if set(columns) <= inputs.kept and (columns or not inputs.kept):
                by = columns
            case Together(columns):
                by = inputs.hashed_by(frozenset(columns))
                if not by and want != everything:
                    return self.exchange(node, self.part(node, everything), want)
            case _:
                return self.exchange(node, self.part(node, everything), want)
        begin = {id(each): self.part(each, Hashed(inputs.begun_by(each, by))) for each in inputs.begin}
        joined = {}
        for each, partners in inputs.joined:
            theirs = inputs.partners(each, partners, by)
            joined[id(each)] = self.part(each, COPIED if theirs is None else Hashed(theirs))

        def build(level: int) -> n.Node:
            loops = self.loops.setdefault(level, [])
            loops.append(inputs.words(by))
            return inputs.over(*({at: part.build(level) for at, part in each.items()} for each in (begin, joined)))

        return Part(max(part.lowest for part in (*begin.values(), *joined.values())), build)

    def _chosen(self, want: Want, keys: tuple[str, ...], node: n.Node) -> tuple[str, ...] | None:
        """The columns to hash a keyed node's inputs by, so that its output is as wanted; None: there are none."""
        match want:
            case Hashed(columns):
                return columns if set(columns) <= set(keys) else None
            case Together(columns):
                if set(keys) <= set(columns):
                    return keys
                common = tuple(key for key in keys if key in columns)
                return common if common or not keys else None
        return None

    def hash(self, node: n.Node, want: Want) -> tuple[str, ...] | None:
        match want:
            case Together(columns) | Hashed(columns):
                return columns
        return None

    # -- crossing -----------------------------------------------------------------------------------------------

    def exchange(self, node: n.Node, part: Part, want: Want) -> Part:
        """The node's rows, brought to the next stage as wanted."""
        by = self.hash(node, want)
        key = ("exchange", id(node), by)
        self._alive.append(node)

        def build(level: int) -> n.Node:
            below = part.build(level - 1)
            form: Literal["segments", "events"] = "events" if node.keeps_events else "segments"
            origin = {stream.name: stream.sources for _, stream in self.streams}
            found = [origin[each.name] for each in n.walk(below) if isinstance(each, n.Source | n.Exchange)]
            sources = frozenset().union(*found)
            stream = StreamIn(len(self.streams), node.schema, form, by, sources=sources)
            self.streams.append((level, stream))
            self.handed.setdefault(level - 1, {})[stream.name] = below
            return n.Exchange(stream.name, node.schema, node.keeps_events)

        return self._shared(key, Part(part.lowest + 1, build))

    def _leaf(self, feed: Feed, by: tuple[str, ...] | None) -> Part:
        key = ("feed", id(feed.node), feed.window, feed.partial, by)
        self._alive.append(feed)

        def build(level: int) -> n.Node:
            elements = feed.window is None and feed.partial is None
            whole = isinstance(feed.window, HopWindow)
            form: Literal["elements", "segments", "events"] = "elements" if elements else "segments"
            form = "events" if whole else form
            mine = frozenset({feed.source.name})
            stream = StreamIn(len(self.streams), feed.schema, form, by, feed, mine)
            self.streams.append((level, stream))
            if not elements:
                return n.Exchange(stream.name, feed.schema, whole)
            trait = self._trait(feed.source)
            schemes = feed.source.schemes if trait.promising else ()
            return n.Source(stream.name, feed.schema, trait.insert_only, trait.chronons, schemes=schemes)

        return self._shared(key, Part(1, build))

    def _trait(self, source: n.Source) -> Trait:
        trait = self.traits.get(source.name, Trait())
        insert_only, chronons = trait.insert_only or source.insert_only, trait.chronons or source.chronons
        return Trait(insert_only, chronons, trait.promising)

    def _feed(self, node: n.Node) -> Feed | None:
        """The node as a feed, if the engine can compute all of it."""
        match node:
            case n.Source():
                return Feed(node, node)
            case n.Filter(input, predicate):
                below = self._below(input)
                if below is not None and self.native(predicate, input.schema):
                    return Feed(below.source, node)
            case n.Map(input, columns):
                below = self._below(input)
                if below is not None:
                    native = all(isinstance(e, Column) or self.native(e, input.schema) for _, e in columns)
                    return Feed(below.source, node) if native else None
            case n.TimeWindow(input, size, slide):
                below = self._below(input)
                if below is not None:
                    trait = self._trait(below.source)
                    if trait.insert_only and trait.chronons:
                        return Feed(below.source, input, SlidingWindow(size, slide))
        return None

    def _below(self, node: n.Node) -> Feed | None:
        """The node as a feed that may be part of a larger one."""
        feed = self._feed(node)
        return None if feed is None or feed.window is not None or self._trait(feed.source).promising else feed

    # -- operators ----------------------------------------------------------------------------------------------

    def _map(self, node: n.Map | n.Stamp | n.Unnest, want: Want) -> Part:
        plain = {name: name for name in node.input.schema.names}
        if isinstance(node, n.Map):
            plain = {name: e.name for name, e in node.columns if isinstance(e, Column)}
        match want:
            case Copied():
                return self._over(node, self.part(node.input, want))
            case Hashed(columns) if set(columns) <= set(plain):
                return self._over(node, self.part(node.input, Hashed(tuple(plain[c] for c in columns))))
            case Together(columns):
                known = tuple(dict.fromkeys(plain[c] for c in columns if c in plain))
                if known:
                    return self._over(node, self.part(node.input, Together(known)))
        return self.exchange(node, self._over(node, self.part(node.input, Together(node.input.schema.names))), want)

    def _aggregate(self, node: n.Aggregate, want: Want) -> Part:
        tumbling = self._tumbling(node, want)
        if tumbling is not None:
            return tumbling
        partial = decompose(node)
        by = self._chosen(want, node.keys, node)
        feed = self._feed(node.input)
        if by is None:
            return self.exchange(node, self.part(node, Together(node.schema.names)), want)
        if partial is not None and feed is not None and self._mergeable(feed, partial):
            leaf = self._leaf(replace(feed, partial=partial), by)
            return Part(leaf.lowest, lambda level: partial.finish(leaf.build(level)))
        if partial is not None and not node.keys:
            parts = n.Aggregate(node.input, (), partial.lanes)
            rows = self._over(parts, self.part(node.input, Together(node.input.schema.names)))
            merged = self.exchange(parts, rows, ALONE)
            return Part(merged.lowest, lambda level: partial.finish(merged.build(level)))
        return self._keyed(node, want, node.keys, node.input)

    def _tumbling(self, node: n.Aggregate, want: Want) -> Part | None:
        """An aggregate per window of TUMBLE whose rows are merged before they cross; None if they cannot be."""
        found = hop_aggregate(node)
        below, by = (None, None) if found is None else (self._below(found.rows), found.hashed_by(want))
        if found is None or below is None or by is None or not self._mergeable(below, found.merged):
            return None
        leaf = self._leaf(Feed(below.source, below.node, found.window, found.merged), by)
        return Part(leaf.lowest, lambda level: found.finish(leaf.build(level)))

    def _mergeable(self, feed: Feed, partial: Partial) -> bool:
        """Whether the engine may merge the rows of equal lifetime before they cross: no row must be taken back."""
        trait = self._trait(feed.source)
        schema = feed.node.schema
        return (
            trait.insert_only
            and trait.chronons
            and not trait.promising
            and all(self.native(col(lane.columns[0]), schema) for lane in partial.lanes if lane.columns)
            and all(exact(lane.function, schema, lane.columns) for lane in partial.lanes)
        )

    def _join(self, node: n.Join, want: Want) -> Part:
        left, right = node.left, node.right
        if not node.left_keys or (node.kind != "full" and constant(right)):
            if node.kind == "full":
                if want not in (ALONE, Together(node.schema.names)):
                    return self.exchange(node, self.part(node, ALONE), want)
                return self._over(node, self.part(left, ALONE), self.part(right, ALONE))
            mine = want
            if isinstance(want, Together):
                mine = Together(tuple(c for c in want.columns if c in left.schema))
            if isinstance(mine, Copied) or not mine.columns or not set(mine.columns) <= set(left.schema.names):
                rows = self._over(node, self.part(left, Together(left.schema.names)), self.part(right, COPIED))
                return self.exchange(node, rows, want)
            return self._over(node, self.part(left, mine), self.part(right, COPIED))
        by = self._chosen(want, node.left_keys, node) if node.kind != "full" else None
        if by is None:
            rows = self._joined(node, node.left_keys)
            known = isinstance(want, Together) and want.columns == node.schema.names and node.kind != "full"
            return rows if known else self.exchange(node, rows, want)
        return self._joined(node, by)

    def _joined(self, node: n.Join, by: tuple[str, ...]) -> Part:
        partner = dict(zip(node.left_keys, node.right_keys, strict=True))
        theirs = Hashed(tuple(partner[key] for key in by))
        return self._over(node, self.part(node.left, Hashed(by)), self.part(node.right, theirs))
