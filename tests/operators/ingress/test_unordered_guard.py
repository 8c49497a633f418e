"""The guard of an epoch without order: sets of elements, not sequences."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.operators.ingress.unordered_guard import UnorderedGuard
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from state_files import through_file

SCHEMA = Schema.of([("x", pa.int64())])
Element = tuple[int, int, int, int, int]
"""op, vs, ve, vnew, x"""


def guard(**options: bool) -> UnorderedGuard:
    return UnorderedGuard("S", RowCodec(SCHEMA, Interner()), **options)


def push(guarding: UnorderedGuard, elements: list[Element], cti: int = -100) -> CheckedBatch:
    op, vs, ve, vnew, x = (np.array(column, np.int64) for column in zip(*elements, strict=True)) if elements else (
        np.empty(0, np.int64) for _ in range(5)
    )  # fmt: skip
    return guarding.step(op, vs, ve, vnew, (pa.array(x),), cti)


def test_an_adjust_may_come_before_its_event_in_an_epoch() -> None:
    chain: list[Element] = [(0, 1, 5, 0, 7), (1, 1, 5, 3, 7), (1, 1, 3, 9, 7), (1, 1, 9, 2, 7)]
    for seed in range(20):
        shuffled = chain[:]
        random.Random(seed).shuffle(shuffled)
        guarding = guard()
        segments = push(guarding, shuffled).segments()
        alive = [int(segments.weight[(segments.lo <= t) & (segments.hi > t)].sum()) for t in range(10)]
        assert alive == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
        assert guarding.state_size().rows == 1


def test_what_is_missing_after_the_epoch_is_an_error_and_nothing_is_taken() -> None:
    guarding = guard()
    push(guarding, [(0, 1, 5, 0, 7)])
    with pytest.raises(InputError, match=r"an adjust of an event that is not there: \[1, 6\); row {'x': 7}"):
        push(guarding, [(0, 2, 4, 0, 8), (1, 1, 6, 3, 7)])
    assert guarding.state_size().rows == 1
    push(guarding, [(1, 1, 5, 3, 7)])


def test_multiplicities_count() -> None:
    guarding = guard()
    push(guarding, [(0, 1, 5, 0, 7), (0, 1, 5, 0, 7)])
    push(guarding, [(1, 1, 5, 1, 7), (1, 1, 5, 1, 7)])
    assert guarding.state_size().rows == 0
    with pytest.raises(InputError, match="not there"):
        push(guarding, [(1, 1, 5, 1, 7)])


def test_a_lenient_guard_leaves_out_and_counts() -> None:
    guarding = guard(lenient=True)
    out = push(guarding, [(0, 1, 5, 0, 7), (1, 1, 6, 3, 7), (1, 1, 5, 4, 7), (1, 2, 3, 2, 9)])
    assert guarding.left_out == 2
    assert out.op.tolist() == [0, 1]
    assert guarding.state_size().rows == 1


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ((0, 5, 5, 0, 1), r"the lifetime \[5, 5\) is empty"),
        ((0, 5, 2**62, 0, 1), "out of range"),
        ((1, 5, 8, 4, 1), "before its start"),
        ((3, 5, 8, 4, 1), "unknown op"),
        ((0, 3, 8, 0, 1), "an insert that starts at 3, behind the CTI 4"),
        ((1, 1, 8, 3, 1), "an adjust that changes at 3, behind the CTI 4"),
    ],
)
def test_wrong_elements(element: Element, message: str) -> None:
    guarding = guard()
    push(guarding, [(0, 1, 8, 0, 1)], cti=4)
    with pytest.raises(InputError, match=message):
        push(guarding, [(0, 9, 10, 0, 1), element])


def test_the_epochs_own_promise_holds_from_the_next_one_on() -> None:
    guarding = guard()
    push(guarding, [(0, 1, 8, 0, 1)], cti=6)
    assert guarding.cti == 6
    push(guarding, [(1, 1, 8, 6, 1)], cti=6)


def test_state_is_bounded_by_the_promise() -> None:
    guarding = guard()
    for start in range(100):
        push(guarding, [(0, start, start + 3, 0, start)], cti=start)
    assert guarding.state_size().rows == 4  # an event that ends at the CTI may still grow
    again = guard()
    again.restore(through_file(guarding.snapshot()))
    push(again, [(1, 99, 102, 99, 99)], cti=99)
    assert again.state_size().rows == 3


def test_insert_only() -> None:
    guarding = guard(insert_only=True)
    push(guarding, [(0, 1, 5, 0, 7)])
    assert guarding.state_size().rows == 0
    with pytest.raises(InputError, match="insert-only"):
        push(guarding, [(1, 1, 5, 3, 7)])
