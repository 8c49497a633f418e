"""Numbers as Spark columns: arithmetic, comparisons, rounding.

Floats are computed with IEEE's basic operations only, in the order in which the algebra's kernels do it, so that every
bit agrees.  Integers are checked for overflow unless their bounds rule it out.  Decimals are exact, or left to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen.core.kinds import MAX_DIGITS, as_decimal, common, decimal, kind
from everwhen.spark.translate.terms import (
    LEAST,
    MOST,
    Rule,
    Term,
    as_type,
    attempt,
    by_spark,
    coerce,
    coerced,
    columns_of,
    literal,
    on,
    strict,
)

# -- arithmetic ------------------------------------------------------------------------------------------------------

_PLAIN: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_TRY: Final[dict[str, Callable[[Column, Column], Column]]] = {
    "+": F.try_add,
    "-": F.try_subtract,
    "*": F.try_multiply,
}


def _arithmetic(symbol: str) -> Rule:
    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        match kind(type_):
            case "integer":
                return on(None, lambda found: _integers(symbol, found))(args, type_)
            case "float":
                return on(None, lambda found: strict(type_, _PLAIN[symbol](*columns_of(found)), found))(args, type_)
            case "decimal":
                return _decimals(symbol, args, type_)
            case _:
                return None

    return rule


def _integers(symbol: str, args: Sequence[Term]) -> Term:
    """Where the operands' bounds rule an overflow out, nothing is checked."""
    (a, b), plain = args, _PLAIN[symbol]
    corners = [plain(x, y) for x in a.range for y in b.range]
    bounds = (min(corners), max(corners))
    if bounds[0] >= LEAST and bounds[1] <= MOST:
        return strict(pa.int64(), plain(a.column, b.column), args, bounds=bounds)
    return attempt(pa.int64(), _TRY[symbol](a.column, b.column), args)


def _decimals(symbol: str, args: Sequence[Term], type_: Any) -> Term | None:
    """Exact where all digits have room; else Spark would cut digits off that the algebra keeps."""
    (d1, s1), (d2, s2) = (as_decimal(arg.type) for arg in args)
    digits = d1 + d2 + 1 + s1 + s2 if symbol == "*" else max(d1, d2) + 1 + max(s1, s2)
    found = [coerce(arg, decimal(d, s)) for arg, d, s in zip(args, (d1, d2), (s1, s2), strict=True)]
    a, b = found
    if digits > MAX_DIGITS or a is None or b is None:
        return None
    return strict(type_, as_type(_PLAIN[symbol](a.column, b.column), type_), args)


def _floor_divide(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    """Integers only: NumPy's steps for floats come to thirty copies of the operands."""
    if kind(type_) != "integer":
        return None
    return on(None, lambda found: _floor_divide_integers(*found))(args, type_)


def _floor_divide_integers(a: Term, b: Term) -> Term:
    x, y = a.column, b.column
    down = F.when(_signs_differ(F.try_mod(x, y), y), F.lit(1)).otherwise(F.lit(0))
    impossible = (x == LEAST) & (y == -1)
    no_overflow = a.range[0] > LEAST or (b.constant is not None and b.value != -1)
    defined = y != 0 if no_overflow else (y != 0) & ~impossible
    quotient = F.when(defined, F.call_function("div", x, y) - down)
    return strict(pa.int64(), quotient, [a, b], failure=None if no_overflow else impossible, copies=5)


def _signs_differ(remainder: Column, divisor: Column) -> Column:
    return (remainder != 0) & ((remainder < 0) != (divisor < 0))


def _modulo(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    match kind(type_):
        case "integer":
            return on(None, lambda found: _modulo_integers(*found))(args, type_)
        case "float":
            return on(None, lambda found: _modulo_floats(*found))(args, type_)
        case _:
            return None


def _modulo_integers(a: Term, b: Term) -> Term:
    x, y = a.column, b.column
    if b.constant is not None and b.value > 0:
        return strict(pa.int64(), F.pmod(x, y), [a, b], bounds=(0, b.value - 1))
    remainder = F.try_mod(x, y)
    return strict(pa.int64(), F.when(_signs_differ(remainder, y), remainder + y).otherwise(remainder), [a, b], copies=4)


def _modulo_floats(a: Term, b: Term) -> Term:
    x, y = a.column, b.column
    remainder = F.try_mod(x, y)
    zero = F.when(y < 0, F.lit(-0.0)).otherwise(F.lit(0.0))
    column = F.when(remainder == 0, zero).when((remainder < 0) != (y < 0), remainder + y).otherwise(remainder)
    return strict(pa.float64(), column, [a, b], copies=5)


def _of_number(build: Callable[[Term, pa.DataType], Term | None]) -> Rule:
    """A function of one number: integers are computed in int64, floats in float64, decimals in their own type."""

    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        (arg,) = args
        wide = {"integer": pa.int64(), "float": pa.float64()}.get(arg.kind, arg.type)
        found = coerce(arg, wide)
        return None if found is None else build(found, type_)

    return rule


def _negate(arg: Term, type_: pa.DataType) -> Term | None:
    args = [arg]
    if kind(type_) == "integer":
        low, high = arg.range
        if low == LEAST:
            return attempt(type_, F.try_subtract(literal(0, pa.int64()), arg.column), args)
        return strict(type_, -arg.column, args, bounds=(-high, -low))
    return strict(type_, as_type(-arg.column, type_), args) if kind(type_) in ("float", "decimal") else None


# -- comparisons -----------------------------------------------------------------------------------------------------


def compared(symbol: str, a: Term, b: Term) -> Term | None:
    """A comparison in the common type, if Spark has it."""
    found = coerced([a, b], common(a.type, b.type, symbol, wide=True))
    return None if found is None else strict(pa.bool_(), COMPARISONS[symbol](found[0].column, found[1].column), found)


COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compare(symbol: str) -> Rule:
    return lambda args, _: compared(symbol, *args)


# -- functions -------------------------------------------------------------------------------------------------------


def _abs(arg: Term, type_: pa.DataType) -> Term | None:
    args = [arg]
    if kind(type_) != "integer":
        return strict(type_, as_type(F.abs(arg.column), type_), args) if kind(type_) in ("float", "decimal") else None
    low, high = arg.range
    if low == LEAST:
        return attempt(type_, F.when(arg.column != LEAST, F.abs(arg.column)), args, copies=2)
    return strict(type_, F.abs(arg.column), args, bounds=(0, max(-low, high)))


def _sign(arg: Term, type_: pa.DataType) -> Term | None:
    args, column = [arg], arg.column
    if kind(type_) == "float":
        return strict(type_, F.signum(column), args)
    one, zero, minus = (literal(n, pa.int64()) for n in (1, 0, -1))
    return strict(type_, F.when(column > 0, one).when(column < 0, minus).when(column == 0, zero), args, copies=3)


def _floor(x: Column) -> Column:
    """The floor of a float, as a float of any size; Spark's own gives 64-bit integers."""
    nearest = F.rint(x)
    return F.when(nearest > x, nearest - 1.0).otherwise(nearest)


def _ceil(x: Column) -> Column:
    nearest = F.rint(x)
    return F.when(nearest < x, nearest + 1.0).otherwise(nearest)


def _trunc(x: Column) -> Column:
    return F.when(x >= 0, _floor(x)).otherwise(_ceil(x))


def _whole(on_float: Callable[[Column], Column], on_decimal: Callable[[Column], Column]) -> Rule:
    def build(arg: Term, type_: pa.DataType) -> Term | None:
        match kind(type_):
            case "integer":
                return arg
            case "float":
                return strict(type_, on_float(arg.column), [arg], copies=9)
            case "decimal" if arg.type.precision < MAX_DIGITS:  # rounding may need one digit more
                return strict(type_, as_type(on_decimal(arg.column), type_), [arg], copies=3)
            case _:
                return None

    return _of_number(build)


def _round(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    arg, digits = args[0], args[1].value if len(args) == 2 else 0
    match kind(type_):
        case "integer" if digits >= 0:
            return coerce(arg, type_)
        case "float":
            found = coerce(arg, type_)
            return None if found is None else _round_float(found, digits)
        case "decimal" if arg.type.precision < MAX_DIGITS:
            return strict(type_, as_type(F.round(arg.column, digits), type_), args[:1])
        case _:
            return None


def _round_float(arg: Term, digits: int) -> Term:
    """Scaled by the power of ten, rounded half away from zero, scaled back; what is whole already stays as it is."""
    x, power = arg.column, F.lit(10.0 ** abs(digits))
    scaled = x if digits == 0 else x * power if digits > 0 else F.try_divide(x, power)
    nearest = F.rint(scaled)
    away = F.when(scaled > 0, scaled + 0.5).otherwise(scaled - 0.5)
    rounded = F.when(F.abs(scaled - nearest) == 0.5, away).otherwise(nearest)
    if digits <= 0:
        return strict(pa.float64(), rounded if digits == 0 else rounded * power, [arg], copies=6)
    whole = (nearest == scaled) | (F.abs(scaled) == F.lit(float("inf")))  # too large to scale: whole all the more
    return strict(pa.float64(), F.when(whole, x).otherwise(F.try_divide(rounded, power)), [arg], copies=10)


_FLOAT: Final = pa.float64()
NUMBER_RULES: Final[dict[str, Rule]] = {
    **{symbol: _compare(symbol) for symbol in COMPARISONS},
    **{symbol: _arithmetic(symbol) for symbol in _PLAIN},
    "/": on(_FLOAT, lambda args: strict(_FLOAT, F.try_divide(*columns_of(args)), args)),
    "//": _floor_divide,
    "%": _modulo,
    "negate": _of_number(_negate),
    "not": by_spark(lambda a: ~a),
    "try_add": on(pa.int64(), lambda args: strict(pa.int64(), F.try_add(*columns_of(args)), args)),
    "try_subtract": on(pa.int64(), lambda args: strict(pa.int64(), F.try_subtract(*columns_of(args)), args)),
    "abs": _of_number(_abs),
    "sign": _of_number(_sign),
    "floor": _whole(_floor, F.floor),
    "ceil": _whole(_ceil, F.ceil),
    "trunc": _whole(_trunc, lambda x: F.when(x >= 0, F.floor(x)).otherwise(F.ceil(x))),
    "round": _round,
    "sqrt": on(_FLOAT, lambda args: strict(_FLOAT, F.sqrt(args[0].column), args)),
}
