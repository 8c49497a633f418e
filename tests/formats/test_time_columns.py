from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.scalars import Unfit
from everwhen.core.time_axis import TimeAxis
from everwhen.formats.time_columns import texts_as_ticks, tick_needed, ticks_of_array, ticks_of_text

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
ZONES = st.sampled_from(["", "Z", "+00:00", "+05:30", "-0800"])
LENGTHS = st.sampled_from([10**3, 10**6, 10**7, 10**9])


@given(moments=st.lists(st.tuples(MOMENTS, ZONES), min_size=1, max_size=4), tick=LENGTHS, mixed=st.booleans())
def test_a_column_is_read_as_its_values_are(moments: list[tuple[datetime, str]], tick: int, mixed: bool) -> None:
    zone = moments[0][1]
    texts = [f"{moment.isoformat(' ')}{each if mixed else zone}" for moment, each in moments]
    try:
        expected = [ticks_of_text(text, "t", tick) for text in texts]
    except Unfit as bad:
        assert texts_as_ticks(pa.array(texts), tick) is None
        with pytest.raises(Unfit, match="no whole number of ticks") as found:
            ticks_of_array(pa.array(texts), "t", tick)
        assert found.value.problem == bad.problem
        return
    assert ticks_of_array(pa.array(texts), "t", tick).to_pylist() == expected
    whole = texts_as_ticks(pa.array(texts), tick)
    assert whole is None or whole.to_pylist() == expected


@given(moment=MOMENTS, tick=LENGTHS)
def test_text_says_the_moment(moment: datetime, tick: int) -> None:
    t = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000 // tick
    text = TimeAxis(tick, dated=True).text(t)
    assert ticks_of_text(text, "t", tick) == t
    said = datetime.fromisoformat(text)
    assert said == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=t * tick // 1000)
    assert "." not in text or not text.removesuffix("Z").endswith("." + "0" * (len(text.split(".")[1]) - 1))


def test_types_of_columns() -> None:
    moment = datetime(2015, 2, 26, 21, 0, 0)
    for type_ in (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "UTC")):
        assert ticks_of_array(pa.array([moment, None], type_), "t", 10**6).to_pylist() == [1424984400000, None]
    assert ticks_of_array(pa.array([moment.date()]), "t", 10**9).to_pylist() == [1424908800]
    assert ticks_of_array(pa.array([None, 7], pa.int32()), "t", 10**9).to_pylist() == [None, 7]
    assert ticks_of_array(pa.array(["7", None, "-3"]), "t", 10**9).to_pylist() == [7, None, -3]
    assert ticks_of_array(pa.array(["7", "1970-01-01"]).dictionary_encode(), "t", 1).to_pylist() == [7, 0]
    with pytest.raises(Unfit, match="of type double"):
        ticks_of_array(pa.array([1.0]), "t", 1)
    with pytest.raises(Unfit, match="out of range"):
        ticks_of_array(pa.array([2**62], pa.timestamp("s")), "t", 1)


@pytest.mark.parametrize(
    ("texts", "needed"),
    [
        ([], 10**6),
        (["2015-01-01", None], 10**6),
        (["2015-01-01T00:00:00.000001Z"], 10**3),
        (["2015-01-01T00:00:00.000000001"], 1),
        (["2015-01-01T00:00:00.0000000001"], 10**6),  # nothing is short enough: the reader says so
        (["2015-01-01T00:00:00.000001Z", "2015-01-01"], 10**3),
        (["nonsense"], 10**6),
    ],
)
def test_the_tick_that_texts_need(texts: list[str | None], needed: int) -> None:
    assert tick_needed(pa.array(texts, pa.string()), 10**6) == needed
