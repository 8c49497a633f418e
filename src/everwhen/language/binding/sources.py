"""What stands in FROM: streams, subqueries, conversions and joins, with their windows, as plans with names.

Windows and the other modifiers are applied to the stream or subquery they follow, in the order in which they are
written (thesis, 9.1).  Windows over anything but chronons are split to chronons by the algebra itself.  LIFETIME,
INSERTS and DELETES read the boundaries of events, so over a derived stream they read its canonical level form.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col, conjunction, function
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.nullability import never_null
from everwhen.core.time import INF, ticks
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding import expressions
from everwhen.language.binding.context import Binding, Bound, Correlation, Rows, column_of
from everwhen.language.binding.joins import join
from everwhen.language.binding.merge import merged_copies
from everwhen.language.binding.patterns import matches
from everwhen.language.binding.scope import NameProblem, Scope, ScopeColumn, Table, same
from everwhen.language.binding.spelled.time_column import with_time
from everwhen.language.binding.subqueries import inside
from everwhen.language.binding.tables.asof import asof
from everwhen.language.binding.tables.on_subqueries import with_subqueries
from everwhen.language.binding.tables.unnest import is_lateral, joined, lateral
from everwhen.language.binding.tables.values import one_row
from everwhen.language.binding.windows import windows


def from_clause(items: tuple[s.FromItem, ...], binding: Binding, correlation: Correlation | None = None) -> Rows:
    """The streams of a FROM clause, all pairs of them; without any it is one row.  Where an item may read the query
    around (UNNEST of its column), the rows have the columns wanted of it."""
    found: Rows | None = None
    if correlation is not None and any(is_lateral(_first(item)) for item in items):
        values = correlation.values()
        start = one_row(binding).node if values is None else values
        found = Rows(binding, start, Scope(()), correlation)
    for item in items:
        if is_lateral(_first(item)):
            found = from_item(item, binding, found)
        else:
            part = from_item(item, binding)
            found = part if found is None else _beside(found, part, binding)
    found = found or one_row(binding)
    aliases = [t.alias.lower() for t in found.scope.tables if t.alias is not None]
    for item in items:
        for alias, span in _aliases(item):
            if aliases.count(alias.lower()) > 1:
                raise binding.error(f"two of the streams are called {alias}; give each an alias of its own", span)
    return found


def _first(item: s.FromItem) -> s.FromItem:
    """The leftmost of a chain of joins."""
    while isinstance(item, s.JoinItem):
        item = item.left
    return item


def _aliases(item: s.FromItem) -> list[tuple[str, s.Span]]:
    match item:
        case s.JoinItem(left, right):
            return [*_aliases(left), *_aliases(right)]
        case s.StreamRef(name, alias):
            return [((alias or name).text, (alias or name).span)]
    return [] if item.alias is None else [(item.alias.text, item.alias.span)]


def from_item(item: s.FromItem, binding: Binding, before: Rows | None = None) -> Rows:
    """What stands in FROM; `before`: the rows of the items before it, which it may read."""
    match item:
        case s.TableFunction() | s.Lateral():
            return lateral(item, before or one_row(binding), binding)
        case s.StreamRef(name, alias, modifiers):
            node = _stream(name, binding)
            columns = tuple(ScopeColumn(c, c) for c in node.schema.names)
            node, time = with_time(node, name, binding)
            table = Table(alias.text if alias else name.text, (*columns, *time), name.text)
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
        case s.Windowed():
            node, table = windows(item, binding, from_item, _time)
            modifiers = item.modifiers
        case s.JoinItem():
            return _join(item, binding, before)
    for modifier in modifiers:
        try:
            node = _modified(node, modifier, table, binding)
        except SqlError:
            raise
        except QueryError as error:
            raise binding.error(str(error), modifier.span) from None
    shown = {column.physical for column in table.columns if column.stamps is None}
    keys = frozenset(key for key in properties(node).keys if key and key <= shown)
    return Rows(binding, node, Scope((replace(table, keys=keys),)))


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
            columns = tuple(column_of(table, name, binding) for name in partition)
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


# -- joins -------------------------------------------------------------------------------------------------------------


def _beside(a: Rows, b: Rows, binding: Binding) -> Rows:
    """All pairs of rows."""
    return Rows(binding, n.Join(a.node, b.node), _pairs(a, b), a.correlation)


def _padded(side: Rows) -> Rows:
    """The side of an outer join whose rows may be missing.  Its columns are null then, all of them: a key does not tell
    such a row from one whose key is null.  Those that are declared are trusted to have no nulls."""
    declared = {frozenset(key) for each in n.walk(side.node) if isinstance(each, n.Source) for key in each.keys}

    def stays(key: frozenset[str]) -> bool:
        return key in declared or any(never_null(side.node, column) for column in key)

    tables = tuple(replace(t, keys=frozenset(filter(stays, t.keys))) for t in side.scope.tables)
    return replace(side, scope=Scope(tables))


def _pairs(a: Rows, b: Rows) -> Scope:
    """Both sides' names, in a plan of pairs."""
    names = n.Join.pair_names(a.node.schema, b.node.schema).names[len(a.node.schema) :]
    new = dict(zip(b.node.schema.names, names, strict=True))
    return Scope((*a.scope.tables, *(table.renamed(new) for table in b.scope.tables)))


def _join(item: s.JoinItem, binding: Binding, before: Rows | None = None) -> Rows:
    a = from_item(item.left, binding, before)
    if is_lateral(item.right):
        return joined(item, a, binding)
    if before is not None and item.kind not in ("inner", "left", "cross"):
        raise binding.error("behind a table that reads those before it stand CROSS, INNER and LEFT JOIN", item.span)
    b = from_item(item.right, binding)
    kind = item.kind
    a, b = _padded(a) if kind in ("right", "full") else a, _padded(b) if kind in ("left", "full") else b
    if kind == "cross":
        return _beside(a, b, binding)
    if item.natural:
        item = replace(item, using=_common(item, a, b))
        if not item.using:
            return _beside(a, b, binding)
    pairs = Rows(binding, n.Join(a.node, b.node), _pairs(a, b), place="ON")
    if item.using:
        on, scope, merged = _using(item, a, b, pairs)
    else:
        on, scope, merged = None, pairs.scope, ()
        if item.on is not None and inside(item.on) and not item.asof:
            return with_subqueries(item, a, b, pairs.scope)
        if item.on is not None:
            on = expressions.condition(item.on, pairs)
    if item.match is not None:
        match = expressions.condition(item.match, pairs)
        on = match if on is None else on & match
    if on is None:
        raise binding.error(f"{item.kind.upper()} JOIN needs ON or USING; for all pairs write CROSS JOIN", item.span)
    if item.asof:
        assert kind in ("inner", "left")
        node = asof(a.node, b.node, on, kind, binding, item.span)
    else:
        node = join(a.node, b.node, on, kind, binding.name)
    if kind in ("semi", "anti"):
        return Rows(binding, node, a.scope, a.correlation)
    if merged:
        node = n.Map(node, (*((c, col(c)) for c in node.schema.names), *merged))
    return Rows(binding, node, scope, a.correlation)


def _common(item: s.JoinItem, a: Rows, b: Rows) -> tuple[s.Ident, ...]:
    """The columns that both sides of a NATURAL JOIN have, in the order of the left one."""
    mine, theirs = (
        [c.name for table in side.scope.tables for c in table.columns if not (c.hidden or c.unlisted)]
        for side in (a, b)
    )
    return tuple(s.Ident(name, True, item.span) for name in dict.fromkeys(mine) if name in theirs)


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
        symbol = ">=" if item.asof and item.match is None and name is item.using[-1] else "="
        test = expressions.compared(symbol, col(mine.physical), col(theirs.physical), pairs)
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
