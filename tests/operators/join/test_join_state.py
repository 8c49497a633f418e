"""One side of a join, on its own: what a walk through the tree of a key finds, and what it passes by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.join.join_state import JoinState
from everwhen.operators.join.loops import join as kernel
from everwhen.operators.join.loops.lifetimes import (
    END,
    HI,
    KEY,
    LAST,
    LINKS,
    LO,
    MOST,
    NEWEST,
    ROW,
    WEIGHT,
    earlier,
    on_spine,
    other,
)
from everwhen.rows.changes import Changes
from everwhen.rows.codec import Interner, RowCodec

KEYS = 3
LATEST = 30
Row = tuple[int, int, int, int]  # key, lo, hi, value


@dataclass(frozen=True)
class Step:
    added: list[Row]
    taken: list[tuple[int, int, int]]  # which of the rows there, and from when on how much of it is cut out
    twice: bool  # the first row that is added comes with weight 2
    cti: int
    tidy: bool


rows = st.tuples(
    st.integers(0, KEYS - 1), st.integers(0, LATEST), st.sampled_from([1, 2, 5, 12, INF]), st.integers(0, 2)
).map(lambda r: (r[0], r[1], INF if r[2] == INF else r[1] + r[2], r[3]))
steps = st.lists(
    st.builds(
        Step,
        st.lists(rows, max_size=8),
        st.lists(st.tuples(st.integers(0, 100), st.integers(0, LATEST), st.sampled_from([2, 5, INF])), max_size=4),
        st.booleans(),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=8,
)


def a_side() -> JoinState:
    side = JoinState(RowCodec(Schema.of([("v", pa.int64())]), Interner()))
    side.grow(KEYS)
    return side


def put(side: JoinState, some: list[tuple[Row, int]]) -> None:
    key, lo, hi, value, weight = (
        np.array(column, np.int64) for column in zip(*((*r, w) for r, w in some), strict=True)
    )
    coded = np.stack([np.zeros_like(value), value], axis=1)
    side.reserve(len(key))
    side.add(key, Changes(side.codec, lo, hi, weight, coded))


def links(side: JoinState, at: int) -> tuple[int, int, bool]:
    word = side.log[at, LINKS]
    return int(earlier(word)), int(other(word)), bool(on_spine(word))


def ordered(side: JoinState, key: int) -> list[int]:
    """The entries of a key in the order of the tree, checked on the way: `last` of each covers all that it leads to."""

    def plain(at: int) -> list[int]:
        if at < 0:
            return []
        a, b, spine = links(side, at)
        assert not spine
        found = [*plain(a), at, *plain(b)]
        assert all(side.log[at, LAST] >= side.log[each, HI] for each in found)
        return found

    at, found = int(side.heads[key, NEWEST]), list[int]()
    spine = []
    while at >= 0:
        a, following, is_spine = links(side, at)
        assert is_spine
        found = [*plain(a), at, *found]
        spine.append(at)
        at = following
    for at in spine:
        before = found[: found.index(at) + 1]
        assert side.log[at, LAST] >= max(side.log[each, HI] for each in before)
    return found


def check_tree(side: JoinState) -> None:
    for key in range(KEYS):
        entries = ordered(side, key)
        starts = [(int(side.log[at, LO]), at) for at in entries]
        assert starts == sorted(starts)
        assert all(int(side.log[at, KEY]) == key for at in entries)
        assert int(side.heads[key, END]) >= max((int(side.log[at, HI]) for at in entries), default=NEVER)


def probed(side: JoinState, key: int, lo: int, hi: int) -> list[tuple[int, int, int, int]]:
    """Value, lo, hi and weight of what a change of that lifetime meets."""
    one = (np.array([x], np.int64) for x in (key, lo, hi))
    _, entry, _ = kernel.probe(*one, 0, side.heads, side.log, side.cti, 1000, side.touched)
    found = side.log[entry]
    return [tuple(map(int, each)) for each in found[:, [ROW + 1, LO, HI, WEIGHT]]]


def times_alive(found: list[tuple[int, int, int, int]], lo: int, hi: int) -> dict[tuple[int, int], int]:
    alive: dict[tuple[int, int], int] = {}
    for value, start, end, weight in found:
        for t in range(max(lo, start), min(hi, end)):
            alive[value, t] = alive.get((value, t), 0) + weight
    return alive


@settings(max_examples=150, deadline=None)
@given(steps, st.lists(st.tuples(st.integers(0, LATEST), st.integers(1, 9)), min_size=1, max_size=6))
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
        check_tree(side)
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
        check_tree(side)


def touched(side: JoinState, lo: int, hi: int) -> int:
    """How many entries of key 0 a probe comes by, told by making each one that has ended, or not begun, alive."""
    n = 0
    entries = ordered(side, 0)
    met = len(probed(side, 0, lo, hi))
    for at in entries:
        was = side.log[at, LO], side.log[at, HI]
        if was[0] < hi and was[1] > lo:
            continue
        side.log[at, HI] = max(was[1], lo + 1)  # `last` of those above does not know
        side.log[at, LO] = min(was[0], hi - 1)
        n += len(probed(side, 0, lo, hi)) - met
        side.log[at, LO], side.log[at, HI] = was
    return n


def test_a_probe_in_order_does_not_look_at_what_has_ended() -> None:
    side = a_side()
    put(side, [((0, t, t + 2, 0), 1) for t in range(1000)])
    assert [lo for _, lo, _, _ in probed(side, 0, 1000, 2000)] == [999]
    assert touched(side, 1000, 2000) == 0


@pytest.mark.parametrize("order", ["in order", "backwards", "mixed"])
def test_a_probe_looks_at_few_entries_that_it_does_not_meet(order: str) -> None:
    """Also one that comes late, and beside a row that lives on: some steps down a tree of a thousand."""
    side, n = a_side(), 1000
    starts = {"in order": np.arange(n), "backwards": np.arange(n)[::-1], "mixed": np.arange(n) * 617 % n}[order]
    put(side, [((0, 0, INF, 0), 1)])
    put(side, [((0, int(t), int(t) + 2, 0), 1) for t in starts])
    for lo in (0, 250, 500, 750, 999):
        assert len(probed(side, 0, lo, lo + 1)) == 2 + (lo > 0)
        assert touched(side, lo, lo + 1) < 60  # of 1,001
    check_tree(side)


def test_a_row_that_was_open_when_the_next_one_came_does_not_keep_walks_going() -> None:
    side = a_side()
    for t in range(200):  # each row is open until the next one comes, in the same batch
        ended = [((0, t, INF, t - 1), -1)] if t else []
        put(side, [((0, t, INF, t), 1), *ended])
    check_tree(side)
    for at in ordered(side, 0):  # all ends are told upwards: `last` is exact
        a, b, _ = links(side, at)
        below = [int(side.log[each, LAST]) for each in (a, b) if each >= 0]
        assert int(side.log[at, LAST]) == max(int(side.log[at, HI]), *below, NEVER)
    assert touched(side, 300, 301) <= 20


def test_more_rows_than_links_can_name_are_refused() -> None:
    side = a_side()
    with pytest.raises(EverwhenError, match=r"2,147,483,648 keys, and the most it can is 2,147,483,647"):
        side.grow(MOST + 1)
    with pytest.raises(EverwhenError, match="rows"):
        side.reserve(MOST + 1)


def test_a_side_that_expects_many_rows_makes_room_once() -> None:
    """It keeps the same, and neither its log nor its heads move while the rows come."""
    side, other = a_side(), a_side()
    side.expect(4000)
    log, heads = side.log, side.heads
    for first in range(0, 4000, 500):
        for each in (side, other):
            ids = np.arange(first, first + 500)
            each.grow(first + 500, 100)
            each.reserve(500)
            lo, ones = ids.astype(np.int64), np.ones(500, np.int64)
            each.add(ids, Changes(each.codec, lo, lo + 1000, ones, np.zeros((500, each.codec.width), np.int64)))
            each.expire(first)
    assert side.log is log and side.heads is heads
    one, two = side.segments(), other.segments()
    assert (one.lo == two.lo).all() and (one.hi == two.hi).all() and len(one) == len(side.alive())
    side.tidy()
    assert (side.heads[side.log[: side._count, KEY], NEWEST] >= 0).all()
