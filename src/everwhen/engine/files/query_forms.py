"""A query and the plans by which it may run, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everwhen.algebra.builder import node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node
from everwhen.engine.local import Query

AS_WRITTEN: Final = "as written"
REWRITTEN: Final = "rewritten"


@dataclass(frozen=True, slots=True)
class QueryForms:
    """A query as asked, with its text if there is one, and its plans by name; the first one is taken at the start."""

    asked: Node
    plans: Mapping[str, Node]
    text: str = ""

    @staticmethod
    def of(query: Query) -> QueryForms:
        """A query that runs as it is."""
        node = node_of(query)
        return QueryForms(node, {AS_WRITTEN: node})

    @property
    def first(self) -> str:
        return next(iter(self.plans))

    def named(self, shown: str) -> str | None:
        """The name of the plan that is shown so."""
        return next((name for name, node in self.plans.items() if explain(node) == shown), None)
