"""ORDER BY with LIMIT, DISTINCT ON, and calls with OVER, as ranks.

What a key of ORDER BY names is a column of the answer, by its name or its position, or an expression over the rows
that SELECT reads; that is computed beside the answer's columns and dropped behind the rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column, Expr, col
from everwhen.algebra.ranks.over import OverFunction
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding, Bound, Correlation, Rows
from everwhen.language.binding.expressions import functions, value
from everwhen.language.binding.ranks.frames import over_function
from everwhen.language.binding.scope import same

_RANKS: Final = ("row_number", "rank", "dense_rank")


# -- LIMIT, DISTINCT ON ------------------------------------------------------------------------------------------------


def limited(q: s.Limited, binding: Binding, correlation: Correlation | None) -> Bound:
    """The first rows of a query, in an order."""
    inner = q.query
    on = inner.on if isinstance(inner, s.Select) else ()
    if isinstance(inner, s.Select):
        inner = replace(inner, on=())
    bound = binding.query(inner, correlation)
    wanted = [*on, *(key.expression for key in q.order)]
    found = [_of_answer(e, bound, binding) for e in wanted]
    hidden = [e for e, name in zip(wanted, found, strict=True) if name is None]
    columns, width = bound.columns, len(bound.columns)
    if hidden:
        bound = _with_hidden(hidden, inner, binding, correlation)
        rest = iter(bound.answer[width:])
        names = [next(rest) if name is None else bound.answer[name] for name in found]
    else:
        names = [bound.answer[name] for name in found if name is not None]
    keys = tuple(key.inner for key in bound.keys)
    order = _ordering(zip(names[len(on) :], q.order, strict=True))
    node, span = bound.node, q.span
    if on:
        node = _rank(node, (*keys, *names[: len(on)]), order, "row_number", 1, 0, span, binding)
    if q.limit is not None or q.offset:
        if q.ties and q.offset:
            raise binding.error("OFFSET and WITH TIES do not go together; rank in a query in FROM, and compare", span)
        node = _rank(node, keys, order, "rank" if q.ties else "row_number", q.limit, q.offset, span, binding)
    if hidden:
        node = n.Map(node, tuple((name, col(name)) for name in (*keys, *bound.answer[:width])))
    return Bound(node, columns, bound.keys)


def _of_answer(e: s.Expression, bound: Bound, binding: Binding) -> int | None:
    """The position of the answer's column that a key names; None: it is an expression."""
    names = [column.name for column in bound.columns]
    if isinstance(e, s.Constant):
        if not isinstance(e.value, int) or isinstance(e.value, bool) or not 1 <= e.value <= len(names):
            raise binding.error(
                f"ORDER BY takes columns, expressions, or the number of a column of the answer, 1 to {len(names)}",
                e.span,
            )
        return e.value - 1
    if isinstance(e, s.Name) and len(e.parts) == 1:
        return next((at for at, name in enumerate(names) if same(e.parts[0], name)), None)
    return None


def _with_hidden(
    hidden: Sequence[s.Expression], query: s.Query, binding: Binding, correlation: Correlation | None
) -> Bound:
    """The query with further columns, which are to be dropped again."""
    if not isinstance(query, s.Select):
        raise binding.error("ORDER BY names columns of the answer here: what is ordered is no SELECT", hidden[0].span)
    if query.distinct:
        raise binding.error(
            "ORDER BY names columns of the answer here: the others of equal rows differ", hidden[0].span
        )
    more = tuple(s.Item(e, s.Ident(binding.name("order"), True, e.span), e.span) for e in hidden)
    return binding.query(replace(query, items=(*query.items, *more)), correlation)


def _ordering(keys: Iterable[tuple[str, s.SortKey]]) -> tuple[n.Ordering, ...]:
    found: dict[str, n.Ordering] = {}
    for name, key in keys:
        found.setdefault(name, n.Ordering(name, key.descending, key.nulls_first))
    return tuple(found.values())


def _rank(
    node: n.Node,
    partition: Sequence[str],
    order: tuple[n.Ordering, ...],
    kind: n.RankKind,
    limit: int | None,
    offset: int,
    span: s.Span,
    binding: Binding,
) -> n.Node:
    names = tuple(dict.fromkeys(partition))
    try:
        return n.Rank(node, names, order, kind, limit, offset)
    except QueryError as error:
        raise binding.error(str(error), span) from None


# -- OVER --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spec:
    """PARTITION BY and ORDER BY of an OVER, as columns of the rows."""

    partition: tuple[str, ...]
    order: tuple[n.Ordering, ...]


def add_overs(expressions: Sequence[s.Expression], rows: Rows, keys: tuple[str, ...]) -> None:
    """Widen the rows by a column for each call with OVER; `keys` are columns of the query around."""
    calls = [f for e in expressions for f in functions(e) if f.over is not None]
    ranks: list[tuple[str, _Spec, str]] = []
    overs: dict[_Spec, list[OverFunction]] = {}
    spans: dict[str, s.Span] = {}
    for call in calls:
        assert call.over is not None
        parts = [*call.args, *call.over.partition, *(key.expression for key in call.over.order)]
        if any(f.over is not None for part in parts for f in functions(part)):
            raise rows.binding.error("OVER cannot stand inside OVER; name the inner one in a query in FROM", call.span)
        if call.name in _RANKS:
            _check_rank(call, rows)
            spec = _spec(call.over, rows, keys)
            name = next((known for kind, other, known in ranks if (kind, other) == (call.name, spec)), None)
            if name is None:
                name = rows.binding.name("rank")
                ranks.append((call.name, spec, name))
        else:
            spec = _spec(call.over, rows, keys)
            function = over_function(call, spec.order, rows, _as_columns)
            mine = overs.setdefault(spec, [])
            name = next((known.name for known in mine if replace(function, name=known.name) == known), None)
            if name is None:
                name = function.name
                mine.append(function)
        spans[name] = call.span
        rows.overs[id(call)] = col(name)
    for kind, spec, name in ranks:
        try:
            rows.node = n.Rank(rows.node, spec.partition, spec.order, cast(n.RankKind, kind), None, 0, name)
        except QueryError as problem:
            raise rows.binding.error(str(problem), spans[name]) from None
    for spec, found in overs.items():
        rows.node = _over(spec, found, rows, spans)


def _over(spec: _Spec, found: Sequence[OverFunction], rows: Rows, spans: dict[str, s.Span]) -> n.Node:
    """All functions of one order; if one does not fit, it is said which."""
    for each in found:
        try:
            n.Over(rows.node, spec.partition, spec.order, (each,))
        except QueryError as problem:
            raise rows.binding.error(str(problem), spans[each.name]) from None
    return n.Over(rows.node, spec.partition, spec.order, tuple(found))


def _check_rank(call: s.Function, rows: Rows) -> None:
    error, name = rows.binding.error, call.name.upper()
    assert call.over is not None
    if call.args or call.star or call.distinct or call.where is not None:
        raise error(f"{name} takes nothing: {name}() OVER (…)", call.span)
    if not call.over.order:
        raise error(f"{name} needs an ORDER BY in OVER: there is no order to count in", call.over.span)
    if call.over.frame is not None:
        raise error(f"{name} is about all rows and takes no frame", call.over.frame.span)


def _spec(over: s.Over, rows: Rows, keys: tuple[str, ...]) -> _Spec:
    rows.place = "OVER"
    partition = [value(e, rows) for e in over.partition]
    order = [value(key.expression, rows) for key in over.order]
    rows.place = "SELECT"
    names = _as_columns([*partition, *order], rows)
    own = tuple(dict.fromkeys((*keys, *names[: len(partition)])))
    return _Spec(own, _ordering(zip(names[len(partition) :], over.order, strict=True)))


def _as_columns(found: Sequence[Expr], rows: Rows) -> list[str]:
    """The names of columns that have the values; new ones for what is computed."""
    added: list[tuple[str, Expr]] = []
    names = []
    for expr in found:
        if isinstance(expr, Column):
            names.append(expr.name)
            continue
        name = next((known for known, other in added if other.equals(expr)), None)
        if name is None:
            name = rows.binding.name("over")
            added.append((name, expr))
        names.append(name)
    if added:
        rows.node = n.Map(rows.node, (*((c, col(c)) for c in rows.node.schema.names), *added))
    return names
