"""Operators without state: each on a few segments, how it moves progress, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, MAX_TIME, NEVER
from everwhen.errors import QueryError, TimeRangeError
from everwhen.operators.contract import Operator
from everwhen.operators.stateless.columns import MapOperator
from everwhen.operators.stateless.linear import (
    AlterLifetimeOperator,
    ChopOperator,
    DeletesOperator,
    FilterOperator,
    GranularityOperator,
    ShiftOperator,
    TimeWindowOperator,
    UnionOperator,
)
from operators.stepping import Said, Segment, Stepped, codec_of

CODEC = codec_of({"k": pa.int64()})
col = ew.col
CHRONON, LONG = (3, 4, 1, 7), (3, 6, 1, 7)


def window(size: int, slide: int = 1) -> Operator:
    return TimeWindowOperator(size, slide, CODEC)


@pytest.mark.parametrize(
    ("operator", "given", "out", "cti"),
    [
        (window(1), LONG, {(3, 6, 7): 1}, 5),
        (window(3), CHRONON, {(3, 6, 7): 1}, 5),
        (window(3), LONG, {(3, 8, 7): 1, (4, 7, 7): 1, (5, 6, 7): 1}, 5),
        (window(4, 4), CHRONON, {(3, 7, 7): 1}, 7),
        (window(2, 4), (0, 1, 1, 7), {}, 7),
        (window(INF), CHRONON, {(3, INF, 7): 1}, 5),
        (GranularityOperator(4, CODEC), LONG, {(4, 8, 7): 1}, 8),
        (GranularityOperator(4, CODEC), CHRONON, {}, 8),
        (ShiftOperator(2, CODEC), LONG, {(5, 8, 7): 1}, 7),
        (ShiftOperator(2, CODEC), (3, INF, 1, 7), {(5, INF, 7): 1}, 7),
        (ChopOperator(2, CODEC), LONG, {(3, 5, 7): 1, (5, 6, 7): 1}, 5),
        (AlterLifetimeOperator(4, 1, 10, CODEC), LONG, {(1, 11, 7): 1}, 5),
        (AlterLifetimeOperator(1, 2, None, CODEC), LONG, {(5, 8, 7): 1}, 7),
        (AlterLifetimeOperator(1, 0, INF, CODEC), LONG, {(3, INF, 7): 1}, 5),
        (DeletesOperator(CODEC), LONG, {(6, INF, 7): 1}, 5),
        (DeletesOperator(CODEC), (3, INF, 1, 7), {}, 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operator) else None,
)
def test_lifetimes_and_progress(operator: Operator, given: Segment, out: Said, cti: int) -> None:
    """Everything before 5 is promised; what is taken back goes the same way."""
    trial = Stepped(lambda: operator, CODEC)
    assert trial.step([given], ctis=[5]) == out
    assert trial.frontier.time == cti
    lo, hi, _, k = given
    assert trial.step([(lo, hi, -2, k)], ctis=[INF]) == {segment: -2 * n for segment, n in out.items()}
    assert trial.frontier.time == INF and trial.rows == 0
    trial.step(ctis=[NEVER])
    assert trial.frontier.time == NEVER


@pytest.mark.parametrize(
    ("operator", "since", "exact"),
    [
        (window(5), 10, 14),
        (window(5, 4), 10, 15),
        (window(INF), 10, INF),
        (GranularityOperator(4, CODEC), 10, 12),
        (ShiftOperator(2, CODEC), 10, 12),
        (ChopOperator(2, CODEC), 10, 10),
        (AlterLifetimeOperator(4, 1, 10, CODEC), 10, 19),
        (AlterLifetimeOperator(1, 0, 10, CODEC, pieces=True), 10, INF),
        (DeletesOperator(CODEC), 10, INF),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operator) else None,
)
def test_from_when_on_an_answer_is_right_if_the_past_is_missing(operator: Operator, since: int, exact: int) -> None:
    assert operator.exact_from(since) == exact


def test_a_filter_keeps_what_is_true_and_not_what_is_unknown() -> None:
    trial = Stepped(lambda: FilterOperator(col("k") > 1, CODEC), CODEC)
    given = [(0, 1, 1, 1), (0, 1, 1, 2), (0, 1, 1, None), (0, 1, -1, 3)]
    assert trial.step(given) == {(0, 1, 2): 1, (0, 1, 3): -1}


def test_a_map_copies_computes_and_projects_promises() -> None:
    target = codec_of({"y": pa.int64(), "k2": pa.int64()}, CODEC.pool)
    trial = Stepped(lambda: MapOperator([("y", col("k") + 1), ("k2", col("k"))], CODEC, target), CODEC)
    assert trial.step([(0, 1, 1, 4), (0, 1, 1, None)]) == {(0, 1, 5, 4): 1, (0, 1, None, None): 1}
    trial.step(promises=[[Punctuation.constants({"k": 4}, 9)]])
    assert [(set(each.match), each.t) for each in trial.frontier.promises] == [({"k2"}, 9)]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_union_adds_or_subtracts_and_waits_for_both(sign: int) -> None:
    trial = Stepped(lambda: UnionOperator(CODEC, sign), CODEC, CODEC)
    assert trial.step([(0, 5, 2, 1)], [(0, 5, 1, 1), (2, 3, 1, 2)], ctis=[4, 9]) == {
        (0, 5, 1): 2 + sign,
        (2, 3, 2): sign,
    }
    assert trial.frontier.time == 4
    trial.step(promises=[[Punctuation.constants({"k": 1}, 20)]])
    assert not trial.frontier.promises
    trial.restart()
    trial.step(promises=[(), [Punctuation.constants({"k": 1}, 30)]])
    assert [each.t for each in trial.frontier.promises] == [20], "the first side's is remembered"


@pytest.mark.parametrize(
    ("operator", "given", "error", "message"),
    [
        (lambda: window(10), (MAX_TIME - 1, MAX_TIME, 1, 1), TimeRangeError, "a window of 10 ticks"),
        (lambda: window(10**9), (0, 10**9, 1, 1), QueryError, r"would need 1e\+09 levels.*\.istream\(\)"),
        (lambda: window(INF), (0, INF, 1, 1), QueryError, "leave the window out"),
        (lambda: GranularityOperator(10, CODEC), (0, MAX_TIME, 1, 1), TimeRangeError, "granularity of 10 ticks"),
        (lambda: ChopOperator(1, CODEC), (0, INF, 1, 1), QueryError, "cannot be cut into pieces; end it first"),
        (lambda: ChopOperator(1, CODEC), (0, 10**8, 1, 1), QueryError, r"1e\+08 of one lifetime"),
        (lambda: AlterLifetimeOperator(1, 0, 10, CODEC), (MAX_TIME, INF, 1, 1), TimeRangeError, "a new lifetime"),
    ],
)
def test_what_goes_too_far_is_refused(
    operator: Callable[[], Operator], given: Segment, error: type[Exception], message: str
) -> None:
    trial: Any = Stepped(operator, CODEC)
    with pytest.raises(error, match=message):
        trial.step([given])
