"""Adversarial arrival: whatever `reorder` makes of a history is a valid stream that means the same history."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.history import History
from everwhen.testing import assert_valid, reorder, stream_from_table
from everwhen.testing.strategies import histories, physical, sequences, values

SCHEMA = Schema.of([("k", pa.int64()), ("x", pa.float64())])
SOME = settings(max_examples=80, deadline=None)

FEW = stream_from_table(
    """
    vs | ve | k | x
    0  | 5  | 1 | 1.0
    0  | 5  | 1 | 1.0
    0  | 5  | 1 | nan
    2  | ∞  | 2 |
    3  | 4  | 1 | 1.0
    -5 | 9  |   | 2.0
    """,
    SCHEMA,
).history()


@SOME
@given(data=st.data(), history=histories(SCHEMA))
def test_every_arrival_means_the_history(data: st.DataObject, history: History) -> None:
    elements = data.draw(physical(history))
    assert History.of(elements, SCHEMA) == history
    assert_valid(elements)
    assert elements[-1] == Cti(INF)


@SOME
@given(data=st.data(), history=histories(SCHEMA, allow_infinite=False))
def test_ends_stay_finite_on_request(data: st.DataObject, history: History) -> None:
    elements = data.draw(physical(history, infinite=False, close=False))
    assert History.of(elements, SCHEMA) == history
    assert_valid(elements)
    assert not any(isinstance(e, Insert | Adjust) and e.ve == INF for e in elements)
    assert Cti(INF) not in elements


def test_the_adversary_uses_all_its_means() -> None:
    """Over a few seeds: disorder, growing and shrinking ends, chains, removals, copies, infinite ends, CTIs."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        elements = reorder(FEW, random.Random(seed))
        report = assert_valid(elements)
        seen["disorder"] += not report.ordered
        inserted: Counter[tuple[object, ...]] = Counter()
        adjusted: Counter[tuple[object, ...]] = Counter()
        for element in elements:
            match element:
                case Insert(vs, ve, row):
                    inserted[vs, ve, tuple(row.values())] += 1
                    seen["wrong infinity"] += ve == INF and vs != 2
                case Adjust(vs, ve, vnew, row):
                    adjusted[vs, str(row)] += 1
                    kind = "removed" if vnew == vs else "grown" if vnew > ve else "shrunk"
                    seen[kind] += 1
                case Cti(t):
                    seen["cti"] += t < INF
        seen["copies"] += any(inserted[event] > n for event, n in FEW.multiset.items())
        seen["chain"] += max(adjusted.values(), default=0) > 1
    means = ("disorder", "grown", "shrunk", "removed", "wrong infinity", "copies", "chain", "cti")
    assert all(seen[means_of] > 5 for means_of in means), seen


def test_without_disorder_and_mistakes_the_stream_is_perfect() -> None:
    elements = reorder(FEW, random.Random(3), disorder=0, corrections=0.0, wrong=0.0, ctis=1.0)
    report = assert_valid(elements)
    assert report.perfect
    assert report.closed
    assert report.inserts == len(FEW)


def test_corrections_without_delay_arrive_in_order() -> None:
    """Sync times never decrease, yet ends are corrected, unless a chain moves its sync time back."""
    elements = reorder(FEW, random.Random(5), disorder=0, corrections=0.5, wrong=0.0, ctis=0.0, close=False)
    assert not any(isinstance(element, Cti) for element in elements)
    assert History.of(elements, SCHEMA) == FEW


def test_any_order() -> None:
    elements = reorder(FEW, random.Random(8), disorder=None, corrections=0.0, wrong=0.0)
    assert not assert_valid(elements).ordered


def test_same_seed_same_stream() -> None:
    assert str(reorder(FEW, random.Random(7))) == str(reorder(FEW, random.Random(7)))


def test_nothing_reordered() -> None:
    assert reorder([], random.Random(1)) == [Cti(INF)]
    assert reorder([], random.Random(1), close=False) == []


@SOME
@given(history=sequences(SCHEMA))
def test_sequences_have_no_ties(history: History) -> None:
    for t in history.instants():
        assert history.snapshot(t).total() <= 1


@SOME
@given(history=histories(SCHEMA, chronons=True, nulls=False))
def test_chronons_without_nulls(history: History) -> None:
    for vs, ve, row in history.events():
        assert ve == vs + 1
        assert None not in row


@pytest.mark.parametrize(
    "type_",
    [pa.uint8(), pa.bool_(), pa.binary(), pa.decimal128(9, 2), pa.timestamp("us"), pa.date32(), pa.duration("s")],
)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_values_are_of_their_type(type_: pa.DataType, data: st.DataObject) -> None:
    schema = Schema.of([("x", type_)])
    history = data.draw(histories(schema, max_events=4))
    assert History.of(history.batch(), schema) == history


def test_types_without_values_are_refused() -> None:
    with pytest.raises(QueryError, match="no test values of type struct"):
        values(pa.struct([("x", pa.int64())]))
