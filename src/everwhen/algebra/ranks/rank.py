"""The logical node of ROW_NUMBER, RANK, DENSE_RANK, LIMIT and DISTINCT ON.

At an instant, per partition: the rows alive, in an order.  `order` comes first, then all other columns in the order of
the schema, by value, nulls first; so which rows are first never depends on arrival.  Rows that are equal in everything
count one by one.

    row_number   the place of the row: 1, 2, 3, …
    rank         one more than the number of rows that `order` puts before it: equal ones share a rank
    dense_rank   the same for the number of different values of `order`

The answer are the rows whose number is more than `offset` and at most `offset + limit`, with the number as a last
column if it has a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import pyarrow as pa

from everwhen.algebra.node import Node
from everwhen.core.kinds import is_orderable
from everwhen.core.schema import Field, Schema
from everwhen.errors import QueryError

RankKind = Literal["row_number", "rank", "dense_rank"]


class Ordering(NamedTuple):
    """A column of an order."""

    column: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return self.column + " descending" * self.descending + " nulls first" * self.nulls_first


def check_order(order: tuple[Ordering, ...], schema: Schema, what: str) -> None:
    """Refuse columns that are not there, that have no order, or that are named twice."""
    for at, (column, _, _) in enumerate(order):
        field = schema.field(column, what)
        if not is_orderable(field.type):
            raise QueryError(f"rows cannot be ordered by {field}: its values have no order")
        if column in [each.column for each in order[:at]]:
            raise QueryError(f"{what} names {column} twice")


@dataclass(frozen=True, eq=False)
class Rank(Node):
    """See the module."""

    input: Node
    partition: tuple[str, ...] = ()
    order: tuple[Ordering, ...] = ()
    kind: RankKind = "row_number"
    limit: int | None = None
    offset: int = 0
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", tuple(Ordering(*each) for each in self.order))
        self.input.schema.select(self.partition, "PARTITION BY")
        check_order(self.order, self.input.schema, "ORDER BY")
        if self.kind not in get_args(RankKind):
            raise QueryError(f"{self.kind!r} is no rank; there are {', '.join(get_args(RankKind))}")
        if (self.limit is not None and self.limit < 0) or self.offset < 0:
            raise QueryError("a limit and an offset are whole numbers from 0 on")
        if self.name is not None and self.name in self.input.schema:
            raise QueryError(f"a column {self.name!r} is there already; give the rank another name")
        if self.name is None and self.limit is None and self.offset == 0:
            raise QueryError("a rank needs a name, a limit or an offset")

    @cached_property
    def schema(self) -> Schema:
        more = () if self.name is None else (Field(self.name, pa.int64()),)
        return Schema(self.input.schema.fields + more)

    @property
    def last(self) -> int | None:
        """The largest number that is said; None: all are."""
        return None if self.limit is None else self.offset + self.limit

    @cached_property
    def ties(self) -> tuple[str, ...]:
        """The columns whose values order rows that `order` leaves equal."""
        named = {*self.partition, *(each.column for each in self.order)}
        return tuple(name for name in self.input.schema.names if name not in named)

    def __str__(self) -> str:
        """One line for EXPLAIN."""
        numbers = "" if self.limit is None else f" up to {self.offset + self.limit}"
        numbers += f" after {self.offset}" if self.offset else ""
        by = f" by {', '.join(self.partition)}" if self.partition else ""
        order = f" in the order of {', '.join(map(str, self.order))}" if self.order else ""
        name = "" if self.name is None else f"{self.name} = "
        return f"Rank {name}{self.kind}{numbers}{by}{order}"
