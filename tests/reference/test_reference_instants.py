"""The oracle looks at the right instants: between the changes it lists, no snapshot differs from the one before.

Each plan is evaluated twice: at the listed instants only, and at every instant straight from the formulas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen import reference
from everwhen.algebra.aggregates import calls as aggregates
from everwhen.algebra.expressions.build import col
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.reference.logical import Instants, LogicalStream, stream_of
from everwhen.stream.element import Insert
from everwhen.stream.history import History
from everwhen.testing.strategies import histories

COLUMNS = {"k": "int64", "v": "float64"}
SCHEMA = ew.source("A", COLUMNS).schema
SOME = settings(max_examples=25, deadline=None)


def a() -> ew.Stream:
    return ew.source("A", COLUMNS)


def b() -> ew.Stream:
    return ew.source("B", COLUMNS)


PLANS: dict[str, Callable[[], ew.Stream]] = {
    "source": a,
    "filter": lambda: a().where(col("v") > 0),
    "map": lambda: a().select("k"),
    "union": lambda: a().union(b()),
    "join": lambda: a().join(b(), on="k"),
    "full join": lambda: a().join(b(), on="k", how="full"),
    "distinct": lambda: a().distinct(),
    "difference": lambda: a().difference(b()),
    "aggregate": lambda: a().group_by("k").agg(s=aggregates.sum("v")),
    "range": lambda: a().range(3),
    "range, slide": lambda: a().range(3, slide=2),
    "range, slide > size": lambda: a().range(2, slide=5),
    "granularity": lambda: a().granularity(3),
    "istream": lambda: a().istream(),
    "dstream": lambda: a().dstream(),
    "rstream": lambda: a().rstream(),
    "lifetime": lambda: a().lifetime(hop=3, shift=1, length=4),
    "deletes": lambda: a().deletes(),
    "window over window": lambda: a().range(2).granularity(2).range(3, slide=2),
    "dstream of window": lambda: a().range(4, slide=3).dstream().union(b().istream()),
    "windows joined": lambda: a().range(3).join(b().range(2, slide=2), on="k"),
}
FINITE_PLANS: dict[str, Callable[[], ew.Stream]] = {
    "rows": lambda: a().rows(2),
    "rows, slide": lambda: a().rows(2, slide=3),
    "rows, partitioned": lambda: a().rows(1, slide=2, partition_by=("k",)),
    "unbounded": lambda: a().unbounded(),
}
FIRST, LAST = -6, 40


@pytest.mark.parametrize("name", [*PLANS, *FINITE_PLANS])
@SOME
@given(data=st.data())
def test_snapshots_change_only_where_listed(name: str, data: st.DataObject) -> None:
    some = histories(SCHEMA, max_events=5, max_time=9, allow_infinite=name in PLANS)
    inputs = {"A": data.draw(some, label="A"), "B": data.draw(some, label="B")}
    node = {**PLANS, **FINITE_PLANS}[name]().node
    stream = reference.evaluate(node, inputs)
    changes = stream.changes(stream.start, LAST)
    assert changes == sorted(set(changes))
    for t in range(FIRST, LAST):
        if t not in changes:
            assert stream.at(t) == stream.at(t - 1), f"changes unannounced at {t}"
        if t < stream.start:
            assert not stream.at(t)
        if t > stream.settled:
            assert stream.at(t) == stream.at(stream.settled)


@pytest.mark.parametrize("name", [*PLANS, *FINITE_PLANS])
@SOME
@given(data=st.data())
def test_history_has_the_snapshots_of_every_instant(name: str, data: st.DataObject) -> None:
    some = histories(SCHEMA, max_events=5, max_time=9, allow_infinite=name in PLANS)
    inputs = {"A": data.draw(some, label="A"), "B": data.draw(some, label="B")}
    node = {**PLANS, **FINITE_PLANS}[name]().node
    stream, history = reference.evaluate(node, inputs), reference.history(node, inputs)
    for t in range(FIRST, LAST):
        assert history.snapshot(t) == stream.at(t), f"at {t}"
    assert history == history.coalesced()
    cut = reference.history(node, inputs, 2, 7)
    for t in range(FIRST, LAST):
        assert cut.snapshot(t) == (stream.at(t) if 2 <= t < 7 else Counter()), f"at {t}"


@SOME
@given(history=histories(SCHEMA))
def test_level_form_agrees_with_the_model(history: History) -> None:
    """Two implementations of canonical level form: by snapshots here, by edges in the model."""
    assert reference.history(a().node, {"A": history}) == history.coalesced()


@SOME
@given(history=histories(SCHEMA), first=st.integers(-5, 15), length=st.integers(0, 10))
def test_during_adds_snapshots_up(history: History, first: int, length: int) -> None:
    stream = reference.evaluate(a().node, {"A": history})
    total: Counter[tuple[object, ...]] = Counter()
    for t in range(first, first + length):
        total.update(history.snapshot(t))
    assert stream.during(first, first + length - 1) == total


def test_nothing_is_a_stream_too() -> None:
    stream = stream_of([])
    assert (stream.start, stream.at(0), stream.levels(), stream.levels(0, 5)) == (INF, Counter(), [], [])
    empty = {"A": History.of([], SCHEMA), "B": History.of([], SCHEMA)}
    for plan in (*PLANS.values(), *FINITE_PLANS.values()):
        assert len(reference.history(plan().node, empty)) == 0


def test_long_lifetimes_and_milliseconds_cost_nothing() -> None:
    """A day in milliseconds with a window of an hour: looked at where it changes, not tick by tick."""
    day = 86_400_000
    events = [Insert(t, t + 1, {"k": 1, "v": 1.0}) for t in range(0, day, day // 24)]
    plan = a().range("1 hour", slide="10 minutes").aggregate(n=aggregates.count()).node
    result = reference.history(plan, {"A": History.of(events, SCHEMA)})
    assert len(result) < 100
    assert result.snapshot(3_599_999) == {(1,): 1}


def test_a_stream_that_changes_for_ever_needs_a_limit() -> None:
    for_ever = {"A": History.of([Insert(0, INF, {"k": 1, "v": 1.0})], SCHEMA)}
    plan = a().unbounded().node
    with pytest.raises(QueryError, match="changes for ever"):
        reference.history(plan, for_ever)
    assert reference.evaluate(plan, for_ever).at(9) == {(1, 1.0): 10}
    limited = reference.history(plan, for_ever, last=3)
    assert [(vs, ve) for vs, ve, _ in limited.events()] == [(0, 3), (1, 3), (2, 3)]


def test_snapshots_are_computed_once() -> None:
    asked: list[int] = []

    def at(t: int) -> Counter[tuple[object, ...]]:
        asked.append(t)
        return Counter([("x",)])

    stream = LogicalStream(0, at, Instants.listed([0]))
    assert stream.at(4) is stream.at(4)
    assert asked == [4]
