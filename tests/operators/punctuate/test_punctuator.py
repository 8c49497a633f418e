"""Punctuators against a definition that looks at one row after the other, for every cutting into batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra.complement import complement
from everwhen.algebra.expressions.build import Expr, col
from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import InputError, QueryError
from everwhen.operators.punctuate.punctuator import Punctuator, source_punctuators
from everwhen.punctuation.schemes import (
    Bounds,
    ClusteredBy,
    Complete,
    Scheme,
    SortedBy,
    Unique,
    bound,
)
from state_files import through_file

SCHEMA = Schema.of([("hour", pa.int64()), ("day", pa.date32()), ("sid", pa.string()), ("temp", pa.float64())])
NEW_YEAR = datetime(2024, 1, 1)
LATER = NEW_YEAR + timedelta(hours=1)
Row = Mapping[str, Any]
DAYS = (date(2024, 1, 1), date(2024, 1, 2))


# -- the definition ----------------------------------------------------------------------------------------------------


def ruled_out(scheme: Scheme, past: Sequence[Row], row: Row) -> bool:
    """Whether the rows that came rule this one out."""
    match scheme:
        case SortedBy(column, False, slack):
            return any(_known(r[column], row[column]) and row[column] < _moved(r[column], -slack) for r in past)
        case SortedBy(column, True, slack):
            return any(_known(r[column], row[column]) and row[column] > _moved(r[column], slack) for r in past)
        case ClusteredBy(column):
            return any(r[column] == row[column] for r in past) and past[-1][column] != row[column]
        case Bounds(column, low, high):
            value = row[column]
            return value is not None and ((low is not None and value < low) or (high is not None and value > high))
        case Unique(key):
            return any(all(r[name] == row[name] for name in key) for r in past)
        case Complete(group, unit, units, None):
            reports = [r for r in past if _known(*(r[name] for name in group))]
            return {r[unit] for r in reports if _place(r, group) > _place(row, group)} >= set(units)
        case Complete(group, unit, units, each):
            same = [r[unit] for r in past if all(r[name] == row[name] for name in group)]
            return all(same.count(each_unit) >= each for each_unit in units)
    raise AssertionError(scheme)


def _known(*values: Any) -> bool:
    return None not in values


def _place(row: Row, group: Sequence[str]) -> list[tuple[bool, Any]]:
    """Column by column, nulls last."""
    return [(row[name] is None, row[name] if row[name] is not None else 0) for name in group]


def _moved(value: Any, by: Any) -> Any:
    return value + by if by else value


SCHEMES: tuple[Scheme, ...] = (
    SortedBy("hour"),
    SortedBy("hour", slack=1),
    SortedBy("hour", descending=True, slack=2),
    SortedBy("sid"),
    SortedBy("temp", slack=0.5),
    SortedBy("day", descending=True),
    ClusteredBy("hour"),
    ClusteredBy("sid"),
    Bounds("temp", 0.5, 1.0),
    Bounds("sid", low="b"),
    Bounds("day", high=DAYS[0]),
    Unique(("hour",)),
    Unique(("sid", "day")),
    Unique(("hour", "sid", "temp")),
    Complete(("hour",), "sid", ("a", "b")),
    Complete(("day", "hour"), "sid", ("a", "b")),
    Complete(("hour",), "sid", ("a", "b"), 1),
    Complete(("day", "hour"), "sid", ("a",), 2),
)
values = {
    "hour": st.sampled_from([0, 1, 2, 3, 4, None]),
    "day": st.sampled_from([*DAYS, None]),
    "sid": st.sampled_from(["a", "b", "c", None]),
    "temp": st.sampled_from([0.0, 0.5, 1.0, None]),
}
rows = st.lists(st.fixed_dictionaries(values), max_size=14)


def columns(batch: Sequence[Row], schema: Schema = SCHEMA) -> dict[str, pa.Array]:
    return {field.name: pa.array([row[field.name] for row in batch], field.type) for field in schema.fields}


def cut(stream: Sequence[Row], cuts: Sequence[int]) -> list[Sequence[Row]]:
    at = sorted({0, len(stream), *(c for c in cuts if c < len(stream))})
    return [stream[a:b] for a, b in pairwise(at)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@settings(max_examples=40, deadline=None)
@given(stream=rows, cuts=st.lists(st.integers(0, 14), max_size=6))
def test_the_definition_whatever_the_batches(scheme: Scheme, stream: list[Row], cuts: list[int]) -> None:
    (scheme,) = bound([scheme], SCHEMA, "a test")
    expected = next((i for i, row in enumerate(stream) if ruled_out(scheme, stream[:i], row)), None)
    machine = Punctuator([scheme], SCHEMA)
    promises: list[Punctuation] = []
    taken, found = 0, None
    for batch in cut(stream, cuts):
        seen = machine.observe(columns(batch), len(batch))
        if seen.broken is not None:
            found = taken + seen.broken.at
            assert not seen.promises
            break
        machine.settle()
        promises += seen.promises
        taken += len(batch)
        again = Punctuator([scheme], SCHEMA)
        again.restore(through_file(machine.snapshot()))
        machine = again
    assert found == expected
    past = stream[:taken]
    if not past:
        return
    for sample in product(*(value.elements for value in values.values())):
        row = dict(zip(values, sample, strict=True))
        assert any(promise.matches(row) for promise in promises) == ruled_out(scheme, past, row), row


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@settings(max_examples=20, deadline=None)
@given(stream=rows, cuts=st.lists(st.integers(0, 14), max_size=6), data=st.data())
def test_without_an_order_promises_hold_and_good_streams_pass(
    scheme: Scheme, stream: list[Row], cuts: list[int], data: st.DataObject
) -> None:
    (scheme,) = bound([scheme], SCHEMA, "a test")
    good: list[Row] = []
    for row in stream:
        if not ruled_out(scheme, good, row):
            good.append(row)
    machine = Punctuator([scheme], SCHEMA, ordered=False)
    promises: list[Punctuation] = []
    for batch in cut(good, cuts):
        mixed = data.draw(st.permutations(list(batch)))
        seen = machine.observe(columns(mixed), len(mixed))
        assert seen.broken is None
        assert not any(promise.matches(row) for promise in promises for row in mixed)
        promises += seen.promises
        machine.settle()


def test_nothing_is_taken_until_it_is_settled() -> None:
    machine = Punctuator(bound([SortedBy("hour"), Unique(("hour",))], SCHEMA, "a test"), SCHEMA)
    high, low = {"hour": 9, "day": None, "sid": "a", "temp": None}, {"hour": 3, "day": None, "sid": "a", "temp": None}
    machine.observe(columns([high]), 1)
    assert machine.observe(columns([low]), 1).broken is None
    machine.settle()
    assert machine.observe(columns([high]), 1).broken is None
    machine.settle()
    again = machine.observe(columns([low]), 1)
    assert again.broken is not None
    assert "hour = 3 behind hour = 9 on a stream that is SORTED BY hour" in again.broken.problem


def test_the_first_row_that_breaks_any_scheme_is_named() -> None:
    machine = Punctuator(bound([Unique(("sid",)), Bounds("temp", 20, 95)], SCHEMA, "a test"), SCHEMA)
    batch = [{"hour": 1, "day": None, "sid": s, "temp": t} for s, t in (("a", 30.0), ("b", 96.0), ("a", 40.0))]
    found = machine.observe(columns(batch), 3)
    assert found.broken is not None
    assert found.broken.at == 1
    assert found.broken.problem == "temp = 96.0 on a stream where temp BETWEEN 20.0 AND 95.0"


def test_bounds_are_promised_at_the_start_and_once() -> None:
    machine = Punctuator(bound([Bounds("temp", 20, 95)], SCHEMA, "a test"), SCHEMA)
    first = machine.observe(columns([]), 0)
    assert [p.match["temp"].matches(v) for p in first.promises for v in (19.9, 20.0, 95.0, 95.1, float("nan"))] == [
        True, False, False, False, False, False, False, False, True, True,
    ]  # fmt: skip
    machine.settle()
    assert machine.observe(columns([]), 0).promises == []


@pytest.mark.parametrize(
    ("type_", "slack", "before", "fits", "breaks"),
    [
        (pa.int8(), 200, 127, -73, -74),
        (pa.uint64(), 5, 2**64 - 1, 2**64 - 6, 2**64 - 7),
        (pa.int64(), 2**62, 2**62, 0, -1),
        (pa.decimal128(6, 2), 0.5, Decimal("5.00"), Decimal("4.50"), Decimal("4.49")),
        (pa.timestamp("ms"), "5 s", NEW_YEAR + timedelta(seconds=9), NEW_YEAR + timedelta(seconds=4), NEW_YEAR),
        (pa.timestamp("us"), timedelta(minutes=1), LATER, LATER - timedelta(minutes=1), NEW_YEAR),
        (pa.date32(), "2 days", date(2024, 1, 3), date(2024, 1, 1), date(2023, 12, 31)),
        (pa.duration("s"), "1 minute", timedelta(minutes=5), timedelta(minutes=4), timedelta(seconds=239)),
        (pa.float32(), 0.1, 1.0, 0.9, 0.5),
    ],
)  # fmt: skip
def test_slack_of_every_type(type_: pa.DataType, slack: Any, before: Any, fits: Any, breaks: Any) -> None:
    schema = Schema.of([("x", type_)])
    schemes = bound([SortedBy("x", slack=slack)], schema, "a test")

    def found(*batch: Any) -> tuple[Any, Any]:
        machine = Punctuator(schemes, schema)
        seen = machine.observe({"x": pa.array(batch, type_)}, len(batch))
        return seen.broken, seen.promises

    broken, promises = found(before, fits)
    assert broken is None
    stored = pa.array([fits, breaks], type_).to_pylist()
    assert [any(p.matches({"x": value}) for p in promises) for value in stored] == [False, True]
    broken, _ = found(before, breaks)
    assert broken is not None
    assert broken.at == 1


def test_a_slack_as_wide_as_the_type_promises_nothing() -> None:
    schema = Schema.of([("x", pa.int8())])
    machine = Punctuator(bound([SortedBy("x", slack=120)], schema, "a test"), schema)
    seen = machine.observe({"x": pa.array([-100, -128], pa.int8())}, 2)
    assert seen.broken is None
    assert seen.promises == []


def test_a_million_keys_are_promised_as_ranges() -> None:
    schema = Schema.of([("item", pa.int64())])
    machine = Punctuator(bound([Unique(("item",))], schema, "a test"), schema, hosted=True)
    for at in range(0, 1_000_000, 100_000):
        seen = machine.observe({"item": pa.array(range(at, at + 100_000), pa.int64())}, 100_000)
        machine.settle()
        assert len(seen.promises) == 1
    assert machine.nbytes == 0  # the host keeps them


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (SortedBy("huor"), "unknown column 'huor' in a test; did you mean 'hour'"),
        (SortedBy("sid", slack=1), "only numbers and times have differences"),
        (SortedBy("hour", slack=-1), "at least 0"),
        (SortedBy("hour", slack="5 s"), "is a number"),
        (SortedBy("day", slack=3), "a length of time"),
        (SortedBy("day", slack="3 hours"), "in whole d"),
        (Bounds("temp", "warm"), "expected a number"),
        (Bounds("hour", 1.5, 2), "expected a whole number"),
        (Bounds("hour", 3, 2), "are empty: 3 is above 2"),
        (Bounds("hour"), "both missing"),
        (Bounds("temp", float("nan")), "NaN"),
        (Unique(()), "names no column"),
        (Unique(("hour", "hour")), "names hour twice"),
        (Complete(("hour",), "sid", ()), "it is empty"),
        (Complete(("hour",), "sid", ("a", "a")), "twice"),
        (Complete(("hour",), "sid", ("a", 3)), "expected text"),
        (Complete(("hour",), "sid", ("a",), 0), "at least 1"),
        (Complete(("hour",), "sid", ("a",), True), "whole number"),
        (Complete(("hour",), "hour", (1,)), "names the units"),
    ],
)
def test_schemes_are_checked_when_they_are_built(scheme: Scheme, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        bound([scheme], SCHEMA, "a test")


# -- in plans ----------------------------------------------------------------------------------------------------------


def test_a_source_has_a_punctuator_if_it_declares_schemes() -> None:
    plain = ew.source("S", {"hour": "int64", "sid": "string"})
    assert source_punctuators(plain.node) is None  # type: ignore[arg-type]
    declared = plain.punctuate(ew.punctuation.sorted_by("hour")).punctuate(ew.punctuation.unique("hour", "sid"))
    assert str(declared) == "Source S (hour int64, sid string), PUNCTUATE (SORTED BY hour, UNIQUE (hour, sid))"
    machine = source_punctuators(declared.node)  # type: ignore[arg-type]
    assert machine is not None
    assert machine.reads == {"hour", "sid"}


def _run(query: ew.Stream, stream: list[ew.Insert], batch: int = 1) -> list[str]:
    return [str(element) for element in ew.run(query, {"S": stream}, batch=batch)]


def test_inside_a_plan_it_is_the_identity_and_checks() -> None:
    source = ew.source("S", {"hour": "int64", "sid": "string"})
    query = source.where(col("sid") == "a").punctuate(ew.punctuation.sorted_by("hour"))
    good = [ew.Insert(i, i + 1, {"hour": i, "sid": "ab"[i % 2]}) for i in range(6)]
    assert [e for e in _run(query, good) if "punct" not in e] == [
        "insert [0, 1) hour=0 sid='a'", "insert [2, 3) hour=2 sid='a'", "insert [4, 5) hour=4 sid='a'", "cti ∞",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"PUNCTUATE \(SORTED BY hour\) inside the plan: hour = 2 behind hour = 4"):
        _run(query, [*good, ew.Insert(9, 10, {"hour": 2, "sid": "a"})])


# -- a filter's complement ---------------------------------------------------------------------------------------------

SMALL = Schema.of([("h", pa.int8()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_())])
constants: dict[str, st.SearchStrategy[Any]] = {
    "h": st.sampled_from([-128, -1, 0, 1, 2.5, 127, 1000]),
    "s": st.sampled_from(["", "a", "b"]),
    "f": st.sampled_from([0.0, 1, 2.5, float("inf")]),
}
symbols: dict[str, Callable[[Expr, Any], Expr]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
}


@st.composite
def atoms(draw: st.DrawFn) -> Expr:
    name = draw(st.sampled_from(sorted(constants)))
    match draw(st.integers(0, 5)):
        case 0:
            return col(name).is_in(draw(st.lists(constants[name], min_size=1, max_size=3)))
        case 1:
            return col(name).is_null()
        case 2:
            return col(name).not_null()
        case 3:
            return col("b")
    return symbols[draw(st.sampled_from(sorted(symbols)))](col(name), draw(constants[name]))


conditions = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda each: ~each),
    ),
    max_leaves=4,
)
payloads = st.fixed_dictionaries({
    "h": st.sampled_from([-128, -2, 0, 1, 2, 3, 127, None]),
    "s": st.sampled_from(["", "a", "aa", "b", "c", None]),
    "f": st.sampled_from([float("-inf"), 0.0, 0.5, 1.0, 2.5, float("inf"), float("nan"), None]),
    "b": st.sampled_from([True, False, None]),
})  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(condition=conditions, row=payloads)
def test_a_filter_promises_exactly_what_fails_it(condition: Expr, row: Row) -> None:
    promises = complement(condition, SMALL)
    fails = condition.value(row) is not True
    said = any(promise.matches(row) for promise in promises)
    assert not said or fails  # sound
    assert said or not fails or not promises  # and complete, unless it says nothing at all


def test_conditions_of_which_nothing_can_be_told_promise_nothing() -> None:
    assert complement(col("h") + 1 > 3, SMALL) == []
    assert complement(col("s").is_in(["a", None]), SMALL) == []
    both = (col("h") + 1 > 3) & (col("s") == "x")
    assert all(set(promise.match) == {"s"} and promise.t == INF for promise in complement(both, SMALL))
