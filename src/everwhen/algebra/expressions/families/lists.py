"""Scalar functions of lists, which array_agg and top_k make: joined to a text, counted, searched, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, apply, coerce, row_by_row, unify
from everwhen.algebra.expressions.definition import compare
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require
from everwhen.errors import QueryError


def _list(arg: Compiled, where: str) -> pa.DataType:
    if not pa.types.is_list(arg.type):
        raise QueryError(f"{where} needs a list, as array_agg makes it; {arg.text} is of type {arg.type}")
    return arg.type.value_type


def _array_join(args: Sequence[Compiled], where: str) -> Compiled:
    if not pa.types.is_string(_list(args[0], where)):
        raise QueryError(f"{where} needs a list of texts; {args[0].text} is of type {args[0].type}")
    require(args[1:], where, "a text between the elements", "string")
    return apply(pa.string(), _joined, [args[0], coerce(args[1], pa.string())], where)


def _joined(lists: Any, by: Any) -> Any:
    if not isinstance(lists, pa.Array):
        return pc.binary_join(_without_nulls(pa.repeat(lists, 1))[0], by)
    return pc.binary_join(_without_nulls(lists), by)


def _without_nulls(lists: pa.ListArray) -> pa.ListArray:
    """The lists with the elements that are there."""
    flat = lists.flatten()
    if not flat.null_count:
        return lists
    there = flat.is_valid()
    parents = pc.filter(pc.list_parent_indices(lists), there).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(parents, minlength=len(lists)))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat.filter(there), mask=lists.is_null())


def array_join(values: Sequence[str | None], by: str) -> str:
    """The elements that are not null, with a text between them."""
    return by.join(each for each in values if each is not None)


def _cardinality(args: Sequence[Compiled], where: str) -> Compiled:
    _list(args[0], where)
    return apply(pa.int64(), lambda x: pc.cast(pc.list_value_length(x), pa.int64()), args, where)


def _array_contains(args: Sequence[Compiled], where: str) -> Compiled:
    type_ = _list(args[0], where)
    found = coerce(args[1], type_)
    plain = pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_temporal(type_)
    kernel = _contained if plain else row_by_row(array_contains, pa.bool_())
    return apply(pa.bool_(), kernel, [args[0], found], where)


def _contained(lists: Any, values: Any) -> pa.Array:
    """The same for values whose equality is Arrow's."""
    length = next(len(each) for each in (lists, values) if isinstance(each, pa.Array))
    lists, values = (each if isinstance(each, pa.Array) else pa.repeat(each, length) for each in (lists, values))
    parents = pc.list_parent_indices(lists)
    hits = pc.fill_null(pc.equal(lists.flatten(), values.take(parents)), False).to_numpy(zero_copy_only=False)
    counts = np.bincount(parents.to_numpy(zero_copy_only=False)[hits], minlength=length)
    known = pc.and_(lists.is_valid(), values.is_valid())
    return pc.if_else(known, pa.array(counts > 0), pa.scalar(None, pa.bool_()))


def array_contains(values: Sequence[Any], value: Any) -> bool:
    """Whether the value is among the elements."""
    return any(each is not None and compare(each, value) == 0 for each in values)


def _element_at(args: Sequence[Compiled], where: str) -> Compiled:
    type_ = _list(args[0], where)
    require(args[1:], where, "the place of an element", "integer")
    return apply(type_, _elements, [args[0], coerce(args[1], pa.int64())], where)


def _elements(lists: Any, places: Any) -> pa.Array:
    length = next(len(each) for each in (lists, places) if isinstance(each, pa.Array))
    lists, places = (each if isinstance(each, pa.Array) else pa.repeat(each, length) for each in (lists, places))
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    place = pc.fill_null(places, 0).to_numpy(zero_copy_only=False)
    at = np.where(place > 0, place - 1, counts + place)
    there = (place != 0) & (at >= 0) & (at < counts)
    first = np.cumsum(counts) - counts
    return lists.flatten().take(pa.array(np.where(there, first + at, 0), mask=~there))


def element_at(values: Sequence[Any], place: int) -> Any:
    """The element at a place from 1 on, from -1 on from the end; null where there is none."""
    at = place - 1 if place > 0 else len(values) + place
    return values[at] if place and 0 <= at < len(values) else None


def _array(args: Sequence[Compiled], where: str) -> Compiled:
    type_, found = unify(args, where)
    return apply(pa.list_(type_), lambda *columns: lists_of(columns, type_), found, where)


def lists_of(columns: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Lists of the values that columns have in each row."""
    length = next(len(each) for each in columns if isinstance(each, pa.Array | pa.ChunkedArray))
    whole = [each if isinstance(each, pa.Array) else pa.repeat(each, length) for each in columns]
    flat = pa.concat_arrays(whole)
    places = np.arange(length * len(whole)).reshape(len(whole), length).T.ravel()
    offsets = np.arange(length + 1, dtype=np.int32) * len(whole)
    return pa.ListArray.from_arrays(pa.array(offsets), flat.take(pa.array(places))).cast(pa.list_(type_))


def _string_split(args: Sequence[Compiled], where: str) -> Compiled:
    require(args, where, "a text and what parts it", "string")
    by = constant_value(args[1], where, "a separator", lambda value: value != "")
    return apply(
        pa.list_(pa.string()), lambda texts: pc.split_pattern(texts, by), [coerce(args[0], pa.string())], where
    )


LIST_FUNCTIONS: Final = (
    ScalarFunction("array(x, …)", _array, lambda *values: [each() for each in values], 1, None, strict=False),
    ScalarFunction("array_join(list, separator)", _array_join, array_join, 2, 2),
    ScalarFunction("string_split(text, separator)", _string_split, lambda text, by: text.split(by), 2, 2),
    ScalarFunction("cardinality(list)", _cardinality, len),
    ScalarFunction("array_contains(list, x)", _array_contains, array_contains, 2, 2),
    ScalarFunction("element_at(list, place)", _element_at, element_at, 2, 2),
)
