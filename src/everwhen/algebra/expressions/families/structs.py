"""Structures: several values, by name, as one; `STRUCT(a AS x, b)` makes one, `s.x` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, apply
from everwhen.algebra.expressions.scalar_function import ScalarFunction, Thunk, constant_value
from everwhen.errors import QueryError


def _name(arg: Compiled, where: str) -> str:
    return str(constant_value(arg, where, "the name of a field", lambda value: isinstance(value, str) and value != ""))


def _named_struct(args: Sequence[Compiled], where: str) -> Compiled:
    if len(args) % 2:
        raise QueryError(f"{where} takes names and values in turn")
    names, values = [_name(arg, where) for arg in args[::2]], list(args[1::2])
    if len({name.lower() for name in names}) < len(names):
        raise QueryError(f"{where} has two fields of one name")
    type_ = pa.struct([pa.field(name, value.type) for name, value in zip(names, values, strict=True)])
    return apply(type_, lambda *columns: _structs(columns, type_), values, where)


def _structs(columns: Sequence[Any], type_: Any) -> pa.Array:
    length = next(len(each) for each in columns if isinstance(each, pa.Array))
    whole = [each if isinstance(each, pa.Array) else pa.repeat(each, length) for each in columns]
    return pa.StructArray.from_arrays(whole, fields=list(type_))


def _named_struct_value(*args: Thunk) -> dict[str, Any]:
    return {name(): value() for name, value in zip(args[::2], args[1::2], strict=True)}


def field_of(type_: pa.DataType, name: str) -> pa.Field | None:
    """The field of a structure that a name means; its case counts only where two fields differ in nothing else."""
    if not pa.types.is_struct(type_):
        return None
    found = [field for field in type_ if field.name == name] or [f for f in type_ if f.name.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _struct_extract(args: Sequence[Compiled], where: str) -> Compiled:
    type_ = args[0].type
    if not pa.types.is_struct(type_):
        raise QueryError(f"{where} needs a structure; {args[0].text} is of type {type_}")
    name = _name(args[1], where)
    field = field_of(type_, name)
    if field is None:
        raise QueryError(f"{args[0].text} has no field {name!r}; there is {', '.join(f.name for f in type_)}")
    return apply(field.type, lambda structs: pc.struct_field(structs, field.name), args[:1], where)


def struct_extract(value: dict[str, Any], name: str) -> Any:
    """The field of a structure."""
    return value[name] if name in value else next(v for k, v in value.items() if k.lower() == name.lower())


STRUCT_FUNCTIONS: Final = (
    ScalarFunction("named_struct(name, x, …)", _named_struct, _named_struct_value, 2, None, strict=False),
    ScalarFunction("struct_extract(struct, name)", _struct_extract, struct_extract, 2, 2),
)
