from __future__ import annotations

from threading import Thread

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, show, show_span
from everwhen.core.time_axis import TICKS, TimeAxis, asked_axis, common_axis, times_shown
from everwhen.engine.interruption import apart
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust

MILLIS = TimeAxis(dated=True)


def test_times_at_the_edges() -> None:
    first, last = -62_135_596_800_000, 253_402_300_799_000
    times = np.array([first, last, first - 1, last + 86_400_000, MIN_TIME, MAX_TIME], np.int64)
    texts = MILLIS.texts(times)
    assert texts[:2] == ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
    assert texts[2:] == [str(t) for t in times[2:].tolist()]  # numbers, where no year has four digits
    assert TimeAxis(1, dated=True).text(MAX_TIME) == "2116-02-20T23:53:38.427387903Z"
    assert MILLIS.texts(np.array([], np.int64)) == []


def test_numbers_stay_numbers() -> None:
    assert (TICKS.text(7), TICKS.shown(-7)) == ("7", "-7")
    assert TICKS.array(np.array([1, INF])).to_pylist() == [1, None]


@pytest.mark.parametrize(
    ("tick", "unit", "scale"), [(1, "ns", 1), (10**3, "us", 1), (10**7, "ms", 10), (90 * 10**9, "ms", 90_000)]
)
def test_the_unit_of_a_column_is_the_longest_that_fits(tick: int, unit: str, scale: int) -> None:
    axis = TimeAxis(tick, dated=True)
    found = axis.array(np.array([-3, 0, 7, INF]))
    assert found.type == axis.arrow_type == pa.timestamp(unit, "UTC")
    assert found.cast(pa.int64()).to_pylist() == [-3 * scale, 0, 7 * scale, None]


def test_a_time_that_no_timestamp_can_tell() -> None:
    with pytest.raises(QueryError, match="too large for a timestamp in ms"):
        TimeAxis(90 * 10**9, dated=True).array(np.array([2**61]))


def test_an_axis_has_a_tick() -> None:
    with pytest.raises(QueryError, match="longer than nothing"):
        TimeAxis(0)
    assert [TimeAxis(n).tick_text for n in (1, 1500, 10**9, 3600 * 10**9)] == ["1ns", "1500ns", "1s", "3600s"]


def test_timestamps_win_over_numbers() -> None:
    micros = TimeAxis(10**3, dated=True)
    assert common_axis([TICKS, micros, MILLIS]) == micros
    assert common_axis([TICKS, TimeAxis(10**9)]) == TICKS
    assert common_axis([]) == TICKS
    assert asked_axis(micros, "ticks") == TimeAxis(10**3) and asked_axis(TICKS, "iso") == MILLIS
    assert asked_axis(micros, "auto") == micros


def test_messages_show_times_on_the_axis_that_is_set() -> None:
    with times_shown(MILLIS):
        assert (show(0), show(INF), show(NEVER)) == ("1970-01-01 00:00:00", "∞", "-∞")
        assert str(Adjust(0, INF, 1, {})).startswith("adjust [1970-01-01 00:00:00, ∞ -> 1970-01-01 00:00:00.001)")
        assert apart(lambda: show(0), lambda: None) == "1970-01-01 00:00:00"  # also where work is done apart
        told: list[str] = []
        other = Thread(target=lambda: told.append(show(0)))
        other.start()
        other.join()
        assert told == ["0"]  # other threads are nobody's business
    assert show(0) == "0"


@pytest.mark.parametrize(
    ("axis", "length", "said"),
    [
        (MILLIS, 599_000, "9m59s"), (MILLIS, 0, "0s"), (MILLIS, 1_500, "1.5s"), (MILLIS, 86_400_000, "1d"),
        (TimeAxis(1, dated=True), 1, "0.000000001s"), (TICKS, 599_000, "599000 ticks"), (TICKS, 1, "1 tick"),
    ],
)  # fmt: skip
def test_spans_are_shown_as_times_are(axis: TimeAxis, length: int, said: str) -> None:
    with times_shown(axis):
        assert show_span(length) == said
    assert show_span(length).endswith(("tick", "ticks"))
