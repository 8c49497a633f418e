"""A promise set says what a plain list of its promises says, whatever is added, forgotten and saved in between."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.punctuation import Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.punctuation.api import PunctuationStore, combine
from everwhen.punctuation.pattern_algebra import subsumes
from everwhen.punctuation.read import WIDE
from promise_strategies import COMMON, DOMAINS, columns, limit, payloads, promises, schemas
from state_files import through_file

ITEM = Schema.of([("item", pa.int64())])
PAIR = Schema.of([("item", pa.int64()), ("hour", pa.int64()), ("name", pa.string())])


@st.composite
def cases(draw: st.DrawFn, most: int = 3) -> tuple[Schema, list[Punctuation]]:
    types = draw(st.sampled_from([tuple(DOMAINS), COMMON]))
    schema = draw(schemas(most, types))
    return schema, draw(st.lists(promises(schema), max_size=12))


def said(promise_set: PunctuationStore, rows: list[dict[str, Any]]) -> list[int]:
    """What is promised for each row; only bound columns are handed in."""
    given_ = columns(rows, promise_set.schema)
    return promise_set.upto({name: given_[name] for name in promise_set.bound}, len(rows)).tolist()


def sample(data: st.DataObject, schema: Schema) -> list[dict[str, Any]]:
    rows = payloads(schema)
    return rows if len(rows) <= 150 else data.draw(st.lists(st.sampled_from(rows), min_size=30, max_size=60))


@given(cases(), st.data())
@settings(max_examples=120, deadline=None)
def test_what_is_promised_is_the_largest_time_of_a_matching_promise(
    case: tuple[Schema, list[Punctuation]], data: st.DataObject
) -> None:
    schema, given_ = case
    kept = PunctuationStore(schema)
    cut = data.draw(st.integers(0, len(given_)))
    kept.add(given_[:cut])
    kept.add(iter(given_[cut:]))
    rows = sample(data, schema)
    expected = [limit(given_, row) for row in rows]
    assert said(kept, rows) == expected
    again = list(kept)
    assert [limit(again, row) for row in rows] == expected
    for promise in given_:
        assert kept.implies(promise) or len(promise.match) > 1


@given(cases(2), st.data())
@settings(max_examples=70, deadline=None)
def test_add_forget_snapshot_and_restore_in_any_order(
    case: tuple[Schema, list[Punctuation]], data: st.DataObject
) -> None:
    schema, given_ = case
    kept, model, c = PunctuationStore(schema), [], NEVER
    rows = sample(data, schema)
    for promise in given_:
        match data.draw(st.sampled_from(["add", "add", "forget", "save", "restore into a used one"])):
            case "forget":
                c = max(c, data.draw(st.integers(0, 3)))
                kept.forget(c)
            case "save":
                state = through_file(kept.snapshot())
                kept = PunctuationStore(schema)
                kept.restore(state)
            case "restore into a used one":
                other = PunctuationStore(schema)
                other.add(given_)
                other.restore(kept.snapshot())
                kept = other
        kept.add([promise])
        model = [p for p in [*model, promise] if p.t > c]
        assert said(kept, rows) == [limit(model, row) for row in rows]
        again = list(kept)
        assert [limit(again, row) for row in rows] == [limit(model, row) for row in rows]
        assert bool(kept) or not len(kept)
    kept.forget(INF)
    assert said(kept, rows) == [NEVER] * len(rows) and not list(kept)


@given(cases(2), cases(2), st.data())
@settings(max_examples=70, deadline=None)
def test_meet_has_every_combination(
    case: tuple[Schema, list[Punctuation]], other: tuple[Schema, list[Punctuation]], data: st.DataObject
) -> None:
    schema, ours = case
    theirs = data.draw(st.lists(promises(schema), max_size=6))
    kept = PunctuationStore(schema)
    kept.add(ours)
    found = kept.meet(theirs)
    pairs = [both for p in ours for q in theirs if (both := combine(p, q, schema)) is not None]
    for row in sample(data, schema):
        assert limit(found, row) == limit(pairs, row)


@given(cases(2), st.data())
@settings(max_examples=70, deadline=None)
def test_implies_is_never_wrong_and_sees_what_one_promise_says(
    case: tuple[Schema, list[Punctuation]], data: st.DataObject
) -> None:
    schema, given_ = case
    kept = PunctuationStore(schema)
    kept.add(given_)
    asked = data.draw(promises(schema))
    rows = [row for row in payloads(schema) if asked.matches(row)]
    if kept.implies(asked):
        assert all(limit(given_, row) >= asked.t for row in rows)
    elif len(asked.match) <= 1:
        assert not any(len(p.match) <= 1 and subsumes(p, asked, schema) for p in given_)


def constants(values: Any, t: int = INF) -> list[Punctuation]:
    return [Punctuation({"item": OneOf((value,))}, t) for value in values]


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("order", ["up", "down", "mixed", "even then odd"])
def test_constants_in_a_row_become_one_interval(batch: int, order: str) -> None:
    values = {
        "up": list(range(1200)),
        "down": list(range(1200, 0, -1)),
        "mixed": np.random.default_rng(1).permutation(1200).tolist(),
        "even then odd": [*range(0, 1200, 2), *range(1, 1200, 2)],
    }[order]
    kept = PunctuationStore(ITEM)
    for first in range(0, len(values), batch):
        kept.add(constants(values[first : first + batch]))
    assert [p.match["item"] for p in kept] == [Range(ge=min(values), le=max(values))]
    assert len(kept) <= 3 and kept.nbytes < 300_000
    assert kept.implies(Punctuation({"item": Range(ge=5, lt=1100)}))


def test_a_hundred_thousand_constants_are_a_few_bytes_each() -> None:
    values = np.random.default_rng(2).integers(-(2**62), 2**62, 100_000)
    for schema, found in [(ITEM, values), (Schema.of([("item", pa.string())]), values.astype(str))]:
        kept = PunctuationStore(schema)
        for first in range(0, len(found), 10_000):
            kept.add([Punctuation({"item": OneOf(tuple(found[first : first + 10_000].tolist()))}, 5)])
        assert len(kept) == len(found) and kept.nbytes < 200 * len(found)
        column = pa.array([*found[:1000].tolist(), None], schema.types[0])
        assert kept.upto({"item": column}, 1001).tolist() == [5] * 1000 + [NEVER]
        kept.forget(5)
        assert len(kept) == 0 and kept.bound == frozenset() and kept.nbytes < 10_000


def test_ranges_swallow_the_constants_in_them() -> None:
    kept = PunctuationStore(ITEM)
    kept.add(constants(range(0, 100_000, 3), 4))
    kept.add([Punctuation({"item": Range(ge=0)}, 9)])
    kept.add([Punctuation({"item": Range(lt=0)}, 9)])
    assert len(kept) == 1 and kept.nbytes < 10_000
    assert [p.match["item"] for p in kept] == [Range(ge=-(2**63))]


def test_boxes_grow_together() -> None:
    kept = PunctuationStore(PAIR)
    for hour in range(24):
        kept.add(Punctuation({"item": OneOf((item,)), "hour": Range(ge=hour, lt=hour + 1)}, 7) for item in range(50))
        kept.add(
            Punctuation({"item": OneOf((item,)), "hour": Range(ge=hour, le=hour + 1)}, 7) for item in range(50, 60)
        )
    boxes = [p for p in kept if isinstance(p.match["hour"], Range) and p.match["item"].matches(55)]
    assert boxes == [Punctuation({"item": OneOf((55,)), "hour": Range(ge=0, le=24)}, 7)]
    assert kept.implies(Punctuation({"item": OneOf((55,)), "hour": OneOf((3,)), "name": OneOf(("x",))}, 7))
    assert not kept.implies(Punctuation({"item": OneOf((55,)), "hour": OneOf((3,))}, 8))


def test_text_ranges_grow_together_and_leave_nothing_behind() -> None:
    kept = PunctuationStore(PAIR)
    for i in range(500):
        kept.add([Punctuation({"name": Range(ge=f"k{i:04}", lt=f"k{i + 1:04}")}, 3)])
        kept.add([Punctuation({"hour": OneOf((1,)), "name": Range(ge=f"k{i:04}", lt=f"k{i + 1:04}")}, 5)])
    assert list(kept) == [
        Punctuation({"name": Range(ge="k0000", lt="k0500")}, 3),
        Punctuation({"hour": OneOf((1,)), "name": Range(ge="k0000", lt="k0500")}, 5),
    ]
    assert kept.nbytes < 100_000


def test_a_product_of_long_lists_is_not_written_out() -> None:
    many = tuple(range(WIDE))
    promise = Punctuation({"item": OneOf(many), "hour": OneOf((*many, None)), "name": Range(ge="b")}, 6)
    kept = PunctuationStore(PAIR)
    kept.add([promise, promise, Punctuation(promise.match, 5)])
    assert len(kept) == 1 and list(kept) == [promise] and kept.implies(promise)
    rows = [{"item": 5, "hour": hour, "name": name} for hour in (None, 5, -5) for name in ("a", "b")]
    for again in (kept, PunctuationStore(PAIR)):
        again.restore(kept.snapshot())
        assert said(again, rows) == [limit([promise], row) for row in rows]
    assert kept.meet([Punctuation({"item": OneOf((1, -1))}, 9)]) != []
    kept.add([Punctuation({}, 6)])
    assert list(kept) == [Punctuation({}, 6)]


def test_a_null_is_in_no_box() -> None:
    kept = PunctuationStore(PAIR)
    given_ = [
        Punctuation({"item": OneOf((1, None)), "hour": Range(ge=-5, le=5)}, 4),
        Punctuation({"item": Range(ge=-9), "hour": Range(le=9), "name": Range(ge="")}, 3),
        Punctuation({"item": OneOf((None,)), "hour": OneOf((None,))}, 2),
    ]
    kept.add(given_)
    rows = [
        {"item": item, "hour": hour, "name": name} for item in (None, 0, 1) for hour in (None, 0) for name in (None, "")
    ]
    assert said(kept, rows) == [limit(given_, row) for row in rows]


def test_what_is_forgotten_says_nothing_though_it_is_still_there() -> None:
    kept = PunctuationStore(PAIR)
    numbers = range(0, 2000, 2)
    kept.add(constants(numbers, 7))
    kept.add([Punctuation({"item": OneOf((i,)), "hour": OneOf((1,))}, 9) for i in numbers])
    kept.add([*constants([1], 6), *constants([5], 2), Punctuation({"item": OneOf((3,)), "hour": OneOf((1,))}, 6)])
    kept.forget(3)
    before = len(kept)
    kept.forget(6)
    assert len(kept) == before  # one look at all was paid for, a second is not
    rows = [{"item": item, "hour": 1, "name": None} for item in (0, 1, 3)]
    assert said(kept, rows) == [9, NEVER, NEVER]
    assert not any(p.matches(row) for row in rows[1:] for p in kept)
    assert kept.meet([Punctuation({"item": OneOf((1,))})]) == []
    again = PunctuationStore(PAIR)
    again.restore(kept.snapshot())
    assert said(again, rows) == [9, NEVER, NEVER]


def test_dates_as_text_and_days_that_python_does_not_know() -> None:
    schema = Schema.of([("at", pa.timestamp("s")), ("day", pa.date32())])
    last = date(9999, 12, 31)
    kept = PunctuationStore(schema)
    kept.add([Punctuation({"day": Range(le=last)}, 4), Punctuation({"day": Range(le=last), "at": OneOf((None,))}, 7)])
    assert next(iter(kept)) == Punctuation({"day": Range(le=last)}, 4)
    mixed = Punctuation({"at": OneOf((None,)), "day": Range(gt=date(2020, 1, 1), lt="2030-01-01")}, 5)
    assert combine(mixed, Punctuation({"day": Range(ge=date(2031, 1, 1))}), schema) is None
    assert combine(mixed, Punctuation({"day": OneOf((date(2029, 1, 1), last))}), schema) == Punctuation(
        {"at": OneOf((None,)), "day": OneOf((date(2029, 1, 1),))}, 5
    )
    assert max(p.t for p in kept.meet([mixed])) == 5
    far = pa.array([2_932_896, 2_932_897], pa.int32()).cast(pa.date32())  # the last day that Python knows, and the next
    assert kept.upto({"day": far, "at": pa.nulls(2, pa.timestamp("s"))}, 2).tolist() == [7, NEVER]
    kept.add([Punctuation({"day": Range(gt=last)}, 9)])
    assert Punctuation({"day": Range(gt=last)}, 9) in list(kept)


def test_dictionaries_chunks_and_slices_are_read_as_they_are() -> None:
    kept = PunctuationStore(PAIR)
    kept.add([Punctuation({"name": OneOf(("a", None))}, 4), Punctuation({"name": Range(gt="x")}, 2)])
    column = pa.array(["q", "a", None, "xy", "x", "a"])
    expected = [NEVER, 4, 4, 2, NEVER, 4]
    assert kept.upto({"name": column}, 6).tolist() == expected
    assert kept.upto({"name": column.dictionary_encode()}, 6).tolist() == expected
    assert kept.upto({"name": pa.chunked_array([column[:2], column[2:]])}, 6).tolist() == expected
    assert kept.upto({"name": column[2:5]}, 3).tolist() == expected[2:5]


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({"itm": OneOf((1,))}, "unknown column 'itm' in a pattern; did you mean 'item'?"),
        ({"itm": Nothing()}, "unknown column 'itm'"),
        ({"itm": OneOf((1,)), "hour": OneOf((1,))}, "unknown column 'itm' in a pattern"),
        ({"item": OneOf(("x",))}, "'x' in a pattern of 'item' is not of type int64"),
        ({"item": Range(ge=1.5)}, "1.5 in a pattern of 'item' is not of type int64"),
        ({"item": OneOf((1,)), "name": Range(lt=7)}, "7 in a pattern of 'name' is not of type string"),
    ],
)
def test_a_pattern_that_does_not_fit_is_refused_and_nothing_is_kept(match: dict[str, Any], message: str) -> None:
    kept = PunctuationStore(PAIR)
    kept.add([Punctuation({"item": OneOf((1,))}, 3)])
    with pytest.raises(QueryError, match=message):
        kept.add([Punctuation({}, 9), Punctuation({"hour": OneOf((1,))}), Punctuation(match)])
    assert list(kept) == [Punctuation({"item": OneOf((1,))}, 3)]
