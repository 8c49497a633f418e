"""The first instant at which two histories differ, against a check of every instant; which values are equal."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from itertools import permutations
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.stream.element import Insert
from everwhen.stream.history import History, first_difference, same_history

END = 6
FLOATS = Schema.of([("k", pa.int64()), ("x", pa.float64())])


def of(*events: tuple[Any, ...]) -> History:
    return History.of([Insert(vs, ve, {"k": k, "x": x}) for vs, ve, k, x in events], FLOATS)


lifetimes = st.integers(0, END - 1).flatmap(lambda vs: st.tuples(st.just(vs), st.integers(vs + 1, END) | st.just(INF)))
# Steps of a third of the tolerance: being close is not transitive, so pairing is a real question.
values = st.sampled_from([1.0, 1.0 + 0.7e-3, 1.0 + 1.4e-3, 1.0 + 2.1e-3, None, nan, inf])


@st.composite
def histories(draw: st.DrawFn) -> History:
    found = draw(st.lists(st.tuples(lifetimes, st.integers(0, 1), values), max_size=5))
    return of(*[(vs, ve, k, x) for (vs, ve), k, x in found])


def as_printed(rows: Counter[tuple[Any, ...]]) -> Counter[str]:
    return Counter({repr(row): count for row, count in rows.items()})


@given(histories(), histories())
def test_the_first_difference_is_the_first(a: History, b: History) -> None:
    found = first_difference(a, b)
    for t in range(END + 1):
        here, there = as_printed(a.snapshot(t)), as_printed(b.snapshot(t))
        if here != there:
            assert found is not None and found.instant == t
            assert as_printed(Counter(found.missing)) == here - there
            assert as_printed(Counter(found.extra)) == there - here
            return
    assert found is None


def close(x: float | None, y: float | None) -> bool:
    if x is None or y is None or x != x or y != y or inf in (x, y):
        return repr(x) == repr(y)
    return abs(x - y) <= 1e-3 * max(abs(x), abs(y))


def pairable(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> bool:
    return len(a) == len(b) and any(
        all(x[0] == y[0] and close(x[1], y[1]) for x, y in zip(a, order, strict=True)) for order in permutations(b)
    )


@given(histories(), histories())
def test_with_a_tolerance_rows_are_paired(a: History, b: History) -> None:
    found = first_difference(a, b, tolerance=1e-3)
    for t in range(END + 1):
        if not pairable(list(a.snapshot(t).elements()), list(b.snapshot(t).elements())):
            assert found is not None and found.instant == t
            assert found.missing or found.extra
            return
    assert found is None


def test_pairing_moves_others_along() -> None:
    a = of((0, 1, 0, 1.0), (0, 1, 0, 1.0007), (0, 1, 0, 1.0014))
    b = of((0, 1, 0, 1.0007), (0, 1, 0, 1.0014), (0, 1, 0, 1.0021))
    assert same_history(a, b, 1e-3) and not same_history(a, b, 1e-4)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, False),
        (1, True, False),
        (1.0, True, False),
        (0, False, False),
        (1, Decimal(1), False),
        ("1", 1, False),
        ("a", b"a", False),
        (nan, float("nan"), True),
        (None, None, True),
        (nan, None, False),
        (-0.0, 0.0, True),
        (2**53, 2**53 + 1, False),
        (Decimal("1.0"), Decimal("1.00"), True),
        (date(2024, 1, 1), "2024-01-01", False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1.0, 2.0], False),
    ],
)
def test_values_are_equal_by_kind_and_value(one: Any, other: Any, equal: bool) -> None:
    a, b = History.of([Insert(0, 1, {"x": one})]), History.of([Insert(0, 1, {"x": other})])
    assert same_history(a, b) is equal
    assert same_history(b, a) is equal


def test_numbers_may_be_compared_by_value() -> None:
    a, b, c = (History.of([Insert(0, 1, {"x": x})]) for x in (1, 1.0, True))
    assert (
        same_history(a, b, typed=False) and not same_history(a, c, typed=False) and not same_history(b, c, typed=False)
    )
    big, near = History.of([Insert(0, 1, {"x": 2**53 + 1})]), History.of([Insert(0, 1, {"x": 2.0**53})])
    assert not same_history(big, near, typed=False) and same_history(big, near, 1e-12, typed=False)
    lists = History.of([Insert(0, 1, {"x": [1, 2]})]), History.of([Insert(0, 1, {"x": [1.0, 2.0]})])
    assert same_history(*lists, typed=False) and not same_history(*lists)
    exact = History.of([Insert(0, 1, {"x": Decimal("0.5")})])
    assert same_history(exact, History.of([Insert(0, 1, {"x": 0.5000001})]), 1e-6, typed=False)


def test_hand_made_histories_with_many_nans_are_compared_right() -> None:
    def made() -> History:
        return History(FLOATS, {(0, 1, (1, float("nan"))): 1})

    assert same_history(made(), made()) and same_history(made(), of((0, 1, 1, nan)))


def test_a_sum_that_should_be_zero() -> None:
    assert same_history(of((0, 1, 0, 0.0)), of((0, 1, 0, 1e-16)), 1e-9)
    assert not same_history(of((0, 1, 0, 0.0)), of((0, 1, 0, 1e-9)), 1e-9)


def test_columns_are_matched_by_name_and_absent_ones_are_null() -> None:
    a = History.of([Insert(0, 1, {"p": 1, "q": 2}), Insert(3, 4, {"p": 1, "q": None})])
    b = History.of([Insert(0, 1, {"q": 2, "p": 1}), Insert(3, 4, {"q": None, "p": 1})])
    c = History.of([Insert(3, 4, {"p": 1})])
    assert same_history(a, b)
    found = first_difference(a, c)
    assert found is not None and found.instant == 0 and found.missing == {(1, 2): 1} and not found.extra
    assert same_history(History.of([Insert(3, 4, {"p": 1, "q": None})]), c)
    assert same_history(History.of([], FLOATS), History.of([]))


def test_a_difference_reads_well() -> None:
    found = first_difference(of((0, 5, 1, 1.5), (0, 9, 1, 1.5)), of((0, 9, 1, 1.5), (0, 5, 2, None)))
    assert str(found) == "differ first at instant 0\n  missing: k=1 x=1.5\n  extra: k=2 x=None"
    twice = first_difference(of((0, 5, 1, 1.5), (0, 5, 1, 1.5)), of())
    assert "(2 times)" in str(twice)


def test_differences_after_an_infinite_end_and_beyond_floats() -> None:
    big = 2**60 + 1
    found = first_difference(of((0, INF, 1, 1.0)), of((0, big, 1, 1.0), (big + 1, INF, 1, 1.0)))
    assert found is not None and found.instant == big


@pytest.mark.parametrize("tolerance", [-1.0, nan])
def test_a_tolerance_is_not_negative(tolerance: float) -> None:
    with pytest.raises(QueryError, match="tolerance"):
        same_history(of(), of(), tolerance)
