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
from typing import Final, Literal

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column, Expr, col
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.plan.stages.copies import Copies, copies_in
from everwhen.plan.stages.model import Feed, Stage, StagePlan, StreamIn, Trait
from everwhen.plan.stages.partial import Partial, decompose

Native = Callable[[Expr, Schema], bool]
"""Whether the engine that reads the sources computes an expression exactly as we do."""


@dataclass(frozen=True, slots=True)
class _Together:
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Hashed:
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Copied:
    pass


_Want = _Together | _Hashed | _Copied
_COPIED: Final = _Copied()
_ALONE: Final = _Hashed(())


@dataclass(frozen=True)
class _Part:
    """A node whose stage is not fixed yet: it can be built at any level from `lowest` up."""

    lowest: int
    build: Callable[[int], n.Node]


def cut(queries: Mapping[str, n.Node], traits: Mapping[str, Trait], native: Native) -> StagePlan:
    """The stages of named queries; nodes that they share are computed once per stage."""
    cutter = _Cutter(traits, native)
    parts = {name: cutter.part(node, _Together(node.schema.names)) for name, node in queries.items()}
    last = max(part.lowest for part in parts.values())
    answers = {}
    for name, part in parts.items():
        if part.lowest < last:
            part = cutter.exchange(queries[name], part, _Together(queries[name].schema.names))
        answers[name] = part.build(last)
    return cutter.plan(last, answers, copies_in(queries))


@dataclass
class _Cutter:
    traits: Mapping[str, Trait]
    native: Native
    streams: list[tuple[int, StreamIn]] = field(default_factory=list)
    handed: dict[int, dict[str, n.Node]] = field(default_factory=dict)
    _parts: dict[tuple[int, _Want], _Part] = field(default_factory=dict)
    _built: dict[tuple[object, ...], n.Node] = field(default_factory=dict)
    _alive: list[object] = field(default_factory=list)

    def plan(self, last: int, answers: Mapping[str, n.Node], copies: Copies) -> StagePlan:
        stages = []
        facing = _facing(list(answers.values()))
        for level in range(1, last + 1):
            inputs = tuple(stream for at, stream in self.streams if at == level)
            ready = answers if level == last else {}
            near = facing if level == last - 1 else frozenset()
            stages.append(Stage(level, inputs, self.handed.get(level, {}), ready, near, copies.merged))
        return StagePlan(tuple(stages), copies)

    # -- parts --------------------------------------------------------------------------------------------------

    def part(self, node: n.Node, want: _Want) -> _Part:
        """The node with its rows as wanted."""
        key = (id(node), want)
        if key not in self._parts:
            self._alive.append(node)
            self._parts[key] = self._shared(key, self._part(node, want))
        return self._parts[key]

    def _shared(self, key: tuple[object, ...], part: _Part) -> _Part:
        """The same part, built once per level."""

        def build(level: int) -> n.Node:
            if (*key, level) not in self._built:
                self._built[*key, level] = part.build(level)
            return self._built[*key, level]

        return _Part(part.lowest, build)

    def _part(self, node: n.Node, want: _Want) -> _Part:
        feed = self._feed(node)
        if feed is not None:
            return self._leaf(feed, self._hash(node, want))
        match node:
            case n.Filter(input) | n.TimeWindow(input) | n.Granularity(input):
                return self._over(node, self.part(input, want))
            case n.AlterLifetime(input) | n.Deletes(input):
                return self._over(node, self.part(input, want))
            case n.Split(input, length) if length > 1:
                return self._over(node, self.part(input, want))
            case n.Map():
                return self._map(node, want)
            case n.Union(left, right):
                return self._over(node, self.part(left, want), self.part(right, _renamed(want, left, right)))
            case n.Aggregate():
                return self._aggregate(node, want)
            case n.RowsWindow(input, partition=partition) | n.MatchRecognize(input, partition=partition):
                return self._keyed(node, want, partition, input)
            case n.Join():
                return self._join(node, want)
            case n.SetOperation():
                return self._keyed(node, want, node.schema.names, *node.inputs)
            case n.LMerge():
                return self._merge(node, want)
            case n.Sort() | n.Punctuate():
                what = "ORDER BY (sort)" if isinstance(node, n.Sort) else "punctuate() inside a plan"
                raise QueryError(f"{what} needs all rows in one place; it runs in process only (--engine local)")
        # distinct, coalesce, split into chronons, relation to stream: state by whole rows
        (only,) = node.inputs
        return self._keyed(node, want, node.schema.names, only)

    def _over(self, node: n.Node, *parts: _Part) -> _Part:
        """A node in the stage of its inputs."""
        return _Part(max(part.lowest for part in parts), lambda level: n.over(node, *(p.build(level) for p in parts)))

    def _keyed(self, node: n.Node, want: _Want, keys: tuple[str, ...], *inputs: n.Node) -> _Part:
        """A node that needs the rows equal in `keys` together, and gives its rows hashed as its inputs are."""
        by = self._chosen(want, keys, node)
        if by is None:
            return self.exchange(node, self.part(node, _Together(node.schema.names)), want)
        first = inputs[0]
        parts = [self.part(first, _Hashed(by))]
        parts += [self.part(other, _renamed(_Hashed(by), first, other)) for other in inputs[1:]]
        if len(inputs) == 1 and isinstance(want, _Together) and by == keys:
            parts = [self.part(first, _Together(keys))]
        return self._over(node, *parts)

    def _merge(self, node: n.LMerge, want: _Want) -> _Part:
        """Copies hashed alike.  The frontier of each must be the same in all partitions, else these would follow
        different copies: where it depends on rows an exchange makes it one."""
        if node.policy.kernel in ("R0", "R1", "R2"):
            raise QueryError(
                f"the kernel {node.policy.kernel} takes the order in which rows arrive for the order of the stream, "
                "and an exchange does not keep it: leave the kernel to the planner, or run in process (--engine local)"
            )
        by = self._chosen(want, node.schema.names, node)
        if by is None:
            return self.exchange(node, self.part(node, _Together(node.schema.names)), want)
        parts = []
        for copy in node.copies:
            if any(isinstance(each, n.Coalesce) for each in n.walk(copy)):
                parts.append(self.exchange(copy, self.part(copy, _Together(copy.schema.names)), _Hashed(by)))
            else:
                parts.append(self.part(copy, _Hashed(by)))
        return self._over(node, *parts)

    def _chosen(self, want: _Want, keys: tuple[str, ...], node: n.Node) -> tuple[str, ...] | None:
        """The columns to hash a keyed node's inputs by, so that its output is as wanted; None: there are none."""
        match want:
            case _Hashed(columns):
                return columns if set(columns) <= set(keys) else None
            case _Together(columns):
                if set(keys) <= set(columns):
                    return keys
                common = tuple(key for key in keys if key in columns)
                return common if common or not keys else None
        return None

    def _hash(self, node: n.Node, want: _Want) -> tuple[str, ...] | None:
        match want:
            case _Together(columns) | _Hashed(columns):
                return columns
        return None

    # -- crossing -----------------------------------------------------------------------------------------------

    def exchange(self, node: n.Node, part: _Part, want: _Want) -> _Part:
        """The node's rows, brought to the next stage as wanted."""
        by = self._hash(node, want)
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

        return self._shared(key, _Part(part.lowest + 1, build))

    def _leaf(self, feed: Feed, by: tuple[str, ...] | None) -> _Part:
        key = ("feed", id(feed.node), feed.window, feed.partial, by)
        self._alive.append(feed)

        def build(level: int) -> n.Node:
            elements = feed.window is None and feed.partial is None
            form: Literal["elements", "segments"] = "elements" if elements else "segments"
            mine = frozenset({feed.source.name})
            stream = StreamIn(len(self.streams), feed.schema, form, by, feed, mine)
            self.streams.append((level, stream))
            if not elements:
                return n.Exchange(stream.name, feed.schema)
            trait = self._trait(feed.source)
            schemes = feed.source.schemes if trait.promising else ()
            return n.Source(stream.name, feed.schema, trait.insert_only, trait.chronons, schemes=schemes)

        return self._shared(key, _Part(1, build))

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
                        return Feed(below.source, input, (size, slide))
        return None

    def _below(self, node: n.Node) -> Feed | None:
        """The node as a feed that may be part of a larger one."""
        feed = self._feed(node)
        return None if feed is None or feed.window is not None or self._trait(feed.source).promising else feed

    # -- operators ----------------------------------------------------------------------------------------------

    def _map(self, node: n.Map, want: _Want) -> _Part:
        plain = {name: e.name for name, e in node.columns if isinstance(e, Column)}
        match want:
            case _Copied():
                return self._over(node, self.part(node.input, want))
            case _Hashed(columns) if set(columns) <= set(plain):
                return self._over(node, self.part(node.input, _Hashed(tuple(plain[c] for c in columns))))
            case _Together(columns):
                known = tuple(dict.fromkeys(plain[c] for c in columns if c in plain))
                if known:
                    return self._over(node, self.part(node.input, _Together(known)))
        return self.exchange(node, self._over(node, self.part(node.input, _Together(node.input.schema.names))), want)

    def _aggregate(self, node: n.Aggregate, want: _Want) -> _Part:
        partial = decompose(node)
        by = self._chosen(want, node.keys, node)
        feed = self._feed(node.input)
        if by is None:
            return self.exchange(node, self.part(node, _Together(node.schema.names)), want)
        if partial is not None and feed is not None and self._mergeable(feed, partial):
            leaf = self._leaf(replace(feed, partial=partial), by)
            return _Part(leaf.lowest, lambda level: partial.finish(leaf.build(level)))
        if partial is not None and not node.keys:
            parts = n.Aggregate(node.input, (), partial.lanes)
            rows = self._over(parts, self.part(node.input, _Together(node.input.schema.names)))
            merged = self.exchange(parts, rows, _ALONE)
            return _Part(merged.lowest, lambda level: partial.finish(merged.build(level)))
        return self._keyed(node, want, node.keys, node.input)

    def _mergeable(self, feed: Feed, partial: Partial) -> bool:
        """Whether the engine may merge the rows of equal lifetime before they cross: no row must be taken back."""
        trait = self._trait(feed.source)
        schema = feed.node.schema
        return (
            trait.insert_only
            and trait.chronons
            and not trait.promising
            and all(self.native(col(lane.columns[0]), schema) for lane in partial.lanes if lane.columns)
            and all(_exact(lane.function, schema, lane.columns) for lane in partial.lanes)
        )

    def _join(self, node: n.Join, want: _Want) -> _Part:
        left, right = node.left, node.right
        if not node.left_keys:
            if node.kind == "full":
                if want not in (_ALONE, _Together(node.schema.names)):
                    return self.exchange(node, self.part(node, _ALONE), want)
                return self._over(node, self.part(left, _ALONE), self.part(right, _ALONE))
            mine = want
            if isinstance(want, _Together):
                mine = _Together(tuple(c for c in want.columns if c in left.schema))
            if isinstance(mine, _Copied) or not mine.columns or not set(mine.columns) <= set(left.schema.names):
                rows = self._over(node, self.part(left, _Together(left.schema.names)), self.part(right, _COPIED))
                return self.exchange(node, rows, want)
            return self._over(node, self.part(left, mine), self.part(right, _COPIED))
        by = self._chosen(want, node.left_keys, node) if node.kind != "full" else None
        if by is None:
            rows = self._joined(node, node.left_keys)
            known = isinstance(want, _Together) and want.columns == node.schema.names and node.kind != "full"
            return rows if known else self.exchange(node, rows, want)
        return self._joined(node, by)

    def _joined(self, node: n.Join, by: tuple[str, ...]) -> _Part:
        partner = dict(zip(node.left_keys, node.right_keys, strict=True))
        theirs = _Hashed(tuple(partner[key] for key in by))
        return self._over(node, self.part(node.left, _Hashed(by)), self.part(node.right, theirs))


def _exact(function: str, schema: Schema, columns: tuple[str, ...]) -> bool:
    """Whether merging early gives the same value as merging late: counts, sums of 64-bit numbers, extremes of what
    both engines order alike."""
    if function == "count":
        return True
    text = str(schema.field(columns[0]).type)
    if function == "sum":
        return text in ("int8", "int16", "int32", "int64", "float", "double")
    return text in ("int8", "int16", "int32", "int64", "string", "date32[day]") or text.startswith("timestamp")


def _renamed(want: _Want, left: n.Node, right: n.Node) -> _Want:
    """The same columns by the names that the right input of a union or a set operation has for them."""
    match want:
        case _Together(columns) | _Hashed(columns):
            names = tuple(right.schema.names[left.schema.index(c)] for c in columns)
            return type(want)(names)
    return want


def _facing(answers: list[n.Node]) -> frozenset[str]:
    """The exchanges that lead to nothing but sinks, by name."""
    near: set[int] = set()
    waiting = list(answers)
    while waiting:
        node = waiting.pop()
        if isinstance(node, n.Exchange | n.Filter | n.Map | n.Union):
            near.add(id(node))
            waiting += node.inputs
    found = {node.name: node for node in n.walk(*answers) if isinstance(node, n.Exchange) and id(node) in near}
    users = [user for user in n.walk(*answers) if id(user) not in near]
    return frozenset(name for name, node in found.items() if not any(node in user.inputs for user in users))
