"""The logical node of LMerge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from everwhen.algebra.node import Node
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.schema import Schema
from everwhen.errors import QueryError


def _copy_names(copies: Sequence[Node]) -> tuple[str, ...]:
    """Sources by their names, other copies by their positions."""
    return tuple(getattr(each, "name", f"input {at}") for at, each in enumerate(copies, 1))


@dataclass(frozen=True, eq=False)
class LMerge(Node):
    """Copies of one stream as one: at every instant what the copy says that first promised it, then what the policy
    says.  `since`: from when on each copy is right.  `names`: what messages call them."""

    copies: tuple[Node, ...]
    since: tuple[int, ...]
    policy: MergePolicy
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.copies) < 2:
            raise QueryError("LMERGE needs at least two inputs")
        if not self.names:
            object.__setattr__(self, "names", _copy_names(self.copies))
        for other in self.copies[1:]:
            if other.schema != self.copies[0].schema:
                raise QueryError(
                    f"LMERGE needs the same columns on all inputs: {self.copies[0].schema} against {other.schema}"
                )

    @cached_property
    def schema(self) -> Schema:
        return self.copies[0].schema

    @property
    def keeps_events(self) -> bool:
        return all(each.keeps_events for each in self.copies)
