"""Scalar functions of lists, which array_agg and top_k make: joined to a text, counted, searched, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, apply, coerce, row_by_row
from everwhen.algebra.expressions.definition import compare
from everwhen.algebra.expressions.scalar_function import ScalarFunction, require
from everwhen.errors import QueryError


def _list(arg: Compiled, where: str) -> pa.DataType:
    if not pa.types.is_list(arg.type):
        raise QueryError(f"{where} needs a list, as array_agg makes it; {arg.text} is of type {arg.type}")
    return arg.type.value_type


def _array_join(args: Sequence[Compiled], where: str) -> Compiled:
    if not pa.types.is_string(_list(args[0], where)):
        raise QueryError(f"{where} needs a list of texts; {args[0].text} is of type {args[0].type}")
    require(args[1:], where, "a text between the elements", "string")
    return apply(pa.string(), pc.binary_join, [args[0], coerce(args[1], pa.string())], where)


def _cardinality(args: Sequence[Compiled], where: str) -> Compiled:
    _list(args[0], where)
    return apply(pa.int64(), lambda x: pc.cast(pc.list_value_length(x), pa.int64()), args, where)


def _array_contains(args: Sequence[Compiled], where: str) -> Compiled:
    found = coerce(args[1], _list(args[0], where))
    return apply(pa.bool_(), row_by_row(array_contains, pa.bool_()), [args[0], found], where)


def array_contains(values: Sequence[Any], value: Any) -> bool:
    """Whether the value is among the elements."""
    return any(each is not None and compare(each, value) == 0 for each in values)


def _element_at(args: Sequence[Compiled], where: str) -> Compiled:
    type_ = _list(args[0], where)
    require(args[1:], where, "the place of an element", "integer")
    return apply(type_, row_by_row(element_at, type_), [args[0], coerce(args[1], pa.int64())], where)


def element_at(values: Sequence[Any], place: int) -> Any:
    """The element at a place from 1 on, from -1 on from the end; null where there is none."""
    at = place - 1 if place > 0 else len(values) + place
    return values[at] if place and 0 <= at < len(values) else None


LIST_FUNCTIONS: Final = (
    ScalarFunction("array_join(list, separator)", _array_join, lambda values, by: by.join(values), 2, 2),
    ScalarFunction("cardinality(list)", _cardinality, len),
    ScalarFunction("array_contains(list, x)", _array_contains, array_contains, 2, 2),
    ScalarFunction("element_at(list, place)", _element_at, element_at, 2, 2),
)
