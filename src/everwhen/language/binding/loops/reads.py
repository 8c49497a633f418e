"""Which of some names a query reads, from its text alone: before anything is bound.

Names that WITH gives inside the query hide outer ones, and stand for what their queries read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from everwhen.language import syntax as s
from everwhen.language.binding.scope import same

Found = frozenset[str]
_NONE: Found = frozenset()
_Scope = tuple[tuple[str, Found], ...]


def reads(query: s.Query, names: Iterable[str]) -> Found:
    """Those of the names that stand for something in the query."""
    return _query(query, tuple((name, frozenset({name})) for name in names))


def strongly_connected(names: Sequence[str], read: Mapping[str, Found]) -> list[list[str]]:
    """The names in groups that use each other, each group behind those that it reads; in a group as they are given."""
    reach = {name: _reachable(name, read) for name in names}
    groups: list[list[str]] = []
    left = list(names)
    while left:
        ready = next(
            name
            for name in left
            if all(other == name or name in reach[other] for other in reach[name] if other in left)
        )
        group = [name for name in left if name == ready or (name in reach[ready] and ready in reach[name])]
        groups.append(group)
        left = [name for name in left if name not in group]
    return groups


def _reachable(name: str, read: Mapping[str, Found]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for other in read[waiting.pop()]:
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


# -- the walk ----------------------------------------------------------------------------------------------------------


def _query(query: s.Query, scope: _Scope) -> Found:
    match query:
        case s.Select():
            items = [item.expression for item in query.items if isinstance(item, s.Item)]
            own = [*items, query.where, *query.group_by, query.having, *query.on]
            return _all(_item(item, scope) for item in query.sources) | _all(_expression(e, scope) for e in own)
        case s.SetQuery(_, _, left, right):
            return _query(left, scope) | _query(right, scope)
        case s.Cql(_, inner) | s.Limited(inner):
            return _query(inner, scope)
        case s.Values(rows):
            return _all(_expression(each, scope) for row in rows for each in row)
        case s.With(queries, body):
            inside = _named(query, scope)
            # what nobody reads counts too: it is bound all the same
            return _query(body, inside) | _all(found for _, found in inside[len(scope) : len(scope) + len(queries)])


def _named(query: s.With, scope: _Scope) -> _Scope:
    if not query.recursive:
        for each in query.queries:
            scope = (*scope, (each.name.text, _query(each.query, scope)))
        return scope
    found = {each.name.text: _NONE for each in query.queries}
    while True:
        inside = (*scope, *found.items())
        again = {each.name.text: _query(each.query, inside) for each in query.queries}
        if again == found:
            return inside
        found = again


def _item(item: s.FromItem, scope: _Scope) -> Found:
    match item:
        case s.StreamRef(name):
            return next((found for known, found in reversed(scope) if same(name, known)), _NONE)
        case s.Derived(query) | s.Lateral(query):
            return _query(query, scope)
        case s.TableFunction(_, args):
            return _all(_expression(arg, scope) for arg in args)
        case s.Converted(_, inner) | s.Matched(inner) | s.Windowed(_, inner):
            return _item(inner, scope)
        case s.Merged(copies):
            return _all(_item(copy.item, scope) for copy in copies)
        case s.JoinItem(left, right, _, on):
            return _item(left, scope) | _item(right, scope) | _expression(on, scope)


def _expression(e: s.Expression | None, scope: _Scope) -> Found:
    match e:
        case s.Scalar(query) | s.Exists(query):
            return _query(query, scope)
        case s.Quantified(operand, _, _, query):
            return _expression(operand, scope) | _query(query, scope)
        case s.Operator(_, operands) | s.Row(operands):
            return _all(_expression(each, scope) for each in operands)
        case s.Function(_, args):
            return _all(_expression(each, scope) for each in (*args, e.where, *(by for by, _ in e.order)))
        case s.Case(operand, whens, otherwise):
            parts = (operand, otherwise, *(each for pair in whens for each in pair))
            return _all(_expression(each, scope) for each in parts)
        case s.CastTo(operand):
            return _expression(operand, scope)
    return _NONE


def _all(found: Iterable[Found]) -> Found:
    return _NONE.union(*found)
