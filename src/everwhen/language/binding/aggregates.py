"""Aggregates in a query: which calls are aggregates, and what they are over the rows that are grouped.

DISTINCT inside a count is a function of its own; inside a minimum or maximum it changes nothing; any other aggregate
of distinct values is taken over rows without duplicates and joined to the rest (`groups`).  Some are spelled with
others: EVERY is the minimum of truth values, STRING_AGG joins the texts of ARRAY_AGG, and BIT_AND looks at the sums of
columns with two bits each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.aggregates.calls import UserAggregate
from everwhen.algebra.expressions.build import Expr, Literal, function, lit, when
from everwhen.algebra.expressions.families.bits import PAIRS
from everwhen.core.kinds import is_number, kind
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding, Rows

AGGREGATES: Final = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "stddev": "stddev",
    "stddev_samp": "stddev",
    "stddev_pop": "stddev_pop",
    "variance": "variance",
    "var_samp": "variance",
    "var_pop": "variance_pop",
    "variance_pop": "variance_pop",
    "count_distinct": "count_distinct",
    "approx_count_distinct": "count_distinct",
    "median": "median",
    "quantile": "quantile",
    "quantile_cont": "quantile",
    "quantile_disc": "quantile_disc",
    "percentile_cont": "quantile",
    "percentile_disc": "quantile_disc",
    "mode": "mode",
    "top_k": "top_k",
    "first": "first",
    "last": "last",
    "arg_min": "first",
    "min_by": "first",
    "arg_max": "last",
    "max_by": "last",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "some": "max",
    "any": "max",
    "any_value": "min",
    "count_if": "count",
    "countif": "count",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
    "array_agg": "array_agg",
    "collect_list": "array_agg",
    "collect_set": "array_agg",
    "string_agg": "string_agg",
    "listagg": "string_agg",
    "group_concat": "string_agg",
}
_PARAMETERS: Final = {"quantile": 1, "quantile_disc": 1, "top_k": 1}
_ARGUMENTS: Final = {"first": 2, "last": 2}
_OF_CONDITIONS: Final = ("bool_and", "every", "bool_or", "some", "any", "count_if", "countif")
_WITHIN_GROUP: Final = ("percentile_cont", "percentile_disc", "mode")
_LISTS: Final = ("array_agg", "string_agg")


@dataclass(frozen=True, slots=True)
class AggregateUse:
    """An aggregate over the rows before grouping; `distinct` if it is over the rows without duplicates."""

    function: str
    args: tuple[Expr, ...]
    parameters: tuple[Any, ...]
    distinct: bool

    @property
    def apart(self) -> bool:
        """Whether it needs rows of its own."""
        return self.distinct or self.function == "mode"

    def same(self, other: AggregateUse) -> bool:
        return (
            (self.function, self.parameters, self.distinct) == (other.function, other.parameters, other.distinct)
            and len(self.args) == len(other.args)
            and all(a.equals(b) for a, b in zip(self.args, other.args, strict=True))
        )


Over = Callable[[Sequence[Expr]], Expr]
"""What a call is, over the columns of the aggregates that it uses."""


def is_aggregate(call: s.Function, binding: Binding) -> bool:
    if call.over is not None:
        return False
    user = binding.catalog.functions.get(call.name)
    return isinstance(user, UserAggregate) if user is not None else call.name in AGGREGATES


def aggregate_uses(
    call: s.Function, args: list[Expr], order: list[Expr], where: Expr | None, rows: Rows
) -> tuple[list[AggregateUse], Over]:
    """The aggregates that the call needs, and what it makes of them; arguments and ORDER BY are bound already."""
    function_ = AGGREGATES.get(call.name, "")
    if rows.binding.catalog.functions.get(call.name) is None:
        if call.name in _OF_CONDITIONS:
            _require_conditions(call, args, rows)
        if function_ in _LISTS:
            return _list_uses(call, args, order, where, rows)
        if function_.startswith("bit_"):
            return _bit_uses(call, function_, args, where, rows)
        if call.name in _WITHIN_GROUP:
            return _ordered_set(call, args, order, where, rows)
        if call.order:
            raise rows.binding.error(f"{call.name.upper()} does not depend on an order; leave ORDER BY out", call.span)
        if call.name in ("count_if", "countif"):
            return [AggregateUse("count", (_where(when(args[0]).then(1).otherwise(None), where),), (), False)], _only
        if function_ == "count" and call.distinct and len(args) > 1:
            return [_distinct_rows(args, where)], _only
    return [aggregate_use(call, args, where, rows)], _only


def _only(columns: Sequence[Expr]) -> Expr:
    return columns[0]


def aggregate_use(call: s.Function, args: list[Expr], where: Expr | None, rows: Rows) -> AggregateUse:
    """The call as an aggregate, its arguments bound already."""
    error = rows.binding.error
    user = rows.binding.catalog.functions.get(call.name)
    if isinstance(user, UserAggregate):
        _require(len(args) == 1, call, f"{call.name} takes 1 argument, not {len(args)}", rows)
        return AggregateUse("user", (_where(args[0], where),), (user,), call.distinct)
    function = AGGREGATES[call.name]
    if call.star:
        if function != "count" or call.distinct:
            raise error(f"only COUNT takes *; write for example {call.name.upper()}(price)", call.span)
        args = []
    elif function == "count" and not args:
        raise error("COUNT takes * or a value: COUNT(*), COUNT(price)", call.span)
    parameters = tuple(_parameter(arg, call, rows) for arg in args[len(args) - _PARAMETERS.get(function, 0) :])
    args = args[: len(args) - len(parameters)] if function in _PARAMETERS else args
    if function not in _PARAMETERS:
        parameters = ()
    wanted = _ARGUMENTS.get(function, 1)
    if not call.star:
        more = " and a constant" if function in _PARAMETERS else ""
        _require(
            len(args) == wanted,
            call,
            f"{call.name.upper()} takes {wanted} value{'s' if wanted > 1 else ''}{more}, not {len(call.args)}",
            rows,
        )
    distinct = call.distinct
    if distinct and function == "count":
        function, distinct = "count_distinct", False
    if function in ("min", "max", "count_distinct"):
        distinct = False
    if where is not None:
        args = [_where(args[0], where), *args[1:]] if args else [_where(lit(1), where)]
        if function in ("first", "last"):
            args[1] = _where(args[1], where)
    return AggregateUse(function, tuple(args), parameters, distinct)


# -- spelled with others -----------------------------------------------------------------------------------------------


def _distinct_rows(args: list[Expr], where: Expr | None) -> AggregateUse:
    """COUNT(DISTINCT a, b): different pairs in which nothing is null."""
    there = reduce(lambda a, b: a & b, [arg.not_null() for arg in args])
    whole = there if where is None else where & there
    # the first says whether a pair counts, the others only tell pairs from each other
    return AggregateUse("count", (when(whole).then(1).otherwise(None), *(_where(arg, whole) for arg in args)), (), True)


def _ordered_set(
    call: s.Function, args: list[Expr], order: list[Expr], where: Expr | None, rows: Rows
) -> tuple[list[AggregateUse], Over]:
    """PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x [DESC]), PERCENTILE_DISC, MODE() WITHIN GROUP (ORDER BY x)."""
    shown = call.name.upper()
    if call.name == "mode":
        _require(
            len(args) + len(order) == 1, call, "MODE takes a value: MODE(x), or () WITHIN GROUP (ORDER BY x)", rows
        )
        return [AggregateUse("mode", (_where((args + order)[0], where),), (), False)], _only
    fits = len(args) == 1 and len(order) == 1
    _require(fits, call, f"write {shown}(0.5) WITHIN GROUP (ORDER BY x)", rows)
    share, value, descending = _parameter(args[0], call, rows), order[0], call.order[0][1]
    if call.name == "percentile_cont":
        exact = 1 - share if descending and isinstance(share, int | float) else share
        return [AggregateUse("quantile", (_where(value, where),), (exact,), False)], _only
    if not descending:
        return [AggregateUse("quantile_disc", (_where(value, where),), (share,), False)], _only
    type_ = value.bind(rows.node.schema)
    _require(is_number(type_), call, f"{shown} with DESC is of numbers; leave DESC out and take 1 - {share}", rows)
    return [AggregateUse("quantile_disc", (_where(-value, where),), (share,), False)], lambda found: -found[0]


def _list_uses(
    call: s.Function, args: list[Expr], order: list[Expr], where: Expr | None, rows: Rows
) -> tuple[list[AggregateUse], Over]:
    """ARRAY_AGG(x ORDER BY y), STRING_AGG(x, ', ' ORDER BY y): in one direction, ties in the order of x."""
    text = AGGREGATES[call.name] == "string_agg"
    descending = {down for _, down in call.order}
    _require(len(descending) < 2, call, "all of ORDER BY go one way in an aggregate: ASC or DESC", rows)
    _require(len(order) <= 8, call, "at most 8 expressions stand in ORDER BY of an aggregate", rows)
    separator: Expr = lit(",")
    if text and len(args) == 2:
        separator = args.pop()
        _require(isinstance(separator, Literal), call, "the separator is a constant", rows)
    _require(len(args) == 1, call, f"{call.name.upper()} takes a value{' and a separator' * text}", rows)
    value = args[0]
    if text and kind(value.bind(rows.node.schema)) != "string":
        value = value.cast(pa.string())
    by = [each for each in order if not each.equals(args[0])]
    distinct = call.distinct or call.name == "collect_set"
    _require(not (distinct and by), call, "of distinct values only their own order is known; leave ORDER BY out", rows)
    use = AggregateUse("array_agg", (_where(value, where), *by), (True in descending,), distinct)
    if not text:
        return [use], _only
    return (
        [use],
        lambda found: (
            when(function("cardinality", found[0]) > 0)
            .then(function("array_join", found[0], separator))
            .otherwise(None)
        ),
    )


def _bit_uses(
    call: s.Function, function_: str, args: list[Expr], where: Expr | None, rows: Rows
) -> tuple[list[AggregateUse], Over]:
    """How many values there are, and how many of them have each bit."""
    _require(len(args) == 1, call, f"{call.name.upper()} takes 1 value, not {len(args)}", rows)
    type_ = args[0].bind(rows.node.schema)
    _require(kind(type_) == "integer", call, f"{call.name.upper()} needs integers; {args[0]} is of type {type_}", rows)
    value = _where(args[0], where)
    fits = not (call.distinct and function_ == "bit_xor")
    _require(fits, call, "BIT_XOR(DISTINCT …) is not part of the language; take it over a SELECT DISTINCT", rows)
    name = {"bit_and": "_bits_of_all", "bit_or": "_bits_of_any", "bit_xor": "_bits_of_odd"}[function_]
    pairs = [AggregateUse("sum", (function("_bit_pair", value, place),), (), False) for place in range(PAIRS)]
    return [AggregateUse("count", (value,), (), False), *pairs], lambda found: function(name, *found)


def _require_conditions(call: s.Function, args: list[Expr], rows: Rows) -> None:
    _require(len(args) == 1, call, f"{call.name.upper()} takes 1 condition, not {len(args)}", rows)
    type_ = args[0].bind(rows.node.schema)
    fits = kind(type_) == "boolean"
    _require(fits, call, f"{call.name.upper()} is of conditions; {args[0]} is of type {type_}", rows)


def _where(arg: Expr, where: Expr | None) -> Expr:
    """Null, which aggregates pass over, where the condition of FILTER is not true."""
    return arg if where is None else when(where).then(arg).otherwise(None)


def _parameter(arg: Expr, call: s.Function, rows: Rows) -> Any:
    if not isinstance(arg, Literal):
        raise rows.binding.error(f"the last argument of {call.name.upper()} is a constant", call.args[-1].span)
    return arg.constant


def _require(fits: bool, call: s.Function, problem: str, rows: Rows) -> None:
    if not fits:
        raise rows.binding.error(problem, call.span)
