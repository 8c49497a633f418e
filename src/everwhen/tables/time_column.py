"""Times as columns of tables: whole numbers of ticks, or timestamps in UTC."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF
from everwhen.errors import TimeRangeError

_UNITS: Final = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))


def time_type(tick: int, dated: bool) -> pa.DataType:
    """The type of a column of times, where a tick has so many nanoseconds.

    >>> time_type(10**6, dated=True), time_type(60 * 10**9, dated=True), time_type(1, dated=False)
    (TimestampType(timestamp[ms, tz=UTC]), TimestampType(timestamp[s, tz=UTC]), DataType(int64))
    """
    return pa.timestamp(_unit(tick)[0], "UTC") if dated else pa.int64()


def time_column(times: np.ndarray, tick: int, dated: bool) -> pa.Array:
    """Times as a column; infinity is null.

    >>> time_column(np.array([0, 1500, INF]), 10**6, dated=True).cast("string").to_pylist()
    ['1970-01-01 00:00:00.000Z', '1970-01-01 00:00:01.500Z', None]
    """
    missing = times == INF
    if not dated:
        return pa.array(times, mask=missing)
    unit, length = _unit(tick)
    scale = tick // length
    numbers = np.where(missing, 0, times)
    if scale > 1 and (np.abs(numbers) > INF // scale).any():
        raise TimeRangeError(f"a time is too large for a timestamp in {unit}; ask for numbers: times='ticks'")
    return pa.array(numbers * scale, mask=missing).cast(pa.timestamp(unit, "UTC"))


def _unit(tick: int) -> tuple[str, int]:
    """The longest unit of Arrow's of which a tick is a whole number."""
    return next(each for each in _UNITS if tick % each[1] == 0)
