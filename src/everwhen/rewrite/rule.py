"""What a rule is: a name, a reason, and a pure function from a plan to an equal plan.

A `Rule` looks at one node and what is below it, and returns a node with the same schema and the same snapshot at every
instant, or None.  A `PlanRule` needs to see all queries at once (who reads what); it returns as many roots as it got.

Rewriting must not make a query fail that did not fail before: an expression that can raise is never evaluated on rows
that a filter, a join or another guard kept away from it (`conditions.may_fail`).  A plan may come to fail less often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everwhen.algebra.nodes import Node

Roots = tuple[Node, ...]


@dataclass(frozen=True)
class Rule:
    """One rewriting step at one node."""

    name: str
    reason: str
    apply: Callable[[Node], Node | None]


@dataclass(frozen=True)
class PlanRule:
    """One rewriting step over whole plans; nodes of `kept` stay as they are."""

    name: str
    reason: str
    apply: Callable[[Roots, Roots], Roots]


AnyRule = Rule | PlanRule
