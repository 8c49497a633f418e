"""Functions over frames for the fluent API, as `ew.frames`: what `Stream.over` takes.

`rows=(-2, 0)` is the frame from two rows before to the row itself, `range=(-5, 0)` that of the rows whose value of the
order is at most 5 less; None as a bound means that there is none.
"""

from __future__ import annotations

from typing import Any

from everwhen.algebra.ranks.over import Frame, OverFunction
from everwhen.errors import QueryError

Bounds = tuple[int | float | None, int | float | None]


def count(column: str | None = None, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The number of rows of the frame, or of those whose value is not null."""
    return _framed("count", column, rows, range)


def sum(column: str, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The sum over the frame."""
    return _framed("sum", column, rows, range)


def avg(column: str, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The mean over the frame."""
    return _framed("avg", column, rows, range)


def min(column: str, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The smallest value of the frame."""
    return _framed("min", column, rows, range)


def max(column: str, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The largest value of the frame."""
    return _framed("max", column, rows, range)


def first_value(column: str, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The value of the frame's first row."""
    return _framed("first_value", column, rows, range)


def last_value(column: str, rows: Bounds | None = None, range: Bounds | None = None) -> OverFunction:
    """The value of the frame's last row."""
    return _framed("last_value", column, rows, range)


def lag(column: str, places: int = 1, default: Any = None) -> OverFunction:
    """The value of the row so many places before."""
    return OverFunction("", "lag", column, None, places, default)


def lead(column: str, places: int = 1, default: Any = None) -> OverFunction:
    """The value of the row so many places behind."""
    return OverFunction("", "lead", column, None, places, default)


def ntile(parts: int) -> OverFunction:
    """Which of so many parts of the rows the row is in."""
    return OverFunction("", "ntile", places=parts)


def percent_rank() -> OverFunction:
    """How far behind the first row it stands, from 0 to 1."""
    return OverFunction("", "percent_rank")


def cume_dist() -> OverFunction:
    """The share of rows that do not stand behind it."""
    return OverFunction("", "cume_dist")


def _framed(function: str, column: str | None, rows: Bounds | None, range: Bounds | None) -> OverFunction:
    if rows is not None and range is not None:
        raise QueryError("a frame has rows or a range, not both")
    frame = Frame("rows", *rows) if rows is not None else Frame("range", *range) if range is not None else None
    return OverFunction("", function, column, frame)
