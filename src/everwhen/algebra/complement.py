"""What a filter promises by what it is: no row that fails its condition will appear (Tucker, 6.2, operator semantics).

    complement(predicate, schema) -> promises

Guarantee: no row for which the predicate is true matches any of them.  They are exact for conditions made of AND, OR
and NOT over comparisons of a column with a constant, IN lists, BETWEEN and IS [NOT] NULL; of other parts nothing is
said, and too many combinations are left out.  A comparison with a null is never true, so nulls are promised, too.

A condition has two complements: where it is not true, and where it is not false; NOT exchanges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import ceil, floor, isfinite
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Column, Expr, Literal
from everwhen.core.kinds import kind
from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.punctuation.api import patterns_of
from everwhen.values.order import Kind, constants, order_of
from everwhen.values.sets import Run, Spans, keys_of, overlap, spans_of, union

MOST: Final = 64
"""More promises than so many are not made of one condition."""

_EXACT: Final = 2**53
"""Up to here a whole number is a float."""
_MIRROR: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}

Box = Mapping[str, Spans]


def complement(predicate: Expr, schema: Schema) -> list[Punctuation]:
    """Promises that no row which fails the predicate appears.

    >>> from everwhen.algebra.expressions.build import col
    >>> schema = Schema.of([("hour", pa.int64())])
    >>> [dict(promise.match) for promise in complement(col("hour") < 4, schema)]
    [{'hour': OneOf(values=(None,))}, {'hour': Range(ge=4, gt=None, le=None, lt=None)}]
    """
    found: list[Punctuation] = []
    for box in _not_true(predicate, schema):
        promises: list[dict[str, AttributePattern]] = [{}]
        for name, spans in box.items():
            patterns = _patterns(spans, schema.field(name).type)
            promises = [{**promise, name: pattern} for promise in promises for pattern in patterns]
        found += [Punctuation(promise) for promise in promises if promise]
    return found if len(found) <= MOST else []


def _not_true(e: Expr, schema: Schema) -> list[Box]:
    match e:
        case Call("and", args):
            return _either([_not_true(arg, schema) for arg in args])
        case Call("or", args):
            return _all([_not_true(arg, schema) for arg in args])
        case Call("not", (arg,)):
            return _not_false(arg, schema)
        case Literal(constant):
            return [] if constant else [{}]
    atom = _atom(e, schema)
    if atom is None:
        return []
    name, spans, nulls = atom
    return [{name: Spans(spans.lowest, _outside(spans), not nulls)}]


def _not_false(e: Expr, schema: Schema) -> list[Box]:
    match e:
        case Call("and", args):
            return _all([_not_false(arg, schema) for arg in args])
        case Call("or", args):
            return _either([_not_false(arg, schema) for arg in args])
        case Call("not", (arg,)):
            return _not_true(arg, schema)
        case Literal(constant):
            return [] if constant is False else [{}]
    atom = _atom(e, schema)
    if atom is None:
        return []
    name, spans, nulls = atom
    tests_nulls = isinstance(e, Call) and e.name in ("is_null", "not_null")
    return [{name: Spans(spans.lowest, spans.runs, nulls or not tests_nulls)}]


def _either(parts: list[list[Box]]) -> list[Box]:
    """What one of the parts promises; promises about one column alone are put together."""
    alone: dict[str, Spans] = {}
    others: list[Box] = []
    for box in (box for part in parts for box in part):
        if len(box) != 1:
            others.append(box)
            continue
        ((name, spans),) = box.items()
        if name in alone:
            known = alone[name]
            spans = Spans(spans.lowest, union((*known.runs, *spans.runs)), known.null or spans.null)
        alone[name] = spans
    return [*({name: spans} for name, spans in alone.items()), *others]


def _all(parts: list[list[Box]]) -> list[Box]:
    """What all parts promise."""
    found: list[Box] = [{}]
    for part in parts:
        if len(found) * len(part) > MOST:
            return []
        found = [box for a in found for b in part if (box := _both(a, b)) is not None]
    return _either([found])


def _both(a: Box, b: Box) -> Box | None:
    box = dict(a)
    for name, spans in b.items():
        if name in box:
            spans = Spans(spans.lowest, overlap(box[name].runs, spans.runs), box[name].null and spans.null)
            if spans.empty:
                return None
        box[name] = spans
    return box


# -- single conditions -------------------------------------------------------------------------------------------------


def _atom(e: Expr, schema: Schema) -> tuple[str, Spans, bool] | None:
    """The column, its values for which the condition is true, and whether it is true of a null."""
    match e:
        case Column(name) if kind(schema.field(name).type) == "boolean":
            return name, spans_of(OneOf((True,)), pa.bool_()), False
        case Call("is_null", (Column(name),)) if _ordered(name, schema):
            return name, spans_of(OneOf(()), schema.field(name).type), True
        case Call("not_null", (Column(name),)) if _ordered(name, schema):
            return name, spans_of(Range(), schema.field(name).type), False
        case Call("in", (Column(name), *listed)) if _ordered(name, schema):
            runs: list[Run] = []
            for each in listed:
                found = _compared("=", each, schema.field(name).type)
                if found is None:
                    return None
                runs += found.runs
            return name, Spans(spans_of(OneOf(()), schema.field(name).type).lowest, union(runs)), False
        case Call(symbol, (Column(name), Literal() as constant)) if symbol in _MIRROR and _ordered(name, schema):
            true = _compared(symbol, constant, schema.field(name).type)
            return None if true is None else (name, true, False)
        case Call(symbol, (Literal() as constant, Column(name))) if symbol in _MIRROR and _ordered(name, schema):
            true = _compared(_MIRROR[symbol], constant, schema.field(name).type)
            return None if true is None else (name, true, False)
    return None


def _ordered(name: str, schema: Schema) -> bool:
    type_ = schema.field(name).type
    return order_of(type_).kind is not Kind.OPAQUE and not pa.types.is_null(type_)


def _compared(symbol: str, constant: Expr, type_: pa.DataType) -> Spans | None:
    """The values of a column for which it compares so with a constant; None if that cannot be told exactly."""
    if not isinstance(constant, Literal) or constant.constant is None:
        return None
    value = constant.constant
    if kind(type_) == "integer":
        return _compared_integer(symbol, value, type_)
    exact = _exactly(value, type_)
    if exact is None:
        return None
    patterns = {"<": Range(lt=exact), "<=": Range(le=exact), ">": Range(gt=exact), ">=": Range(ge=exact)}
    try:
        spans = spans_of(patterns.get(symbol, OneOf((exact,))), type_)
    except QueryError:  # not of the type, but compared with it in another one
        return None
    return Spans(spans.lowest, _outside(spans)) if symbol == "<>" else spans


def _compared_integer(symbol: str, value: Any, type_: pa.DataType) -> Spans | None:
    """Also with constants that lie between two whole numbers, or beyond what the type holds."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not isfinite(value):
        return None
    if isinstance(value, float) and abs(value) >= _EXACT:  # compared as floats, which round
        return None
    low, high = floor(value), ceil(value)
    order = order_of(type_)
    least, most = order.values(pa.array([order.lo, order.hi], pa.int64()).to_numpy())
    bounds = {
        "<": (least, high - 1),
        "<=": (least, low),
        ">": (low + 1, most),
        ">=": (high, most),
        "=": (high, low),
        "<>": (high, low),
    }[symbol]
    first, last = max(bounds[0], least), min(bounds[1], most)
    spans = spans_of(Range(ge=first, le=last) if first <= last else OneOf(()), type_)
    return Spans(spans.lowest, _outside(spans)) if symbol == "<>" else spans


def _exactly(value: Any, type_: pa.DataType) -> Any:
    """The constant as a value of the column's type, if the comparison is made without rounding; else None."""
    match kind(type_):
        case "float":
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                return None
            if isinstance(value, int) and abs(value) > _EXACT:
                return None
            return float(value) if isinstance(value, float) or Decimal(float(value)) == value else None
        case "decimal":
            return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
    return value


def _outside(spans: Spans) -> tuple[Run, ...]:
    """All keys that are not in the spans."""
    found: list[Run] = []
    at = spans.lowest
    for lo, hi in spans.runs:
        if at < lo:
            found.append((at, lo))
        if hi is None:
            return tuple(found)
        at = hi
    return (*found, (at, None))


def _patterns(spans: Spans, type_: pa.DataType) -> list[AttributePattern]:
    """The spans as patterns; all values but null in two halves, since a range without bounds cannot be written."""
    if spans.complete_but_null:
        middle = _middle(type_)
        spans = Spans(spans.lowest, ((spans.lowest, middle), (middle, None)), spans.null)
    return patterns_of(spans, type_)


def _middle(type_: pa.DataType) -> Any:
    order = order_of(type_)
    if order.kind is Kind.RANK:
        return max(0, order.lo + 1)
    if pa.types.is_decimal(type_):
        value: Any = Decimal(0)
    elif pa.types.is_fixed_size_binary(type_):
        value = b"a" * type_.byte_width
    else:
        value = "a" if kind(type_) == "string" else b"a"
    return keys_of(constants([value], type_), order)[0]
