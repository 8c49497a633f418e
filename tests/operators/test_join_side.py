"""One side of a join, on its own: what a walk down a chain finds, and where it may end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.errors import EverwhenError
from everwhen.model.changes import Changes
from everwhen.model.rows import Pool, RowCodec
from everwhen.model.schema import Schema
from everwhen.model.time import INF, NEVER
from everwhen.operators.kernels import join as kernel
from everwhen.operators.kernels.join import BELOW, HI, LINK, LO, MOST, ROW, WEIGHT
from everwhen.operators.side import JoinSide

KEYS = 3
LAST = 30
Row = tuple[int, int, int, int]  # key, lo, hi, value


@dataclass(frozen=True)
class Step:
    added: list[Row]
    taken: list[tuple[int, int, int]]  # which of the rows there, and from when on how much of it is cut out
    twice: bool  # the first row that is added comes with weight 2
    cti: int
    tidy: bool


rows = st.tuples(
    st.integers(0, KEYS - 1), st.integers(0, LAST), st.sampled_from([1, 2, 5, 12, INF]), st.integers(0, 2)
).map(lambda r: (r[0], r[1], INF if r[2] == INF else r[1] + r[2], r[3]))
steps = st.lists(
    st.builds(
        Step,
        st.lists(rows, max_size=8),
        st.lists(st.tuples(st.integers(0, 100), st.integers(0, LAST), st.sampled_from([2, 5, INF])), max_size=4),
        st.booleans(),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=8,
)


def a_side() -> JoinSide:
    side = JoinSide(RowCodec(Schema.of([("v", pa.int64())]), Pool()))
    side.grow(KEYS)
    return side


def put(side: JoinSide, some: list[tuple[Row, int]]) -> None:
    key, lo, hi, value, weight = (
        np.array(column, np.int64) for column in zip(*((*r, w) for r, w in some), strict=True)
    )
    coded = np.stack([np.zeros_like(value), value], axis=1)
    side.reserve(len(key))
    side.add(key, Changes(side.codec, lo, hi, weight, coded))


def chain(side: JoinSide, key: int) -> list[int]:
    at, found = int(side.heads[key, 0]), []
    while at >= 0:
        found.append(at)
        at = int(kernel.after_of(side.log[at, LINK]))
    return found


def check_bounds(side: JoinSide) -> None:
    """Whatever stands below an entry ends by the time that the entry names."""
    for key in range(KEYS):
        entries = chain(side, key)
        ends = [int(side.log[at, HI]) for at in entries]
        bounds = [int(side.heads[key, 1]), *(int(side.log[at, BELOW]) for at in entries)]
        assert all(int(kernel.key_of(side.log[at, LINK])) == key for at in entries)
        assert all(bound >= max(ends[i:], default=NEVER) for i, bound in enumerate(bounds))


def probed(side: JoinSide, key: int, lo: int, hi: int) -> list[tuple[int, int, int, int]]:
    """Value, lo, hi and weight of what a change of that lifetime meets."""
    one = (np.array([x], np.int64) for x in (key, lo, hi))
    _, entry, _ = kernel.probe(*one, 0, side.heads, side.log, side.cti, 1000)
    found = side.log[entry]
    return [tuple(map(int, each)) for each in found[:, [ROW + 1, LO, HI, WEIGHT]]]


def times_alive(found: list[tuple[int, int, int, int]], lo: int, hi: int) -> dict[tuple[int, int], int]:
    alive: dict[tuple[int, int], int] = {}
    for value, start, end, weight in found:
        for t in range(max(lo, start), min(hi, end)):
            alive[value, t] = alive.get((value, t), 0) + weight
    return alive


@settings(max_examples=150, deadline=None)
@given(steps, st.lists(st.tuples(st.integers(0, LAST), st.integers(1, 9)), min_size=1, max_size=6))
def test_a_probe_meets_what_is_alive_however_rows_came_and_went(
    given_: list[Step], asked: list[tuple[int, int]]
) -> None:
    side, there, cti = a_side(), list[Row](), 0
    side.expire(cti)
    for step in given_:
        changes = [(row, 1 + (step.twice and not i)) for i, row in enumerate(step.added) if row[2] > cti]
        there += [row for row, weight in changes for _ in range(weight)]
        for which, start, length in step.taken[: len(there)]:
            key, lo, hi, value = there.pop(which % len(there))
            a, b = max(lo, cti, start), hi if length == INF else min(hi, max(lo, cti, start) + length)
            if a >= b:
                a = b = hi  # nothing is cut out
            else:
                changes.append(((key, a, b, value), -1))
            there += [(key, x, y, value) for x, y in ((lo, a), (b, hi)) if x < y]
        if changes:
            put(side, changes)
        check_bounds(side)
        cti += step.cti
        side.expire(cti)
        there = [row for row in there if row[2] > cti]
        if step.tidy:
            side.tidy()
        for lo, length in asked:
            lo = max(lo, cti)
            for key in range(KEYS):
                expected = [(v, a, b, 1) for k, a, b, v in there if k == key]
                got = probed(side, key, lo, lo + length)
                assert times_alive(got, lo, lo + length) == times_alive(expected, lo, lo + length)
        check_bounds(side)


def test_a_probe_in_order_does_not_look_at_what_has_ended() -> None:
    side = a_side()
    put(side, [((0, t, t + 2, 0), 1) for t in range(100)])
    below = [int(side.log[at, BELOW]) for at in chain(side, 0)]
    assert below[0] == 100 and below == sorted(below, reverse=True)
    side.log[chain(side, 0)[1:], HI] = INF  # behind the back of the bounds: a walk that came by would find them
    assert [lo for _, lo, _, _ in probed(side, 0, 100, 200)] == [99]
    assert [lo for _, lo, _, _ in probed(side, 0, 99, 200)] == [99, 98]


def test_a_row_that_was_open_when_the_next_one_came_does_not_keep_walks_going() -> None:
    side = a_side()
    for t in range(20):  # each row is open until the next one comes, in the same batch
        ended = [((0, t, INF, t - 1), -1)] if t else []
        put(side, [((0, t, INF, t), 1), *ended])
    assert [int(side.log[at, BELOW]) for at in chain(side, 0)] == [*range(19, 0, -1), NEVER]
    check_bounds(side)


def test_more_keys_or_rows_than_a_link_can_name_are_refused() -> None:
    side = a_side()
    with pytest.raises(EverwhenError, match=r"2,147,483,649 keys, and the most it can is 2,147,483,648"):
        side.grow(MOST + 1)
    with pytest.raises(EverwhenError, match="rows"):
        side.reserve(MOST + 1)
    key, after = MOST - 1, MOST - 1
    link = np.int64(kernel.linked(np.int64(key), np.int64(after)))
    assert (kernel.key_of(link), kernel.after_of(link)) == (key, after)
    assert kernel.after_of(kernel.linked(np.int64(key), np.int64(-1))) == -1
