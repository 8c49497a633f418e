"""Each operator of the oracle: on small inputs whose results can be checked by hand, and against its formula."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen import reference
from everwhen.algebra.aggregates import calls as aggregates
from everwhen.algebra.expressions.build import col
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, stream_from_table
from everwhen.testing.strategies import histories

COLUMNS = {"k": "int64", "v": "string"}
SCHEMA = ew.source("A", COLUMNS).schema
SOME = settings(max_examples=60, deadline=None)

A = stream_from_table(
    """
    vs | ve | k | v
    0  | 9  | 1 | a
    0  | 9  | 1 | a
    0  | 9  | 2 | b
    0  | 9  |   | c
    """,
    SCHEMA,
).history()
B = stream_from_table(
    """
    vs | ve | k | v
    0  | 9  | 1 | x
    0  | 9  | 1 | y
    0  | 9  | 3 | z
    0  | 9  |   | c
    """,
    SCHEMA,
).history()
Rows = dict[tuple[Any, ...], int]


def a() -> ew.Stream:
    return ew.source("A", COLUMNS)


def b() -> ew.Stream:
    return ew.source("B", COLUMNS)


def at(stream: ew.Stream, t: int, **inputs: History) -> Counter[tuple[Any, ...]]:
    return reference.evaluate(stream.node, inputs or {"A": A, "B": B}).at(t)


# --- joins ------------------------------------------------------------------------------------------------------------

PAIRS: Rows = {(1, "a", 1, "x"): 2, (1, "a", 1, "y"): 2}
LEFT_ALONE: Rows = {(2, "b", None, None): 1, (None, "c", None, None): 1}
RIGHT_ALONE: Rows = {(None, None, 3, "z"): 1, (None, None, None, "c"): 1}


def test_joins_multiply_and_nulls_never_match() -> None:
    assert at(a().join(b(), on={"k": "k"}), 3) == PAIRS


def test_left_join_pads_rows_without_a_partner() -> None:
    assert at(a().join(b(), on={"k": "k"}, how="left"), 3) == {**PAIRS, **LEFT_ALONE}


def test_full_join_pads_both_sides() -> None:
    assert at(a().join(b(), on={"k": "k"}, how="full"), 3) == {**PAIRS, **LEFT_ALONE, **RIGHT_ALONE}


def test_semi_join_keeps_the_multiplicity_of_the_left_side() -> None:
    """Two copies on the left, two partners on the right: two rows, not four (SQL's IN; semantics 10)."""
    assert at(a().join(b(), on="k", how="semi"), 3) == {(1, "a"): 2}


def test_anti_join_keeps_nulls() -> None:
    assert at(a().join(b(), on="k", how="anti"), 3) == {(2, "b"): 1, (None, "c"): 1}


def test_residual_that_is_null_is_no_match() -> None:
    stream = a().join(b(), where=col("k") + 0 == col("k_right"), how="anti")
    assert at(stream, 3) == {(2, "b"): 1, (None, "c"): 1}


def test_product() -> None:
    assert at(a().product(b()), 3).total() == 16


def test_join_of_a_stream_with_itself() -> None:
    assert at(a().join(a(), on={"k": "k"}), 3) == {(1, "a", 1, "a"): 4, (2, "b", 2, "b"): 1}


def test_not_a_number_equals_itself() -> None:
    columns = {"x": "float64"}
    s = ew.source("S", columns)
    nan = History.of(stream_from_table("vs | x\n0 | nan\n0 | 1.0").elements, s.schema)
    assert at(s.join(s, on={"x": "x"}), 0, S=nan).total() == 2
    assert at(s.distinct(), 0, S=nan) == {(math.nan,): 1, (1.0,): 1}
    assert at(s.difference(s.where(col("x") > 0)), 0, S=nan) == Counter()


# --- sets and aggregates ----------------------------------------------------------------------------------------------


def counted(copies: int, other: int = 0) -> History:
    table = "vs | k | v\n" + "0 | 1 | a\n" * copies + "0 | | \n" * other
    return stream_from_table(table, SCHEMA).history()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (a().difference(b()), 1),
        (a().strict_difference(b()), 0),
        (a().intersect(b()), 2),
        (a().max_union(b()), 3),
        (a().union(b()), 5),
        (a().distinct(), 1),
    ],
)
def test_multiplicities_three_and_two(stream: ew.Stream, expected: int) -> None:
    """Three copies on the left, two on the right; rows of nulls are equal here."""
    found = at(stream, 0, A=counted(3, 3), B=counted(2, 2))
    assert found == Counter({(1, "a"): expected, (None, None): expected}) - Counter()


def test_strict_difference_keeps_what_is_unmatched() -> None:
    assert at(a().strict_difference(b()), 0, A=counted(3), B=counted(0, 1)) == {(1, "a"): 3}
    assert at(a().except_(b()), 0, A=counted(3), B=counted(0, 1)) == {(1, "a"): 1}


def test_groups_and_nulls() -> None:
    grouped = a().group_by("k").agg(n=aggregates.count(), c=aggregates.count("k"), top=aggregates.max("v"))
    assert at(grouped, 3) == {(1, 2, 2, "a"): 1, (2, 1, 1, "b"): 1, (None, 1, 0, "c"): 1}


def test_aggregates_say_nothing_where_nothing_is_alive() -> None:
    """Not even a count of zero (semantics 11)."""
    scalar = a().aggregate(n=aggregates.count())
    assert at(scalar, 8) == {(4,): 1}
    assert at(scalar, 9) == Counter()
    assert at(scalar, -1) == Counter()


def test_lists_are_values() -> None:
    assert at(a().aggregate(t=aggregates.top_k("v", 2)), 0) == {(("c", "b"),): 1}


# --- windows ----------------------------------------------------------------------------------------------------------


@SOME
@given(s=histories(SCHEMA, max_events=5), size=st.integers(1, 6), slide=st.integers(1, 5), t=st.integers(-8, 25))
def test_time_window_is_its_formula(s: History, size: int, slide: int, t: int) -> None:
    """(17.1) by a loop over instants, without the clamp at 0 (semantics 19); slide 1 is (8.17)."""
    expected: Counter[tuple[Any, ...]] = Counter()
    for u in range(math.floor((t + 1) / slide) * slide - size, math.floor((t + 1) / slide) * slide):
        expected.update(s.snapshot(u))
    assert at(a().range(size, slide=slide), t, A=s) == expected


@SOME
@given(s=histories(SCHEMA, max_events=4), size=st.integers(1, 6))
def test_time_window_by_levels(s: History, size: int) -> None:
    """An event [vs, ve) becomes [vs + k - 1, ve + size - k) for k = 1 … min(size, ve - vs) (semantics 6)."""
    pieces: Counter[tuple[int, int, tuple[Any, ...]]] = Counter()
    for vs, ve, row in s.events():
        for k in range(1, min(size, ve - vs) + 1):
            pieces[vs + k - 1, INF if ve == INF else ve + size - k, row] += 1
    assert_same_history(reference.history(a().range(size).node, {"A": s}), History(SCHEMA, pieces))


def test_a_slide_longer_than_the_window_drops_events() -> None:
    s = stream_from_table("vs | k | v\n0 | 1 | a\n4 | 2 | b", SCHEMA).history()
    assert list(reference.history(a().range(2, slide=5).node, {"A": s}).events()) == [(4, 9, (2, "b"))]


def test_windows_before_zero() -> None:
    """The window that ends at -1 holds the instants -5 … -1."""
    s = stream_from_table("vs | k | v\n-5 | 1 | a\n-6 | 2 | b", SCHEMA).history()
    tumbling = reference.history(a().range(5, slide=5).node, {"A": s})
    assert sorted(tumbling.events()) == [(-6, -1, (2, "b")), (-1, 4, (1, "a"))]


def test_unbounded_window_remembers_all() -> None:
    s = stream_from_table("vs | ve | k | v\n0 | 2 | 1 | a\n5 | 6 | 1 | a", SCHEMA).history()
    assert [at(a().unbounded(), t, A=s).total() for t in (-1, 0, 1, 4, 5, 99)] == [0, 1, 2, 2, 3, 3]


@SOME
@given(
    s=histories(SCHEMA, max_events=6, max_time=6, allow_infinite=False),
    rows=st.integers(1, 4),
    slide=st.integers(1, 4),
    partitioned=st.booleans(),
    t=st.integers(-4, 12),
)
def test_rows_window_is_its_formula(s: History, rows: int, slide: int, partitioned: bool, t: int) -> None:
    """(17.2) and (8.19): number the chronons of each partition by instant, then by values with nulls first."""
    numbered: dict[Any, list[tuple[Any, ...]]] = {}
    for u in range(-4, t + 1):
        alive = s.snapshot(u).elements()
        for row in sorted(alive, key=lambda row: [(value is not None, value) for value in row]):
            numbered.setdefault(row[0] if partitioned else "all", []).append(row)
    expected: Counter[tuple[Any, ...]] = Counter()
    for chronons in numbered.values():
        end = len(chronons) // slide * slide
        expected.update(chronons[max(end - rows, 0) : end])
    window = a().rows(rows, slide=slide, partition_by=("k",) if partitioned else ())
    assert at(window, t, A=s) == expected


def test_ties_are_broken_by_value_with_nulls_first_and_nan_last() -> None:
    s = ew.source("S", {"x": "float64"})
    events = stream_from_table("vs | x\n0 | \n0 | nan\n0 | 3.0\n0 | -1.0").history()
    expected = [{(math.nan,)}, {(math.nan,), (3.0,)}, {(math.nan,), (3.0,), (-1.0,)}]
    for rows, wanted in enumerate(expected, start=1):
        assert set(at(s.rows(rows), 0, S=events)) == wanted


def test_windows_of_rows_that_live_for_ever_come_to_rest() -> None:
    s = stream_from_table("vs | ve | k | v\n0 | 2 | 1 | a\n0 | inf | 1 | b\n1 | inf | 2 | c", SCHEMA).history()
    found = reference.history(a().rows(3).node, {"A": s})
    assert found.snapshot(2) == Counter({(1, "b"): 1, (2, "c"): 2})
    assert found.snapshot(10**6) == Counter({(1, "b"): 1, (2, "c"): 2})
    alike = reference.history(a().rows(3, slide=2, partition_by=("k",)).node, {"A": s})
    assert alike.snapshot(10**6) == Counter({(1, "b"): 3, (2, "c"): 3})


def test_a_slide_may_show_other_rows_for_ever() -> None:
    s = stream_from_table("vs | ve | k | v\n0 | inf | 1 | a\n0 | inf | 1 | b\n0 | inf | 1 | c", SCHEMA).history()
    window = a().rows(1, slide=2)
    assert [at(window, t, A=s) for t in (9, 10)] == [Counter({(1, "c"): 1}), Counter({(1, "b"): 1})]
    with pytest.raises(QueryError, match="changes for ever"):
        reference.history(window.node, {"A": s})


# --- granularity and relation to stream -------------------------------------------------------------------------------


@SOME
@given(s=histories(SCHEMA), granule=st.integers(1, 5), t=st.integers(-8, 20))
def test_granularity_holds_the_value_of_the_granule(s: History, granule: int, t: int) -> None:
    assert at(a().granularity(granule), t, A=s) == s.snapshot(math.floor(t / granule) * granule)


@SOME
@given(s=histories(SCHEMA, max_events=5), granule=st.integers(1, 5))
def test_granularity_is_algorithm_24(s: History, granule: int) -> None:
    """Both ends rounded up; what becomes empty is dropped."""
    pieces: Counter[tuple[int, int, tuple[Any, ...]]] = Counter()
    for vs, ve, row in s.events():
        start = math.ceil(vs / granule) * granule
        end = INF if ve == INF else math.ceil(ve / granule) * granule
        pieces[start, end, row] += start < end
    pieces = +pieces
    assert_same_history(reference.history(a().granularity(granule).node, {"A": s}), History(SCHEMA, pieces))


@SOME
@given(s=histories(SCHEMA), t=st.integers(-5, 15))
def test_relation_to_stream(s: History, t: int) -> None:
    now, before = s.snapshot(t), s.snapshot(t - 1)
    assert at(a().istream(), t, A=s) == now - before
    assert at(a().dstream(), t, A=s) == before - now
    assert at(a().rstream(), t, A=s) == now


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_missing_input_is_named() -> None:
    with pytest.raises(QueryError, match="no history for the source 'B'; there is A"):
        reference.evaluate(a().union(b()).node, {"A": A})


def test_windows_have_no_meaning_on_one_snapshot() -> None:
    with pytest.raises(QueryError, match="TimeWindow has no meaning on a single snapshot"):
        reference.snapshot(a().range(2).node, Counter())
