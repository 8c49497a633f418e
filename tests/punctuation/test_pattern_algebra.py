"""The laws of patterns, tried on every payload over a few values of each type."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.punctuation.pattern_algebra import combine, simplified, subsumes
from everwhen.values.order import order_of
from everwhen.values.sets import spans_of
from promise_strategies import DOMAINS, NAN, domain, patterns, payloads, promises, schemas


@st.composite
def several(draw: st.DrawFn, count: int) -> tuple[Schema, list[Punctuation]]:
    schema = draw(schemas(2))
    return schema, [draw(promises(schema)) for _ in range(count)]


def matches(promise: Punctuation | None, row: dict[str, Any]) -> bool:
    return promise is not None and promise.matches(row)


@given(several(2))
@settings(max_examples=150, deadline=None)
def test_the_law_of_combine(case: tuple[Schema, list[Punctuation]]) -> None:
    schema, (p, q) = case
    found = combine(p, q, schema)
    assert found is None or found.t == min(p.t, q.t)
    for row in payloads(schema):
        assert matches(found, row) == (p.matches(row) and q.matches(row))


@given(several(3))
@settings(max_examples=100, deadline=None)
def test_combine_is_commutative_and_associative(case: tuple[Schema, list[Punctuation]]) -> None:
    schema, (p, q, r) = case

    def then(a: Punctuation | None, b: Punctuation | None) -> Punctuation | None:
        return None if a is None or b is None else combine(a, b, schema)

    pq, qp = combine(p, q, schema), combine(q, p, schema)
    left, right = then(pq, r), then(p, combine(q, r, schema))
    for row in payloads(schema):
        assert matches(pq, row) == matches(qp, row)
        assert matches(left, row) == matches(right, row)


@given(several(2))
@settings(max_examples=200, deadline=None)
def test_subsumes_never_says_too_much(case: tuple[Schema, list[Punctuation]]) -> None:
    schema, (p, q) = case
    holds = all(p.matches(row) and p.t >= q.t for row in payloads(schema) if q.matches(row))
    assert holds or not subsumes(p, q, schema)


@given(st.sampled_from([pa.bool_(), pa.int8(), pa.list_(pa.int64())]), st.data())
@settings(max_examples=150, deadline=None)
def test_subsumes_with_a_schema_misses_nothing(type_: pa.DataType, data: st.DataObject) -> None:
    """Over types whose every value can be tried, and lists of which some value is left out."""
    schema = Schema.of([("a", type_), ("b", pa.bool_())])
    p, q = data.draw(promises(schema)), data.draw(promises(schema))
    every = {pa.bool_(): [False, True], pa.int8(): list(range(-128, 128))}.get(type_, [*DOMAINS[type_], (9,)])
    rows = [{"a": a, "b": b} for a in [None, *every] for b in (None, False, True)]
    inside = [row for row in rows if q.matches(row)]
    assert subsumes(p, q, schema) == (not inside or (p.t >= q.t and all(map(p.matches, inside))))


@given(st.sampled_from(tuple(DOMAINS)), st.data())
@settings(max_examples=250, deadline=None)
def test_simplified_matches_the_same(type_: pa.DataType, data: st.DataObject) -> None:
    pattern = data.draw(patterns(type_))
    found = simplified(pattern, type_)
    for value in domain(type_):
        assert found.matches(value) == pattern.matches(value), value
    assert simplified(found, type_) == found or "nan" in repr(found)
    if isinstance(found, Nothing):
        assert spans_of(pattern, type_).empty


@pytest.mark.parametrize(
    ("pattern", "type_", "expected"),
    [
        (Range(gt=3), pa.int64(), Range(ge=4)),
        (Range(gt=3, lt=4), pa.int64(), Nothing()),
        (Range(gt=3, lt=4), pa.float64(), Range(gt=3.0, lt=4.0)),
        (Range(ge=5, le=5), pa.float64(), OneOf((5.0,))),
        (Range(gt=2**63 - 1), pa.int64(), Nothing()),
        (Range(gt=2**63 - 2), pa.int64(), OneOf((2**63 - 1,))),
        (Range(ge=-(2**63)), pa.int64(), Range(ge=-(2**63))),
        (Range(ge=2**64 - 1), pa.uint64(), OneOf((2**64 - 1,))),
        (Range(gt=False), pa.bool_(), OneOf((True,))),
        (Range(gt="a", lt="a\0"), pa.string(), Nothing()),
        (Range(gt="a", le="a\0"), pa.string(), OneOf(("a\0",))),
        (Range(ge="a", lt="c", le="b"), pa.string(), Range(ge="a", le="b")),
        (Range(gt=date(2020, 1, 1)), pa.date32(), Range(ge=date(2020, 1, 2))),
        (Range(lt=datetime(2020, 1, 1)), pa.timestamp("us"), Range(lt=datetime(2020, 1, 1))),
        (Range(gt=NAN), pa.float64(), Nothing()),
        (OneOf((3, None, 1, 3)), pa.int64(), OneOf((None, 1, 3))),
        (OneOf(()), pa.int64(), Nothing()),
    ],
)
def test_simplified(pattern: AttributePattern, type_: pa.DataType, expected: AttributePattern) -> None:
    assert simplified(pattern, type_) == expected


def test_not_a_number_is_above_every_number() -> None:
    assert Range(ge=5.0).matches(NAN) and not Range(lt=5.0).matches(NAN) and Range(le=NAN).matches(5.0)
    assert OneOf((float("nan"),)).matches(NAN) and not OneOf((None,)).matches(NAN)
    floats = Schema.of([("a", pa.float64())])
    assert combine(Punctuation({"a": OneOf((NAN,))}), Punctuation({"a": Range(gt=1.0)}), floats) is not None


@pytest.mark.parametrize(
    ("pattern", "type_", "message"),
    [
        (Range(ge="x"), pa.int64(), "'x' in a pattern of 'a' is not of type int64; expected a whole number"),
        (OneOf((1, 2.5)), pa.int64(), "2.5 in a pattern of 'a' is not of type int64"),
        (Range(lt=300), pa.int8(), "300 in a pattern of 'a' is not of type int8"),
        (Range(ge=(1,)), pa.list_(pa.int64()), "have no order; list the values with OneOf"),
    ],
)
def test_a_pattern_of_another_type_is_refused(pattern: AttributePattern, type_: pa.DataType, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        simplified(pattern, type_, "a")


@given(st.sampled_from([t for t in DOMAINS if order_of(t).kind.value == "rank" and t != pa.null()]))
@settings(max_examples=50, deadline=None)
def test_ranks_are_in_the_order_of_the_values_and_give_them_back(type_: pa.DataType) -> None:
    order = order_of(type_)
    ranks = [order.rank(value) for value in DOMAINS[type_]]
    assert ranks == sorted(ranks) and order.lo <= ranks[0] and ranks[-1] <= order.hi
    for value, rank in zip(DOMAINS[type_], ranks, strict=True):
        (back,) = order.values(order.ranks(order.column(np.array([rank]))))
        assert back == value or (back != back and value != value)
