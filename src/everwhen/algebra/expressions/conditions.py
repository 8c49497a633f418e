"""Conditions by columns: comparisons, Kleene's AND, OR and NOT, null tests, IN and CASE.

NaN equals NaN and is above every number; text is compared by code point; a null operand makes a comparison null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, Datum, Kernel, Rule, apply, coerce, constant, unify, wrong
from everwhen.core.kinds import is_orderable, kind
from everwhen.errors import QueryError

NULL_BOOLEAN: Final = pa.scalar(None, pa.bool_())
FALSE: Final = pa.scalar(False)


def less(a: Datum, b: Datum) -> Datum:
    """`a < b` for floats, NaN above every number."""
    return pc.or_(pc.less(a, b), pc.and_(pc.is_nan(b), pc.invert(pc.is_nan(a))))


def equal(a: Datum, b: Datum) -> Datum:
    """`a = b` for floats, NaN equal to NaN."""
    return pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))


_FLOAT_COMPARISON: Final[dict[str, Kernel]] = {
    "=": equal,
    "<>": lambda a, b: pc.invert(equal(a, b)),
    "<": less,
    "<=": lambda a, b: pc.invert(less(b, a)),
    ">": lambda a, b: less(b, a),
    ">=": lambda a, b: pc.invert(less(a, b)),
}
# With a right side that is no NaN one or two kernels do: IEEE's `<` and `<=` are false for a NaN on the left.
_FLOAT_CONSTANT: Final[dict[str, Kernel]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": lambda a, b: pc.invert(pc.less_equal(a, b)),
    ">=": lambda a, b: pc.invert(pc.less(a, b)),
}
_COMPARISON: Final[dict[str, Kernel]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def comparison(symbol: str, target: pa.DataType, right: Compiled) -> Kernel:
    """The kernel that compares two arguments of one type."""
    if kind(target) != "float":
        return _COMPARISON[symbol]
    known = right.constant.as_py() if right.constant is not None else float("nan")
    return (_FLOAT_CONSTANT if known is not None and known == known else _FLOAT_COMPARISON)[symbol]


def _compare(symbol: str) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        target, found = unify(args, where, wide=True)
        if not is_orderable(target):
            raise wrong(where, args, "values that can be compared (no lists or structs)")
        if kind(target) == "null":
            return constant(NULL_BOOLEAN, where)
        return apply(pa.bool_(), comparison(symbol, target, found[1]), found, where)

    return rule


def _logical(kernel: Kernel) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        for arg in args:
            if arg.kind not in ("boolean", "null"):
                raise QueryError(f"{where} needs conditions; {arg.text} is of type {arg.type}")
        return apply(pa.bool_(), kernel, [coerce(arg, pa.bool_()) for arg in args], where)

    return rule


def _test(kernel: Kernel) -> Rule:
    return lambda args, where: apply(pa.bool_(), kernel, args, where)


def _member(args: Sequence[Compiled], where: str) -> Compiled:
    """`x IN (…)`: true, false, or null if x is null or only a null in the list might have matched."""
    if len(args) == 1:
        return apply(pa.bool_(), lambda datum: pc.and_not(pc.is_null(datum), pc.is_null(datum)), args, where)
    if any(arg.constant is None for arg in args[1:]):
        raise QueryError(f"the list of {where} must hold constants; for columns write (x == a) | (x == b)")
    target, found = unify(args, where, wide=True)
    if not is_orderable(target):
        raise wrong(where, args[:1], "a value that can be compared (no list or struct)")
    constants = [arg.constant for arg in found[1:] if arg.constant is not None]
    listed = [each.as_py() for each in constants if each.is_valid]
    if kind(target) == "float" and 0.0 in listed:
        listed += [0.0, -0.0]  # equal, but the lookup goes by bits
    values = pa.array(listed, target)
    options = pc.SetLookupOptions(value_set=values)
    null, doubtful = NULL_BOOLEAN, any(not each.is_valid for each in constants)

    def kernel(datum: Datum) -> Datum:
        hit = pc.call_function("is_in", [datum], options)
        if doubtful:
            return pc.if_else(hit, hit, null)
        return pc.if_else(pc.is_valid(datum), hit, null) if datum.null_count else hit

    return apply(pa.bool_(), kernel, found[:1], where)


def _case(args: Sequence[Compiled], where: str) -> Compiled:
    """CASE: all branches are evaluated, then chosen from; should one fail, the definition decides (see `expr`)."""
    conditions, values = list(args[:-1:2]), [*args[1:-1:2], args[-1]]
    for condition in conditions:
        if condition.kind not in ("boolean", "null"):
            raise QueryError(f"{where} needs conditions; {condition.text} is of type {condition.type}")
    target, found = unify(values, where)

    n = len(conditions)

    def kernel(*data: Datum) -> Datum:
        result = data[-1]
        for condition, value in zip(data[n - 1 :: -1], data[-2 : n - 1 : -1], strict=True):
            result = pc.if_else(pc.fill_null(condition, FALSE), value, result)
        return result

    return apply(target, kernel, [*(coerce(each, pa.bool_()) for each in conditions), *found], where)


CONDITIONS: Final[dict[str, Rule]] = {
    **{symbol: _compare(symbol) for symbol in _COMPARISON},
    "and": _logical(lambda *conditions: reduce(pc.and_kleene, conditions)),
    "or": _logical(lambda *conditions: reduce(pc.or_kleene, conditions)),
    "not": _logical(pc.invert),
    "is_null": _test(pc.is_null),
    "not_null": _test(pc.is_valid),
    "in": _member,
    "case": _case,
}
