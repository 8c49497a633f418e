"""The promised beginning of an order: it grows from the start of the type, through what is covered, and never back."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.operators.sort.sort_prefix import SortPrefix
from state_files import through_file

SCHEMA = Schema.of([("hour", pa.uint8()), ("x", pa.int64())])


def hours(low: int, high: int) -> Punctuation:
    return Punctuation({"hour": Range(ge=low, le=high)})


def covers(prefix: SortPrefix, hour: int | None, x: int | None = 0) -> bool:
    return any(each.matches({"hour": hour, "x": x}) for each in prefix.covered)


def test_a_prefix_begins_with_the_type() -> None:
    prefix = SortPrefix([("hour", False)], SCHEMA)
    assert not prefix.take([hours(2, 4)]) and prefix.covered == ()
    assert prefix.take([hours(0, 3)])
    assert [covers(prefix, hour) for hour in (0, 4, 5, None)] == [True, True, False, False]
    assert not prefix.take([hours(1, 2)]), "nothing new"


def test_falling_orders_begin_at_the_other_end_and_nulls_are_last() -> None:
    prefix = SortPrefix([("hour", True)], SCHEMA)
    assert prefix.take([hours(200, 255)])
    assert covers(prefix, 255) and not covers(prefix, 199)
    prefix.take([hours(0, 199)])
    assert covers(prefix, 0) and not covers(prefix, None) and not prefix.everything
    prefix.take([Punctuation({"hour": OneOf((None,))})])
    assert prefix.everything and prefix.covered == (Punctuation(),) and prefix.nbytes < 1000


def test_the_first_value_beyond_is_extended_by_the_columns_behind() -> None:
    prefix = SortPrefix([("hour", False), ("x", False)], SCHEMA)
    prefix.take([hours(0, 2), Punctuation({"hour": OneOf((3,)), "x": Range(lt=10)})])
    assert covers(prefix, 2, 99) and covers(prefix, 3, 9) and not covers(prefix, 3, 10) and not covers(prefix, 4, 0)
    again = SortPrefix([("hour", False), ("x", False)], SCHEMA)
    again.restore(through_file(prefix.snapshot()))
    assert again.take([hours(3, 3)]) and covers(again, 3, 99)
    again.take([Punctuation()])
    assert again.everything
