"""The table of scalar functions: for each its arguments, its meaning for values, its rule for columns.

`FUNCTIONS` also holds the operators under their symbols, so that a `Call` is one thing.  A strict function is null
where an argument is; the others are given their arguments unevaluated and decide themselves.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions import definition
from everwhen.algebra.expressions.arithmetic import ARITHMETIC
from everwhen.algebra.expressions.compute import Compiled, Rule, apply, unify
from everwhen.algebra.expressions.conditions import CONDITIONS, FALSE, comparison
from everwhen.algebra.expressions.families.bits import BIT_FUNCTIONS
from everwhen.algebra.expressions.families.calendar import CALENDAR_FUNCTIONS
from everwhen.algebra.expressions.families.json_text import JSON_FUNCTIONS
from everwhen.algebra.expressions.families.lists import LIST_FUNCTIONS
from everwhen.algebra.expressions.families.structs import STRUCT_FUNCTIONS
from everwhen.algebra.expressions.families.time_formats import FORMAT_FUNCTIONS
from everwhen.algebra.expressions.families.zones import ZONE_FUNCTIONS
from everwhen.algebra.expressions.number_functions import NUMBER_FUNCTIONS
from everwhen.algebra.expressions.scalar_function import ScalarFunction, Thunk
from everwhen.algebra.expressions.text_functions import TEXT_FUNCTIONS
from everwhen.algebra.expressions.time_functions import TIME_FUNCTIONS
from everwhen.core.kinds import is_orderable
from everwhen.errors import QueryError


def _and(*args: Thunk) -> bool | None:
    result: bool | None = True
    for arg in args:
        value = arg()
        if value is False:
            return False
        result = None if value is None else result
    return result


def _or(*args: Thunk) -> bool | None:
    result: bool | None = False
    for arg in args:
        value = arg()
        if value is True:
            return True
        result = None if value is None else result
    return result


def _in(operand: Thunk, *values: Thunk) -> bool | None:
    if not values:
        return False
    value, listed = operand(), [each() for each in values]
    if value is None:
        return None
    if any(each is not None and definition.compare(value, each) == 0 for each in listed):
        return True
    return None if None in listed else False


def _case(*parts: Thunk) -> Any:
    for condition, value in zip(parts[:-1:2], parts[1:-1:2], strict=True):
        if condition() is True:
            return value()
    return parts[-1]()


_STRICT_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "+": definition.add,
    "-": definition.subtract,
    "*": definition.multiply,
    "/": definition.divide,
    "//": definition.floor_divide,
    "%": definition.modulo,
    "=": lambda a, b: definition.compare(a, b) == 0,
    "<>": lambda a, b: definition.compare(a, b) != 0,
    "<": lambda a, b: definition.compare(a, b) < 0,
    "<=": lambda a, b: definition.compare(a, b) <= 0,
    ">": lambda a, b: definition.compare(a, b) > 0,
    ">=": lambda a, b: definition.compare(a, b) >= 0,
}
_RULES: Final = {**ARITHMETIC, **CONDITIONS}

OPERATORS: Final = (
    *(ScalarFunction(name, _RULES[name], meaning, 2, 2) for name, meaning in _STRICT_OPERATORS.items()),
    ScalarFunction("negate(x)", _RULES["negate"], definition.negate),
    ScalarFunction("not(condition)", _RULES["not"], lambda a: not a),
    ScalarFunction("and(condition, condition, …)", _RULES["and"], _and, 2, None, strict=False),
    ScalarFunction("or(condition, condition, …)", _RULES["or"], _or, 2, None, strict=False),
    ScalarFunction("is_null(x)", _RULES["is_null"], lambda a: a() is None, strict=False),
    ScalarFunction("not_null(x)", _RULES["not_null"], lambda a: a() is not None, strict=False),
    ScalarFunction("in(x, constant, …)", _RULES["in"], _in, 1, None, strict=False),
    ScalarFunction("case(condition, value, …, otherwise)", _RULES["case"], _case, 3, None, strict=False),
)


# -- functions of any type ---------------------------------------------------------------------------------------------


def _comparable(args: Sequence[Compiled], where: str, *, wide: bool = False) -> tuple[pa.DataType, list[Compiled]]:
    target, found = unify(args, where, wide=wide)
    if not is_orderable(target):
        raise QueryError(f"{where} needs values that can be compared; they are of type {target}")
    return target, found


def _extreme(symbol: str) -> Rule:
    """least, greatest: nulls are passed over."""

    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        target, found = _comparable(args, where)
        result = found[0]
        if pa.types.is_null(target):
            return result
        for arg in found[1:]:
            before = comparison(symbol, target, arg)
            result = apply(
                target,
                lambda a, b, before=before: pc.coalesce(pc.if_else(before(a, b), a, b), a, b),
                [result, arg],
                where,
            )
        return result

    return rule


def _extreme_value(choose: Callable[..., Any]) -> Callable[..., Any]:
    def value(*args: Thunk) -> Any:
        present = [each for arg in args if (each := arg()) is not None]
        if any(isinstance(each, float) for each in present):
            present = [float(each) for each in present]
        return choose(present, key=definition.order_key) if present else None

    return value


def _coalesce(args: Sequence[Compiled], where: str) -> Compiled:
    target, found = unify(args, where)
    return apply(target, pc.coalesce, found, where)


def _coalesce_value(*args: Thunk) -> Any:
    return next((value for arg in args if (value := arg()) is not None), None)


def _nullif(args: Sequence[Compiled], where: str) -> Compiled:
    """The first argument, or null where it equals the second."""
    left = args[0]
    target, found = _comparable(args, where, wide=True)
    if left.kind == "null":
        return left
    same, null = comparison("=", target, found[1]), pa.scalar(None, left.type)
    return apply(
        left.type,
        lambda kept, a, b: pc.if_else(pc.fill_null(same(a, b), FALSE), null, kept),
        [left, *found],
        where,
    )


def _nullif_value(left: Thunk, right: Thunk) -> Any:
    a, b = left(), right()
    return None if a is None or (b is not None and definition.compare(a, b) == 0) else a


_GENERAL: Final = (
    ScalarFunction("least(x, …)", _extreme("<"), _extreme_value(min), 1, None, strict=False),
    ScalarFunction("greatest(x, …)", _extreme(">"), _extreme_value(max), 1, None, strict=False),
    ScalarFunction("coalesce(x, …)", _coalesce, _coalesce_value, 1, None, strict=False),
    ScalarFunction("nullif(x, y)", _nullif, _nullif_value, 2, 2, strict=False),
)

_FAMILIES: Final = (
    *CALENDAR_FUNCTIONS,
    *FORMAT_FUNCTIONS,
    *ZONE_FUNCTIONS,
    *JSON_FUNCTIONS,
    *LIST_FUNCTIONS,
    *STRUCT_FUNCTIONS,
    *BIT_FUNCTIONS,
)

FUNCTIONS: Final[dict[str, ScalarFunction]] = {
    entry.name: entry
    for entry in (*OPERATORS, *_GENERAL, *NUMBER_FUNCTIONS, *TEXT_FUNCTIONS, *TIME_FUNCTIONS, *_FAMILIES)
}


def scalar_function(name: str) -> ScalarFunction:
    """The entry of that name; an unknown one names the nearest."""
    entry = FUNCTIONS.get(name)
    if entry is None:
        names = sorted(FUNCTIONS.keys() - {operator.name for operator in OPERATORS})
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise QueryError(f"unknown function {name!r}; {hint}")
    return entry
