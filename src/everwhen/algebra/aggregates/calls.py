"""Aggregations: which functions there are, what they take and give, and how users write them.

An `Aggregation` is one output column of an `Aggregate` node: a function over columns of the input.  Its meaning is
`evaluate`, over the rows of one group (Krämer, 8.6; SQL's rule that nulls are ignored).  `AggregateCall` is what the
constructors below make: the function over expressions, which the fluent API turns into columns first.

Constructors carry SQL's names and so hide some of Python's: import the module, or use them as `ew.sum`, `ew.min`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.aggregates import definition as aggregate_definition
from everwhen.algebra.aggregates.types import sum_type
from everwhen.algebra.expressions.build import Expr, col
from everwhen.core.kinds import is_number, is_orderable, kind
from everwhen.core.schema import Schema
from everwhen.errors import QueryError

_FLOAT: Final = ("avg", "stddev", "stddev_pop", "variance", "variance_pop")
_SAME: Final = ("min", "max", "first", "last")
_COLUMNS: Final = {"count": (0, 1), "first": (2, 2), "last": (2, 2), "array_agg": (1, 9)}
_PARAMETERS: Final = {"quantile": 1, "quantile_disc": 1, "top_k": 1, "array_agg": 1, "user": 1}

AGGREGATE_FUNCTIONS: Final = (
    "count", "sum", "avg", "min", "max", "stddev", "stddev_pop", "variance", "variance_pop",
    "count_distinct", "median", "quantile", "quantile_disc", "top_k", "array_agg", "first", "last", "user",
)  # fmt: skip


@dataclass(frozen=True)
class UserAggregate:
    """An aggregate function of the user's: `eval(merge(… merge(init(v1), v2) …, vn))`, for values in any order.

    `inverse`, if given, takes a value out again: `inverse(merge(s, v), v)` must equal `s`.  Then a piece is
    evaluated from the one before it where that is less work.  States must be values: a function that changes its
    argument is wrong.

    >>> import everwhen as ew
    >>> import pyarrow as pa
    >>> larger = lambda n, v: n if n > len(v) else len(v)
    >>> longest = ew.UserAggregate(init=len, merge=larger, eval=lambda n: n, result=pa.int64())
    >>> s = ew.source("S", {"word": "string"})
    >>> rows = [ew.Insert(0, 1, {"word": word}) for word in ("a", "tree", "of")]
    >>> print(next(ew.run(s.aggregate(n=ew.aggregate(longest)("word")), {"S": rows}, ew.STRONG)))
    insert [0, 1) n=4
    """

    init: Callable[[Any], Any]
    merge: Callable[[Any, Any], Any]
    eval: Callable[[Any], Any]
    result: pa.DataType
    inverse: Callable[[Any, Any], Any] | None = None
    name: str = "user"


@dataclass(frozen=True)
class Aggregation:
    """The output column `name`: `function` over `columns`, with constant `parameters`."""

    name: str
    function: str
    columns: tuple[str, ...]
    parameters: tuple[Any, ...] = ()

    def result_type(self, schema: Schema) -> pa.DataType:
        """The type of the result over rows of `schema`; QueryError for unknown columns, wrong types or parameters."""
        self._check()
        types = [schema.field(column, str(self)).type for column in self.columns]
        match self.function:
            case "count" | "count_distinct":
                fits = self.function == "count" or is_orderable(types[0])
                self._require(fits, types, "values that can be compared")
                return pa.int64()
            case "user":
                return self.parameters[0].result
            case "sum":
                self._require(is_number(types[0]), types, "numbers")
                return sum_type(types[0])
            case name if name in _FLOAT:
                self._require(is_number(types[0]), types, "numbers")
                return pa.float64()
            case "median" | "quantile" if is_number(types[0]):
                return pa.float64()
        for type_ in types:
            self._require(is_orderable(type_) and kind(type_) != "null", types, "values that can be ordered")
        return pa.list_(types[0]) if self.function in ("top_k", "array_agg") else types[0]

    def evaluate(self, values: Sequence[tuple[Any, ...]]) -> Any:
        """The definition: the result for a group, whose rows are given as tuples of the argument columns' values."""
        match self.function:
            case "count" if not self.columns:
                return len(values)
            case "first" | "last":
                return aggregate_definition.first(values, last=self.function == "last")
            case "array_agg":
                return aggregate_definition.listed(values, descending=self.parameters[0])
        present = [value for (value,) in values if value is not None]
        match self.function:
            case "count":
                return len(present)
            case "count_distinct" | "top_k" if not present:
                return 0 if self.function == "count_distinct" else []
            case "user" if present:
                return self._fold(present)
        if not present:
            return None
        return aggregate_definition.DEFINITIONS[self.function](present, *self.parameters)

    def _fold(self, values: Sequence[Any]) -> Any:
        user: UserAggregate = self.parameters[0]
        state = user.init(values[0])
        for value in values[1:]:
            state = user.merge(state, value)
        return user.eval(state)

    def __str__(self) -> str:
        return show(self.function, self.columns, self.parameters)

    # -- validity --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.function not in AGGREGATE_FUNCTIONS:
            near = difflib.get_close_matches(str(self.function), AGGREGATE_FUNCTIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(AGGREGATE_FUNCTIONS)}"
            raise QueryError(f"unknown aggregate function {self.function!r}; {hint}")
        least, most = _COLUMNS.get(self.function, (1, 1))
        if not least <= len(self.columns) <= most:
            wanted = f"{least}" if least == most else f"{least} or {most}"
            raise QueryError(f"{self.function} takes {wanted} columns, not {len(self.columns)}: {self}")
        wanted_parameters = _PARAMETERS.get(self.function, 0)
        if len(self.parameters) != wanted_parameters:
            raise QueryError(
                f"{self.function} takes {wanted_parameters} parameters, not {len(self.parameters)}: {self}"
            )
        match self.function, self.parameters:
            case "quantile" | "quantile_disc", (q,) if (
                isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1
            ):
                raise QueryError(f"a quantile lies between 0 and 1, not at {q!r}: {self}")
            case "top_k", (k,) if isinstance(k, bool) or not isinstance(k, int) or k < 1:
                raise QueryError(f"top_k keeps a whole number of values, at least 1, not {k!r}: {self}")
            case "user", (user,) if not isinstance(user, UserAggregate):
                raise QueryError(f"a user-defined aggregation needs a UserAggregate, not {user!r}")

    def _require(self, fits: bool, types: Sequence[pa.DataType], wanted: str) -> None:
        if not fits:
            got = ", ".join(f"{name} is of type {type_}" for name, type_ in zip(self.columns, types, strict=True))
            raise QueryError(f"{self} needs {wanted}; {got}")


def show(function: str, arguments: Sequence[Any], parameters: Sequence[Any]) -> str:
    """An aggregation as text, for messages and plans."""
    if parameters and isinstance(parameters[0], UserAggregate):
        function, parameters = parameters[0].name, parameters[1:]
    if function == "count_distinct":
        return f"count(distinct {', '.join(map(str, arguments))})"
    if function in ("first", "last") and len(arguments) == 2:
        return f"{function}({arguments[0]} by {arguments[1]})"
    return f"{function}({', '.join(map(str, (*arguments, *parameters))) or '*'})"


# -- constructors for the fluent API -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AggregateCall:
    """An aggregate function over expressions, not yet named."""

    function: str
    args: tuple[Expr, ...]
    parameters: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return show(self.function, self.args, self.parameters)


Argument = Expr | str


def call(function: str, *args: Argument, parameters: tuple[Any, ...] = ()) -> AggregateCall:
    """Any aggregate function by name; text names a column."""
    return AggregateCall(function, tuple(map(_argument, args)), parameters)


def _argument(given: Argument) -> Expr:
    if isinstance(given, Expr):
        return given
    if isinstance(given, str):
        return col(given)
    raise QueryError(f"an aggregate takes column names or expressions, not {given!r}; for a constant use lit()")


def count(x: Argument | None = None) -> AggregateCall:
    """The number of rows, or of rows in which `x` is not null.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, None, 6)]
    >>> print(next(ew.run(s.aggregate(rows=ew.count(), xs=ew.count("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) rows=3 xs=2
    """
    return call("count") if x is None else call("count", x)


def sum(x: Argument) -> AggregateCall:
    """Σx: int64 for integers (overflow is an error), float64 for floats, a 38-digit decimal for decimals.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 6)]
    >>> print(next(ew.run(s.aggregate(total=ew.sum("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) total=9
    """
    return call("sum", x)


def avg(x: Argument) -> AggregateCall:
    """The mean, a float64.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 6)]
    >>> print(next(ew.run(s.aggregate(mean=ew.avg("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) mean=3.0
    """
    return call("avg", x)


def min(x: Argument) -> AggregateCall:
    """The smallest value; NaN is larger than every number.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 6)]
    >>> print(next(ew.run(s.aggregate(least=ew.min("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) least=1
    """
    return call("min", x)


def max(x: Argument) -> AggregateCall:
    """The largest value; NaN is larger than every number.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 6)]
    >>> print(next(ew.run(s.aggregate(most=ew.max("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) most=6
    """
    return call("max", x)


def stddev(x: Argument) -> AggregateCall:
    """The sample's standard deviation; null for a single value.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 3, 5)]
    >>> print(next(ew.run(s.aggregate(spread=ew.stddev("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) spread=2.0
    """
    return call("stddev", x)


def stddev_pop(x: Argument) -> AggregateCall:
    """The population's standard deviation.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (2, 4, 4, 4, 5, 5, 7, 9)]
    >>> print(next(ew.run(s.aggregate(spread=ew.stddev_pop("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) spread=2.0
    """
    return call("stddev_pop", x)


def variance(x: Argument) -> AggregateCall:
    """The sample's variance; null for a single value.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 3, 4, 5)]
    >>> print(next(ew.run(s.aggregate(spread=ew.variance("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) spread=2.5
    """
    return call("variance", x)


def variance_pop(x: Argument) -> AggregateCall:
    """The population's variance.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 3, 4, 5)]
    >>> print(next(ew.run(s.aggregate(spread=ew.variance_pop("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) spread=2.0
    """
    return call("variance_pop", x)


def count_distinct(x: Argument) -> AggregateCall:
    """The number of different values that are not null.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (3, 3, 8, None)]
    >>> print(next(ew.run(s.aggregate(n=ew.count_distinct("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) n=2
    """
    return call("count_distinct", x)


def median(x: Argument) -> AggregateCall:
    """The middle value: numbers are interpolated, of other types the lower of the middle two is taken.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 3, 10)]
    >>> print(next(ew.run(s.aggregate(middle=ew.median("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) middle=2.5
    """
    return call("median", x)


def quantile(x: Argument, q: float) -> AggregateCall:
    """The value below which a share `q` of the values lies, interpolated as `median` is.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in range(11)]
    >>> print(next(ew.run(s.aggregate(p90=ew.quantile("x", 0.9)), {"S": rows}, ew.STRONG)))
    insert [0, 1) p90=9.0
    """
    return call("quantile", x, parameters=(q,))


def top_k(x: Argument, k: int) -> AggregateCall:
    """The `k` largest values as a list, the largest first.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 6)]
    >>> print(next(ew.run(s.aggregate(best=ew.top_k("x", 2)), {"S": rows}, ew.STRONG)))
    insert [0, 1) best=[6, 2]
    """
    return call("top_k", x, parameters=(k,))


def first(x: Argument, by: Argument) -> AggregateCall:
    """`x` of the row with the smallest `by`; of several rows the smallest `x`, nulls first.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "string", "day": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x, "day": day}) for x, day in (("b", 2), ("a", 1))]
    >>> print(next(ew.run(s.aggregate(earliest=ew.first("x", by="day")), {"S": rows}, ew.STRONG)))
    insert [0, 1) earliest='a'
    """
    return call("first", x, by)


def last(x: Argument, by: Argument) -> AggregateCall:
    """`x` of the row with the largest `by`; of several rows the smallest `x`, nulls first.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "string", "day": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x, "day": day}) for x, day in (("b", 2), ("a", 1))]
    >>> print(next(ew.run(s.aggregate(latest=ew.last("x", by="day")), {"S": rows}, ew.STRONG)))
    insert [0, 1) latest='b'
    """
    return call("last", x, by)


def aggregate(user: UserAggregate) -> Callable[[Argument], AggregateCall]:
    """A user-defined aggregate as a constructor: `aggregate(my_product)("price")`.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> import pyarrow as pa
    >>> product = ew.aggregate(ew.UserAggregate(lambda v: v, lambda p, v: p * v, lambda p: p, pa.int64()))
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 6)]
    >>> print(next(ew.run(s.aggregate(p=product("x")), {"S": rows}, ew.STRONG)))
    insert [0, 1) p=12
    """
    return lambda x: call("user", x, parameters=(user,))
