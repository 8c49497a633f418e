"""Values on Spark's side: which payload types both sides carry unchanged, constants, and the terms of a translation.

A **term** is a Spark column that computes an expression, together with the conditions under which the expression has no
value.  Guarantee: the column is null where an operand is null, where the function says so, and where one of the
`failures` is true; it does not raise, unless it is marked as one that does.  So an expression costs one look at its
failures, and only in rows that come out null, however deep it is:
`coalesce(column, CASE WHEN any failure THEN raise_error(…) END)`.  Nothing depends on whether Spark's ANSI mode is on,
nor on the session's time zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from everwhen.algebra.expressions import compute
from everwhen.core.kinds import kind
from everwhen.errors import QueryError

UTC_MICROS: Final = pa.timestamp("us", "UTC")
LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1

_PAIRS: Final[tuple[tuple[pa.DataType, T.DataType], ...]] = (
    (pa.bool_(), T.BooleanType()),
    (pa.int8(), T.ByteType()),
    (pa.int16(), T.ShortType()),
    (pa.int32(), T.IntegerType()),
    (pa.int64(), T.LongType()),
    (pa.float32(), T.FloatType()),
    (pa.float64(), T.DoubleType()),
    (pa.string(), T.StringType()),
    (pa.binary(), T.BinaryType()),
    (pa.date32(), T.DateType()),
    (UTC_MICROS, T.TimestampType()),
    (pa.timestamp("us"), T.TimestampNTZType()),
)


def spark_type(type: pa.DataType) -> T.DataType | None:
    """Spark's type that carries every value of the Arrow type unchanged, None if there is none.

    >>> spark_type(pa.int64()), spark_type(pa.decimal128(10, 2)), spark_type(pa.uint8())
    (LongType(), DecimalType(10,2), None)
    """
    if pa.types.is_decimal128(type):
        return T.DecimalType(type.precision, type.scale) if 0 <= type.scale <= type.precision else None
    return next((spark for arrow, spark in _PAIRS if arrow == type), None)


def carried_type(type: pa.DataType) -> T.DataType | None:
    """Spark's type for a column that is only carried: as `spark_type`, and lists and structures of such.

    >>> carried_type(pa.list_(pa.struct([("a", pa.int64())]))).simpleString()
    'array<struct<a:bigint>>'
    """
    if pa.types.is_list(type):
        item = carried_type(type.value_type)
        return None if item is None else T.ArrayType(item)
    if pa.types.is_struct(type):
        fields = [(field.name, carried_type(field.type)) for field in type]
        found = [T.StructField(name, of) for name, of in fields if of is not None]
        return T.StructType(found) if found and len(found) == len(fields) else None
    return spark_type(type)


def arrow_type(type: T.DataType) -> pa.DataType | None:
    """The Arrow type that carries every value of Spark's type unchanged, None if there is none.

    >>> arrow_type(T.TimestampNTZType()), arrow_type(T.MapType(T.StringType(), T.LongType()))
    (TimestampType(timestamp[us]), None)
    """
    if isinstance(type, T.DecimalType):
        return pa.decimal128(type.precision, type.scale) if 0 <= type.scale <= type.precision else None
    if isinstance(type, T.ArrayType):
        item = arrow_type(type.elementType)
        return None if item is None else pa.list_(item)
    if isinstance(type, T.StructType):
        fields = [(field.name, arrow_type(field.dataType)) for field in type.fields]
        return None if not fields or any(found is None for _, found in fields) else pa.struct(fields)
    return next((arrow for arrow, spark in _PAIRS if spark == type), None)  # text of another collation is unequal


def literal(value: Any, type: pa.DataType) -> Column:
    """A constant of exactly that type; QueryError if Spark does not carry the type or the value is not of it."""
    target = spark_type(type)
    if target is None:
        raise QueryError(f"a constant of type {type} cannot stand in a Spark expression; Spark has no such type")
    try:
        plain = pa.scalar(value, type).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise QueryError(f"{value!r} is not a constant of type {type}") from None
    if plain is None:
        return F.lit(None).cast(target)
    match kind(type):
        case "timestamp" if type.tz is not None:
            return F.timestamp_micros(F.lit((plain - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)))
        case "timestamp" | "date" | "decimal":  # by way of text: no time zone, no old calendar, no other precision
            return F.lit(format(plain, "f") if kind(type) == "decimal" else plain.isoformat()).cast(target)
        case _:
            return F.lit(plain).cast(target)


def as_type(column: Column, type: pa.DataType) -> Column:
    """The column cast to Spark's form of an Arrow type, which must be one that Spark carries."""
    target = spark_type(type)
    assert target is not None, type
    return column.cast(target)


# -- terms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """A column, its Arrow type, and when it fails.  `size` and `checks` count the nodes of the column and of the
    failures; `bounds` are the least and the largest value of an integer, where they are narrower than the type.
    `raises`: the column itself ends the job where it has no value, as parts of CASE, COALESCE, AND and OR must."""

    column: Column
    type: pa.DataType
    failures: tuple[Column, ...] = ()
    size: int = 1
    checks: int = 0
    constant: pa.Scalar | None = None
    bounds: tuple[int, int] | None = None
    raises: bool = False

    @property
    def kind(self) -> str:
        return kind(self.type)

    @property
    def value(self) -> Any:
        """The constant as a Python value; None for a computed term as well as for null."""
        return None if self.constant is None else self.constant.as_py()

    @property
    def is_null(self) -> bool:
        return self.constant is not None and not self.constant.is_valid

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest value of an integer."""
        if self.constant is not None and self.constant.is_valid:
            return self.value, self.value
        bits = self.type.bit_width
        return self.bounds or (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def constant_term(scalar: pa.Scalar) -> Term | None:
    """A constant; of no type if it is an untyped null."""
    if pa.types.is_null(scalar.type):
        return Term(F.lit(None), scalar.type, constant=scalar)
    if spark_type(scalar.type) is None:
        return None
    return Term(literal(scalar.as_py(), scalar.type), scalar.type, constant=scalar)


def strict(
    type_: pa.DataType,
    column: Column,
    args: Sequence[Term],
    *,
    failure: Column | None = None,
    copies: int = 1,
    bounds: tuple[int, int] | None = None,
) -> Term:
    """A term over others, null where one of them is.  `copies`: how often the column holds each argument."""
    below = sum(arg.size for arg in args)
    own = () if failure is None else (failure,)
    return Term(
        column,
        type_,
        tuple(each for arg in args for each in arg.failures) + own,
        1 + copies * below,
        sum(arg.checks for arg in args) + len(own) * (copies + 2) * (below + 1),
        bounds=bounds,
        raises=any(arg.raises for arg in args),
    )


def attempt(type_: pa.DataType, column: Column, args: Sequence[Term], copies: int = 1) -> Term:
    """A term whose column is null, with no argument null, exactly where it fails."""
    present = reduce(lambda a, b: a & b, [arg.column.isNotNull() for arg in args if arg.constant is None])
    return strict(type_, column, args, failure=present & column.isNull(), copies=copies)


def coerce(term: Term, target: pa.DataType) -> Term | None:
    """The term in a type of which its own is a part."""
    if term.type == target:
        return term
    if term.constant is not None:
        widened = compute.coerce(compute.constant(term.constant, ""), target).constant
        return None if widened is None else constant_term(widened)
    match term.kind, kind(target):
        case ("integer" | "float" | "decimal", "float") if target == pa.float64():
            pass
        case ("integer", "integer") if target.bit_width > term.type.bit_width:
            return replace(term, column=as_type(term.column, target), type=target, bounds=term.range)
        case ("integer" | "decimal", "decimal") if _digits(term.type) <= target.precision - target.scale:
            if term.kind == "decimal" and term.type.scale > target.scale:
                return None
        case _:
            return None
    if spark_type(target) is None:
        return None
    return replace(term, column=as_type(term.column, target), type=target, bounds=None)


def _digits(type_: Any) -> int:
    """The digits before the point that values of an integer or decimal type have at most."""
    return type_.precision - type_.scale if kind(type_) == "decimal" else len(str(2 ** (type_.bit_width - 1)))


# -- rules -----------------------------------------------------------------------------------------------------------

Rule = Callable[[Sequence[Term], pa.DataType], Term | None]
"""From arguments, none of them a constant null, and the result's type to a term; None where no column agrees."""


def coerced(args: Sequence[Term], target: pa.DataType) -> list[Term] | None:
    """All arguments in a type of which theirs are parts."""
    found = [coerce(arg, target) for arg in args]
    return None if None in found else [arg for arg in found if arg is not None]


def on(target: pa.DataType | None, build: Callable[[Sequence[Term]], Term | None]) -> Rule:
    """A rule whose arguments are first brought into `target`, or into the result's type."""

    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        found = coerced(args, type_ if target is None else target)
        return None if found is None else build(found)

    return rule


def by_spark(build: Callable[..., Column]) -> Rule:
    """A function that Spark has with the same meaning; its result is cast where Spark's integers are narrower."""

    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        return strict(type_, as_type(build(*columns_of(args)), type_), args)

    return rule


def columns_of(args: Sequence[Term]) -> list[Column]:
    return [arg.column for arg in args]
