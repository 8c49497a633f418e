"""The logical nodes of recursion: a fixed point, and the leaf by which its step reads it.

The leaf names its loop by a token, not by a field that is a node: so plans stay trees, `walk` ends, and rules rebuild
both independently.  Names that use each other are one fixed point over tagged rows (`language/binding`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from everwhen.algebra.node import Node, walk
from everwhen.core.kinds import is_orderable
from everwhen.core.loop_options import STAGED, LoopOptions
from everwhen.core.schema import Schema
from everwhen.errors import QueryError

FixpointKind = Literal["union", "union all", "min", "max"]


class LoopToken:
    """Which loop a leaf belongs to: compared by identity.  `name` is for people."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass(frozen=True, eq=False)
class Recursion(Node):
    """What the loop has derived so far, as its own step reads it.  `place`: where the text names it, as (line, column),
    for messages."""

    token: LoopToken
    columns: Schema
    place: tuple[int, int] | None = None

    @cached_property
    def schema(self) -> Schema:
        return self.columns


@dataclass(frozen=True, eq=False)
class Fixpoint(Node):
    """The least fixed point of `base ∪ step` at every instant; `step` reads it by leaves with the same token.

    `union`: sets.  `union all`: as many copies as derivations.  `min`, `max`: per key (all columns but `value`) the
    best derivable value.
    """

    base: Node
    step: Node
    token: LoopToken
    kind: FixpointKind = "union"
    value: str | None = None
    options: LoopOptions = STAGED

    def __post_init__(self) -> None:
        if not self.base.schema.same_types(self.step.schema):
            raise QueryError(
                f"the recursion {self.token.name!r} needs the same column types in its base and its step: "
                f"{self.base.schema} against {self.step.schema}"
            )
        if reads_recursion(self.base, self.token):
            raise QueryError(f"the base of the recursion {self.token.name!r} reads {self.token.name!r} itself")
        if not reads_recursion(self.step, self.token):
            raise QueryError(f"the step of the recursion {self.token.name!r} does not read {self.token.name!r}")
        if (self.value is not None) != (self.kind in ("min", "max")):
            raise QueryError(f"a recursion with {self.kind.upper()} and the value {self.value!r}: MIN and MAX have one")
        if self.value is not None and not is_orderable(self.schema.field(self.value, "the recursion").type):
            raise QueryError(f"{self.kind.upper()} of {self.schema.field(self.value)}: its values have no order")

    @cached_property
    def schema(self) -> Schema:
        return self.base.schema

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell rows apart: of `min` and `max` all but the value."""
        return tuple(name for name in self.schema.names if name != self.value)


@dataclass(frozen=True, eq=False)
class LoopTurn(Node):
    """The head of a loop whose rounds cross exchanges: takes `derived` rows, gives what goes round next.

    Plans that users build have none; cutting a plan into stages puts them in.  `marks` are the loop's inputs without
    their rows, for what they promise; `columns` are the loop's own, without what else goes round with a row.
    """

    derived: Node
    marks: tuple[Node, ...]
    columns: Schema
    kind: FixpointKind = "union"
    value: str | None = None

    @cached_property
    def schema(self) -> Schema:
        return self.derived.schema


def reads_recursion(node: Node, token: LoopToken) -> bool:
    """Whether a plan reads the loop."""
    return any(isinstance(each, Recursion) and each.token is token for each in walk(node))
