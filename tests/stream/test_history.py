"""Histories against their definition, instant by instant; and the things that a tick-by-tick check cannot reach."""

from __future__ import annotations

from collections import Counter
from math import nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.errors import InputError
from everwhen.formats.json.lines import jsonlines
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History, same_history

END = 12
X = Schema.of([("x", pa.int64())])


@st.composite
def changing(draw: st.DrawFn) -> list[Element]:
    """A stream of inserts and adjusts of events that are there."""
    alive: list[tuple[int, int, int]] = []
    found: list[Element] = []
    for _ in range(draw(st.integers(0, 10))):
        if alive and draw(st.booleans()):
            vs, ve, x = alive.pop(draw(st.integers(0, len(alive) - 1)))
            vnew = draw(st.integers(vs, END) | st.just(INF))
            found.append(Adjust(vs, ve, vnew, {"x": x}))
            if vnew > vs:
                alive.append((vs, vnew, x))
        else:
            vs = draw(st.integers(0, END - 1))
            ve = draw(st.integers(vs + 1, END) | st.just(INF))
            x = draw(st.integers(0, 2))
            alive.append((vs, ve, x))
            found.append(Insert(vs, ve, {"x": x}))
    return found


def defined(elements: list[Element], t: int) -> Counter[tuple[Any, ...]]:
    """The snapshot as a sum of signed changes at one instant."""
    alive: Counter[tuple[Any, ...]] = Counter()
    for element in elements:
        if isinstance(element, Insert):
            alive[(element.row["x"],)] += element.vs <= t < element.ve
        elif isinstance(element, Adjust):
            alive[(element.row["x"],)] += (element.ve <= t < element.vnew) - (element.vnew <= t < element.ve)
    return +alive


@given(changing())
def test_snapshots_are_the_sum_of_all_changes(elements: list[Element]) -> None:
    history = History.of(elements, X)
    for t in range(-1, END + 2):
        assert history.snapshot(t) == defined(elements, t)


@given(changing(), st.data())
def test_batching_does_not_matter(elements: list[Element], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(elements)))
    batches = [batch_of(elements[:cut], X), batch_of(elements[cut:], X)]
    assert History.of(batches) == History.of(elements, X) == History.of(batch_of(elements, X))
    mixed: list[Any] = [batches[0], *elements[cut:]]
    assert History.of(mixed, X) == History.of(elements, X)


@given(changing())
def test_level_form_is_the_maximal_intervals_of_each_multiplicity(elements: list[Element]) -> None:
    history = History.of(elements, X)
    expected = []
    for row in {row for _, _, row in history.multiset}:
        counts = [history.snapshot(t)[row] for t in range(END + 1)]
        for level in range(1, max(counts, default=0) + 1):
            start = None
            for t, count in enumerate([*counts, 0]):
                if count >= level and start is None:
                    start = t
                elif count < level and start is not None:
                    expected.append((row, level, start, INF if t == END + 1 else t))
                    start = None
    found = [(row, *level) for row, levels in history.level_form.items() for level in levels]
    assert sorted(found) == sorted(expected)
    coalesced = history.coalesced()
    assert sorted(coalesced.events()) == sorted((lo, hi, row) for row, _, lo, hi in expected)
    assert same_history(history, coalesced)
    assert coalesced.coalesced() == coalesced


@given(changing())
def test_nothing_changes_between_instants(elements: list[Element]) -> None:
    history = History.of(elements, X)
    edges = history.instants()
    assert list(edges) == sorted(set(edges)) and INF not in edges
    for t in range(END + 1):
        if t not in edges:
            assert history.snapshot(t) == history.snapshot(t - 1)


@given(changing())
def test_a_history_survives_as_inserts(elements: list[Element]) -> None:
    history = History.of(elements, X)
    assert History.of(history.batch()) == history
    assert len(history) == len(list(history.events())) == len(history.batch())


def test_events_come_in_canonical_order() -> None:
    rows: list[Any] = [2.0, None, nan, -1.0, 2.0]
    history = History.of([Insert(1, 2, {"x": x}) for x in rows] + [Insert(0, 9, {"x": 5.0}), Insert(1, 3, {"x": 0.0})])
    shown = [(vs, ve, str(row[0])) for vs, ve, row in history.events()]
    assert shown == [(0, 9, "5.0"), *[(1, 2, x) for x in ("None", "nan", "-1.0", "2.0", "2.0")], (1, 3, "0.0")]


def test_far_times_and_infinite_ends_cost_nothing() -> None:
    big = 2**53 + 1
    history = History.of(
        [Insert(MIN_TIME, INF, {"x": 1}), Insert(big, MAX_TIME, {"x": 1}), Adjust(big, MAX_TIME, big + 1, {"x": 1})]
    )
    assert history.instants() == (MIN_TIME, big, big + 1)
    assert history.snapshot(big) == {(1,): 2} and history.snapshot(big + 1) == {(1,): 1}
    assert history.level_form[(1,)] == ((1, MIN_TIME, INF), (2, big, big + 1))
    line = f'{{"op":"insert","vs":{big},"ve":{big + 1},"row":{{"x":1}}}}'
    assert list(jsonlines(history.at(big).batch())) == [line] * 2


def test_an_adjust_finds_its_event_by_nan_null_and_zero() -> None:
    for one, other in ((nan, float("nan")), (None, None), (-0.0, 0.0)):
        schema = Schema.of([("x", pa.float64())])
        assert len(History.of([Insert(0, 9, {"x": one}), Adjust(0, 9, 0, {"x": other})], schema)) == 0


def test_lists_and_binaries_and_times_are_rows() -> None:
    row = {"l": [1, 2], "b": b"x", "n": [float("nan")]}
    history = History.of([Insert(0, 9, row), Insert(0, 5, row), Adjust(0, 9, 3, row)])
    assert [(vs, ve) for vs, ve, _ in history.events()] == [(0, 3), (0, 5)]
    assert len(history.coalesced()) == 2
    assert History.of(history.batch()) == history


@pytest.mark.parametrize(
    ("elements", "line", "problem"),
    [
        ([Adjust(0, 5, 3, {"x": 1})], 1, "not there"),
        ([Insert(0, 5, {"x": 1}), Cti(0), Adjust(0, 4, 3, {"x": 1})], 3, "not there"),
        ([Insert(0, 5, {"x": 1}), Adjust(0, 5, 3, {"x": 2})], 2, "not there"),
        ([Insert(0, 5, {"x": 1}), Adjust(0, 5, 0, {"x": 1}), Adjust(0, 5, 0, {"x": 1})], 3, "not there"),
        ([Insert(5, 5, {"x": 1})], 1, "empty"),
        ([Insert(5, 8, {"x": 1}), Adjust(5, 8, 4, {"x": 1})], 2, "before the start"),
        ([Insert(5, 8, {"x": 1}), Insert(5, 8, {"x": 1, "y": 2})], 2, "attribute 'y'"),
    ],
)
def test_what_makes_no_history(elements: list[Element], line: int, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        History.of(elements, X)
    assert caught.value.line == line


def test_lines_count_on_over_batches() -> None:
    with pytest.raises(InputError) as caught:
        History.of([batch_of([Insert(0, 5, {"x": 1})], X), Cti(1), Adjust(7, 8, 9, {"x": 1})])
    assert caught.value.line == 3


def test_types_come_from_values_and_promises_do_not_count() -> None:
    history = History.of([Cti(0), Insert(0, 1, {"a": 1}), Punct(Punctuation({})), Insert(0, 1, {"a": 0.5, "b": None})])
    assert history.schema == Schema.of([("a", pa.float64()), ("b", pa.string())])
    assert history.snapshot(0) == {(1.0, None): 1, (0.5, None): 1}
    assert History.of([]).schema == Schema(())
    with pytest.raises(InputError, match="'a' is true or false in some rows"):
        History.of([Insert(0, 1, {"a": 1}), Insert(0, 1, {"a": True})])
    with pytest.raises(InputError, match="no common type"):
        History.of([Insert(0, 1, {"a": 1}), Insert(0, 1, {"a": "x"})])


def test_a_history_does_not_change() -> None:
    history = History.of([Insert(0, 1, {"x": 1})])
    with pytest.raises(TypeError):
        history.multiset[(0, 1, (1,))] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        history.schema = X  # type: ignore[misc]
    assert hash(history) == hash(History.of([Insert(0, 1, {"x": 1})]))
    assert str(history) == "[0, 1) x=1" and str(History.of([])) == "(empty)"
