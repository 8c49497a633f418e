"""Values as JSON in a browser can hold them: whole numbers beyond 2**53 as text, times with their infinities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from everwhen.core.scalars import json_values
from everwhen.core.time import INF, NEVER

EXACT: Final = 2**53
"""Numbers of JavaScript are exact below it."""
_LONGEST: Final = 400
"""Characters of a text that are shown."""


def plain_time(t: int) -> int | str | None:
    """An instant: null before all times, "inf" after them, text where a number would not be exact.

    >>> plain_time(5), plain_time(INF), plain_time(NEVER), plain_time(2**60)
    (5, 'inf', None, '1152921504606846976')
    """
    if t == NEVER:
        return None
    if t == INF:
        return "inf"
    return t if -EXACT < t < EXACT else str(t)


def plain_value(value: Any) -> Any:
    """A value that JSON has: long texts cut, large whole numbers as text.

    >>> plain_value(2**60), plain_value([1, None]), plain_value("x" * 500)[-2:]
    ('1152921504606846976', [1, None], 'x…')
    """
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -EXACT < value < EXACT else str(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value[:50]]
    if isinstance(value, dict):
        return {str(name): plain_value(each) for name, each in list(value.items())[:50]}
    return value


def plain_rows(columns: Sequence[pa.Array], length: int) -> list[list[Any]]:
    """Columns as rows."""
    if not columns:
        return [[] for _ in range(length)]
    values = [[plain_value(value) for value in _values(column)] for column in columns]
    return [list(row) for row in zip(*values, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_nested(column.type) and not pa.types.is_list(column.type):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return json_values(column)
