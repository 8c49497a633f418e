"""Arithmetic by columns: + - * / // % and the minus sign, for numbers, decimals, times and durations.

Integers are computed in int64 with overflow checked, floats in float64, decimals exactly in up to 38 digits; a
timestamp minus a timestamp is a duration.  Meaning: `definition`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions import definition
from everwhen.algebra.expressions.compute import Compiled, Datum, Kernel, Rule, apply, coerce, row_by_row, unify, wrong
from everwhen.core.kinds import MAX_DIGITS, as_decimal, decimal, finer, is_number, kind
from everwhen.errors import EvaluationError, QueryError

_LEAST: Final = np.iinfo(np.int64).min


def numbers(args: Sequence[Compiled], where: str) -> tuple[pa.DataType, list[Compiled]]:
    """Both numbers in the type of their sum: int64, float64 or a decimal."""
    for arg in args:
        if not is_number(arg.type) and arg.kind != "null":
            hint = "numbers" if arg.kind != "string" else "numbers (for text: function('concat', …))"
            raise wrong(where, args, hint)
        if arg.type == pa.uint64():
            raise wrong(where, args, "a signed integer type (cast the uint64 to int64 or decimal(20, 0))")
    target, found = unify(args, where)
    if kind(target) in ("integer", "null"):
        target = pa.int64()
    elif kind(target) == "float":
        target = pa.float64()
    elif target.bit_width > 128:
        raise wrong(where, args, f"decimals of at most {MAX_DIGITS} digits")
    return target, [coerce(arg, target) for arg in found] if kind(target) != "decimal" else list(args)


def _arithmetic(kernel: Kernel, decimal_result: Callable[..., tuple[int, int]], temporal: Rule | None = None) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        if temporal is not None and {arg.kind for arg in args} & {"timestamp", "date", "duration"}:
            return temporal(args, where)
        target, found = numbers(args, where)
        if kind(target) == "decimal":
            return _decimal(kernel, decimal_result, found, where)
        return apply(target, kernel, found, where)

    return rule


def _decimal(kernel: Kernel, result: Callable[..., tuple[int, int]], args: Sequence[Compiled], where: str) -> Compiled:
    """Exact arithmetic; what may exceed 38 digits is computed in 76 and checked."""
    known = [arg.type for arg in args if arg.kind != "null"]
    (d1, s1), (d2, s2) = (as_decimal(arg.type if arg.kind != "null" else known[0]) for arg in args)
    digits, scale = result(d1, s1, d2, s2)
    if scale > MAX_DIGITS:
        raise QueryError(f"{where} has {scale} digits after the point; a decimal holds {MAX_DIGITS}: cast to float64")
    target = decimal(digits, scale)
    if digits + scale <= MAX_DIGITS:
        found = [coerce(arg, pa.decimal128(d + s, s)) for arg, d, s in zip(args, (d1, d2), (s1, s2), strict=True)]
        return apply(target, kernel, found, where)
    most = 37 if digits + scale > 76 else MAX_DIGITS  # a product must stay within 76 digits
    found = [
        coerce(arg, pa.decimal256(min(d + s, most), s)) for arg, d, s in zip(args, (d1, d2), (s1, s2), strict=True)
    ]
    options = pc.CastOptions(target_type=target)
    return apply(target, lambda a, b: pc.cast(kernel(a, b), options=options), found, where)


def _sum_digits(d1: int, s1: int, d2: int, s2: int) -> tuple[int, int]:
    return max(d1, d2) + 1, max(s1, s2)


def _product_digits(d1: int, s1: int, d2: int, s2: int) -> tuple[int, int]:
    return d1 + d2 + 1, s1 + s2


def _add_times(args: Sequence[Compiled], where: str) -> Compiled:
    left, right = args
    if (left.kind, right.kind) == ("duration", "timestamp"):
        left, right = right, left
    return _shift_time(pc.add_checked, left, right, args, where)


def _subtract_times(args: Sequence[Compiled], where: str) -> Compiled:
    left, right = args
    if left.kind == right.kind and left.kind in ("timestamp", "date"):
        target, found = unify(args, where)
        unit = target.unit if left.kind == "timestamp" else "s"
        return apply(pa.duration(unit), pc.subtract_checked, found, where)
    return _shift_time(pc.subtract_checked, left, right, args, where)


def _shift_time(kernel: Kernel, left: Compiled, right: Compiled, args: Sequence[Compiled], where: str) -> Compiled:
    """timestamp ± duration, duration ± duration."""
    if right.kind != "duration" or left.kind not in ("timestamp", "duration"):
        raise wrong(where, args, "a timestamp and a duration, two durations, or numbers (cast a date to timestamp)")
    unit = finer(left.type, right.type)
    target = pa.duration(unit) if left.kind == "duration" else pa.timestamp(unit, left.type.tz)
    return apply(target, kernel, [coerce(left, target), coerce(right, pa.duration(unit))], where)


def _multiply_times(args: Sequence[Compiled], where: str) -> Compiled:
    left, right = args if args[0].kind == "duration" else args[::-1]
    if left.kind != "duration" or right.kind != "integer":
        raise wrong(where, args, "a duration and an integer, or numbers")
    return apply(left.type, pc.multiply_checked, [left, coerce(right, pa.int64())], where)


def _divide(args: Sequence[Compiled], where: str) -> Compiled:
    numbers(args, where)
    zero, null = pa.scalar(0.0), pa.scalar(None, pa.float64())
    left, right = (coerce(arg, pa.float64()) for arg in args)
    if right.constant is not None and right.constant.as_py():
        return apply(pa.float64(), pc.divide, [left, right], where)
    return apply(pa.float64(), lambda a, b: pc.divide(a, pc.if_else(pc.equal(b, zero), null, b)), [left, right], where)


def _floored(function: Callable[..., Any], by_value: Callable[[Any, Any], Any]) -> Rule:
    """`//` or `%`: NumPy's are the mathematical floor, as the definition wants."""

    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        target, found = numbers(args, where)
        if kind(target) == "decimal":
            result = pa.decimal128(MAX_DIGITS, target.scale if by_value is definition.modulo else 0)
            return apply(result, row_by_row(by_value, result), found, where)

        def kernel(left: Datum, right: Datum) -> pa.Array:
            (a, no_a), (b, no_b) = _numpy(left), _numpy(right)
            missing = no_a | no_b | (b == 0)
            overflow = (b == -1) & (a == _LEAST) & ~missing
            if target == pa.int64() and by_value is definition.floor_divide and np.any(overflow):
                raise EvaluationError(f"integer overflow in {where}")
            with np.errstate(all="ignore"):
                return pa.array(function(a, np.where(b == 0, 1, b)), target, mask=missing)

        return apply(target, kernel, found, where)

    return rule


def _numpy(datum: Datum) -> tuple[Any, Any]:
    """Values (nulls as 0) and where the nulls are."""
    if isinstance(datum, pa.Scalar):
        return (datum.as_py() or 0), np.bool_(not datum.is_valid)
    if not datum.null_count:
        return datum.to_numpy(zero_copy_only=False), np.zeros(len(datum), np.bool_)
    filled = datum.fill_null(pa.scalar(0, datum.type))
    return filled.to_numpy(zero_copy_only=False), datum.is_null().to_numpy(zero_copy_only=False)


def _negate(args: Sequence[Compiled], where: str) -> Compiled:
    (arg,) = args
    if arg.kind in ("duration", "decimal"):
        return apply(arg.type, pc.negate_checked, args, where)
    target, found = numbers(args, where)
    return apply(target, pc.negate_checked, found, where)


ARITHMETIC: Final[dict[str, Rule]] = {
    "+": _arithmetic(pc.add_checked, _sum_digits, _add_times),
    "-": _arithmetic(pc.subtract_checked, _sum_digits, _subtract_times),
    "*": _arithmetic(pc.multiply_checked, _product_digits, _multiply_times),
    "/": _divide,
    "//": _floored(np.floor_divide, definition.floor_divide),
    "%": _floored(np.mod, definition.modulo),
    "negate": _negate,
}
