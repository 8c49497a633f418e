"""What stands in FROM: streams, subqueries, conversions and joins, with their windows, as plans with names.

Windows and the other modifiers are applied to the stream or subquery they follow, in the order in which they are
written (thesis, 9.1).  Windows over anything but chronons are split to chronons by the algebra itself.  LIFETIME,
INSERTS and DELETES read the boundaries of events, so over a derived stream they read its canonical level form.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col, conjunction, function
from everwhen.core.time import INF, ticks
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding import expressions
from everwhen.language.binding.context import Binding, Bound, Rows
from everwhen.language.binding.joins import join
from everwhen.language.binding.merge import merged_copies
from everwhen.language.binding.patterns import matches
from everwhen.language.binding.scope import NameProblem, Scope, ScopeColumn, Table, same
from everwhen.language.binding.subqueries import inside


def from_clause(items: tuple[s.FromItem, ...], binding: Binding) -> Rows:
    """The streams of a FROM clause, all pairs of them."""
    parts = [from_item(item, binding) for item in items]
    found = parts[0]
    for part in parts[1:]:
        found = _beside(found, part, binding)
    aliases = [t.alias.lower() for t in found.scope.tables if t.alias is not None]
    for item in items:
        for alias, span in _aliases(item):
            if aliases.count(alias.lower()) > 1:
                raise binding.error(f"two of the streams are called {alias}; give each an alias of its own", span)
    return found


def _aliases(item: s.FromItem) -> list[tuple[str, s.Span]]:
    match item:
        case s.JoinItem(left, right):
            return [*_aliases(left), *_aliases(right)]
        case s.StreamRef(name, alias):
            return [((alias or name).text, (alias or name).span)]
    return [] if item.alias is None else [(item.alias.text, item.alias.span)]


def from_item(item: s.FromItem, binding: Binding) -> Rows:
    match item:
        case s.StreamRef(name, alias, modifiers):
            node = _stream(name, binding)
            columns = tuple(ScopeColumn(c, c) for c in node.schema.names)
            table = Table(alias.text if alias else name.text, columns, name.text)
        case s.Derived():
            node, table = _derived(item, binding)
            modifiers = item.modifiers
        case s.Converted(kind, inner, alias, modifiers):
            rows = from_item(inner, binding)
            (table,) = rows.scope.tables
            node = _converted(kind, rows.node)
            if alias is not None:
                table = Table(alias.text, table.columns, table.stream)
        case s.Merged():
            node, table = merged_copies(item, binding, from_item)
            modifiers = item.modifiers
        case s.Matched():
            node, table = matches(item, binding, from_item, _time)
            modifiers = item.modifiers
        case s.JoinItem():
            return _join(item, binding)
    for modifier in modifiers:
        try:
            node = _modified(node, modifier, table, binding)
        except SqlError:
            raise
        except QueryError as error:
            raise binding.error(str(error), modifier.span) from None
    return Rows(binding, node, Scope((table,)))


def _stream(name: s.Ident, binding: Binding) -> n.Node:
    found = binding.stream(name)
    if found is None:
        raise binding.error(binding.catalog.unknown(name.text), name.span)
    return found


def _derived(item: s.Derived, binding: Binding) -> tuple[n.Node, Table]:
    bound = binding.query(item.query)
    node = named(bound, item.columns, binding)
    alias = item.alias.text if item.alias else None
    columns = tuple(
        ScopeColumn(name, name, origin.origin) for name, origin in zip(node.schema.names, bound.columns, strict=True)
    )
    return node, Table(alias, columns)


def named(bound: Bound, columns: tuple[s.Ident, ...], binding: Binding) -> n.Node:
    """The query's plan, its columns renamed if a list of names is given."""
    if not columns:
        return bound.node
    if len(columns) != len(bound.columns):
        span = s.Span(columns[0].span.start, columns[-1].span.end)
        raise binding.error(f"{len(columns)} names for a query of {len(bound.columns)} columns", span)
    pairs = zip(columns, bound.node.schema.names, strict=True)
    return n.Map(bound.node, tuple((new.text, col(old)) for new, old in pairs))


def _converted(kind: s.Conversion, node: n.Node) -> n.Node:
    match kind:
        case "istream" | "dstream" | "rstream":
            return n.RelationToStream(node, kind)
        case "coalesce":
            return n.Coalesce(node)
        case "inserts":
            return n.AlterLifetime(_events(node), length=INF)
        case "deletes":
            return n.Deletes(_events(node))


def _events(node: n.Node) -> n.Node:
    return node if node.keeps_events else n.Coalesce(node)


def _modified(node: n.Node, modifier: s.Modifier, table: Table, binding: Binding) -> n.Node:
    match modifier:
        case s.RangeWindow(size, slide):
            return n.TimeWindow(node, INF if size is None else _time(size, binding), _or(slide, 1, binding))
        case s.RowsWindow(rows, slide, partition):
            columns = tuple(_partition(name, table, binding) for name in partition)
            if rows is None:
                if slide is not None:
                    raise binding.error("an unbounded window does not slide", slide.span)
                return n.TimeWindow(node, INF)
            return n.RowsWindow(node, _rows(rows, binding), 1 if slide is None else _rows(slide, binding), columns)
        case s.Granularity(granule):
            return n.Granularity(node, _time(granule, binding))
        case s.Lifetime(hop, shift, length, unbounded, align):
            lives = INF if unbounded else None if length is None else _time(length, binding)
            aligned = _aligned(node, modifier, binding)
            moved = _or(shift, 0, binding) + _or(align, 0, binding)
            return n.AlterLifetime(aligned, _or(hop, 1, binding), moved, lives)


def _aligned(node: n.Node, lifetime: s.Lifetime, binding: Binding) -> n.Node:
    """Events moved back by ALIGN, so that hops begin so long after multiples of HOP; they are moved forth later."""
    if lifetime.align is None:
        return _events(node)
    if lifetime.hop is None or (lifetime.length is None and not lifetime.unbounded):
        raise binding.error("ALIGN tells where hops begin: it goes with HOP and LENGTH", lifetime.align.span)
    return n.AlterLifetime(_events(node), shift=-_time(lifetime.align, binding))


def _or(length: s.Length | None, default: int, binding: Binding) -> int:
    return default if length is None else _time(length, binding)


def _time(length: s.Length, binding: Binding) -> int:
    """A length of time in ticks."""
    try:
        if length.unit is None:
            if not length.number.lstrip("-").isdecimal():
                raise QueryError(f"{length.number} is not a whole number of ticks; give a unit, as in 1.5 HOURS")
            return int(length.number)
        return ticks(f"{length.number} {length.unit}", binding.tick)
    except QueryError as error:
        raise binding.error(str(error), length.span) from None


def _rows(length: s.Length, binding: Binding) -> int:
    if length.unit is not None or not length.number.isdecimal():
        raise binding.error("ROWS takes a whole number of rows; for a length of time write RANGE", length.span)
    return int(length.number)


def _partition(name: s.Name, table: Table, binding: Binding) -> str:
    scope = Scope((table,))
    try:
        found = scope.column(name.parts)
    except NameProblem as problem:
        raise binding.error(str(problem), name.span) from None
    if found is None:
        raise binding.error(scope.unknown(name.parts), name.span)
    return found.physical


# -- joins -------------------------------------------------------------------------------------------------------------


def _beside(a: Rows, b: Rows, binding: Binding) -> Rows:
    """All pairs of rows."""
    return Rows(binding, n.Join(a.node, b.node), _pairs(a, b))


def _pairs(a: Rows, b: Rows) -> Scope:
    """Both sides' names, in a plan of pairs."""
    names = n.Join.pair_names(a.node.schema, b.node.schema).names[len(a.node.schema) :]
    new = dict(zip(b.node.schema.names, names, strict=True))
    return Scope((*a.scope.tables, *(table.renamed(new) for table in b.scope.tables)))


def _join(item: s.JoinItem, binding: Binding) -> Rows:
    a, b = from_item(item.left, binding), from_item(item.right, binding)
    if item.kind == "cross":
        return _beside(a, b, binding)
    pairs = Rows(binding, n.Join(a.node, b.node), _pairs(a, b), place="ON")
    if item.using:
        on, scope, merged = _using(item, a, b, pairs)
    else:
        on, scope, merged = None, pairs.scope, ()
        if item.on is not None:
            if inside(item.on):
                raise binding.error("a subquery cannot stand in ON; put the condition into WHERE", item.on.span)
            on = expressions.condition(item.on, pairs)
    if on is None:
        raise binding.error(f"{item.kind.upper()} JOIN needs ON or USING; for all pairs write CROSS JOIN", item.span)
    node = join(a.node, b.node, on, item.kind, binding.name)
    if item.kind in ("semi", "anti"):
        return Rows(binding, node, a.scope)
    if merged:
        node = n.Map(node, (*((c, col(c)) for c in node.schema.names), *merged))
    return Rows(binding, node, scope)


def _using(item: s.JoinItem, a: Rows, b: Rows, pairs: Rows) -> tuple[Expr, Scope, tuple[tuple[str, Expr], ...]]:
    """USING: equal columns of both sides, which a `*` shows once and first, as in SQL.  Of a right join it is the right
    side's value, of a full join that of the side that has one."""
    binding = pairs.binding
    tests: list[Expr] = []
    merged: list[tuple[str, Expr]] = []
    shown: list[ScopeColumn] = []
    left, right = pairs.scope.tables[: len(a.scope.tables)], pairs.scope.tables[len(a.scope.tables) :]
    for name in item.using:
        columns = []
        for side, tables in ((a, left), (b, right)):
            try:
                found = Scope(tables).column((name,))
            except NameProblem as problem:
                raise binding.error(str(problem), name.span) from None
            if found is None:
                raise binding.error(side.scope.unknown((name,)), name.span)
            columns.append(found)
        mine, theirs = columns
        test = expressions.compared("=", col(mine.physical), col(theirs.physical), pairs)
        tests.append(pairs.check(test, name.span))
        if item.kind in ("right", "full"):
            value = function("coalesce", col(mine.physical), col(theirs.physical))
            merged.append((binding.name("using"), value if item.kind == "full" else col(theirs.physical)))
            shown.append(ScopeColumn(mine.name, merged[-1][0]))
        else:
            table = next(table for table in left if mine in table.columns)
            shown.append(replace(mine, origin=table.alias or table.stream or mine.origin))
        left = tuple(table.hiding([mine.name]) for table in left)
        right = tuple(table.hiding([c.name for c in table.columns if same(name, c.name)]) for table in right)
    return conjunction(tests), Scope((Table(None, tuple(shown)), *left, *right)), tuple(merged)
