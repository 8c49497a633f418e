"""Schemas: the names and Arrow types of a stream's payload columns."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from everwhen.errors import QueryError

RESERVED = ("op", "vs", "ve", "vnew")


@dataclass(frozen=True, slots=True)
class Field:
    """One payload column; any of them may be null."""

    name: str
    type: pa.DataType

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True)
class Schema:
    """An ordered set of payload columns with distinct names.

    >>> import pyarrow as pa
    >>> schema = Schema.of([("item", pa.int64()), ("price", pa.float64())])
    >>> print(schema)
    (item int64, price double)
    >>> schema.names, schema.index("price")
    (('item', 'price'), 1)
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if len(self._places) < len(self.fields):
            twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
            raise QueryError(f"column names must differ; {', '.join(twice)} is there more than once")

    @classmethod
    def of(cls, columns: Iterable[tuple[str, pa.DataType]] | pa.Schema | Schema) -> Schema:
        """A schema from pairs, from an Arrow schema, or a schema itself."""
        if isinstance(columns, Schema):
            return columns
        if isinstance(columns, pa.Schema):
            return cls(tuple(Field(field.name, field.type) for field in columns))
        return cls(tuple(Field(name, type_) for name, type_ in columns))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    @cached_property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(field.type for field in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ")"

    def index(self, name: str, where: str = "") -> int:
        """The position of a column; an unknown one names what there is and the nearest name."""
        at = self._places.get(name)
        if at is not None:
            return at
        near = difflib.get_close_matches(name, self.names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        place = f" in {where}" if where else ""
        raise QueryError(
            f"unknown column {name!r}{place}{hint} There is {self}"
            if hint
            else f"unknown column {name!r}{place}; there is {self}"
        )

    def field(self, name: str, where: str = "") -> Field:
        return self.fields[self.index(name, where)]

    def select(self, names: Iterable[str], where: str = "") -> Schema:
        return Schema(tuple(self.field(name, where) for name in names))

    def to_arrow(self) -> pa.Schema:
        return pa.schema([pa.field(field.name, field.type) for field in self.fields])

    def same_types(self, other: Schema) -> bool:
        """Whether rows of one may stand for rows of the other (names may differ)."""
        return self.types == other.types
