"""Rows that no stream brings: those that stand in the query (VALUES), and those made of each row (UNNEST)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import pyarrow as pa

from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.node import Node
from everwhen.core.kinds import kind
from everwhen.core.schema import Field, Schema
from everwhen.errors import QueryError

BEGINS: Final = 0
"""From when on constant rows are there: as those of a constant relation."""

UnnestKind = Literal["list", "series", "range"]


@dataclass(frozen=True, eq=False)
class Values(Node):
    """A relation of constant rows, alive from 0 on for ever; it promises everything at once.

    `alone`: where a plan runs in several partitions, only the first one has the rows; else each has all of them.
    """

    columns: Schema
    rows: tuple[tuple[Any, ...], ...]
    alone: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise QueryError(f"VALUES has rows of {len(self.columns)} columns, and one of {len(row)}")

    @cached_property
    def schema(self) -> Schema:
        return self.columns

    @property
    def keeps_events(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"Values {self.columns}, {len(self.rows)} {'row' if len(self.rows) == 1 else 'rows'}"


@dataclass(frozen=True, eq=False)
class Unnest(Node):
    """Each row once for each of its elements, which stands in a new last column; it lives as the row does.

    `kind` says what the elements are: those of a `list`, the numbers (or times) of a `series` from the first of `args`
    to the second, which is one of them, in steps of the third; of a `range`, where the second is none of them.  A null
    has no elements.  `place` names a column for the place of the element, from 1 on.  `outer`: a row without elements
    is kept, with nulls.
    """

    input: Node
    kind: UnnestKind
    args: tuple[Expr, ...]
    name: str
    place: str | None = None
    outer: bool = False

    def __post_init__(self) -> None:
        _ = self.schema

    @cached_property
    def element(self) -> pa.DataType:
        """The type of an element."""
        types = [arg.bind(self.input.schema) for arg in self.args]
        shown = ", ".join(map(str, self.args))
        if self.kind == "list":
            if len(types) != 1 or not (pa.types.is_list(types[0]) or pa.types.is_null(types[0])):
                raise QueryError(f"UNNEST needs a list; {shown} is of type {', '.join(map(str, types))}")
            return types[0].value_type if pa.types.is_list(types[0]) else pa.null()
        name = "generate_series" if self.kind == "series" else "range"
        if len(types) != 3:
            raise QueryError(f"{name} takes where it begins, where it ends and a step")
        kinds = [kind(each) for each in types]
        if kinds == ["integer"] * 3:
            return pa.int64()
        if kinds == ["timestamp", "timestamp", "duration"]:
            return pa.timestamp("us")
        raise QueryError(f"{name} is of whole numbers, or of timestamps with a length of time as its step, not {shown}")

    @cached_property
    def schema(self) -> Schema:
        places = () if self.place is None else (Field(self.place, pa.int64()),)
        return Schema((*self.input.schema.fields, Field(self.name, self.element), *places))

    @property
    def keeps_events(self) -> bool:
        return self.input.keeps_events

    def __str__(self) -> str:
        word = {"list": "Unnest", "series": "Series", "range": "Range"}[self.kind]
        place = "" if self.place is None else f", {self.place} = its place"
        keeps = ", rows without any kept" if self.outer else ""
        return f"{word} {self.name} = {', '.join(map(str, self.args))}{place}{keeps}"
