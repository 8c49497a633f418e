"""How a loop's inputs are spread so that each partition can run its share of the loop to the end.

A loop that keeps a column (`rewrite/facts/kept_columns.py`) never brings rows together that differ in it.  So its rows
lie hashed by kept columns, as they begin, and stay where they are from round to round.  What its step joins with them
by equality of just these columns is hashed alike; everything else is copied to every partition.

A loop that keeps nothing runs in one partition, with all that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.rewrite.facts.kept_columns import homes, kept_columns

Columns = tuple[str, ...]
_Partners = Mapping[str, frozenset[str]]
"""For kept columns, the columns of an input that equal them wherever the input is joined."""


@dataclass(frozen=True)
class LoopInputs:
    """What a loop reads from outside.  `begin`: base, and branches of the step that do not read the loop.  `joined`:
    what the other branches join."""

    loop: n.Fixpoint

    @cached_property
    def begin(self) -> tuple[n.Node, ...]:
        return (self.loop.base, *(each for each in self._branches(self.loop.step) if not self._reads(each)))

    @cached_property
    def _recursive(self) -> tuple[n.Node, ...]:
        return tuple(each for each in self._branches(self.loop.step) if self._reads(each))

    @cached_property
    def kept(self) -> frozenset[str]:
        """The columns that every recursive branch keeps."""
        return frozenset.intersection(*(kept_columns(replace(self.loop, step=each)) for each in self._recursive))

    @cached_property
    def joined(self) -> tuple[tuple[n.Node, _Partners], ...]:
        found: dict[int, tuple[n.Node, dict[str, frozenset[str]]]] = {}
        for branch in self._recursive:
            for each in n.walk(branch):
                if self._reads(each):
                    self._note_partners(each, found)
        return tuple(found.values())

    def hashed_by(self, wanted: frozenset[str]) -> Columns:
        """The best of the kept columns among those wanted: as few copies as possible, then as many columns."""
        allowed = self.kept & wanted
        sets = [allowed, *(allowed & partners.keys() for _, partners in self.joined)]

        def worth(columns: frozenset[str]) -> tuple[int, int]:
            return sum(columns <= partners.keys() for _, partners in self.joined), len(columns)

        best = max((each for each in sets if each), key=worth, default=allowed)
        return tuple(name for name in self.loop.schema.names if name in best)

    def begun_by(self, node: n.Node, by: Columns) -> Columns:
        """The columns of what begins rows that are the loop's columns `by`."""
        return tuple(node.schema.names[self.loop.schema.index(name)] for name in by)

    def partners(self, node: n.Node, partners: _Partners, by: Columns) -> Columns | None:
        """The columns of a joined input that always equal the columns `by`; None: it has to be copied."""
        if not set(by) <= partners.keys():
            return None
        order = node.schema.names
        return tuple(min(partners[name], key=order.index) for name in by)

    def over(self, begin: Mapping[int, n.Node], joined: Mapping[int, n.Node]) -> n.Fixpoint:
        """The loop over other inputs, by the ids of its own."""

        def again(node: n.Node) -> n.Node:
            return joined[id(node)] if id(node) in joined else n.over(node, *map(again, node.inputs))

        def branch(node: n.Node) -> n.Node:
            if not self._reads(node):
                return begin[id(node)]
            return n.Union(branch(node.left), branch(node.right)) if isinstance(node, n.Union) else again(node)

        return replace(self.loop, base=begin[id(self.loop.base)], step=branch(self.loop.step))

    def words(self, by: Columns) -> str:
        """Where the loop runs, and why."""
        name = self.loop.token.name
        if not by:
            return f"loop {name} in one partition: it keeps no column from round to round"
        copied = [_named(node) for node, partners in self.joined if self.partners(node, partners, by) is None]
        alike = [_named(node) for node, partners in self.joined if self.partners(node, partners, by) is not None]
        columns = ", ".join(by)
        words = f"loop {name} hashed by {columns}, which it keeps from round to round"
        words += f"; {', '.join(dict.fromkeys(alike))} hashed alike" if alike else ""
        return words + (f"; {', '.join(dict.fromkeys(copied))} copied to every partition" if copied else "")

    def _branches(self, node: n.Node) -> list[n.Node]:
        """The parts of a union."""
        if isinstance(node, n.Union) and self._reads(node):
            return [*self._branches(node.left), *self._branches(node.right)]
        return [node]

    def _reads(self, node: n.Node) -> bool:
        return n.reads_recursion(node, self.loop.token)

    def _note_partners(self, node: n.Node, found: dict[int, tuple[n.Node, dict[str, frozenset[str]]]]) -> None:
        """Note the inputs of a node that do not read the loop, with their columns that equal kept ones."""
        for at, outside in enumerate(node.inputs):
            if self._reads(outside):
                continue
            equal: dict[str, frozenset[str]] = {}
            match node:
                case n.Join(left, right):
                    keys = (node.right_keys, node.left_keys)
                    pairs = list(zip(keys[at], keys[1 - at], strict=True))  # of the loop's side, of the outside's
                    equal = self._equal((left, right)[1 - at], outside, pairs)
                case n.SetOperation(left, right):
                    other = (left, right)[1 - at]
                    equal = self._equal(
                        other, outside, list(zip(other.schema.names, outside.schema.names, strict=True))
                    )
            if id(outside) in found:
                before = found[id(outside)][1]
                equal = {name: each for name in equal if (each := equal[name] & before.get(name, frozenset()))}
            found[id(outside)] = outside, equal

    def _equal(self, inside: n.Node, outside: n.Node, pairs: list[tuple[str, str]]) -> dict[str, frozenset[str]]:
        """Zeros of floating-point numbers are equal and hash differently: these count for nothing."""
        exact = [(a, b) for a, b in pairs if not pa.types.is_floating(outside.schema.field(b).type)]
        held = homes(inside, self.loop)
        equal = {name: frozenset(b for a, b in exact if a in held.get(name, ())) for name in self.kept}
        return {name: each for name, each in equal.items() if each}


def _named(node: n.Node) -> str:
    """An input by its sources."""
    return " and ".join(dict.fromkeys(each.name for each in n.walk(node) if isinstance(each, n.Source | n.Exchange)))
