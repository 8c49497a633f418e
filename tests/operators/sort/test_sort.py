"""Sort at a sink: the paper's run, the prefix against its definition, and an order that never breaks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.punctuation import AttributePattern, Frontier, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.operators.sort.sort import SortOperator
from everwhen.operators.sort.sort_prefix import SortPrefix
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from state_files import through_file

REPORTS = Schema.of([("sid", pa.string()), ("hour", pa.uint8()), ("temp", pa.float64())])


class Sorting:
    """A sort operator, told in plain rows `(start, end, weight, values…)`."""

    def __init__(self, schema: Schema, *by: tuple[str, bool]) -> None:
        self.codec = RowCodec(schema, Interner())
        self.by = by
        self.operator = SortOperator(by, self.codec)
        self.frontier = Frontier()

    def step(
        self, rows: Sequence[tuple[Any, ...]] = (), *promises: Punctuation, time: int = NEVER
    ) -> list[tuple[Any, ...]]:
        """The rows that come out, with their starts first."""
        times = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3)
        payload = [[row[3 + j] for row in rows] for j in range(len(self.codec.schema))]
        arrays = [pa.array(values, type_) for values, type_ in zip(payload, self.codec.schema.types, strict=True)]
        coded = self.codec.encode(arrays, len(rows))
        batch = Changes(self.codec, times[:, 0], times[:, 1], times[:, 2], coded) if rows else no_changes(self.codec)
        output = self.operator.step([batch], [Frontier(time, promises)], 0)
        self.frontier = output.frontier
        assert (output.changes.weight == 1).all()
        columns = [column.to_pylist() for column in self.codec.decode(output.changes.rows)]
        return list(zip(output.changes.lo.tolist(), *columns, strict=True))

    def resume(self) -> None:
        """Go on from a snapshot."""
        state = through_file(self.operator.snapshot())
        self.operator = SortOperator(self.by, self.codec)
        self.operator.restore(state)


def report(at: int, sid: str, hour: int | None, temp: float = 0.0) -> tuple[Any, ...]:
    return at, INF, 1, sid, hour, temp


def hours(low: int, high: int) -> Punctuation:
    return Punctuation({"hour": Range(ge=low, le=high)})


def test_the_run_of_the_paper() -> None:
    """Section 5.2: [2, 4] lets nothing out; [0, 3] after it lets out everything through the fourth hour."""
    sorting = Sorting(REPORTS, ("hour", False))
    assert sorting.step([report(1, "s1", 3), report(2, "s1", 0), report(3, "s2", 5), report(4, "s2", 4)]) == []
    assert sorting.operator.state_size().rows == 4
    assert sorting.step([], hours(2, 4)) == []
    assert sorting.frontier.promises == ()
    sorting.resume()
    assert sorting.step([report(5, "s2", 1)], hours(0, 3)) == [
        (2, "s1", 0, 0.0), (5, "s2", 1, 0.0), (1, "s1", 3, 0.0), (4, "s2", 4, 0.0),
    ]  # fmt: skip
    assert sorting.frontier.promises == (Punctuation({"hour": Range(le=4)}),)
    assert sorting.operator.state_size().rows == 1
    assert sorting.step([report(6, "s1", 7), report(7, "s1", 6)], hours(7, 9)) == []
    assert sorting.frontier.promises == ()
    assert [row[2] for row in sorting.step([report(8, "s3", None)], time=INF)] == [5, 6, 7, None]
    assert sorting.frontier.time == INF
    assert sorting.operator.state_size().rows == 0


def test_limits_promised_at_the_start_begin_the_order() -> None:
    schema = Schema.of([("temp", pa.float64())])
    sorting = Sorting(schema, ("temp", False))
    assert sorting.step([(0, 1, 1, 30.0), (0, 1, 1, 25.0)], Punctuation({"temp": Range(ge=20.0, lt=28.0)})) == []
    assert sorting.step([], Punctuation({"temp": Range(lt=20.0)}), Punctuation({"temp": Range(gt=95.0)})) == [(0, 25.0)]
    falling = Sorting(schema, ("temp", True))
    assert falling.step([(0, 1, 1, 30.0), (0, 1, 1, 90.0)], Punctuation({"temp": Range(gt=95.0)})) == []
    assert falling.step([], Punctuation({"temp": Range(ge=80.0, le=95.0)})) == [(0, 90.0)]


def test_corrections_are_netted_while_they_wait_and_copies_stay_copies() -> None:
    sorting = Sorting(Schema.of([("hour", pa.uint8())]), ("hour", False))
    sorting.step([(0, 10, 1, 1), (0, 10, 2, 0), (5, INF, 1, 1)])
    sorting.step([(4, 10, -1, 1)])
    assert sorting.frontier.time == NEVER
    assert sorting.step([], hours(0, 1)) == [(0, 0), (0, 0), (0, 1), (5, 1)]


def test_a_promise_for_some_time_lets_nothing_out() -> None:
    sorting = Sorting(Schema.of([("hour", pa.uint8())]), ("hour", False))
    assert sorting.step([(0, 5, 1, 0)], Punctuation({"hour": Range(le=3)}, 100), time=4) == []
    assert sorting.frontier.time == 0  # the row that waits begins there
    assert sorting.step([], time=50) == []


def test_what_the_dropped_columns_cover_together_counts() -> None:
    schema = Schema.of([("hour", pa.uint8()), ("ok", pa.bool_())])
    sorting = Sorting(schema, ("hour", False))
    assert sorting.step([(0, 1, 1, 2, True)], Punctuation({"hour": Range(le=3), "ok": OneOf((True, None))})) == []
    assert sorting.step([], Punctuation({"hour": Range(le=3), "ok": OneOf((False,))})) == [(0, 2, True)]


# -- the prefix against its definition ---------------------------------------------------------------------------------

PAIRS = Schema.of([("a", pa.uint8()), ("b", pa.bool_())])
DOMAIN = [(a, b) for a in (*range(256), None) for b in (False, True, None)]
firsts: st.SearchStrategy[AttributePattern] = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda p: Range(ge=min(p), le=max(p))),
    st.lists(st.sampled_from([0, 1, 2, 3, 255, None]), min_size=1, max_size=3).map(lambda v: OneOf(tuple(v))),
    st.sampled_from([Range(ge=6), Range(le=1), Range(lt=3), Range(gt=2), OneOf((255,)), Range(ge=250)]),
)
seconds: st.SearchStrategy[AttributePattern] = st.sampled_from(
    [OneOf((False,)), OneOf((True,)), OneOf((True, None)), OneOf((False, None)), Range(ge=True), OneOf((None,))]
)
some_promises = st.lists(
    st.one_of(
        st.builds(lambda a: Punctuation({"a": a}), firsts),
        st.builds(lambda a, b: Punctuation({"a": a, "b": b}), firsts, seconds),
        st.builds(lambda b: Punctuation({"b": b}), seconds),
    ),
    max_size=6,
)


def _key(row: tuple[Any, Any], falling: tuple[bool, bool]) -> list[tuple[bool, int]]:
    return [(v is None, 0 if v is None else -int(v) if down else int(v)) for v, down in zip(row, falling, strict=True)]


@settings(max_examples=60, deadline=None)
@given(promises=some_promises, falling=st.tuples(st.booleans(), st.booleans()))
def test_the_prefix_is_what_is_promised_from_the_beginning_on(
    promises: list[Punctuation], falling: tuple[bool, bool]
) -> None:
    expected: set[tuple[Any, Any]] = set()
    for row in sorted(DOMAIN, key=lambda row: _key(row, falling)):
        if not any(promise.matches({"a": row[0], "b": row[1]}) for promise in promises):
            break
        expected.add(row)
    prefix = SortPrefix((("a", falling[0]), ("b", falling[1])), PAIRS)
    grown = [prefix.take([promise]) for promise in promises]
    found = {row for row in DOMAIN if any(p.matches({"a": row[0], "b": row[1]}) for p in prefix.covered)}
    assert found <= expected
    if not any(a is None for a, _ in expected):  # of a null in the first column only a promise about all of them counts
        assert found == expected
    assert any(grown) == bool(found)
    again = SortPrefix((("a", falling[0]), ("b", falling[1])), PAIRS)
    again.restore(through_file(prefix.snapshot()))
    assert {row for row in DOMAIN if any(p.matches({"a": row[0], "b": row[1]}) for p in again.covered)} == found


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 2, 3, 9, None])), max_size=4), firsts),
        max_size=6,
    ),
    down=st.booleans(),
)
def test_rows_come_in_order_and_all_of_them(steps: list[tuple[list[tuple[int, Any]], Any]], down: bool) -> None:
    sorting = Sorting(Schema.of([("a", pa.uint8()), ("n", pa.int64())]), ("a", down))
    said: list[Punctuation] = []
    passed, given_rows = [], []
    promised: list[Punctuation] = []
    for number, (rows, pattern) in enumerate(steps):
        fresh = [(at, at + 1, 1, a, number) for at, a in rows if not any(p.matches({"a": a}) for p in promised)]
        given_rows += [(at, a, number) for at, _, _, a, number in fresh]
        promised.append(Punctuation({"a": pattern}))
        out = sorting.step(fresh, promised[-1])
        assert not any(p.matches({"a": a}) for p in said for _, a, _ in out)  # grammatical
        said += sorting.frontier.promises
        passed += out
        if number % 2:
            sorting.resume()
    passed += sorting.step([], time=INF)

    def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
        at, a, n = row
        return a is None, 0 if a is None else -a if down else a, at, n

    assert passed == sorted(given_rows, key=order)


# -- in a query --------------------------------------------------------------------------------------------------------


def test_a_query_is_sorted_at_its_sink() -> None:
    source = ew.source("S", {"day": "date", "n": "int64"})
    stream = [
        ew.Insert(i, i + 5, {"day": day and date(2024, 1, day), "n": i}) for i, day in enumerate([3, 1, None, 2, 1])
    ]
    query = source.sort("day", "n", descending="n")
    *found, last = ew.run(query, {"S": stream}, consistency=ew.STRONG)
    assert [(e.vs, e.ve, e.row["n"]) for e in found] == [(4, 9, 4), (1, 6, 1), (3, 8, 3), (0, 5, 0), (2, 7, 2)]
    assert str(last) == "cti ∞"
    ew.testing.assert_same_history([*found, last], list(ew.run(source, {"S": stream})))


def test_an_answer_that_is_corrected_has_no_order() -> None:
    query = ew.source("S", {"n": "int64"}).sort("n")
    with pytest.raises(QueryError, match="consistency STRONG"):
        list(ew.run(query, {"S": []}, consistency=ew.MIDDLE))


def test_nothing_stands_over_a_sort() -> None:
    sorted_ = ew.source("S", {"n": "int64", "tags": pa.list_(pa.int64())}).sort("n")
    for further in (
        lambda: sorted_.where(ew.col("n") > 1),
        lambda: sorted_.group_by("n").agg(c=ew.count()),
        lambda: sorted_.group_by(m=ew.col("n") + 1).agg(c=ew.count()),
        lambda: ew.source("T", {"n": "int64"}).join(sorted_, on="n"),
        lambda: ew.sql("SELECT n FROM s", {"s": sorted_}),
    ):
        with pytest.raises(QueryError, match="sort last"):
            further()


@pytest.mark.parametrize(
    ("columns", "descending", "message"),
    [
        ((), (), "needs a column"),
        (("m",), (), "unknown column 'm' in the sort"),
        (("n", "n"), (), "names n twice"),
        (("tags",), (), "have no order"),
        (("n",), "m", "none of the columns"),
    ],
)
def test_a_sort_is_checked_when_it_is_built(columns: tuple[str, ...], descending: Any, message: str) -> None:
    source = ew.source("S", {"n": "int64", "tags": pa.list_(pa.int64())})
    with pytest.raises(QueryError, match=message):
        source.sort(*columns, descending=descending)
