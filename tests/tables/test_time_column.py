"""Times as columns: units, infinity, what is too large."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.time import INF
from everwhen.errors import TimeRangeError
from everwhen.tables.time_column import time_column, time_type


@pytest.mark.parametrize(
    ("tick", "unit", "scale"),
    [(1, "ns", 1), (10**3, "us", 1), (10**7, "ms", 10), (10**9, "s", 1), (90 * 10**9, "s", 90)],
)
def test_the_unit_is_the_longest_that_fits(tick: int, unit: str, scale: int) -> None:
    found = time_column(np.array([-3, 0, 7, INF]), tick, dated=True)
    assert found.type == time_type(tick, dated=True) == pa.timestamp(unit, "UTC")
    assert found.cast(pa.int64()).to_pylist() == [-3 * scale, 0, 7 * scale, None]


def test_numbers_stay_numbers() -> None:
    assert time_column(np.array([5, INF]), 10**6, dated=False).to_pylist() == [5, None]
    assert time_type(10**6, dated=False) == pa.int64()


def test_a_time_that_no_timestamp_can_tell() -> None:
    with pytest.raises(TimeRangeError, match="too large for a timestamp in s"):
        time_column(np.array([2**61]), 90 * 10**9, dated=True)
