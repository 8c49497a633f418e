"""The guard of an epoch without order holds a source to its promises about data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError
from everwhen.operators.ingress.unordered_guard import UnorderedGuard
from everwhen.operators.punctuate.punctuator import Punctuator
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element_batch import ADJUST, INSERT
from state_files import through_file

SCHEMA = Schema.of([("item", pa.int64()), ("kind", pa.string())])
Row = tuple[int, int, int, int, int | None, str]


def guard(*schemes: Any) -> UnorderedGuard:
    punctuator = Punctuator(schemes, SCHEMA, hosted=True, ordered=False) if schemes else None
    return UnorderedGuard("S", RowCodec(SCHEMA, Interner()), punctuator=punctuator)


def step(one: UnorderedGuard, rows: list[Row], *promises: Punctuation, cti: int = NEVER) -> None:
    op, vs, ve, vnew = (np.array([row[i] for row in rows], np.int64) for i in range(4))
    columns = pa.array([row[4] for row in rows], pa.int64()), pa.array([row[5] for row in rows], pa.string())
    one.step(op, vs, ve, vnew, columns, cti, promises)


def at(vs: int, item: int | None, kind: str = "a") -> Row:
    return (INSERT, vs, INF, 0, item, kind)


def test_a_promise_holds_from_the_next_epoch_on_and_in_a_snapshot() -> None:
    one = guard()
    step(one, [at(1, 7), at(1, 8)], Punctuation.constants({"item": 7}), Punctuation({"item": Range(ge=20)}, 10))
    assert one.frontier.promises == (Punctuation({"item": OneOf((7,))}), Punctuation({"item": Range(ge=20)}, 10))
    other = guard()
    other.restore(through_file(one.snapshot()))
    for each in (one, other):
        step(each, [at(2, 8), at(10, 25), at(3, None)])
        assert each.frontier.promises == ()
        with pytest.raises(InputError, match=r"S: an element .* has ruled out: punct item = 7; row {'item': 7, "):
            step(each, [at(5, 8), at(11, 7)])
        with pytest.raises(InputError, match=r"ruled out: punct item >= 20 before 10; row {'item': 30, "):
            step(each, [at(9, 30)])
        # an adjust of an event is a change of its row
        with pytest.raises(InputError, match="ruled out: punct item = 7"):
            step(each, [(ADJUST, 1, INF, 4, 7, "a")])


def test_rows_that_are_promised_and_what_time_has_passed_are_forgotten() -> None:
    one = guard()
    step(one, [at(1, 7), at(1, 8)])
    assert one.state_size().rows == 2
    step(one, [], Punctuation.constants({"item": 7}))
    assert one.state_size().rows == 1
    step(one, [], Punctuation.constants({"item": 9}, 5), cti=5)
    assert one.frontier.promises == ()
    step(one, [at(5, 9)])


def test_a_promise_about_another_column_than_the_key_is_checked_too() -> None:
    one = guard()
    step(one, [], Punctuation({"item": Range(lt=5), "kind": OneOf(("b",))}))
    step(one, [at(1, 3, "a"), at(1, 6, "b")])
    with pytest.raises(InputError, match="ruled out: punct item <= 4 and kind = 'b'"):
        step(one, [at(1, 4, "b")])


def test_schemes_are_watched_between_epochs_not_within_one() -> None:
    one = guard(ew.punctuation.sorted_by("item"))
    step(one, [at(1, 9), at(1, 4)])
    assert one.frontier.promises == (Punctuation({"item": Range(le=8)}),)
    other = guard(ew.punctuation.sorted_by("item"))
    other.restore(through_file(one.snapshot()))
    for each in (one, other):
        with pytest.raises(InputError, match=r"S: .*item.*; row {'item': 8, "):
            step(each, [at(2, 10), at(2, 8)])
        step(each, [at(2, 9), at(2, 12)])
        assert each.frontier.promises == (Punctuation({"item": Range(le=11)}),)
