"""Calls with OVER other than ranks: their arguments and frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Expr, Literal, lit, when
from everwhen.algebra.nodes import Ordering
from everwhen.algebra.ranks.over import FRAMED, OVER_FUNCTIONS, PLACES, SHIFTS, Frame, OverFunction
from everwhen.language import syntax as s
from everwhen.language.binding.context import Rows
from everwhen.language.binding.expressions import condition, value

_SPELLINGS: Final = {"mean": "avg"}
_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


def over_function(
    call: s.Function, order: Sequence[Ordering], rows: Rows, as_columns: Callable[[Sequence[Expr], Rows], list[str]]
) -> OverFunction:
    """The call as a function over frames, its argument as a column of the rows."""
    error, name = rows.binding.error, _SPELLINGS.get(call.name, call.name)
    assert call.over is not None
    if name not in OVER_FUNCTIONS:
        there = ", ".join(map(str.upper, ("row_number", "rank", "dense_rank", *OVER_FUNCTIONS)))
        raise error(f"there is no {call.name.upper()} OVER; there is {there}", call.span)
    if call.distinct:
        raise error(f"{call.name.upper()}(DISTINCT …) OVER is not part of the language", call.span)
    if (call.star and name != "count") or (call.where is not None and name not in FRAMED[:5]):
        raise error(f"{call.name.upper()} OVER takes no {'*' if call.star else 'FILTER'}", call.span)
    args = [value(arg, rows) for arg in call.args]
    least, most = (1, 3) if name in SHIFTS else (1, 1) if name in (*FRAMED, "ntile") and not call.star else (0, 0)
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise error(f"{call.name.upper()} OVER takes {wanted} values, not {len(args)}", call.span)
    places, default, column = 1, None, None
    if name == "ntile":
        places = _constant(args[0], call, 0, rows)
    elif name in SHIFTS:
        places = _constant(args[1], call, 1, rows) if len(args) > 1 else 1
        default = _constant(args[2], call, 2, rows) if len(args) > 2 else None
    if name not in PLACES:
        if call.where is not None:
            args = [when(condition(call.where, rows)).then(args[0] if args else lit(1)).otherwise(None)]
        if args:
            column = as_columns([args[0]], rows)[0]
    frame = None if call.over.frame is None else _frame(call.over.frame, order, rows)
    return OverFunction(rows.binding.name(name), name, column, frame, places, default)


def _constant(arg: Expr, call: s.Function, at: int, rows: Rows) -> Any:
    if not isinstance(arg, Literal):
        raise rows.binding.error(
            f"this argument of {call.name.upper()} is a constant of the column's type", call.args[at].span
        )
    return arg.constant


def _frame(frame: s.Frame, order: Sequence[Ordering], rows: Rows) -> Frame:
    return Frame(frame.unit, _bound(frame.start, frame, order, rows), _bound(frame.end, frame, order, rows))


def _bound(bound: s.FrameBound, frame: s.Frame, order: Sequence[Ordering], rows: Rows) -> int | float | None:
    if bound.offset is None:
        return None
    expr = value(bound.offset, rows)
    number = expr.constant if isinstance(expr, Literal) else None
    if isinstance(number, timedelta) and frame.unit == "range" and order:
        number = _ticks(number, rows.node.schema.field(order[0].column).type)
    if isinstance(number, Decimal):
        number = float(number)
    if not isinstance(number, int | float) or isinstance(number, bool) or number < 0:
        raise rows.binding.error(
            "a bound of a frame is a constant from 0 on: a number, or for a RANGE of times an INTERVAL", bound.span
        )
    return number if bound.following else -number


def _ticks(length: timedelta, type_: pa.DataType) -> Any:
    """A length in the unit of a type of times."""
    is_ = pa.types
    micros = length // timedelta(microseconds=1)
    if is_.is_date32(type_):
        unit = 86_400_000_000
    elif is_.is_timestamp(type_) or is_.is_duration(type_) or is_.is_time(type_):
        unit = _UNITS.get(type_.unit, 0)
    else:
        return None
    return micros * 1000 if unit == 0 else micros // unit if micros % unit == 0 else None
