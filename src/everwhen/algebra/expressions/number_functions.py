"""Scalar functions of numbers.  Rounding is half away from zero, as SQL does; outside a function's domain is NaN."""

from __future__ import annotations

import decimal as decimals
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions import definition
from everwhen.algebra.expressions.arithmetic import numbers
from everwhen.algebra.expressions.compute import Compiled, Kernel, Rule, apply, coerce
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require
from everwhen.core.kinds import MAX_DIGITS, kind

_MAX_ROUND: Final = 15


def _abs(args: Sequence[Compiled], where: str) -> Compiled:
    if args[0].kind in ("decimal", "duration"):
        return apply(args[0].type, pc.abs_checked, args, where)
    target, found = numbers(args, where)
    return apply(target, pc.abs_checked, found, where)


def _sign(args: Sequence[Compiled], where: str) -> Compiled:
    target, found = numbers(args, where)
    if kind(target) == "float":
        return apply(target, pc.sign, found, where)
    options = pc.CastOptions(target_type=pa.int64())
    return apply(pa.int64(), lambda x: pc.cast(pc.sign(x), options=options), found, where)


def _whole(kernel: Kernel) -> Rule:
    """floor, ceil, trunc: integers stay, floats stay floats, decimals keep their scale."""

    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        target, found = numbers(args, where)
        match kind(target):
            case "integer":
                return found[0]
            case "float":
                return apply(target, kernel, found, where)
            case _:
                return _decimal_rounding(kernel, args[0], where)

    return rule


def _decimal_rounding(kernel: Kernel, arg: Compiled, where: str, whole_digits: int = 0) -> Compiled:
    """Rounding may need one digit more than the type has, and room for the power of ten to which it rounds."""
    precision, scale = arg.type.precision, arg.type.scale
    target = pa.decimal128(min(precision + 1, MAX_DIGITS), scale)
    narrow = pc.CastOptions(target_type=target)
    wide = coerce(arg, pa.decimal256(max(precision, whole_digits + scale) + 1, scale))
    return apply(target, lambda x: pc.cast(kernel(x), options=narrow), [wide], where)


def _round(args: Sequence[Compiled], where: str) -> Compiled:
    digits = 0
    if len(args) == 2:
        wanted = f"a whole number of digits from -{_MAX_ROUND} to {_MAX_ROUND}"
        require(args[1:], where, wanted, "integer")
        digits = constant_value(args[1], where, wanted, lambda n: abs(n) <= _MAX_ROUND)
    target, found = numbers(args[:1], where)
    options = pc.RoundOptions(digits, "half_towards_infinity")

    def kernel(x: Any) -> Any:
        return pc.call_function("round", [x], options)

    match kind(target):
        case "float" if digits < 0:
            return apply(target, _round_to_powers(-digits), found, where)
        case "float" if digits > 0:
            return apply(target, _round_to_places(digits), found, where)
        case "integer" if digits >= 0:
            return found[0]
        case "decimal":
            return _decimal_rounding(kernel, args[0], where, max(-digits, 0))
        case _:
            return apply(target, kernel, found, where)


def _round_to_powers(exponent: int) -> Kernel:
    """Floats to multiples of a power of ten; pyarrow's kernel takes that power in single precision."""
    power, options = pa.scalar(10.0**exponent), pc.RoundOptions(0, "half_towards_infinity")
    return lambda x: pc.multiply(pc.call_function("round", [pc.divide(x, power)], options), power)


def _round_to_places(digits: int) -> Kernel:
    """Floats to places behind the point; what is whole after scaling stays as it is."""
    power, options = pa.scalar(10.0**digits), pc.RoundOptions(0, "half_towards_infinity")

    def kernel(x: Any) -> Any:
        scaled = pc.multiply(x, power)
        nearest = pc.call_function("round", [scaled], options)
        whole = pc.or_(pc.equal(scaled, nearest), pc.invert(pc.is_finite(scaled)))
        return pc.if_else(whole, x, pc.divide(nearest, power))

    return kernel


def round_value(x: Any, digits: int = 0) -> Any:
    """Half away from zero."""
    if isinstance(x, int):
        unit = 10 ** max(-digits, 0)
        rounded = (abs(x) + unit // 2) // unit * unit
        return definition.integer(rounded if x >= 0 else -rounded)
    if isinstance(x, Decimal):
        rounded_decimal = x.quantize(Decimal(1).scaleb(-digits), decimals.ROUND_HALF_UP, definition.EXACT)
        return definition.exact(rounded_decimal.quantize(x, context=definition.EXACT) if x else x)
    return definition.round_float(x, digits)


def _float_function(kernel: Kernel, count: int = 1) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        require(args, where, "numbers", "integer", "float", "decimal")
        return apply(pa.float64(), kernel, [coerce(arg, pa.float64()) for arg in args[:count]], where)

    return rule


def _of_floats(function: Callable[..., float]) -> Callable[..., float]:
    """Outside the domain NaN, beyond the largest float infinity."""

    def value(*args: Any) -> float:
        try:
            return function(*map(float, args))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return value


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: -math.inf if x == 0 else function(x)


def _power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        odd = exponent.is_integer() and exponent % 2 == 1
        return math.copysign(math.inf, base) if odd else math.inf
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf if base > 0 or exponent % 2 == 0 else -math.inf


def _whole_value(on_float: Callable[[float], int], rounding: str) -> Callable[[Any], Any]:
    def value(x: Any) -> Any:
        if isinstance(x, Decimal):
            whole = x.to_integral_value(rounding, definition.EXACT)
            return definition.exact(whole.quantize(x, context=definition.EXACT))
        return x if isinstance(x, int) or not math.isfinite(x) else float(on_float(x))

    return value


def _sign_value(x: Any) -> Any:
    if isinstance(x, float):
        return x if math.isnan(x) else float((x > 0) - (x < 0))
    return (x > 0) - (x < 0)


def _unless_overflow(kernel: Kernel, overflows: Callable[[Any, Any, Any], Any]) -> Rule:
    """A sum or difference of integers, null where it does not fit.  Arrow's own goes round."""
    nothing, zero = pa.scalar(None, pa.int64()), pa.scalar(0, pa.int64())

    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        require(args, where, "integers", "integer")
        _, found = numbers(args, where)

        def unless(a: Any, b: Any) -> Any:
            result = kernel(a, b)
            return pc.if_else(pc.less(overflows(a, b, result), zero), nothing, result)

        return apply(pa.int64(), unless, found, where)

    return rule


def _if_it_fits(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


_TRY_ADD: Final = _unless_overflow(
    pc.add, lambda a, b, c: pc.bit_wise_and(pc.bit_wise_xor(a, c), pc.bit_wise_xor(b, c))
)
_TRY_SUBTRACT: Final = _unless_overflow(
    pc.subtract, lambda a, b, c: pc.bit_wise_and(pc.bit_wise_xor(a, b), pc.bit_wise_xor(a, c))
)

NUMBER_FUNCTIONS: Final = (
    ScalarFunction("try_add(x, y)", _TRY_ADD, lambda a, b: _if_it_fits(a + b), 2, 2),
    ScalarFunction("try_subtract(x, y)", _TRY_SUBTRACT, lambda a, b: _if_it_fits(a - b), 2, 2),
    ScalarFunction("abs(x)", _abs, definition.absolute),
    ScalarFunction("sign(x)", _sign, _sign_value),
    ScalarFunction("round(x [, digits])", _round, round_value, 1, 2),
    ScalarFunction("floor(x)", _whole(pc.floor), _whole_value(math.floor, decimals.ROUND_FLOOR)),
    ScalarFunction("ceil(x)", _whole(pc.ceil), _whole_value(math.ceil, decimals.ROUND_CEILING)),
    ScalarFunction("trunc(x)", _whole(pc.trunc), _whole_value(math.trunc, decimals.ROUND_DOWN)),
    ScalarFunction("sqrt(x)", _float_function(pc.sqrt), _of_floats(math.sqrt)),
    ScalarFunction("exp(x)", _float_function(pc.exp), _of_floats(math.exp)),
    ScalarFunction("ln(x)", _float_function(pc.ln), _of_floats(_logarithm(math.log))),
    ScalarFunction("log10(x)", _float_function(pc.log10), _of_floats(_logarithm(math.log10))),
    ScalarFunction("power(x, exponent)", _float_function(pc.power, 2), _of_floats(_power), 2, 2),
)
