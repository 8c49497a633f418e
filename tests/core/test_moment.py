"""Times that are numbers and print as timestamps."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime

from everwhen.core.moment import Moment, moment, moments
from everwhen.core.time import INF, NEVER, show
from everwhen.core.time_axis import TICKS, TimeAxis

DATED = TimeAxis(10**6, dated=True)


def test_it_is_the_number_everywhere_but_in_print() -> None:
    at = moment(1424984400123, DATED)
    assert at == 1424984400123 and hash(at) == hash(1424984400123) and {at: 1}[1424984400123] == 1
    assert type(at - 1) is int and at > 0 and json.dumps({"t": at}) == '{"t": 1424984400123}'
    assert str(at) == repr(at) == f"{at}" == show(at) == "2015-02-26 21:00:00.123"
    assert f"{at:,}" == "1,424,984,400,123"


def test_copies_are_moments_too() -> None:
    at = moment(5, TimeAxis(10**9, dated=True))
    for other in (pickle.loads(pickle.dumps(at)), copy.deepcopy(at)):
        assert isinstance(other, Moment) and str(other) == "1970-01-01 00:00:05"


def test_as_python_has_it() -> None:
    at = moment(1_500_001, TimeAxis(10**3, dated=True))
    assert isinstance(at, Moment) and at.datetime == datetime(1970, 1, 1, 0, 0, 1, 500_001, tzinfo=UTC)


def test_what_is_no_date_stays_a_number() -> None:
    assert type(moment(5, TICKS)) is int
    assert [type(moment(t, DATED)) for t in (INF, NEVER)] == [int, int]
    assert str(moments({"S": 5, "T": 5}, {"S": DATED})) == "{'S': 1970-01-01 00:00:00.005, 'T': 5}"


def test_a_time_beyond_the_years_of_text_prints_as_a_number() -> None:
    assert str(moment(2**61, DATED)) == str(2**61)
