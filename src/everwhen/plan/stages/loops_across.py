"""Loops whose rounds cross exchanges: the body cut into stages as any plan is, the head spread by its keys.

    levels   first ─▶ … ─▶ last: the turn ─▶ the answer, at the next level
               ▲                   │
               └──── goes round ───┘          one pass is a round

A round passes the levels from the first that reads the loop to that of the turn (`operators/loop/turn.py`).  Whatever
else lies on these levels is stepped as often, with nothing to do.  Loops lie behind one another, so that each has ended
before the next one begins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import col, lit
from everwhen.plan.loop import RECURSION, LoopPlan, loop_plan
from everwhen.plan.stages.model import LoopRange, StreamIn
from everwhen.plan.stages.wants import Part, Together, Want


class Cutter(Protocol):
    """Who cuts the plan."""

    streams: list[tuple[int, StreamIn]]
    handed: dict[int, dict[str, n.Node]]
    loops: dict[int, list[str]]
    built: dict[tuple[object, ...], n.Node]

    def part(self, node: n.Node, want: Want) -> Part: ...
    def hash(self, node: n.Node, want: Want) -> tuple[str, ...] | None: ...
    def exchange(self, node: n.Node, part: Part, want: Want) -> Part: ...


@dataclass(frozen=True)
class _Leaf:
    """What a loop is read by: of its own body (`turn` is None), or of what reads its answer, from a level on."""

    lowest: int
    sources: frozenset[str]
    turn: n.Node | None = None
    streams: list[StreamIn] = field(default_factory=list)


@dataclass
class LoopsAcross:
    """The loops of a plan, in the order in which they run."""

    cutter: Cutter
    ranges: list[LoopRange] = field(default_factory=list)
    _answers: dict[int, n.Node] = field(default_factory=dict)
    _leaves: dict[str, _Leaf] = field(default_factory=dict)
    _alive: list[n.Node] = field(default_factory=list)

    def answer(self, loop: n.Fixpoint) -> n.Node:
        """What stands for a loop behind it.  A set is said once more as one: rounds may say a row, take it back and
        say it again."""
        if id(loop) not in self._answers:
            self._alive.append(loop)
            self._answers[id(loop)] = self._placed(loop)
        return self._answers[id(loop)]

    def _placed(self, loop: n.Fixpoint) -> n.Node:
        plan = loop_plan(loop)
        for inner in n.walk(*plan.externals):
            if isinstance(inner, n.Fixpoint) and inner.options.across:
                self.answer(inner)
        number, cutter = len(self.ranges), self.cutter
        sources = frozenset(n.sources_of(loop))
        bottom = max((each.last for each in self.ranges), default=0) + 1
        back = _Leaf(bottom, sources)
        self._leaves[f"$recursion {number}"] = back
        body = _over_inputs(plan, f"$recursion {number}")
        part = cutter.part(body, Together(loop.keys))
        last = part.lowest
        derived = part.build(last)
        marks = tuple(self._mark(each, last) for each in plan.externals)
        turn = n.LoopTurn(derived, marks, loop.schema, loop.kind, loop.value)
        for stream in back.streams:
            cutter.handed.setdefault(last, {})[stream.name] = turn
        names = frozenset(stream.name for stream in back.streams)
        first = min(level for level, stream in cutter.streams if stream.name in names)
        self.ranges.append(
            LoopRange(loop.token.name, first, last, names, loop.options.max_level, loop.options.max_rows)
        )
        stages = f"stage {last}" if first == last else f"stages {first} to {last}"
        words = f"loop {loop.token.name} across exchanges, as asked for: a round is a job over {stages}"
        cutter.loops.setdefault(last, []).append(words)
        leaf = n.Exchange(f"$answer {number}", loop.schema)
        said = n.Map(turn, tuple((name, col(name)) for name in loop.schema.names))
        self._leaves[leaf.name] = _Leaf(last + 1, sources, said)
        return leaf if loop.kind == "union all" else n.Distinct(leaf)

    def part(self, node: n.Exchange, want: Want) -> Part:
        """What reads a loop."""
        leaf = self._leaves[node.name]

        def build(level: int) -> n.Node:
            if leaf.turn is not None and level > leaf.lowest:
                whole = self.cutter.part(node, Together(node.schema.names))
                return self.cutter.exchange(node, whole, want).build(level)
            by, said = self.cutter.hash(node, want), leaf.turn is not None
            tag = len(self.cutter.streams)
            stream = StreamIn(tag, node.schema, "segments", by, None, leaf.sources, said, not said)
            self.cutter.streams.append((level, stream))
            if leaf.turn is None:
                leaf.streams.append(stream)
            else:
                self.cutter.handed.setdefault(level - 1, {})[stream.name] = leaf.turn
            return n.Exchange(stream.name, node.schema)

        return Part(leaf.lowest, build)

    def _mark(self, outside: n.Node, last: int) -> n.Node:
        """An input of the loop without its rows, at the level of the turn: as it is computed anyway, if it is."""
        mine = [
            key for key in self.cutter.built if key[0] == id(outside) and isinstance(key[-1], int) and len(key) == 3
        ]
        if not mine:
            mark = n.Filter(outside, lit(False))
            self._alive.append(mark)
            return self.cutter.part(mark, Together(mark.schema.names)).build(last)
        level = max(int(str(key[-1])) for key in mine)
        node: n.Node = n.Filter(next(self.cutter.built[key] for key in mine if key[-1] == level), lit(False))
        origin = {stream.name: stream.sources for _, stream in self.cutter.streams}
        read = [origin[each.name] for each in n.walk(node) if isinstance(each, n.Source | n.Exchange)]
        for at in range(level, last):
            whole = node.keeps_events
            tag = len(self.cutter.streams)
            form: Literal["events", "segments"] = "events" if whole else "segments"
            stream = StreamIn(tag, node.schema, form, (), None, frozenset().union(*read))
            self.cutter.streams.append((at + 1, stream))
            self.cutter.handed.setdefault(at, {})[stream.name] = node
            node = n.Exchange(stream.name, node.schema, whole)
        return node


def on_loop(node: n.Node, circulating: Collection[str]) -> bool:
    """Whether a node lies on a loop, given the streams that do: it reads one, and not what comes out at the turn."""
    below = n.walk(node)
    turned = any(isinstance(each, n.LoopTurn) for each in below)
    return not turned and any(isinstance(each, n.Exchange) and each.name in circulating for each in below)


def _over_inputs(plan: LoopPlan, back: str) -> n.Node:
    """The body over the loop's inputs themselves, and a leaf by which it reads the loop."""
    inputs = dict(zip(plan.names, plan.externals, strict=True))

    def leaf(node: n.Node) -> n.Node | None:
        if not isinstance(node, n.Exchange):
            return None
        return n.Exchange(back, node.schema) if node.name == RECURSION else inputs[node.name]

    return n.rebuilt(leaf, plan.body)[0]
