"""What operators and casts mean, value by value, in plain Python: the yardstick for the columnar kernels.

Nothing here uses pyarrow's compute functions.  Arguments are never null; the null rules stand with the expressions.
Integers are 64-bit and never wrap round; NaN equals NaN and is greater than every number; division by zero is null;
`//` and `%` are the mathematical floor and what it leaves, also for negative numbers (semantics, decision 19).
Times are Python's, so the years 1 to 9999: beyond them a value has no definition, though a column could hold it.
"""

from __future__ import annotations

import decimal as decimals
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from everwhen.core.kinds import MAX_DIGITS, kind
from everwhen.errors import EvaluationError

EXACT: Final = decimals.Context(prec=160, rounding=decimals.ROUND_HALF_UP, Emin=-999, Emax=999)
EPOCH: Final = datetime(1970, 1, 1)
_UNIT: Final = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1), "us": timedelta(microseconds=1)}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
TIME_OF_DAY: Final = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?$"
"""How a time of day is written."""


def integer(value: int) -> int:
    """A result that must fit into int64."""
    if not -(2**63) <= value < 2**63:
        raise EvaluationError(f"integer overflow: {value} exceeds 64 bits; cast to decimal(38, 0) or float64 first")
    return value


def exact(value: Decimal) -> Decimal:
    """A decimal result that must fit into 38 digits."""
    if len(value.as_tuple().digits) > MAX_DIGITS:
        raise EvaluationError(f"decimal overflow: {value} needs more than {MAX_DIGITS} digits; cast to float64 first")
    return value or value.copy_abs()  # Python has a negative zero, columns of decimals have not


def _arithmetic(
    on_numbers: Callable[[Any, Any], Any], on_decimals: Callable[[Decimal, Decimal], Decimal]
) -> Callable[[Any, Any], Any]:
    def calculate(a: Any, b: Any) -> Any:
        try:
            if isinstance(a, float) or isinstance(b, float):
                return on_numbers(float(a), float(b))
            if isinstance(a, int) and isinstance(b, int):
                return integer(on_numbers(a, b))
            if isinstance(a, Decimal) or isinstance(b, Decimal):
                return exact(on_decimals(Decimal(a), Decimal(b)))
            return on_numbers(a, b)
        except OverflowError:
            raise EvaluationError(f"{a} and {b} give a time out of range") from None

    return calculate


add: Final = _arithmetic(lambda a, b: a + b, EXACT.add)
subtract: Final = _arithmetic(lambda a, b: a - b, EXACT.subtract)
multiply: Final = _arithmetic(lambda a, b: a * b, EXACT.multiply)
_floor_divide: Final = _arithmetic(lambda a, b: a // b, lambda a, b: _floor(EXACT.divide(a, b)))
_modulo: Final = _arithmetic(
    lambda a, b: a % b, lambda a, b: EXACT.subtract(a, EXACT.multiply(b, _floor(EXACT.divide(a, b))))
)


def _floor(value: Decimal) -> Decimal:
    return value.to_integral_value(decimals.ROUND_FLOOR, EXACT)


def divide(a: Any, b: Any) -> float | None:
    """True division in float64; by zero it is null."""
    numerator, denominator = float(a), float(b)
    return None if denominator == 0 else numerator / denominator


def floor_divide(a: Any, b: Any) -> Any:
    return None if b == 0 else _floor_divide(a, b)


def modulo(a: Any, b: Any) -> Any:
    return None if b == 0 else _modulo(a, b)


def negate(a: Any) -> Any:
    if isinstance(a, Decimal):
        return EXACT.minus(a)  # a bare minus sign would round to 28 digits
    return integer(-a) if isinstance(a, int) else -a


def absolute(a: Any) -> Any:
    if isinstance(a, Decimal):
        return EXACT.abs(a)
    return integer(abs(a)) if isinstance(a, int) else abs(a)


def round_float(x: float, digits: int) -> float:
    """Half away from zero, after scaling by a power of ten, then scaled back: 0.15 is a tie though the float is not."""
    if not math.isfinite(x):
        return x
    power = 10.0 ** abs(digits)
    scaled = x * power if digits >= 0 else x / power
    if not math.isfinite(scaled):
        return x  # so large that it is whole
    if scaled == math.floor(scaled):
        return x if digits >= 0 else scaled * power
    below = math.floor(abs(scaled))
    nearest = math.copysign(below + 1.0 if abs(scaled) - below >= 0.5 else float(below), x)
    return nearest / power if digits > 0 else nearest * power


def compare(a: Any, b: Any) -> int:
    """-1, 0 or 1; NaN is equal to itself and above every number."""
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) - math.isnan(b)
    return int(a > b) - int(a < b)


def order_key(value: Any) -> Any:
    """A sort key that orders values of one type as `compare` does."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def null_first_key(value: Any) -> Any:
    """As `order_key`, with nulls before everything."""
    return (0,) if value is None else (1, *order_key(value))


# -- casts -------------------------------------------------------------------------------------------------------------


def cast(value: Any, target: pa.DataType) -> Any:
    """The value in another type; fractions are cut for integers and rounded half away from zero for decimals."""
    try:
        match kind(target):
            case "integer":
                return _to_integer(value, target)
            case "float":
                return _to_float(value, target)
            case "decimal":
                return _to_decimal(value, target)
            case "boolean":
                return _to_boolean(value)
            case "string":
                return text(value)
            case "timestamp":
                return _to_timestamp(value, target)
            case "date":
                return value.date() if isinstance(value, datetime) else _parse(value, date.fromisoformat, date)
            case "time":
                return _to_time(value)
            case "duration":
                return _floor_unit(value * _UNIT[target.unit] if isinstance(value, int) else value, target.unit)
            case _:
                return value
    except (ValueError, OverflowError, ArithmeticError, struct.error):
        raise EvaluationError(f"{value!r} cannot be cast to {target}") from None


def _to_integer(value: Any, target: pa.DataType) -> int:
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+", value):
        raise ValueError(value)
    result = math.trunc(value) if isinstance(value, float | Decimal) else int(value)
    bits = target.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if pa.types.is_signed_integer(target) else (0, 2**bits)
    if not low <= result < high:
        raise OverflowError(result)
    return result


def _to_float(value: Any, target: pa.DataType) -> float:
    result = float(value)
    if target == pa.float32() and math.isfinite(result):
        try:
            return float(struct.unpack("f", struct.pack("f", result))[0])
        except OverflowError:
            return math.copysign(math.inf, result)
    return result


def _to_decimal(value: Any, target: Any) -> Decimal:
    number = Decimal(round_float(value, target.scale) if isinstance(value, float) else value)
    if not number.is_finite():
        raise ValueError(value)
    rounded = number.quantize(Decimal(1).scaleb(-target.scale), decimals.ROUND_HALF_UP, EXACT)
    if rounded and rounded.adjusted() + target.scale >= target.precision:
        raise OverflowError(value)
    return rounded or rounded.copy_abs()


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value != 0)
    truth = {"true": True, "1": True, "false": False, "0": False}.get(value.lower())
    if truth is None:
        raise ValueError(value)
    return truth


def _to_timestamp(value: Any, target: Any) -> datetime:
    if isinstance(value, int):
        zero = EPOCH if target.tz is None else EPOCH.replace(tzinfo=UTC)
        return zero + value * _UNIT[target.unit]
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
        if value.tzinfo is not None:  # a zone is applied at once: without one a timestamp is in UTC
            value = value.astimezone(UTC).replace(tzinfo=target.tz and UTC)
    elif not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    size = _MICROSECONDS.get(target.unit, 1)
    moment: datetime = value
    return moment.replace(microsecond=moment.microsecond - moment.microsecond % size)


def _to_time(value: Any) -> time:
    if isinstance(value, str):
        if not re.fullmatch(TIME_OF_DAY, value):
            raise ValueError(value)
        return time.fromisoformat(value)
    return value.time() if isinstance(value, datetime) else value


def _parse(value: Any, parse: Callable[[str], Any], already: type) -> Any:
    return value if isinstance(value, already) else parse(value)


def _floor_unit(value: timedelta, unit: str) -> timedelta:
    size = _UNIT.get(unit, timedelta.resolution)
    return value // size * size


def text(value: Any) -> str:
    """A value as text: numbers in their shortest form, times without needless zeros.

    >>> text(2.0), text(1e20), text(True), text(datetime(2024, 1, 2, 3))
    ('2', '1e+20', 'true', '2024-01-02 03:00:00')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        whole = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
        return f"{whole}.{value.microsecond:06}".rstrip("0") if value.microsecond else whole
    if isinstance(value, time):
        return f"{value:%H:%M:%S}.{value.microsecond:06}".rstrip("0") if value.microsecond else f"{value:%H:%M:%S}"
    return value.isoformat() if isinstance(value, date) else str(value)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    sign = "-" if math.copysign(1, value) < 0 else ""
    shortest = Decimal(repr(abs(value))).normalize()
    if not shortest or -7 < shortest.adjusted() < 10:
        return sign + format(shortest, "f")
    digits = "".join(map(str, shortest.as_tuple().digits))
    return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{shortest.adjusted():+}"
