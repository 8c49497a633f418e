"""Aggregates in a query: which calls are aggregates, and what they are over the rows that are grouped.

DISTINCT inside a count is a function of its own; inside a minimum or maximum it changes nothing; any other aggregate
of distinct values is taken over rows without duplicates and joined to the rest (`select`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from everwhen.algebra.aggregates import UserAggregate
from everwhen.algebra.expressions.build import Expr, Literal, lit, when
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
    "median": "median",
    "quantile": "quantile",
    "top_k": "top_k",
    "first": "first",
    "last": "last",
    "arg_min": "first",
    "min_by": "first",
    "arg_max": "last",
    "max_by": "last",
}
_PARAMETERS: Final = {"quantile": 1, "top_k": 1}
_ARGUMENTS: Final = {"first": 2, "last": 2}


@dataclass(frozen=True, slots=True)
class AggregateUse:
    """An aggregate over the rows before grouping; `distinct` if it is over the rows without duplicates."""

    function: str
    args: tuple[Expr, ...]
    parameters: tuple[Any, ...]
    distinct: bool

    def same(self, other: AggregateUse) -> bool:
        return (
            (self.function, self.parameters, self.distinct) == (other.function, other.parameters, other.distinct)
            and len(self.args) == len(other.args)
            and all(a.equals(b) for a, b in zip(self.args, other.args, strict=True))
        )


def is_aggregate(call: s.Function, binding: Binding) -> bool:
    if call.over is not None:
        return False
    user = binding.catalog.functions.get(call.name)
    return isinstance(user, UserAggregate) if user is not None else call.name in AGGREGATES


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
