"""The logical node of aggregates and neighbours OVER an order.

At an instant, per partition: the rows alive, in the order that ranks have (`ranks.rank`).  Each row gets, beside its
columns, what functions say of the rows around it.

A frame is made of rows: from so many before the row to so many behind it (`rows`), or those whose value of the only
column of the order lies between the row's own and so much more or less (`range`).  With an offset of 0, `range` means
all rows that the order leaves equal to this one.  Without a frame: all rows up to those equal to this one, or, if there
is no order, all rows.  A row whose value is null or NaN has a range of the rows equal to it.

    count, sum, avg, min, max    as in groups, over the frame
    first_value, last_value      of the frame, nulls included
    lag, lead                    of the row so many places before or behind, or a constant if there is none
    ntile                        the number of the part if the rows are cut into so many, the first ones larger
    percent_rank, cume_dist      (rank - 1) / (rows - 1); the share of rows not behind this one or its equals
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import pyarrow as pa

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.node import Node
from everwhen.algebra.ranks.rank import Ordering, check_order
from everwhen.core.kinds import kind
from everwhen.core.scalars import Unfit, from_python
from everwhen.core.schema import Field, Schema
from everwhen.errors import QueryError

AGGREGATES: Final = ("count", "sum", "avg", "min", "max")
FRAMED: Final = (*AGGREGATES, "first_value", "last_value")
SHIFTS: Final = ("lag", "lead")
PLACES: Final = ("ntile", "percent_rank", "cume_dist")
OVER_FUNCTIONS: Final = (*FRAMED, *SHIFTS, *PLACES)


@dataclass(frozen=True, slots=True)
class Frame:
    """From `start` to `end`, both relative to the row (before it: negative); None: without a bound."""

    unit: Literal["rows", "range"]
    start: int | float | None = None
    end: int | float | None = 0

    def __str__(self) -> str:
        return f"{self.unit} {_bound(self.start, 'first')} to {_bound(self.end, 'last')}"


def _bound(offset: float | None, unbounded: str) -> str:
    return unbounded if offset is None else f"{offset:+}" if offset else "current"


@dataclass(frozen=True)
class OverFunction:
    """The output column `name`.  `places`: of lag, lead and ntile; `default`: of lag and lead."""

    name: str
    function: str
    column: str | None = None
    frame: Frame | None = None
    places: int = 1
    default: Any = None

    def __str__(self) -> str:
        more = [str(self.places)] if self.function in (*SHIFTS, "ntile") else []
        more += [repr(self.default)] if self.default is not None else []
        inside = ", ".join([*([self.column] if self.column is not None else []), *more])
        star = "*" if self.function == "count" and self.column is None else ""
        return f"{self.function}({inside or star})" + (f" {self.frame}" if self.frame is not None else "")


@dataclass(frozen=True, eq=False)
class Over(Node):
    """See the module."""

    input: Node
    partition: tuple[str, ...]
    order: tuple[Ordering, ...]
    functions: tuple[OverFunction, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", tuple(Ordering(*each) for each in self.order))
        self.input.schema.select(self.partition, "PARTITION BY")
        check_order(self.order, self.input.schema, "ORDER BY")
        if not self.functions:
            raise QueryError("OVER needs a function")
        _ = self.schema
        for each in self.functions:
            self._check(each)

    def _check(self, each: OverFunction) -> None:
        if each.function not in FRAMED and not self.order:
            raise QueryError(f"{each.function.upper()} needs an ORDER BY: without it rows have no places")
        if each.function in (*SHIFTS, "ntile") and (type(each.places) is not int or not 0 <= each.places < 2**31):
            raise QueryError(f"{each.function.upper()} counts places with a whole number from 0 on")
        if each.function == "ntile" and each.places < 1:
            raise QueryError("NTILE cuts into at least one part")
        if each.default is not None:
            type_ = self.schema.field(each.name).type
            try:
                from_python([each.default], type_)
            except (pa.ArrowException, TypeError, ValueError, OverflowError, Unfit):
                raise QueryError(f"the default of {each} is not of the column's type {type_}") from None
        if each.frame is None:
            return
        frame = each.frame
        if each.function not in FRAMED:
            raise QueryError(f"{each.function.upper()} takes no frame")
        if not self.order:
            raise QueryError("a frame needs an ORDER BY: without it rows have no neighbours")
        bounds = [bound for bound in (frame.start, frame.end) if bound is not None]
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            raise QueryError("a frame begins before it ends")
        if frame.unit == "rows":
            if any(type(bound) is not int for bound in bounds):
                raise QueryError("a frame of ROWS counts whole rows")
        elif any(bounds):
            if len(self.order) != 1:
                raise QueryError("a frame with a RANGE needs one column in ORDER BY, whose values it is about")
            type_ = self.input.schema.field(self.order[0].column).type
            floats = pa.types.is_floating(type_)
            if not (floats or _is_range_type(type_)):
                raise QueryError(f"a frame with a RANGE is over whole numbers, floats or times, not {type_}")
            if not floats and any(type(bound) is not int for bound in bounds):
                raise QueryError(f"a frame with a RANGE over {type_} has whole numbers as bounds")

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.input.schema.fields + tuple(Field(f.name, self._type(f)) for f in self.functions))

    def _type(self, each: OverFunction) -> pa.DataType:
        if each.function not in OVER_FUNCTIONS:
            raise QueryError(f"there is no {each.function.upper()} OVER; there is {', '.join(OVER_FUNCTIONS)}")
        if each.function == "ntile":
            return pa.int64()
        if each.function in PLACES:
            return pa.float64()
        if each.column is None and each.function != "count":
            raise QueryError(f"{each.function.upper()} OVER needs a value")
        columns = () if each.column is None else (each.column,)
        if each.function in AGGREGATES:
            found = Aggregation(each.name, each.function, columns).result_type(self.input.schema)
            type_ = None if each.column is None else self.input.schema.field(each.column).type
            if each.function in ("sum", "avg") and (kind(type_) == "decimal" or type_ == pa.uint64()):
                raise QueryError(
                    f"{each.function.upper()} OVER does not add values of type {type_}; cast them to DOUBLE"
                )
            return found
        assert each.column is not None
        return self.input.schema.field(each.column, "OVER").type

    @cached_property
    def ties(self) -> tuple[str, ...]:
        """The columns whose values order rows that `order` leaves equal."""
        named = {*self.partition, *(each.column for each in self.order)}
        return tuple(name for name in self.input.schema.names if name not in named)

    def __str__(self) -> str:
        """One line for EXPLAIN."""
        by = f" by {', '.join(self.partition)}" if self.partition else ""
        order = f" in the order of {', '.join(map(str, self.order))}" if self.order else ""
        return f"Over{by}{order}: " + ", ".join(f"{f.name} = {f}" for f in self.functions)


def _is_range_type(type_: pa.DataType) -> bool:
    is_ = pa.types
    whole = is_.is_integer(type_) and type_ != pa.uint64()
    return whole or is_.is_date(type_) or is_.is_time(type_) or is_.is_timestamp(type_) or is_.is_duration(type_)
