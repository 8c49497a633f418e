"""One spelling per value, and the order that breaks ties.

Rows are compared as tuples, so equal values must be equal Python objects: every NaN becomes the same object, and
nested values become tuples.  The order is the one that ties between rows are broken by: nulls first, then the natural
order, NaN after every number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Row = tuple[Any, ...]


def canonical(value: Any) -> Any:
    """The spelling of a value under which equal means equal.

    >>> canonical(float("nan")) is canonical(float("nan")), canonical([1, [2]])
    (True, (1, (2,)))
    """
    if isinstance(value, float) and math.isnan(value):
        return math.nan
    if isinstance(value, list | tuple):
        return tuple(map(canonical, value))
    if isinstance(value, dict):
        return tuple((key, canonical(part)) for key, part in value.items())
    return value


def canonical_row(values: Iterable[Any]) -> Row:
    return tuple(map(canonical, values))


def value_order(value: Any) -> tuple[Any, ...]:
    """A sort key.

    >>> sorted([2.0, None, math.nan, -1.0], key=value_order)
    [None, -1.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, row_order(value) if isinstance(value, tuple) else value)


def row_order(row: Row) -> tuple[tuple[Any, ...], ...]:
    """A sort key for rows: column by column."""
    return tuple(map(value_order, row))
