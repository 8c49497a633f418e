"""Which expressions can raise; in doubt they can."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Cast, Column, Expr, Literal, Udf
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
