"""Expressions of which an overflow is a null: for the keys of joins, where a value that there is not finds nothing."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from everwhen.algebra.expressions.nodes import Call, Cast, Expr
from everwhen.core.schema import Schema

_LENIENT: Final = {"+": "try_add", "-": "try_subtract"}


def without_overflow(expr: Expr, schema: Schema) -> Expr:
    """The expression with sums and differences of integers that are null where they do not fit.

    >>> from everwhen.algebra.expressions.build import col
    >>> print(without_overflow(col("x") + 1, Schema.of([("x", pa.int64())])))
    try_add(x, 1)
    """
    match expr:
        case Call(name, args) if name in _LENIENT and pa.types.is_integer(expr.bind(schema)):
            return Call(_LENIENT[name], tuple(without_overflow(arg, schema) for arg in args))
        case Cast(operand, target):
            found = without_overflow(operand, schema)
            return expr if found is operand else Cast(found, target)
    return expr
