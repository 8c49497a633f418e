"""From when on what each port brings is of interest, if the answer is from some instant on.

From the outputs downwards, each operator is asked from when on it needs its inputs (`Operator.needs_from`); a port that
several read is needed from the earliest of their times on.  A merge of copies needs nothing before its own promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Flag, auto

from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.engine.node import OperatorNode
from everwhen.errors import QueryError
from everwhen.plan.physical import Port

Wanted = Iterable[tuple[Port, int]]
"""Ports of outputs, with the instants from which on their answers are of interest."""


def an_instant(t: int) -> int:
    """The instant, if it is one to which an answer can be fast-forwarded."""
    if isinstance(t, bool) or not isinstance(t, int) or not MIN_TIME <= t <= MAX_TIME:
        raise QueryError(
            f"an answer is fast-forwarded to a finite instant, in ticks, not to {t!r}; what is of no interest at all "
            "need not run: stop it"
        )
    return t


def needed_from(nodes: Mapping[int, OperatorNode], wanted: Wanted) -> dict[Port, int]:
    """By port, from which instant on it is needed.  `nodes` has inputs before their users."""
    found: dict[Port, int] = {}
    for port, t in wanted:
        found[port] = min(found.get(port, INF), t)
    for number, node in reversed(list(nodes.items())):
        needs = node.placed.operator.needs_from(found.get(Port(operator=number), INF))
        for port in node.placed.inputs:
            found[port] = min(found.get(port, INF), needs)
    return found


class Leads(Flag):
    """Where a port leads, through operators that keep nothing."""

    NOWHERE = 0
    TO_MERGE = auto()
    ELSEWHERE = auto()


def leading(nodes: Mapping[int, OperatorNode], outputs: Iterable[Port]) -> dict[Port, Leads]:
    """By port, where it leads: to merges of copies, which take what they are given; to others, or to an output."""
    found = dict.fromkeys(outputs, Leads.ELSEWHERE)
    for number, node in reversed(list(nodes.items())):
        operator = node.placed.operator
        if operator.merges:
            leads = Leads.TO_MERGE
        elif operator.stateless:
            leads = found.get(Port(operator=number), Leads.NOWHERE)
        else:
            leads = Leads.ELSEWHERE
        for port in node.placed.inputs:
            found[port] = found.get(port, Leads.NOWHERE) | leads
    return found
