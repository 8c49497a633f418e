"""When a run that goes on is fast-forwarded, and how much it takes at a time."""

from __future__ import annotations

import math

import pytest

from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live.pace import Pace, lag_allowed
from everwhen.errors import QueryError


def test_who_is_behind_for_a_while_is_told_where_the_readers_are() -> None:
    pace = Pace(100, 0.5)
    assert pace.skip_to(10, 5, NEVER, 0.0) is None
    assert pace.skip_to(12, 9, NEVER, 0.4) is None
    assert pace.skip_to(14, 9, NEVER, 0.5) == 14


def test_who_promises_what_the_readers_had_passed_keeps_up() -> None:
    pace = Pace(100, 0.5)
    for tick in range(20):  # always a bit behind, never for long
        assert pace.skip_to(10 * tick + 5, 10 * tick, NEVER, 0.3 * tick) is None


def test_nobody_is_sent_where_it_is_already_or_to_the_end() -> None:
    pace = Pace(100, 0.0)
    assert pace.skip_to(10, 10, NEVER, 0.0) is None
    assert pace.skip_to(10, 5, 10, 1.0) is None
    assert pace.skip_to(INF, 5, NEVER, 2.0) is None
    assert pace.skip_to(NEVER, NEVER, NEVER, 3.0) is None
    assert pace.skip_to(11, 5, 10, 4.0) == 11


def test_who_is_behind_takes_short_steps_and_long_ones_when_it_has_caught_up() -> None:
    pace = Pace(1_000, 0.5)
    pace.took(1_000, 2.0)
    assert pace.size == 1_000
    pace.skip_to(10, 5, NEVER, 0.0)
    pace.took(1_000, 2.0)
    assert pace.size == 25
    pace.took(25, 10.0)
    assert pace.size == 10  # never fewer
    pace.took(10, 0.0)  # what is skipped takes no time
    assert pace.size == 1_000
    pace.took(1_000, 2.0)
    pace.skip_to(10, 10, NEVER, 1.0)
    pace.took(25, 2.0)
    assert pace.size == 1_000


def test_a_batch_that_is_small_is_not_made_larger() -> None:
    pace = Pace(3, 0.5)
    pace.skip_to(10, 5, NEVER, 0.0)
    for seconds in (0.0, 1.0):
        pace.took(3, seconds)
        assert pace.size == 3


def test_without_feedback_nobody_is_fast_forwarded() -> None:
    pace = Pace(1_000, math.inf)
    assert all(pace.skip_to(10, 5, NEVER, now) is None for now in (0.0, 1e9))
    pace.took(1_000, 2.0)
    assert pace.size == 1_000


@pytest.mark.parametrize(("given", "meant"), [("0", 0.0), ("2.5", 2.5), ("inf", math.inf)])
def test_the_lag_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, given: str, meant: float) -> None:
    monkeypatch.setenv("EVERWHEN_LAG", given)
    assert lag_allowed() == meant


@pytest.mark.parametrize("given", ["soon", "-1", "nan"])
def test_a_lag_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("EVERWHEN_LAG", given)
    with pytest.raises(QueryError, match="EVERWHEN_LAG"):
        lag_allowed()
