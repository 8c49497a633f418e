"""Casts by columns: which type can be cast to which, and the pyarrow kernels that do it as `definition.cast` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, Datum, Kernel, apply, coerce, decimal_to_float
from everwhen.algebra.expressions.definition import TIME_OF_DAY
from everwhen.core.kinds import MAX_DIGITS, UNITS, finer, kind
from everwhen.errors import QueryError

_NUMBERS: Final = frozenset({"integer", "float", "decimal"})
_FROM: Final[dict[str, frozenset[str]]] = {
    "integer": _NUMBERS | {"boolean", "string"},
    "float": _NUMBERS | {"boolean", "string"},
    "decimal": _NUMBERS | {"string"},
    "boolean": frozenset({"boolean", "integer", "float", "string"}),
    "string": _NUMBERS | {"boolean", "string", "date", "timestamp", "time"},
    "timestamp": frozenset({"timestamp", "date", "integer", "string"}),
    "date": frozenset({"date", "timestamp", "string"}),
    "duration": frozenset({"duration", "integer"}),
    "binary": frozenset({"binary"}),
    "time": frozenset({"time", "string", "timestamp"}),
}
_SPELLED: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
_LAST_ZEROS: Final = r"(\.\d*[1-9])0+$|\.0+$"


def compile_cast(arg: Compiled, target: pa.DataType, where: str) -> Compiled:
    """`arg` in the type `target`; QueryError if no cast leads there."""
    if arg.type == target:
        return arg
    if arg.kind == "null":
        return coerce(arg, target)
    to = kind(target)
    if arg.kind not in _FROM.get(to, ()) or (to == "timestamp" and not _same_zone(arg.type, target)):
        raise QueryError(f"{arg.text} of type {arg.type} cannot be cast to {target}" + _remedy(arg.kind, to))
    return apply(target, _kernel(arg.type, target), [arg], where)


def _same_zone(source: Any, target: Any) -> bool:
    return kind(source) == "integer" or getattr(source, "tz", None) == target.tz


def _remedy(source: str, target: str) -> str:
    if (source, target) == ("timestamp", "integer"):
        return "; use epoch_ms"
    known = sorted(name for name, sources in _FROM.items() if source in sources and name != source)
    return f"; it can be cast to {', '.join(known)}" if known else ""


def _plain(target: pa.DataType, *, safe: bool = True) -> Callable[[Datum], Datum]:
    options = pc.CastOptions(target_type=target) if safe else pc.CastOptions.unsafe(target)
    return lambda datum: pc.cast(datum, options=options)


def _kernel(source: Any, target: Any) -> Kernel:
    match kind(source), kind(target):
        case "float" | "decimal", "integer":
            cut = _plain(target)
            return lambda datum: cut(pc.trunc(datum))
        case "integer" | "decimal" | "string" as given, "float":  # rounded as the definition does, by way of float64
            double = decimal_to_float(source) if given == "decimal" else _plain(pa.float64(), safe=False)
            plain = _plain(target, safe=False)
            return double if target == pa.float64() else lambda datum: plain(double(datum))
        case "string", "integer":
            return _whole_number(target)
        case "float" | "decimal" | "integer" | "string", "decimal":
            return _to_decimal(source, target)
        case "timestamp", "string":
            micros, plain = _plain(pa.timestamp("us")), _plain(target)
            return lambda datum: pc.replace_substring_regex(plain(micros(datum)), _LAST_ZEROS, r"\1")
        case "time", "string":
            micros, plain = _plain(pa.time64("us")), _plain(target)
            return lambda datum: pc.replace_substring_regex(plain(micros(datum)), _LAST_ZEROS, r"\1")
        case "string", "time":
            return _time_of_day(target)
        case "timestamp", "time":
            day = _coarser(source, pa.timestamp("us")) if source.unit == "ns" else _plain(pa.timestamp("us"))
            plain = _plain(target)
            return lambda datum: plain(day(datum))
        case ("timestamp", "timestamp") | ("duration", "duration") if finer(source, target) != target.unit:
            return _coarser(source, target)
        case "string", "timestamp" if target.tz is None:
            return _moment(target)
        case "integer", "timestamp" | "duration":
            wide, plain = _plain(pa.int64()), _plain(target)
            return lambda datum: plain(wide(datum))
        case _:
            return _plain(target)


def _whole_number(target: Any) -> Kernel:
    """Digits with a sign; pyarrow would also read 0x1F, which is left to the definition to refuse."""
    plain = _plain(target)

    def kernel(datum: Datum) -> Datum:
        if pc.any(pc.match_substring(datum, "x", ignore_case=True)).as_py():
            raise pa.ArrowInvalid("not a decimal number")
        return plain(datum)

    return kernel


def _moment(target: Any) -> Kernel:
    """Text as a timestamp in UTC; where some texts have a zone and some have none, the definition reads them."""
    plain, zoned = _plain(target), _plain(pa.timestamp(target.unit, "UTC"))
    number = _plain(pa.int64())

    def kernel(datum: Datum) -> Datum:
        try:
            return plain(datum)
        except pa.ArrowInvalid:
            return plain(number(zoned(datum)))

    return kernel


def _time_of_day(target: Any) -> Kernel:
    """12:30, 12:30:15, 12:30:15.25; read as a time of the first day."""
    first, plain = _plain(pa.timestamp("us")), _plain(target)

    def kernel(datum: Datum) -> Datum:
        if not pc.all(pc.match_substring_regex(datum, TIME_OF_DAY)).as_py():
            raise pa.ArrowInvalid("not a time of day")
        return plain(first(pc.binary_join_element_wise("1970-01-01", datum, " ")))

    return kernel


def _to_decimal(source: Any, target: Any) -> Kernel:
    """Exact where it can be, else rounded half away from zero; checked against the target's digits."""
    last = _plain(target)
    match kind(source):
        case "integer":
            first = _plain(pa.decimal256(20 + target.scale, target.scale))
            return lambda datum: last(first(datum))
        case "decimal" if source.scale <= target.scale:
            return last
        case "decimal":  # rounding may need one more digit than the source has
            first = _plain(pa.decimal256(min(76, source.precision + 1), source.scale))
        case "string":
            first = _plain(pa.decimal256(76, MAX_DIGITS))
        case _:
            first = _plain(source)
    return lambda datum: last(pc.round(first(datum), ndigits=target.scale, round_mode="half_towards_infinity"))


def _coarser(source: Any, target: Any) -> Kernel:
    """A time in a coarser unit, rounded down also before 1970."""
    plain = _plain(target)
    if kind(source) == "timestamp":
        unit = _SPELLED[target.unit]
        return lambda datum: plain(pc.floor_temporal(datum, unit=unit))
    ratio = pa.scalar(1000 ** (UNITS.index(source.unit) - UNITS.index(target.unit)), pa.int64())
    number = _plain(pa.int64())

    def kernel(datum: Datum) -> Datum:
        count = number(datum)
        quotient = pc.divide(count, ratio)
        cut_up = pc.cast(pc.greater(pc.multiply(quotient, ratio), count), pa.int64())
        return plain(pc.subtract(quotient, cut_up))

    return kernel
