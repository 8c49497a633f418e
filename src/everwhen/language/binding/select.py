"""SELECT as a plan: FROM, WHERE, grouping, HAVING, the columns, DISTINCT.

Without GROUP BY, aggregates are over everything alive, and say nothing where nothing is (semantics, 11); a subquery in
an expression is one row even then (`aggregated`).  A subquery that reads the query around it carries what it reads in
its first columns, groups by them and takes them into its duplicate elimination.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column, Expr, Literal, col, conjunction
from everwhen.algebra.properties.derive import properties
from everwhen.core.kinds import kind
from everwhen.language import syntax as s
from everwhen.language.binding.aggregates import AggregateUse, aggregate_uses, is_aggregate
from everwhen.language.binding.context import Aggregated, Binding, Bound, Correlation, Groups, Key, OutColumn, Rows
from everwhen.language.binding.expressions import condition, conjuncts, functions, value
from everwhen.language.binding.groups import aggregate, projected
from everwhen.language.binding.ranks.rank import add_overs
from everwhen.language.binding.scope import NameProblem
from everwhen.language.binding.sources import from_clause
from everwhen.language.binding.subqueries import inside


@dataclass(frozen=True, slots=True)
class _Output:
    """A column of the answer before names are made unique; `fixed` names are the user's own."""

    name: str
    expr: Expr
    span: s.Span
    origin: str | None = None
    fixed: bool = False


def select(e: s.Select, binding: Binding, correlation: Correlation | None = None) -> Bound:
    """The plan of a SELECT."""
    found, keys = _grouped_rows(e, binding, correlation)
    items = [item.expression for item in e.items if isinstance(item, s.Item)]
    if len(found) > 1:
        for call in (f for item in items for f in functions(item) if f.over is not None):
            raise binding.error(
                "OVER is about the rows of all grouping sets together; group in a query in FROM, and write OVER around "
                "it",
                call.span,
            )
    node: n.Node | None = None
    for rows in found:
        rows.place = "SELECT"
        add_overs(items, rows, tuple(key.inner for key in keys))
        outputs = _named(_outputs(e, rows), binding)
        columns = tuple((key.inner, col(key.inner)) for key in keys) + tuple((o.name, o.expr) for o in outputs)
        one = projected(rows.node, columns)
        node = one if node is None else n.Union(node, one)
    assert node is not None
    if e.distinct:
        node = n.Distinct(node)
    return Bound(node, tuple(OutColumn(o.name, o.origin) for o in outputs), keys)


def is_single(e: s.Select, binding: Binding) -> bool:
    """Whether the query is one row of aggregates."""
    items = [item.expression for item in e.items if isinstance(item, s.Item)]
    return not e.group_by and (
        e.having is not None or any(is_aggregate(f, binding) for item in items for f in functions(item))
    )


def aggregated(e: s.Select, binding: Binding, correlation: Correlation) -> Aggregated:
    """A query that is one row of aggregates, in parts: see `Aggregated`."""
    for item in e.items:
        if isinstance(item, s.Star) or inside(item.expression) or inside(e.having):
            raise binding.error(
                "beside aggregates without GROUP BY, a subquery has no * and no further subquery; name the inner one "
                "with WITH and join it",
                item.span,
            )
    alone = s.Select(e.items, False, e.sources, e.where, (), None, e.span)
    (rows,), keys = _grouped_rows(alone, binding, correlation, e)
    rows.place = "SELECT"
    values = tuple(value(item.expression, rows) for item in e.items if isinstance(item, s.Item))
    rows.place = "HAVING"
    having = None if e.having is None else condition(e.having, rows)
    assert rows.groups is not None, "it has aggregates"
    return Aggregated(rows.node, keys, values, having, rows.groups.counts)


# -- rows --------------------------------------------------------------------------------------------------------------


def _grouped_rows(
    e: s.Select, binding: Binding, correlation: Correlation | None, calls_of: s.Select | None = None
) -> tuple[list[Rows], tuple[Key, ...]]:
    """The rows that the columns are about: filtered; and grouped if the query has groups, once per grouping set."""
    rows, keys = _filtered(e, binding, correlation)
    whole = calls_of or e
    places = [*(item.expression for item in whole.items if isinstance(item, s.Item)), whole.having]
    calls = [f for place in places for f in functions(place) if is_aggregate(f, binding)]
    if not (calls or e.group_by or whole.having is not None):
        return [rows], keys
    found = []
    for wanted in e.sets or (e.group_by,):
        groups = _group(e, rows, calls, keys, wanted)
        if e.having is not None:
            groups.place = "HAVING"
            test = condition(e.having, groups)
            groups.node = n.Filter(groups.node, test)
        found.append(groups)
    return found, keys


def _filtered(e: s.Select, binding: Binding, correlation: Correlation | None) -> tuple[Rows, tuple[Key, ...]]:
    rows = from_clause(e.sources, binding, correlation)
    carried, rows.correlation, rows.place = rows.correlation is not None, correlation, "WHERE"
    keys: tuple[Key, ...] = ()
    if correlation is not None and (values := correlation.values()) is not None:
        rows.node = rows.node if carried else n.Join(rows.node, values)
        keys = correlation.keys()
    links: list[tuple[Key, Expr]] = []
    simple, nested = [], []
    for test in conjuncts(e.where):
        link = _link(test, rows) if correlation is not None and correlation.linking else None
        if link is not None:
            links.append(link)
        elif inside(test):
            nested.append(test)
        else:
            simple.append(condition(test, rows))
    if simple:
        rows.node = n.Filter(rows.node, conjunction(simple))
    if nested:
        tests = [condition(test, rows) for test in nested]
        rows.node = n.Filter(rows.node, conjunction(tests))
    if links:
        added = tuple((key.inner, inner) for key, inner in links)
        rows.node = n.Map(rows.node, (*((c, col(c)) for c in rows.node.schema.names), *added))
    return rows, (*keys, *(key for key, _ in links))


def _link(e: s.Expression, rows: Rows) -> tuple[Key, Expr] | None:
    """`inner = outer` as a key: the inner side takes the place of the outer value."""
    if not (isinstance(e, s.Operator) and e.symbol == "=") or inside(e) or rows.correlation is None:
        return None
    sides = {_side(operand, rows): operand for operand in e.operands}
    if sides.keys() != {"inner", "outer"}:
        return None
    inner = value(sides["inner"], rows)
    around = rows.correlation.rows
    outer = value(sides["outer"], around)
    rows.check(rows.binding.compared("=", inner, Literal(None, outer.bind(around.node.schema)), rows), e.span)
    return Key(outer, rows.binding.name("link"), False), inner


def _side(e: s.Expression, rows: Rows) -> str | None:
    """Where all names of an expression are found: in the rows themselves, or around them."""
    found = {rows.own(name) for name in names_in(e)}
    return None if len(found) != 1 or functions(e) else "inner" if found.pop() else "outer"


def names_in(e: s.Expression | None, binding: Binding | None = None) -> list[s.Name]:
    """Every column name in the expression; with a binding, those outside of aggregates."""
    match e:
        case s.Name():
            return [e]
        case s.Operator(_, operands) | s.Row(operands):
            below = list(operands)
        case s.Function(_, args):
            below = [] if binding is not None and is_aggregate(e, binding) else [*args]
        case s.CastTo(operand):
            below = [operand]
        case s.Case(operand, whens, otherwise):
            below = [x for x in (operand, *(x for pair in whens for x in pair), otherwise) if x is not None]
        case _:
            return []
    return [name for each in below for name in names_in(each, binding)]


# -- groups ------------------------------------------------------------------------------------------------------------


def _group(
    e: s.Select, rows: Rows, calls: list[s.Function], outer: tuple[Key, ...], wanted: tuple[s.Expression, ...]
) -> Rows:
    """The groups by what is `wanted`; whatever else the query groups by is null in them."""
    binding = rows.binding
    rows.place = "GROUP BY"
    keys: list[tuple[str, Expr]] = [(key.inner, col(key.inner)) for key in outer]
    there = {id(each) for each in wanted}
    chosen: list[Expr] = [expr for _, expr in keys]
    for written in e.group_by:
        if inside(written):
            raise binding.error(
                "GROUP BY has no subqueries; compute it in a query in FROM, and group by that", written.span
            )
        expr, name = _group_key(written, e, rows)
        if id(written) in there:
            chosen.append(expr)
        if any(expr.equals(known) for _, known in keys):
            continue
        taken = {known for known, _ in keys}
        keys.append((name if name and name not in taken else binding.name("group"), expr))
    kept = [key for key in keys if any(key[1].equals(each) for each in chosen)]
    absent = tuple(
        (expr, Literal(None, expr.bind(rows.node.schema))) for name, expr in keys if (name, expr) not in kept
    )
    if not e.sets:
        kept += _determined(e, rows, kept)
    rows.place = "an aggregate"
    uses: list[tuple[str, AggregateUse, s.Function]] = []
    columns: dict[int, Expr] = {}
    wished = {id(i.expression): i.alias.text for i in e.items if isinstance(i, s.Item) and i.alias is not None}
    for call in calls:
        args = [_typed_argument(arg, call, rows) for arg in call.args]
        order = [_typed_argument(each, call, rows) for each, _ in call.order]
        where = None if call.where is None else condition(call.where, rows)
        needed, over = aggregate_uses(call, args, order, where, rows)
        names = []
        for use in needed:
            name = next((known for known, other, _ in uses if other.same(use)), None)
            if name is None:
                taken = {known for known, _ in keys} | {known for known, _, _ in uses}
                name = wished.get(id(call), call.name)
                name = binding.name(call.name) if name in taken else name
                uses.append((name, use, call))
            names.append(name)
        columns[id(call)] = over([col(name) for name in names])
    if not keys and not uses:
        raise binding.error("HAVING needs groups or aggregates; conditions on rows stand in WHERE", e.span)
    if not kept and not uses:  # the set () without aggregates: a row where anything is alive
        whole = s.Function("count", (), e.span, star=True)
        uses.append((binding.name("count"), AggregateUse("count", (), (), False), whole))
    node = aggregate(kept, uses, rows)
    counts = frozenset(name for name, use, _ in uses if use.function in ("count", "count_distinct"))
    groups = Groups(rows, tuple((expr, name) for name, expr in kept), columns, counts, absent)
    return Rows(binding, node, rows.scope, rows.correlation, groups)


def _determined(e: s.Select, rows: Rows, keys: list[tuple[str, Expr]]) -> list[tuple[str, Expr]]:
    """Columns that the answer reads and that follow from the groups' keys, as all columns of a row do from its KEY."""
    grouped = {expr.name for _, expr in keys if isinstance(expr, Column)}
    tables = [t for t in rows.scope.tables if any(key <= grouped for key in t.keys)]
    follow = {c.physical for t in tables for c in t.columns}
    if properties(rows.node).unique_on(grouped):
        follow |= {c.physical for t in rows.scope.tables for c in t.columns}
    read: dict[str, tuple[str, Expr]] = {}
    for place in (*(item.expression for item in e.items if isinstance(item, s.Item)), e.having):
        for name in names_in(place, rows.binding):
            found = rows.find(name) if follow else None
            if isinstance(found, Column) and found.name in follow - grouped:
                read.setdefault(found.name, (rows.binding.name("group"), found))
    return list(read.values())


def _typed_argument(arg: s.Expression, call: s.Function, rows: Rows) -> Expr:
    found = value(arg, rows)
    if kind(found.bind(rows.node.schema)) == "null" and call.name != "count":
        raise rows.binding.error("a NULL here has no type; write for example CAST(NULL AS INT)", arg.span)
    return found


def _group_key(written: s.Expression, e: s.Select, rows: Rows) -> tuple[Expr, str | None]:
    """A grouping expression and a name for its column; a number means a column of the answer, a name may."""
    items = [item for item in e.items if isinstance(item, s.Item)]
    if isinstance(written, s.Constant):
        if not isinstance(written.value, int) or not 1 <= written.value <= len(e.items):
            raise rows.binding.error(
                f"GROUP BY takes columns, expressions, or the number of a column of the answer, 1 to {len(e.items)}",
                written.span,
            )
        item = e.items[written.value - 1]
        if isinstance(item, s.Star):
            raise rows.binding.error("GROUP BY cannot mean *; name the columns", written.span)
        return value(item.expression, rows), item.alias.text if item.alias else _written_name(item.expression)
    alias = None
    if isinstance(written, s.Name):
        found = rows.find(written)
        matching = [i for i in items if i.alias is not None and i.alias.text.lower() == written.parts[0].text.lower()]
        if found is None and len(written.parts) == 1 and matching:
            return value(matching[0].expression, rows), matching[0].alias.text if matching[0].alias else None
    expr = value(written, rows)
    if isinstance(written, s.Name) and isinstance(expr, Column):
        column = rows.scope.column(written.parts)
        alias = column.name if column is not None else None
    return expr, alias


# -- columns -----------------------------------------------------------------------------------------------------------


def _outputs(e: s.Select, rows: Rows) -> list[_Output]:
    found: list[_Output] = []
    for item in e.items:
        if isinstance(item, s.Star):
            found += _starred(item, rows)
            continue
        written = item.expression
        parts = written.items if isinstance(written, s.Row) and e.distinct else (written,)
        for part in parts:
            expr = value(part, rows)
            if item.alias is not None and len(parts) == 1:
                found.append(_Output(item.alias.text, expr, item.span, fixed=True))
                continue
            origin = part.parts[0].text if isinstance(part, s.Name) and len(part.parts) == 2 else None
            found.append(_Output(_declared_name(part, rows) or f"column{len(found) + 1}", expr, item.span, origin))
    return found


def _starred(star: s.Star, rows: Rows) -> list[_Output]:
    scope = rows.known()
    try:
        tables = scope.tables if star.qualifier is None else (scope.qualified(star.qualifier),)
    except NameProblem as problem:
        raise rows.binding.error(str(problem), star.span) from None
    if not scope.tables:
        raise rows.binding.error("* is of what stands in FROM, and there is no FROM", star.span)
    found: list[_Output] = []
    for table in tables:
        if table is None:
            assert star.qualifier is not None
            raise rows.binding.error(scope.unknown((star.qualifier, s.Ident("*", True, star.span))), star.span)
        for column in table.columns:
            if column.unlisted or (column.hidden and star.qualifier is None):
                continue
            expr = col(column.physical)
            if rows.groups is not None:
                key = next((key for known, key in rows.groups.keys if known.equals(expr)), None)
                if key is None:
                    raise rows.binding.error(
                        f"* has the column {column.name}, which is neither grouped by nor inside an aggregate",
                        star.span,
                    )
                expr = col(key)
            found.append(_Output(column.name, expr, star.span, table.alias))
    return found


def _declared_name(e: s.Expression, rows: Rows) -> str | None:
    """What a column without an alias is called: as it is declared, not as it is written here."""
    if isinstance(e, s.Name):
        column = rows.known().column(e.parts)
        return e.parts[-1].text if column is None else column.name
    return _written_name(e)


def _written_name(e: s.Expression) -> str | None:
    match e:
        case s.Name(parts):
            return parts[-1].text
        case s.Function(name):
            return name
        case s.CastTo(operand):
            return _written_name(operand)
        case s.Case():
            return "case"
    return None


def _named(outputs: list[_Output], binding: Binding) -> list[_Output]:
    """Every column under a name of its own: a second one is called by its table too, or counted."""
    fixed = Counter(o.name for o in outputs if o.fixed)
    taken: set[str] = set()
    found = []
    for output in outputs:
        name = output.name
        if output.fixed:
            if fixed[name] > 1 and name in taken:
                raise binding.error(f"two columns are called {name}; give them different names", output.span)
        else:
            counted = (f"{name}_{i}" for i in range(1, len(outputs) + 1))
            options = chain([name], [f"{output.origin}_{name}"] if output.origin else [], counted)
            name = next(option for option in options if option not in taken and option not in fixed)
        taken.add(name)
        found.append(_Output(name, output.expr, output.span, output.origin, output.fixed))
    return found
