"""Large, negative and infinite times; float sums without residue; user-defined aggregates."""

from __future__ import annotations

import math
import random
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.engine.local import LocalRuntime
from everwhen.errors import EverwhenError, QueryError, TimeRangeError
from everwhen.reference import history as reference_history
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from example_counts import sampled_pairs
from operators.differential import EMITS, SCHEMA, in_turn, run_all
from plans import UNARY, Plan, S
from state_files import through_file

# --- times ------------------------------------------------------------------------------------------------------------

OFFSETS = {"beyond 2**53": 2**53 + 1, "microseconds of 2024": 1_700_000_000_000_000, "far before zero": -(2**61) - 3}
LINEAR_IN_TIME = [
    plan
    for plan in UNARY
    if not any(word in plan.name for word in ("slide", "granularity", "hop", "unbounded", "split 3"))
]
"""Plans for which shifting the input shifts the output."""


@pytest.mark.parametrize("offset", OFFSETS.values(), ids=OFFSETS)
@pytest.mark.parametrize(("plan", "emit"), sampled_pairs(LINEAR_IN_TIME, EMITS))
def test_times_may_be_large_or_negative(plan: Plan, offset: int, emit: str) -> None:
    """The same stream at another time gives the same output at that time, tick by tick."""
    rng = random.Random(5)
    events = [
        Insert(t, t + rng.choice([1, 2, 4]), {"k": rng.choice("ab"), "x": rng.randrange(4)})
        for t in (0, 0, 1, 3, 3, 5, 8)
    ]
    elements = reorder(events, rng, infinite=False)

    def moved(element: Element, by: int) -> Element:
        def at(t: int) -> int:
            return t if t == INF else t + by

        if isinstance(element, Cti):
            return Cti(at(element.t))
        if isinstance(element, Insert):
            return Insert(at(element.vs), at(element.ve), element.row)
        assert isinstance(element, Adjust)
        return Adjust(at(element.vs), at(element.ve), at(element.vnew), element.row)

    query = plan.build()
    there = run_all(query, emit, in_turn([moved(e, offset) for e in elements], 3))
    here = run_all(query, emit, in_turn(elements, 3))
    assert [moved(e, -offset) for e in there] == here


@pytest.mark.parametrize("emit", EMITS)
def test_lifetimes_from_the_first_to_the_last_instant(emit: str) -> None:
    events = [Insert(MIN_TIME, MAX_TIME, {"k": "a", "x": 1}), Insert(-1, INF, {"k": "a", "x": 2})]
    history = History.of(events, SCHEMA)
    for query in (
        S,
        S.distinct(),
        S.aggregate(n=ew.count(), t=ew.sum("x")),
        S.group_by("k").agg(m=ew.max("x")),
        S.coalesce(),
    ):
        out = run_all(query, emit, in_turn(events, 1))
        assert_valid(out)
        assert_same_history(History.of(out, query.schema), reference_history(query.node, {"S": history}))


def test_a_window_beyond_the_last_instant_is_an_error() -> None:
    late = [Insert(MAX_TIME - 2, MAX_TIME - 1, {"k": "a", "x": 1})]
    with pytest.raises(TimeRangeError, match="beyond the largest time"):
        run_all(S.range(100), "current", in_turn(late, 1))
    with pytest.raises(TimeRangeError, match="beyond the largest time"):
        run_all(S.lifetime(length=100), "current", in_turn(late, 1))
    with pytest.raises(TimeRangeError, match="beyond the largest time"):
        run_all(S.lifetime(shift=100), "current", in_turn(late, 1))


@pytest.mark.parametrize("emit", EMITS)
def test_what_ends_at_the_last_instant_is_told_of_nowhere(emit: str) -> None:
    """DSTREAM tells of an end one tick later, where there is no time; before that instant all is as ever."""
    row = {"k": "a", "x": 1}
    with pytest.raises(TimeRangeError, match="beyond the largest time"):
        run_all(S.dstream(), emit, in_turn([Insert(0, MAX_TIME, row), Cti(INF)], 1))
    with pytest.raises(TimeRangeError, match="beyond the largest time"):
        two = [Insert(0, MAX_TIME - 1, row), Insert(0, MAX_TIME, row), Cti(INF)]
        run_all(S.dstream(), emit, in_turn(two, 1))
    assert_valid(run_all(S.dstream(), emit, in_turn([Insert(0, MAX_TIME - 1, row), Cti(INF)], 1)))
    assert_valid(run_all(S.istream(), emit, in_turn([Insert(MAX_TIME - 1, MAX_TIME, row), Cti(INF)], 1)))


def test_times_that_are_rounded_up_beyond_the_last_instant_are_an_error() -> None:
    for event in (Insert(5, MAX_TIME, {"k": "a", "x": 1}), Insert(MAX_TIME, INF, {"k": "a", "x": 1})):
        with pytest.raises(TimeRangeError, match="beyond the largest time"):
            run_all(S.granularity(1000), "current", in_turn([event], 1))
    late = [Insert(MAX_TIME - 2, MAX_TIME - 1, {"k": "a", "x": 1})]
    with pytest.raises(TimeRangeError, match="beyond the largest time"):
        run_all(S.range(2, slide=1000), "current", in_turn(late, 1))


@pytest.mark.parametrize("end", [10**7, MAX_TIME])
@pytest.mark.parametrize("query", [S.split(1), S.split(3), S.rstream()], ids=["split 1", "split 3", "rstream"])
def test_a_lifetime_of_millions_of_pieces_is_refused_with_advice(query: ew.Stream, end: int) -> None:
    with pytest.raises(QueryError, match=r"of one lifetime; at most 1,000,000 .* longer pieces, or make time coarser"):
        run_all(query, "final", in_turn([Insert(0, end, {"k": "a", "x": 1}), Cti(INF)], 1))


@pytest.mark.parametrize(
    "query",
    [S.rstream(), S.split(1), S.split(2), S.coalesce(3)],
    ids=lambda q: q.explain().split("\n")[0],
)
def test_lifetimes_without_end_are_refused_where_instants_count(query: ew.Stream) -> None:
    with pytest.raises(EverwhenError):
        run_all(query, "final", in_turn([Insert(0, INF, {"k": "a", "x": 1}), Cti(INF)], 1))


def test_a_window_over_very_long_lifetimes_is_refused_with_advice() -> None:
    with pytest.raises(QueryError, match="istream"):
        run_all(S.range(10**9), "current", in_turn([Insert(0, 10**10, {"k": "a", "x": 1})], 1))


# --- floats -----------------------------------------------------------------------------------------------------------

FLOATS = Schema.of([("g", pa.int64()), ("v", pa.float64())])
F = ew.source("S", FLOATS)
ODD = [0.1, 0.2, 1e16, -1e16, 1e-300, 3.3333333333333335, -0.1, 1e300, -1e300]


@settings(max_examples=30)
@given(values=st.lists(st.sampled_from(ODD), min_size=1, max_size=12), seed=st.integers(0, 2**32))
def test_a_sum_is_exactly_zero_again(values: list[float], seed: int) -> None:
    """Values leave in another order than they came; what stays has the sum that it alone would have."""
    rng = random.Random(seed)
    ends = rng.sample(range(100, 100 + len(values)), len(values))
    elements: list[Element] = [Insert(0, 200, {"g": 0, "v": 0.0})]
    elements += [Insert(i, ends[i], {"g": 0, "v": value}) for i, value in enumerate(values)]
    out = run_all(F.aggregate(t=ew.sum("v"), a=ew.avg("v")), "final", in_turn(elements, 3, "S", FLOATS))
    last = [e for e in out if isinstance(e, Insert)][-1]
    assert last.ve == 200
    assert last.row == {"t": 0.0, "a": 0.0}


@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_float_sums_are_within_the_tolerance(data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    number = st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf, 1e15, 1e-9, 0.1])
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 1), number), max_size=10))
    history = History.of([Insert(vs, vs + n, {"g": g, "v": v}) for vs, n, g, v in drawn], FLOATS)
    query = F.group_by("g").agg(t=ew.sum("v"), a=ew.avg("v"), lo=ew.min("v"), hi=ew.max("v"))
    expected = reference_history(query.node, {"S": history})
    for emit in EMITS:
        elements = reorder(history, rng, infinite=False)
        out = run_all(query, emit, in_turn(elements, 4, "S", FLOATS))
        assert_same_history(History.of(out, query.schema), expected, tolerance=1e-12)


@pytest.mark.parametrize("emit", EMITS)
def test_nan_and_infinity_leave_no_trace(emit: str) -> None:
    rows = [(0, 10, 1.5), (1, 3, math.nan), (4, 6, math.inf), (5, 7, -math.inf), (8, 9, math.inf)]
    events = [Insert(vs, ve, {"g": 0, "v": v}) for vs, ve, v in rows]
    query = F.aggregate(t=ew.sum("v"), a=ew.avg("v"), s=ew.stddev("v"))
    expected = reference_history(query.node, {"S": History.of(events, FLOATS)})
    out = run_all(query, emit, in_turn(events, 1, "S", FLOATS))
    assert_same_history(History.of(out, query.schema), expected, tolerance=1e-12)


def test_variance_of_large_and_alike_values() -> None:
    """Σx² - (Σx)²/n loses everything in plain doubles."""
    events = [Insert(0, 5 + i, {"g": 0, "v": 1e9 + i}) for i in range(4)]
    query = F.aggregate(v=ew.variance("v"), s=ew.stddev_pop("v"))
    expected = reference_history(query.node, {"S": History.of(events, FLOATS)})
    out = run_all(query, "final", in_turn(events, 1, "S", FLOATS))
    assert_same_history(History.of(out, query.schema), expected, tolerance=1e-12)


def test_integer_sums_that_might_not_fit_are_refused() -> None:
    """An error that names the column, never a number that wrapped around."""
    big = 2**62
    events = [Insert(0, 5, {"k": "a", "x": big}), Insert(1, 4, {"k": "a", "x": big})]
    with pytest.raises(EverwhenError, match=r"'x'.*64 bits"):
        run_all(S.aggregate(t=ew.sum("x")), "final", in_turn(events, 1))


def test_an_integer_sum_at_the_limits() -> None:
    events = [Insert(0, 5, {"k": "a", "x": 2**63 - 1}), Insert(5, 6, {"k": "a", "x": 1 - 2**63})]
    out = run_all(S.aggregate(t=ew.sum("x")), "final", in_turn(events, 1))
    assert [(e.vs, e.row["t"]) for e in out if isinstance(e, Insert)] == [(0, 2**63 - 1), (5, 1 - 2**63)]


# --- user-defined aggregates ------------------------------------------------------------------------------------------

PRODUCT = ew.UserAggregate(lambda v: v, lambda s, v: s * v, lambda s: s, pa.int64(), name="product")
MEAN = ew.UserAggregate(
    lambda v: (v, 1), lambda s, v: (s[0] + v, s[1] + 1), lambda s: s[0] / s[1], pa.float64(),
    inverse=lambda s, v: (s[0] - v, s[1] - 1), name="mean",
)  # fmt: skip
TEXT = ew.UserAggregate(
    lambda v: [v], lambda s, v: [*s, v], lambda s: "".join(sorted(s)) if len(s) > 1 else None, pa.string(), name="text"
)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("grouped", [False, True])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_user_defined_aggregates(grouped: bool, emit: str, seed: int) -> None:
    """With and without an inverse, giving null at times, over strings too."""
    rng = random.Random(seed)
    rows = [{"k": rng.choice(["a", "b", None]), "x": rng.choice([1, 2, -3, None])} for _ in range(8)]
    events = [Insert(rng.randrange(6), rng.randrange(6, 12), row) for row in rows]
    calls = {
        "p": ew.aggregate(PRODUCT)("x"), "m": ew.aggregate(MEAN)("x"), "t": ew.aggregate(TEXT)("k"), "n": ew.count(),
    }  # fmt: skip
    query = S.group_by("k").agg(**calls) if grouped else S.aggregate(**calls)
    history = History.of(events, SCHEMA)
    runtime = LocalRuntime(query, emit=emit)
    out: list[Element] = []
    step = partial(batch_of, schema=SCHEMA)
    for element in reorder(history, rng, infinite=False):
        out += runtime.push({"S": step([element])})["out"].elements()
        if rng.random() < 0.3:
            state = through_file(runtime.snapshot())
            runtime = LocalRuntime(query, emit=emit)
            runtime.restore(state)
    out += runtime.close()["out"].elements()
    assert_valid(out)
    assert_same_history(History.of(out, query.schema), reference_history(query.node, {"S": history}), tolerance=1e-12)
