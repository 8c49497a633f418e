"""How the rows of a node shall lie in the partitions of a stage: what is asked of an input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column
from everwhen.plan.stages.loop_inputs import LoopInputs


@dataclass(frozen=True, slots=True)
class Together:
    """Rows equal in the columns in one partition: hashed by any of them."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hashed:
    """Hashed by exactly these columns; by none: all in one partition."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Copied:
    """Every row in every partition."""


@dataclass(frozen=True)
class Part:
    """A node whose stage is not fixed yet: it can be built at any level from `lowest` up."""

    lowest: int
    build: Callable[[int], n.Node]


Want = Together | Hashed | Copied
COPIED: Final = Copied()
ALONE: Final = Hashed(())


def renamed(want: Want, left: n.Node, right: n.Node) -> Want:
    """The same columns by the names that the right input of a union or a set operation has for them."""
    match want:
        case Together(columns) | Hashed(columns):
            names = tuple(right.schema.names[left.schema.index(c)] for c in columns)
            return type(want)(names)
    return want


def agreed(union: n.Union, want: Want) -> Want:
    """What both sides of a union are asked for, by the names of the left: equal rows may come from both, so each must
    be hashed as the other is, not by just any of the columns."""
    if not isinstance(want, Together):
        return want
    theirs = renamed(want, union.left, union.right)
    assert isinstance(theirs, Together)
    one, two = _expected(union.left, want.columns), _expected(union.right, theirs.columns)
    names = dict(zip(union.right.schema.names, union.left.schema.names, strict=True))
    return Hashed(one if one == tuple(names[name] for name in two) else want.columns)


def _expected(node: n.Node, columns: tuple[str, ...]) -> tuple[str, ...]:
    """By which of the columns the rows of a node lie at the least cost: a guess that may cost an exchange, no more."""
    match node:
        case n.Filter(input) | n.TimeWindow(input) | n.Granularity(input) | n.Distinct(input):
            return _expected(input, columns)
        case n.Union(left):
            return _expected(left, columns)
        case n.Map(input, selected):
            plain = {name: expr.name for name, expr in selected if isinstance(expr, Column)}
            below = _expected(input, tuple(dict.fromkeys(plain[name] for name in columns if name in plain)))
            own = {name: called for called, name in reversed(plain.items()) if called in columns}
            return tuple(own[name] for name in below) if below else columns
        case n.Aggregate(_, keys) | n.RowsWindow(partition=keys) | n.Join(left_keys=keys):
            return keys if keys and set(keys) <= set(columns) else columns
        case n.Fixpoint():
            return LoopInputs(node).hashed_by(frozenset(columns)) or columns
    return columns
