"""Values as PostgreSQL writes them in text, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.scalars import Unfit, read_values, typed_texts
from everwhen.core.schema import Field, Schema
from everwhen.errors import InputError


def columns_of(rows: Sequence[Sequence[str | None]], schema: Schema, shown: str) -> tuple[pa.Array, ...]:
    """Rows of texts as the columns of a schema."""
    texts = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return tuple(_column(list(values), field, shown) for values, field in zip(texts, schema, strict=True))


def _column(values: list[str | None], field: Field, shown: str) -> pa.Array:
    texts, type_ = pa.array(values, pa.string()), field.type
    is_ = pa.types
    try:
        if is_.is_boolean(type_):
            return pc.if_else(texts.is_null(), None, pc.is_in(texts, pa.array(["t", "true"])))
        if is_.is_binary(type_) or is_.is_large_binary(type_):
            return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in values], type_)
        if is_.is_floating(type_):
            return pa.array([None if text is None else float(text) for text in values], type_)
        if is_.is_timestamp(type_) and type_.tz is None:
            return typed_texts(texts, pa.timestamp("us")).cast(type_)
        if is_.is_nested(type_):
            import json

            return read_values([None if text is None else json.loads(text) for text in values], type_)
        return texts.cast(type_)
    except (pa.ArrowException, ValueError, Unfit) as bad:
        why = str(bad).splitlines()[0]
        problem = f"a value of the column {field.name!r} is not {type_}: {why}"
        raise InputError(problem, source=shown, remedy="declare the column with its type in the database") from None
