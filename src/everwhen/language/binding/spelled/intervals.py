"""Dates and timestamps with intervals beside them: `d + INTERVAL '3' MONTH`, `d - INTERVAL '90' DAY`, `d + 7`.

A date and whole days, or months, is a date, as in Spark; a date and a length that is no whole number of days is a
timestamp.  Months are counted in the calendar: see `add_months`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from everwhen.algebra.expressions.build import Expr, Literal, function, lit
from everwhen.core.kinds import kind
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Rows

_DAY = timedelta(days=1)


def shifted(e: s.Operator, rows: Rows, bind: Callable[[s.Expression, Rows], Expr]) -> Expr | None:
    """A sum or difference of a time and an interval or a number of days; None if it is another one."""
    left, right = e.operands
    if isinstance(left, s.Duration) and left.months and e.symbol == "+":
        left, right = right, left
    if isinstance(right, s.Duration) and right.months:
        moment = bind(left, rows)
        sign = -1 if e.symbol == "-" else 1
        result = function("add_months", moment, sign * right.months)
        rows.check(result, e.span)
        if not right.text:
            return result
        rows.binding.spans[id(result)] = (result, left.span)
        return _beside(e.symbol, result, bind(s.Duration(right.text, right.span), rows), rows)
    if e.symbol == "+" and isinstance(left, s.Duration):
        left, right = right, left
    if not _may_be(left) or not _may_be(right):
        return None
    a, b = bind(left, rows), bind(right, rows)
    return _beside(e.symbol, a, b, rows)


def _may_be(e: s.Expression) -> bool:
    return not (isinstance(e, s.Constant) and isinstance(e.value, float | str))


def _beside(symbol: str, a: Expr, b: Expr, rows: Rows) -> Expr:
    plain = a + b if symbol == "+" else a - b
    try:
        one, two = (kind(each.bind(rows.node.schema)) for each in (a, b))
    except QueryError:
        return plain  # the check of the whole says what is wrong, and where
    if one in ("integer", "duration") and two == "date" and symbol == "+":
        a, b, one, two = b, a, two, one
    if one != "date" or two not in ("integer", "duration"):
        return plain
    if two == "integer":
        return function("date_add", a, b if symbol == "+" else _negated(b))
    if isinstance(b, Literal) and isinstance(b.constant, timedelta) and not b.constant % _DAY:
        days = b.constant // _DAY
        return function("date_add", a, days if symbol == "+" else -days)
    moment = a.cast(pa.timestamp("us"))
    return moment + b if symbol == "+" else moment - b


def _negated(days: Expr) -> Expr:
    return lit(-days.constant) if isinstance(days, Literal) and isinstance(days.constant, int) else -days
