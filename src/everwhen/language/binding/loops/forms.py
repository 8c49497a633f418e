"""The forms of a recursive query, read from its text.

    base UNION step                                                          a set
    base UNION ALL step                                                      as many copies as derivations
    SELECT keys, MIN(x) FROM (base UNION ALL step) u GROUP BY keys           per key the best; or MAX
    anything else                                                            stands for itself where it is read

Each has branches; which of them are base and which are step shows when they are bound.  A WITH around the union goes
into each branch, with those of its names that the branch needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from everwhen.language import syntax as s
from everwhen.language.binding.aggregates import is_aggregate
from everwhen.language.binding.context import Binding
from everwhen.language.binding.expressions import functions
from everwhen.language.binding.loops.reads import reads

Kind = Literal["union", "union all", "min", "max", "plain"]
_Wrap = Callable[[s.Query], s.Query]


@dataclass(frozen=True)
class Grouping:
    """SELECT keys, MIN(x) FROM (union) GROUP BY keys, and how it stands in a WITH."""

    select: s.Select
    union: s.Derived
    wrap: _Wrap

    def over(self, name: s.Ident) -> s.Query:
        """The same over a stream of that name."""
        read = s.StreamRef(name, self.union.alias, (), self.union.span)
        return self.wrap(replace(self.select, sources=(read,)))


@dataclass(frozen=True)
class Form:
    """A named query of a recursion: its branches; for MIN and MAX the grouping over their union."""

    common: s.Common
    kind: Kind
    branches: tuple[s.Query, ...]
    grouping: Grouping | None = None

    @property
    def name(self) -> str:
        return self.common.name.text


def form_of(common: s.Common, names: Sequence[str], binding: Binding) -> Form:
    """The form of a query that reads itself, or others that read it."""
    query, wrap = _peeled(common.query)
    match query:
        case s.SetQuery("union", every):
            found = _branches(query, sets=not every)
            return Form(common, "union all" if every else "union", tuple(map(wrap, found)))
        case s.Select(sources=(s.Derived() as union,)):
            inner, wrap_inner = _peeled(union.query)
            if isinstance(inner, s.SetQuery) and inner.kind == "union" and reads(union.query, names):
                kind = _extreme(query, union, common.name.text, binding)
                if kind is not None:
                    branches = tuple(wrap(wrap_inner(each)) for each in _branches(inner, sets=True))
                    return Form(common, kind, branches, Grouping(query, union, wrap))
    return Form(common, "plain", (common.query,))


def _branches(query: s.Query, sets: bool) -> list[s.Query]:
    """The queries that a chain of UNIONs unites; in a set, or under MIN, UNION ALL inside is the same."""
    match query:
        case s.SetQuery("union", every, left, right) if every or sets:
            return [*_branches(left, sets), *_branches(right, sets)]
        case s.With():
            inner, wrap = _peeled(query)
            if isinstance(inner, s.SetQuery):
                return [wrap(each) for each in _branches(inner, sets)]
    return [query]


def _peeled(query: s.Query) -> tuple[s.Query, _Wrap]:
    """The query inside of WITH, and how to put a part of it back there."""
    if not isinstance(query, s.With):
        return query, lambda part: part
    inner, wrap = _peeled(query.body)
    return inner, lambda part: _needed(query, wrap(part))


def _needed(query: s.With, body: s.Query) -> s.Query:
    """WITH around a part of its query, with the names that this part needs."""
    names = [each.name.text for each in query.queries]
    wanted = reads(body, names)
    while True:
        more = wanted.union(*(reads(each.query, names) for each in query.queries if each.name.text in wanted))
        if more == wanted:
            break
        wanted = more
    kept = tuple(each for each in query.queries if each.name.text in wanted)
    return replace(query, queries=kept, body=body) if kept else body


def _extreme(e: s.Select, union: s.Derived, name: str, binding: Binding) -> Literal["min", "max"] | None:
    """Which extreme a grouping over the union takes; None if it has no groups, an error if it is none of these."""
    calls = [
        (item, call)
        for item in e.items
        if isinstance(item, s.Item)
        for call in functions(item.expression)
        if is_aggregate(call, binding)
    ]
    if not calls and not e.group_by and e.having is None:
        return None
    remedy = f"write SELECT keys, MIN(x) FROM (base UNION ALL step) u GROUP BY keys, or MAX, for {name}"
    for item, call in calls:
        if call.name not in ("min", "max") or item.expression is not call or call.where is not None:
            raise binding.error(
                f"{call.name.upper()} cannot stand over a recursion: its answer would depend on the round; {remedy}",
                call.span,
            )
    if len(calls) != 1:
        place = calls[1][1].span if calls else e.span
        raise binding.error(f"a recursion has exactly one MIN or MAX over it; {remedy}", place)
    if e.having is not None:
        raise binding.error(
            "HAVING cannot stand inside a recursion; put the condition behind it, or into its branches", e.having.span
        )
    if union.modifiers:
        raise binding.error(
            f"a window cannot stand over the recursion {name}; put it on what the recursion reads",
            union.modifiers[0].span,
        )
    return "min" if calls[0][1].name == "min" else "max"
