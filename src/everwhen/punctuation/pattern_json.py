"""The patterns of a punctuation as JSON: `{"item": {"in": [7, 9]}, "hour": {"ge": 0, "lt": 4}}`.

A scalar is that constant; `{"in": […]}` a list; any of `ge gt le lt` a range; `{"none": true}` the empty pattern; an
attribute left out is a wildcard (Tucker, section 3).  Constants are read by the type of their column, so that a date
is compared with dates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.scalars import Unfit, describe, from_python, json_values, python_values, read_values, show_value
from everwhen.core.schema import Schema
from everwhen.core.time import INF, show
from everwhen.errors import QueryError
from everwhen.values.sets import spans_of

_BOUNDS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_FORMS: Final = 'write a constant, {"in": [...]}, any of "ge", "gt", "le", "lt", or {"none": true}'


def read_match(match: Any, schema: Schema) -> dict[str, AttributePattern]:
    """The patterns of a `match` object; `Unfit` says what is wrong with it."""
    if not isinstance(match, dict):
        raise Unfit(f'"match" must be an object, but is {describe(match)}', 'write {"match": {"item": 7}}')
    return {name: _read_pattern(name, pattern, schema) for name, pattern in match.items()}


def _read_pattern(name: str, pattern: Any, schema: Schema) -> AttributePattern:
    if name not in schema:
        raise Unfit(f'"match" names the attribute {name!r}, which no row has', f"there is {schema}")
    type_ = schema.field(name).type
    if not isinstance(pattern, dict):
        return OneOf(tuple(_constants(name, [pattern], type_)))
    keys = set(pattern)
    if keys == {"in"} and isinstance(pattern["in"], list):
        return OneOf(tuple(_constants(name, pattern["in"], type_)))
    if keys and keys <= _BOUNDS.keys():
        for bound, value in pattern.items():
            if value is None:
                raise Unfit(f'the bound "{bound}" of {name!r} is null', "leave a bound out that is not there")
        range_ = Range(**dict(zip(pattern, _constants(name, list(pattern.values()), type_), strict=True)))
        if pa.types.is_nested(type_):
            raise Unfit(f"a range over {name!r}, whose type {type_} has no order", 'list the values with {"in": [...]}')
        if spans_of(range_, type_, name).empty:
            problem = f"the range {describe(pattern).removeprefix('the object ')} of {name!r} holds no value"
            raise Unfit(problem, 'the lower bound comes before the upper one; {"none": true} is the empty pattern')
        return range_
    if keys == {"none"} and pattern["none"] is True:
        return Nothing()
    raise Unfit(f"{describe(pattern)} is no pattern for {name!r}", _FORMS)


def _constants(name: str, values: list[Any], type_: pa.DataType) -> list[Any]:
    if len(values) == 1 and type(values[0]) is int and pa.types.is_int64(type_) and -(2**63) <= values[0] < 2**63:
        return values  # the commonest one, without the way through Arrow
    try:
        return python_values(read_values(values, type_))
    except Unfit as bad:
        raise Unfit(f"in the pattern of {name!r}: {bad.problem}", bad.remedy) from None


def write_match(match: Mapping[str, AttributePattern], schema: Schema) -> dict[str, Any]:
    """Patterns as the object that `read_match` reads."""
    return {name: _write_pattern(name, pattern, schema) for name, pattern in match.items()}


def _write_pattern(name: str, pattern: AttributePattern, schema: Schema) -> Any:
    type_ = schema.field(name, "a punctuation").type
    match pattern:
        case Nothing():
            return {"none": True}
        case OneOf(values):
            constants = json_values(from_python(values, type_))
            # An array is a constant of its own only for list columns, where it would read as one, too.
            return constants[0] if len(constants) == 1 else {"in": constants}
        case Range():
            bounds = {bound: getattr(pattern, bound) for bound in _BOUNDS if getattr(pattern, bound) is not None}
            if not bounds:
                raise QueryError(f"a range without bounds, for {name!r}, has no form in JSON; leave the attribute out")
            return dict(zip(bounds, json_values(from_python(list(bounds.values()), type_)), strict=True))


def show_promise(promise: Punctuation) -> str:
    """A punctuation for people.

    >>> show_promise(Punctuation({"item": OneOf((7, 9)), "hour": Range(ge=0, lt=4)}, 10))
    'punct item in (7, 9) and hour >= 0 and hour < 4 before 10'
    """
    parts = [text for name, pattern in promise.match.items() for text in _show_pattern(name, pattern)]
    return f"punct {' and '.join(parts) or 'everything'}" + ("" if promise.t == INF else f" before {show(promise.t)}")


def _show_pattern(name: str, pattern: AttributePattern) -> list[str]:
    match pattern:
        case OneOf((value,)):
            return [f"{name} = {show_value(value)}"]
        case OneOf(values):
            return [f"{name} in ({', '.join(map(show_value, values))})"]
        case Range():
            bounds = ((sign, getattr(pattern, bound)) for bound, sign in _BOUNDS.items())
            return [f"{name} {sign} {show_value(value)}" for sign, value in bounds if value is not None]
    return [f"{name} matches nothing"]
