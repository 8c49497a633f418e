"""What rules ask about expressions: can they fail, what do they read once columns are replaced.

`may_fail` errs on the side of yes.  Whether they reject nulls is in `algebra/properties/nullability.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Cast, Column, Expr, Literal, Udf, col, conjuncts, walk
from everwhen.core.schema import Schema

_SAFE: Final = {
    *("=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "is_null", "not_null", "in", "case"),
    *("least", "greatest", "coalesce", "nullif", "/", "sign", "sqrt", "exp", "ln", "log10", "power"),
    *("try_add", "try_subtract"),
    *("lower", "upper", "reverse", "length", "concat", "trim", "ltrim", "rtrim"),
    *("starts_with", "ends_with", "contains", "like"),
    *("year", "quarter", "month", "week", "day", "day_of_week", "day_of_year", "hour", "minute", "second"),
}
"""Functions with a result for all arguments that type-checking lets through."""

_SAFE_ON_FLOATS: Final = frozenset(("+", "-", "*", "negate", "abs", "floor", "ceil", "trunc", "%"))
_SAFE_ON_INTEGERS: Final = frozenset(("floor", "ceil", "trunc", "%"))
"""Integers and decimals overflow where floats become infinite."""


def may_fail(expr: Expr, schema: Schema) -> bool:
    """Whether some row of the schema may make the expression raise."""
    match expr:
        case Column() | Literal():
            return False
        case Udf():
            return True
        case Cast(operand, target):
            return not _widens(operand.bind(schema), target) or may_fail(operand, schema)
        case Call(name, args):
            return not _total(name, expr, schema) or any(may_fail(arg, schema) for arg in args)
    return True


def _total(name: str, call: Call, schema: Schema) -> bool:
    if name in _SAFE:
        return True
    if name not in _SAFE_ON_FLOATS:
        return False
    result = call.bind(schema)
    return pa.types.is_floating(result) or (name in _SAFE_ON_INTEGERS and pa.types.is_integer(result))


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    if source == target or pa.types.is_null(source) or target == pa.string():
        return True
    if pa.types.is_signed_integer(source):
        wider = pa.types.is_signed_integer(target) and target.bit_width >= source.bit_width
        return wider or target == pa.float64()
    if pa.types.is_unsigned_integer(source):
        return (pa.types.is_integer(target) and target.bit_width > source.bit_width) or target == pa.float64()
    return source == pa.float32() and target == pa.float64()


def has_udf(expr: Expr) -> bool:
    """Whether a Python function of the user's is called."""
    return any(isinstance(each, Udf) for each in walk(expr))


def is_true(expr: Expr) -> bool:
    """Whether the condition is the constant TRUE."""
    return isinstance(expr, Literal) and expr.constant is True


# -- columns replaced --------------------------------------------------------------------------------------------------


def replaced(expr: Expr, columns: Mapping[str, Expr]) -> Expr:
    """The expression with columns replaced; a constant put in keeps the type that its column had.

    A bare integer constant takes any integer type, a column does not, so it is made a typed one first.
    """
    return expr.substitute({name: _typed(other) for name, other in columns.items()})


def _typed(expr: Expr) -> Expr:
    return replace(expr, untyped=False) if isinstance(expr, Literal) and expr.untyped else expr


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over columns of other names; names that are not listed stay."""
    return expr.substitute({old: col(new) for old, new in names.items()})


def without_repeats(conditions: Iterable[Expr]) -> list[Expr]:
    """The conditions that are not TRUE, each once, in their order."""
    found: list[Expr] = []
    by_text: dict[str, list[Expr]] = {}  # what is written alike is found at once: there may be thousands
    for each in conditions:
        alike = by_text.setdefault(str(each), [])
        if not is_true(each) and not any(each.equals(other) for other in alike):
            alike.append(each)
            found.append(each)
    return found


def parted(condition: Expr, movable: Iterable[bool], schema: Schema) -> tuple[list[Expr], list[Expr]]:
    """The conjuncts that may be moved away, and those that stay.

    A conjunct that may fail was guarded by the ones before it, so it moves only if all of them move with it.
    """
    all_of = conjuncts(condition)
    wanted = list(movable)
    if all(wanted):
        return all_of, []
    moved: list[Expr] = []
    stay: list[Expr] = []
    for each, want in zip(all_of, wanted, strict=True):
        (moved if want and not may_fail(each, schema) else stay).append(each)
    return moved, stay
