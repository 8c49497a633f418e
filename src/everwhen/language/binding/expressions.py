"""Expressions of a query as expressions over the columns of a plan.

`bind` turns a written expression into one of `everwhen.algebra.expressions.build`; `Rows.check` then says where the
types do not fit.  SQL's forms that the algebra has not are spelled out: BETWEEN, IS TRUE, IS DISTINCT FROM, IN with
computed values, CASE with an operand.  Text beside a date or a timestamp is read as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa

from everwhen.algebra.aggregates.calls import UserAggregate
from everwhen.algebra.expressions.build import FUNCTIONS, Call, Expr, Literal, Udf, col, disjunction, function, lit
from everwhen.algebra.expressions.functions import OPERATORS
from everwhen.core.kinds import kind
from everwhen.core.time import ticks
from everwhen.errors import EvaluationError, QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding import subqueries
from everwhen.language.binding.aggregates import AGGREGATES, is_aggregate
from everwhen.language.binding.context import Rows
from everwhen.language.binding.spelled.fields import is_field, named_column
from everwhen.language.binding.spelled.intervals import shifted
from everwhen.language.binding.spelled.spellings import SPELLINGS, spelled
from everwhen.language.binding.types import length_named, type_named
from everwhen.language.elsewhere import unknown_function

_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_OPERATOR_NAMES: Final = {entry.name for entry in OPERATORS}
_HIDDEN: Final = _OPERATOR_NAMES | {name for name in FUNCTIONS if name.startswith("_")}


def bind(e: s.Expression, rows: Rows) -> Expr:
    """The expression over the columns of `rows.node`, not yet checked for types."""
    expr = rows.term(e)
    if expr is None:
        expr = _grouped(e, rows)
    if expr is None:
        expr = _bind(e, rows)
    rows.binding.spans[id(expr)] = (expr, e.span)
    return expr


def value(e: s.Expression, rows: Rows) -> Expr:
    """The expression, checked."""
    return rows.check(bind(e, rows), e.span)


def condition(e: s.Expression, rows: Rows) -> Expr:
    """A condition, checked; of a subquery in it only whether it is true matters, which costs less."""
    expr = subqueries.truth(e, rows) if isinstance(e, s.Quantified | s.Exists | s.Operator) else None
    expr = value(e, rows) if expr is None else rows.check(expr, e.span)
    found = expr.bind(rows.node.schema)
    if kind(found) not in ("boolean", "null"):
        raise rows.binding.error(f"a condition is true or false; this is of type {found}", e.span)
    return expr if kind(found) == "boolean" else expr.cast("bool")


def conjuncts(e: s.Expression | None) -> list[s.Expression]:
    """The conditions that AND joins."""
    if e is None:
        return []
    if isinstance(e, s.Operator) and e.symbol == "and":
        return [each for operand in e.operands for each in conjuncts(operand)]
    return [e]


def _grouped(e: s.Expression, rows: Rows) -> Expr | None:
    """Over groups: the aggregate or the key that the expression is."""
    groups = rows.groups
    if groups is None or isinstance(e, s.Constant):
        return None
    if isinstance(e, s.Function) and id(e) in groups.aggregates:
        return groups.aggregates[id(e)]
    if (
        (isinstance(e, s.Name) and not is_field(e, groups.before))
        or subqueries.inside(e)
        or any(is_aggregate(f, rows.binding) for f in functions(e))
    ):
        return None
    try:
        before = bind(e, groups.before)
    except SqlError:
        return None
    absent = [null for expr, null in groups.absent if expr.equals(before)]
    return next((col(key) for expr, key in groups.keys if expr.equals(before)), absent[0] if absent else None)


def _grouping(e: s.Function, rows: Rows) -> Expr:
    """GROUPING(a, b): a bit for each, 1 where this grouping set does not have it."""
    if rows.groups is None or not e.args:
        raise rows.binding.error("GROUPING stands in a query with GROUP BY: GROUPING(column)", e.span)
    number = 0
    for arg in e.args:
        before = bind(arg, rows.groups.before)
        absent = any(expr.equals(before) for expr, _ in rows.groups.absent)
        if not absent and not any(expr.equals(before) for expr, _ in rows.groups.keys):
            raise rows.binding.error("GROUPING is of columns that GROUP BY has", arg.span)
        number = 2 * number + absent
    return lit(number)


def _bind(e: s.Expression, rows: Rows) -> Expr:
    match e:
        case s.Name():
            return rows.column(e) if len(e.parts) == 1 else named_column(e, rows, bind)
        case s.Constant():
            return _constant(e, rows)
        case s.Duration(_, _, months) if months:
            raise rows.binding.error(
                "an interval of months has no length of its own; it stands beside a date or a timestamp: d + INTERVAL "
                "'1' MONTH",
                e.span,
            )
        case s.Duration(text):
            return _duration(text, e, rows)
        case s.Operator():
            return _operator(e, rows)
        case s.Function():
            return _function(e, rows)
        case s.Case(operand, whens, otherwise):
            parts: list[Expr] = []
            for condition_, result in whens:
                test = (
                    condition(condition_, rows)
                    if operand is None
                    else _compared("=", (bind(operand, rows), bind(condition_, rows)), rows)
                )
                parts += [test, bind(result, rows)]
            return Call("case", (*parts, lit(None) if otherwise is None else bind(otherwise, rows)))
        case s.CastTo(operand, type_):
            target = named_type(type_, rows)
            cast = bind(operand, rows).cast(target)
            length = length_named(type_.text)
            if length is not None:
                return function("left", cast, length)
            if isinstance(operand, s.Constant) and kind(target) in ("date", "timestamp", "duration"):
                _read_now(cast, e.span, rows)
            return cast
        case s.Row():
            raise rows.binding.error("a row of values can only stand before IN (SELECT …)", e.span)
        case s.Scalar() | s.Exists() | s.Quantified():
            return subqueries.value(e, rows)


def named_type(type_: s.TypeName, rows: Rows) -> pa.DataType:
    try:
        return type_named(type_.text)
    except QueryError as error:
        raise rows.binding.error(str(error), type_.span) from None


def _constant(e: s.Constant, rows: Rows) -> Expr:
    try:
        return lit(e.value)
    except QueryError as error:
        raise rows.binding.error(str(error), e.span) from None


def _duration(text: str, e: s.Expression, rows: Rows) -> Expr:
    try:
        return lit(timedelta(microseconds=ticks(text, "1us")))
    except (QueryError, OverflowError) as error:
        raise rows.binding.error(str(error), e.span) from None


# -- operators ---------------------------------------------------------------------------------------------------------


def _operator(e: s.Operator, rows: Rows) -> Expr:
    if e.symbol in ("and", "or"):
        # in a long chain of conditions each is bound once, without going deeper for each
        return Call(e.symbol, tuple(bind(operand, rows) for operand in _chain(e)))
    if e.symbol in ("+", "-") and len(e.operands) == 2:
        moved = shifted(e, rows, bind)
        if moved is not None:
            return moved
    operands = [bind(operand, rows) for operand in e.operands]
    a = operands[0]
    match e.symbol:
        case "->" | "->>":
            return _spelled(e.symbol, operands, e, rows)
        case "||":
            return function("concat", *operands)
        case "is_true":
            return function("coalesce", a, False)
        case "is_false":
            return function("coalesce", ~a, False)
        case "is_not_true":
            return ~function("coalesce", a, False)
        case "is_not_false":
            return ~function("coalesce", ~a, False)
        case "is_distinct":
            return ~not_distinct(a, operands[1], rows)
        case "is_not_distinct":
            return not_distinct(a, operands[1], rows)
        case "between":
            return _compared(">=", (a, operands[1]), rows) & _compared("<=", (a, operands[2]), rows)
        case "in":
            return _in(operands, rows)
        case "like":
            return function("like", *operands)
        case "ilike":
            return function("like", *(function("lower", operand) for operand in operands))
        case symbol if symbol in _COMPARISONS:
            return _compared(symbol, operands, rows)
    return Call(e.symbol, tuple(operands))


def _chain(e: s.Operator) -> list[s.Expression]:
    """The operands of a chain of ANDs, or of ORs, from left to right."""
    found: list[s.Expression] = []
    waiting: list[s.Expression] = [e]
    while waiting:
        each = waiting.pop()
        if isinstance(each, s.Operator) and each.symbol == e.symbol:
            waiting += reversed(each.operands)
        else:
            found.append(each)
    return found


def compared(symbol: str, a: Expr, b: Expr, rows: Rows) -> Expr:
    """A comparison in which text beside a date or a timestamp is read as one."""
    return _compared(symbol, (a, b), rows)


def _compared(symbol: str, operands: Sequence[Expr], rows: Rows) -> Expr:
    a, b = operands
    for text, other in ((a, b), (b, a)):
        if isinstance(text, Literal) and isinstance(text.constant, str):
            try:
                type_ = other.bind(rows.node.schema)
            except QueryError:
                break  # the check of the whole says what is wrong, and where
            if kind(type_) in ("timestamp", "date", "time"):
                read = text.cast(type_)
                span = rows.binding.spans.get(id(text))
                if span is not None:
                    rows.binding.spans[id(read)] = (read, span[1])
                    _read_now(read, span[1], rows)
                a, b = (read, other) if text is a else (other, read)
            break
    return Call(symbol, (a, b))


def _read_now(constant: Expr, span: s.Span, rows: Rows) -> None:
    """A constant that cannot be read is wrong in the text, not in the data."""
    rows.check(constant, span)
    try:
        constant.value({})
    except EvaluationError as error:
        raise rows.binding.error(str(error), span) from None


def not_distinct(a: Expr, b: Expr, rows: Rows) -> Expr:
    """Equal, or both null."""
    return function("coalesce", compared("=", a, b, rows), False) | (a.is_null() & b.is_null())


def _in(operands: Sequence[Expr], rows: Rows) -> Expr:
    a, *values = operands
    if all(isinstance(v, Literal) for v in values) and not any(isinstance(v.constant, str) for v in values):  # type: ignore[attr-defined]
        return Call("in", (a, *values))
    tests = [_compared("=", (a, v), rows) for v in values]
    literal = all(isinstance(v, Literal) for v in values) and all(
        isinstance(test.operands[1], Literal) for test in tests
    )
    return Call("in", (a, *values)) if literal else disjunction(tests)


# -- functions ---------------------------------------------------------------------------------------------------------


def _function(e: s.Function, rows: Rows) -> Expr:
    error = rows.binding.error
    if e.over is not None:
        found = rows.overs.get(id(e))
        if found is None:
            raise error(
                f"OVER stands in the columns of SELECT, not in {rows.place}: name it there in a query in FROM, and "
                "read that name",
                e.over.span,
            )
        return found
    user = rows.binding.catalog.functions.get(e.name)
    if isinstance(user, UserAggregate) or (user is None and e.name in AGGREGATES):
        where = "inside another aggregate" if rows.place == "an aggregate" else f"in {rows.place}"
        remedy = "; conditions on aggregates stand in HAVING" if rows.place == "WHERE" else ""
        raise error(f"the aggregate {e.name.upper()} cannot stand {where}{remedy}", e.span)
    if e.name in ("grouping", "grouping_id"):
        return _grouping(e, rows)
    if user is None and e.name not in SPELLINGS and e.name not in FUNCTIONS.keys() - _HIDDEN:
        raise error(unknown_function(e.name, _names(rows)), e.span)  # before its arguments are found wrong
    if e.star or e.distinct or e.where is not None or e.order:
        what = "*" if e.star else "DISTINCT" if e.distinct else "ORDER BY" if e.order else "FILTER"
        raise error(f"{e.name.upper()} is no aggregate and takes no {what}", e.span)
    args = [bind(arg, rows) for arg in e.args]
    if user is not None:
        if not args:
            raise error(f"{e.name} needs at least one argument", e.span)
        return Udf(user.function, tuple(args), user.result)
    if e.name in SPELLINGS:
        return _spelled(e.name, args, e, rows)
    try:
        return function(e.name, *args)
    except QueryError as problem:
        raise error(str(problem), e.span) from None


def _spelled(name: str, args: list[Expr], e: s.Expression, rows: Rows) -> Expr:
    try:
        found = spelled(name, args, rows.node.schema)
    except QueryError as problem:
        raise rows.binding.error(str(problem), e.span) from None
    assert found is not None
    return found


def _names(rows: Rows) -> set[str]:
    """Every function that may be called here."""
    named = (name for name in (*FUNCTIONS, *SPELLINGS) if not name.startswith(("_", "-")))
    return {*named, *AGGREGATES, *rows.binding.catalog.functions} - _OPERATOR_NAMES


def functions(e: s.Expression | None) -> list[s.Function]:
    """Every call in the expression, outermost first; subqueries are not looked into."""
    match e:
        case None:
            return []
        case s.Function():
            below = [*e.args, e.where, *(each for each, _ in e.order)]
            if e.over is not None:
                below += [*e.over.partition, *(key.expression for key in e.over.order)]
            return [e, *(f for each in below for f in functions(each))]
        case s.Case(operand, whens, otherwise):
            below = [operand, *(each for pair in whens for each in pair), otherwise]
        case s.Operator(_, operands) | s.Row(operands):
            below = list(operands)
        case s.CastTo(operand):
            below = [operand]
        case s.Quantified(operand):
            below = [operand]
        case _:
            return []
    return [f for each in below for f in functions(each)]
