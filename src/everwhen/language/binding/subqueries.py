"""Subqueries in expressions, as outer joins.

Every subquery becomes one or more left outer joins of the rows around it with something that has at most one row per
value of what it reads outside: a *mark* (a row says that there is a partner), or an extreme.  The multiplicity of the
rows around stays what it is, at every instant.  The rewriting rule `flatten_subquery` makes semi-joins and anti-joins
of these where only the partner's existence counts.

SQL's rules hold for empty subqueries: a scalar one is null, COUNT is 0, ALL is true, ANY, IN and EXISTS are false.
In a condition only truth counts, so `truth` leaves out the bookkeeping that tells false from null.

    x IN S         is true if x = y for some y; else null if some y is null, or x is and S is not empty; else false
    x <op> ALL S   compares x with the largest (or smallest) y
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.expressions.build import Call, Column, Expr, col, function, lit, when
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.nullability import never_null
from everwhen.core.kinds import common
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Aggregated, Bound, Correlation, Key, Rows, Wanted

T = TypeVar("T")
Symbol = Literal["=", "<>", "<", "<=", ">", ">="]
_OPPOSITE: Final[dict[str, Symbol]] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def inside(e: s.Expression | None) -> bool:
    """Whether a subquery stands in the expression."""
    match e:
        case s.Scalar() | s.Exists() | s.Quantified():
            return True
        case s.Operator(_, operands) | s.Row(operands):
            return any(map(inside, operands))
        case s.Function(_, args):
            return any(map(inside, args)) or inside(e.where) or any(inside(by) for by, _ in e.order)
        case s.Case(operand, whens, otherwise):
            return inside(operand) or inside(otherwise) or any(inside(each) for pair in whens for each in pair)
        case s.CastTo(operand):
            return inside(operand)
    return False


def value(e: s.Scalar | s.Exists | s.Quantified, rows: Rows) -> Expr:
    """The subquery's value, null included."""
    match e:
        case s.Scalar(query):
            return _scalar(query, e, rows)
        case s.Exists(query):
            return _exists(query, rows)
        case s.Quantified():
            return _quantified(e, e.symbol, e.quantifier, rows, exact=True)


def truth(e: s.Expression, rows: Rows) -> Expr | None:
    """A condition with subqueries that is true exactly where `e` is, and elsewhere false or null; else None."""
    if not inside(e):
        return None
    match e:
        case s.Exists(query):
            return _exists(query, rows)
        case s.Quantified():
            return _quantified(e, e.symbol, e.quantifier, rows, exact=False)
        case s.Operator("not", (s.Exists(query),)):
            return _not(_exists(query, rows))
        case s.Operator("not", (s.Quantified() as q,)):
            other: Literal["all", "any"] = "all" if q.quantifier == "any" else "any"
            return _quantified(q, _OPPOSITE[q.symbol], other, rows, exact=False)
        case s.Operator("and" | "or" as symbol, (a, b)):
            return Call(symbol, (_truth_of(a, rows), _truth_of(b, rows)))
    return None


def _truth_of(e: s.Expression, rows: Rows) -> Expr:
    found = truth(e, rows)
    return rows.binding.expression(e, rows) if found is None else found


# -- kinds of subqueries -----------------------------------------------------------------------------------------------


def _exists(query: s.Query, rows: Rows) -> Expr:
    if rows.binding.single(query):
        found = correlated(rows, lambda correlation: rows.binding.aggregated(query, correlation))
        if found.having is None:
            return lit(True)  # one row of aggregates, whatever there is
        names = attach(rows, found.node, found.keys, query.span)
        return function("coalesce", beside(found.having, found, names), False)
    return _marked(rows, correlated(rows, lambda correlation: rows.binding.query(query, correlation)), query.span)


def _scalar(query: s.Query, e: s.Scalar, rows: Rows) -> Expr:
    if rows.binding.single(query):
        found = correlated(rows, lambda correlation: rows.binding.aggregated(query, correlation))
        _require_width(1, len(found.values), e.span, rows)
        names = attach(rows, found.node, found.keys, e.span)
        result = beside(found.values[0], found, names)
        if found.having is None:
            return result
        return when(beside(found.having, found, names)).then(result).otherwise(None)
    bound = correlated(rows, lambda correlation: rows.binding.query(query, correlation))
    _require_width(1, len(bound.columns), e.span, rows)
    if bound.keys and properties(bound.node).unique_on(key.inner for key in bound.keys):
        return col(attach(rows, bound.node, bound.keys, e.span)[bound.answer[0]])
    if not properties(bound.node).at_most_one or bound.keys:
        raise rows.binding.error(
            "a subquery used as a value must be a single row at every instant; over a stream that is an aggregate "
            "(SELECT MAX(…) FROM …), the last row (WINDOW(ROWS 1)), or the row of a KEY (WHERE id = …); else compare "
            "with IN, ANY or ALL",
            e.span,
        )
    return col(attach(rows, bound.node, (), e.span)[bound.answer[0]])


def _quantified(e: s.Quantified, symbol: Symbol, quantifier: Literal["all", "any"], rows: Rows, exact: bool) -> Expr:
    parts = e.operand.items if isinstance(e.operand, s.Row) else (e.operand,)
    operands = [rows.check(rows.binding.expression(part, rows), part.span) for part in parts]
    if rows.binding.single(e.query):
        return _compared_with_row(e, symbol, quantifier, operands, rows)
    bound = correlated(rows, lambda correlation: rows.binding.query(e.query, correlation))
    _require_width(len(operands), len(bound.columns), e.span, rows)
    pairs = list(zip(operands, bound.answer, strict=True))
    if len(pairs) > 1 and (exact or (symbol, quantifier) != ("=", "any")):
        raise rows.binding.error(
            "a row of values can be tested with IN where only the truth counts; write NOT EXISTS (… WHERE …) here",
            e.span,
        )
    x, y = pairs[0]
    if (symbol, quantifier) == ("=", "any"):
        found = _marked(rows, bound, e.span, pairs)
        return found if not exact else _three_valued(found, lit(True), x, y, bound, e, rows, lit(False))
    if (symbol, quantifier) == ("<>", "all"):
        found = _marked(rows, bound, e.span, pairs)
        if exact:
            return _three_valued(found, lit(False), x, y, bound, e, rows, lit(True))
        return (
            _not(found)
            & _not(_null_among(rows, bound, y, e.span))
            & (x.not_null() | _not(_marked(rows, bound, e.span)))
        )
    return _with_extremes(e, symbol, quantifier, x, y, bound, rows, exact)


def _with_extremes(
    e: s.Quantified, symbol: Symbol, quantifier: str, x: Expr, y: str, bound: Bound, rows: Rows, exact: bool
) -> Expr:
    """x beside the smallest or the largest y: all of them stand on one side of x if that one does."""
    every = quantifier == "all"
    lowest = (symbol in ("<", "<=")) == every  # x < ALL: the smallest decides; x < ANY: the largest
    wanted = ("min", "max") if symbol in ("=", "<>") else ("min",) if lowest else ("max",)
    keys = tuple(key.inner for key in bound.keys)
    extremes = tuple(Aggregation(rows.binding.name(f), f, (y,)) for f in wanted)
    try:
        node = n.Aggregate(bound.node, keys, extremes)
    except QueryError as error:
        raise rows.binding.error(str(error), e.span) from None
    known = never_null(bound.node, y)
    names = attach(rows, node, bound.keys, e.span)
    columns = [col(names[extreme.name]) for extreme in extremes]
    tests = [rows.binding.compared(symbol, x, column, rows) for column in columns]
    test = tests[0] if len(tests) == 1 else (tests[0] & tests[1] if every else tests[0] | tests[1])
    if not every and not exact:
        return test
    none = columns[0].is_null() if known else _not(_marked(rows, bound, e.span))
    nulls = lit(False) if known else _null_among(rows, bound, y, e.span)
    if not exact:
        return none | (test & _not(nulls)) if not known else none | test
    unknown = x.is_null() | nulls
    if every:
        return when(none).then(True).when(~test).then(False).when(unknown).then(None).otherwise(test)
    return when(none).then(False).when(test).then(True).when(unknown).then(None).otherwise(test)


def _compared_with_row(e: s.Quantified, symbol: Symbol, quantifier: str, operands: Sequence[Expr], rows: Rows) -> Expr:
    """A comparison with the one row of an aggregate; HAVING may leave none, of which ALL is true and ANY false."""
    found = correlated(rows, lambda correlation: rows.binding.aggregated(e.query, correlation))
    _require_width(len(operands), len(found.values), e.span, rows)
    names = attach(rows, found.node, found.keys, e.span)
    tests = [
        rows.binding.compared(symbol, x, beside(v, found, names), rows)
        for x, v in zip(operands, found.values, strict=True)
    ]
    if len(tests) > 1 and symbol not in ("=", "<>"):
        raise rows.binding.error("rows of values are compared with IN and NOT IN only; compare them one by one", e.span)
    test = tests[0]
    for more in tests[1:]:
        test = test & more if symbol == "=" else test | more
    if found.having is None:
        return test
    return when(beside(found.having, found, names)).then(test).otherwise(quantifier == "all")


def _three_valued(
    found: Expr, then: Expr, x: Expr, y: str, bound: Bound, e: s.Quantified, rows: Rows, otherwise: Expr
) -> Expr:
    """`then` where a partner was found, `otherwise` where none can be, null where a null leaves it open."""
    undecided = x.is_null() & _marked(rows, bound, e.span)
    if not never_null(bound.node, y):
        undecided = _null_among(rows, bound, y, e.span) | undecided
    return when(found).then(then).when(undecided).then(None).otherwise(otherwise)


# -- joins with the rows around ----------------------------------------------------------------------------------------


def _marked(rows: Rows, bound: Bound, span: s.Span, pairs: Sequence[tuple[Expr, str]] = ()) -> Expr:
    """Whether the subquery has a row for what it reads outside, one that agrees on `pairs` if there are any."""
    mark = rows.binding.name("mark")
    columns = [*(key.inner for key in bound.keys), *(y for _, y in pairs)]
    right = n.Distinct(n.Map(bound.node, (*((c, col(c)) for c in dict.fromkeys(columns)), (mark, lit(True)))))
    keys = (*bound.keys, *(Key(x, y, False) for x, y in pairs))
    return col(attach(rows, right, keys, span)[mark]).not_null()


def _not(e: Expr) -> Expr:
    """The opposite of a mark's test, in plain words."""
    return e.operands[0].is_null() if isinstance(e, Call) and e.name == "not_null" else ~e


def _null_among(rows: Rows, bound: Bound, y: str, span: s.Span) -> Expr:
    """Whether the subquery has a null in that column."""
    if never_null(bound.node, y):
        return lit(False)
    return _marked(rows, Bound(n.Filter(bound.node, col(y).is_null()), bound.columns, bound.keys), span)


def attach(
    rows: Rows, right: n.Node, keys: Sequence[Key], span: s.Span, kind: Literal["left", "inner"] = "left"
) -> dict[str, str]:
    """Widens the rows by the columns of `right`, null where it has no partner; the names they have there.
    `inner`: rows without a partner go."""
    safe = any(key.null_safe for key in keys)
    own: list[tuple[str, Expr]] = []
    theirs: dict[str, Expr] = {}
    left_keys = []
    for key in keys:
        try:
            mine, other = key.outer.bind(rows.node.schema), right.schema.field(key.inner).type
            type_ = common(mine, other, str(key.outer))
        except QueryError as error:
            raise rows.binding.error(str(error), span) from None
        outer = key.outer if mine == type_ else key.outer.cast(type_)
        if isinstance(outer, Column) and outer.name not in left_keys:
            left_keys.append(outer.name)
        else:
            own.append((rows.binding.name("key"), outer))
            left_keys.append(own[-1][0])
        if other != type_:
            theirs[key.inner] = col(key.inner).cast(type_)
    if own:
        rows.node = n.Map(rows.node, (*((c, col(c)) for c in rows.node.schema.names), *own))
    if theirs:
        right = n.Map(right, tuple((c, theirs.get(c, col(c))) for c in right.schema.names))
    if safe:
        for key in keys:
            if not key.null_safe:
                right = n.Filter(right, col(key.inner).not_null())
    width = len(rows.node.schema)
    rows.node = n.Join(rows.node, right, tuple(left_keys), tuple(key.inner for key in keys), None, kind, null_safe=safe)
    return dict(zip(right.schema.names, rows.node.schema.names[width:], strict=True))


def correlated(rows: Rows, build: Callable[[Correlation], T]) -> T:
    """Binds a subquery as often as it asks for one more column of the rows around it."""
    correlation = Correlation(rows)
    while True:
        try:
            return build(correlation)
        except Wanted as more:
            if more.correlation is not correlation:
                raise
            correlation.wanted.append((rows.binding.name("outer"), more.outer))


def beside(expr: Expr, found: Aggregated, names: dict[str, str]) -> Expr:
    """An expression over aggregates, read beside the rows around: what it reads of those it reads there, and counts of
    nothing are 0."""
    new: dict[str, Expr] = {
        old: function("coalesce", col(name), 0) if old in found.counts else col(name) for old, name in names.items()
    }
    return expr.substitute(new | {key.inner: key.outer for key in found.keys})


def _require_width(wanted: int, found: int, span: s.Span, rows: Rows) -> None:
    if wanted != found:
        raise rows.binding.error(
            f"the subquery has {found} columns where {wanted} {'is' if wanted == 1 else 'are'} compared", span
        )
