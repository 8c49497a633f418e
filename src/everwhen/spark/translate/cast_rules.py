"""Casts as Spark columns, where Spark's cast, or a guarded form of it, means what `definition.cast` says.

Not here, because the two sides read or write other texts: text to floats, decimals and times, floats to text, decimals
with more than six digits after the point to text (Spark's form depends on its ANSI mode); because they round otherwise:
floats to decimals; and integers to timestamps without a zone, which Spark cannot count in microseconds.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import functions as F

from everwhen.core.kinds import kind
from everwhen.spark.translate.terms import UTC_MICROS, Term, as_type, attempt, spark_type, strict
from everwhen.spark.translate.time_rules import day_of

_PLAIN_DECIMALS = 6  # up to here Spark writes a decimal without an exponent in every mode


def cast(arg: Term, target: pa.DataType) -> Term | None:
    """The argument, which is no constant, in the type `target`."""
    if arg.type == target:
        return arg
    wanted = spark_type(target)
    if wanted is None:
        return None
    plain = strict(target, arg.column.cast(wanted), [arg])
    match arg.kind, kind(target):
        case "integer", "integer":
            return _narrowed(arg, target)
        case "float", "integer":
            return _cut(arg, target)
        case "decimal", "integer":
            return attempt(target, arg.column.try_cast(wanted), [arg])
        case "string", "integer":
            numeral = F.rlike(arg.column, F.lit(r"\A-?[0-9]+\z"))
            return attempt(target, F.when(numeral, arg.column.try_cast(wanted)), [arg], copies=2)
        case "boolean", "integer" | "float":
            return plain
        case "integer" | "float" | "decimal", "float":  # by way of float64, as the algebra does
            return strict(target, as_type(as_type(arg.column, pa.float64()), target), [arg])
        case "integer" | "decimal", "decimal":
            return attempt(target, arg.column.try_cast(wanted), [arg])
        case "integer" | "float", "boolean":
            return strict(target, arg.column != 0, [arg])
        case "string", "boolean":
            lower = F.lower(arg.column)
            truth = F.when(lower.isin("true", "1"), F.lit(True)).when(lower.isin("false", "0"), F.lit(False))
            return attempt(target, truth, [arg], copies=2)
        case "integer" | "boolean" | "date", "string":
            return plain
        case "decimal", "string":
            return plain if arg.type.scale <= _PLAIN_DECIMALS else None
        case "timestamp", "string":
            return None if arg.type == UTC_MICROS else plain
        case "timestamp", "date":
            return strict(target, day_of(arg), [arg], copies=2)
        case "date", "timestamp":
            return None if target == UTC_MICROS else plain
        case "integer", "timestamp":
            micros = as_type(arg.column, pa.int64())
            return strict(target, F.timestamp_micros(micros), [arg]) if target == UTC_MICROS else None
        case _:
            return None


def _narrowed(arg: Term, target: pa.DataType) -> Term:
    (low, high), most = arg.range, 2 ** (target.bit_width - 1) - 1
    if -most - 1 <= low and high <= most:
        return strict(target, as_type(arg.column, target), [arg], bounds=(low, high))
    return attempt(target, arg.column.try_cast(_spark(target)), [arg])


def _cut(arg: Term, target: pa.DataType) -> Term:
    """A float without its fraction.  Spark's own cast lets 2**63 pass as 2**63 - 1."""
    x, beyond = as_type(arg.column, pa.float64()), 2.0 ** (target.bit_width - 1)
    above = x >= -beyond if target == pa.int64() else x > -beyond - 1.0
    return attempt(target, F.when(above & (x < beyond), x.cast(_spark(target))), [arg], copies=3)


def _spark(type_: pa.DataType) -> str:
    found = spark_type(type_)
    assert found is not None, type_
    return found.simpleString()
