"""The two ways from segments to edges, and the lanes of a sweep: whichever is taken, the answer is the same.

Which way is taken follows from how many lifetimes a step has; here each is forced.
"""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF
from everwhen.operators.stateless.linear import windowed
from everwhen.operators.sweep import sweep
from everwhen.operators.sweep.loops.edges import edges_in_order, edges_on_grid, grouped, lifetimes
from everwhen.operators.sweep.loops.group_keys import group_keys
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import EMITS, SCHEMA, Trial, epochs, sources, streams_of
from plans import Plan, S, plan
from state_files import through_file

SOME = settings(max_examples=60)
FEW = settings(max_examples=examples_per_case(5))


def segments(rng: random.Random, kinds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, starts and ends of some segments with at most so many lifetimes."""
    ends = [(start, rng.choice([start + 1, start + 3, INF])) for start in (rng.randrange(9) for _ in range(kinds))]
    chosen = [rng.choice(ends) for _ in range(rng.randrange(1, 80))]
    ids = np.array([rng.randrange(6) for _ in chosen], np.int64)
    return ids, *(np.array([each[i] for each in chosen], np.int64) for i in (0, 1))


@SOME
@given(seed=st.integers(0, 2**32), kinds=st.integers(1, 12))
def test_edges_are_the_sums_of_what_starts_and_ends(seed: int, kinds: int) -> None:
    """Both ways against a dictionary; two integer lanes and one float in two words."""
    rng = random.Random(seed)
    ids, lo, hi = segments(rng, kinds)
    values = np.zeros((len(ids), 4), np.int64)
    values[:, :2] = [[rng.randrange(-3, 4), rng.randrange(-9, 9)] for _ in ids]
    floats = values.view(np.float64)
    floats[:, 2] = [rng.randrange(-8, 8) / 4 for _ in ids]
    slot = np.full(8, -1, np.int64)
    group, keys = group_keys(ids, slot)
    assert (slot == -1).all()
    which, starts, ends = lifetimes(lo, hi, 12)
    assert (starts[which] == lo).all() and (ends[which] == hi).all()
    wanted: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0, 0.0]))
    for i, k in enumerate(ids.tolist()):
        for t, sign in ((int(lo[i]), 1), (int(hi[i]), -1)):
            if t != INF:
                there = wanted[k][t]
                there[1] += sign * int(values[i, 0])
                there[2] += sign * int(values[i, 1])
                there[3] += sign * float(floats[i, 2])
    ways = (
        edges_on_grid(group, keys, which, starts, ends, values, floats, 2),
        edges_in_order(group, keys, lo, hi, values, floats, 2),
    )
    for found, (offsets, times, lanes, open_, first, last) in ways:
        assert found.tolist() == list(dict.fromkeys(ids.tolist()))
        for v, k in enumerate(found.tolist()):
            own = slice(offsets[v], offsets[v + 1])
            assert times[own].tolist() == sorted(wanted[k])
            sums = [wanted[k][t][1:] for t in sorted(wanted[k])]
            assert lanes[own, :2].tolist() == [each[:2] for each in sums]
            assert lanes.view(np.float64)[own, 2].tolist() == [each[2] for each in sums]
            forever = bool((hi[ids == k] == INF).any())
            assert (int(first[v]), int(last[v])) == (min(wanted[k]), INF if forever else max(wanted[k]))
            assert (int(open_[own].sum()) != 0) == forever


def test_the_way_is_chosen_by_the_number_of_lifetimes() -> None:
    ids, slot = np.zeros(20, np.int64), np.full(4, -1, np.int64)
    lo = np.arange(20, dtype=np.int64)
    values = np.ones((20, 2), np.int64)
    assert not len(lifetimes(lo, lo + 1, 8)[1])
    assert lifetimes(lo // 4, lo // 4 + 1, 8)[1].tolist() == [0, 1, 2, 3, 4]
    for starts in (lo, lo // 4):
        a_keys, a = grouped(ids, starts, starts + 9, values, 2, slot, 8)
        b_keys, b = grouped(ids, starts, starts + 9, values, 2, slot, 0)
        assert (a_keys == b_keys).all()
        assert all((x == y).all() for x, y in zip(a, b, strict=True) if x is not a.open)


@SOME
@given(
    times=st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9) | st.just(INF)), min_size=1, max_size=30),
    size=st.integers(1, 9) | st.just(INF),
    slide=st.integers(1, 40),
)
def test_windows_round_each_end_by_itself(times: list[tuple[int, int]], size: int, slide: int) -> None:
    """Neither what the kernel remembers of the last rounding shows, nor whether few or many instants are rounded to."""
    lo = np.array([t for t, _ in times], np.int64)
    hi = np.array([INF if n == INF else t + n for t, n in times], np.int64)
    starts, ends = np.empty((2, len(lo)), np.int64)
    left, longest, last = windowed(lo, hi, size, slide, starts, ends)
    long = [INF if INF in (b, size) else b + size - 1 for b in hi.tolist()]
    assert left == (starts < ends).sum() and longest == max(n for _, n in times)
    assert last == max(0, *(b for b in long if b != INF), 0)
    for i, a in enumerate(lo.tolist()):
        assert starts[i] == next(t for t in range(a, a + slide) if (t + 1) % slide == 0)
        up = next(t for t in range(long[i], long[i] + slide) if (t + 1) % slide == 0) if long[i] != INF else INF
        assert ends[i] == up


WINDOWED: tuple[Plan, ...] = (
    plan("tumbling sum", lambda: S.range(6, slide=6).group_by("k").agg(t=ew.sum("x"), n=ew.count(), v=ew.count("x"))),
    plan("hopping sum", lambda: S.range(6, slide=2).group_by("k").agg(t=ew.sum("x"))),
    plan("sum of intervals", lambda: S.group_by("k").agg(t=ew.sum("x"))),
    plan("tumbling deviation", lambda: S.range(4, slide=4).group_by("k").agg(a=ew.avg("x"), d=ew.stddev("x"))),
    plan("tumbling extremes", lambda: S.range(4, slide=4).group_by("k").agg(lo=ew.min("x"), hi=ew.max("x"))),
    plan("tumbling rows", lambda: S.range(4, slide=4).distinct()),
)  # fmt: skip


@pytest.mark.parametrize("grid", [0, 64])
@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("query", WINDOWED, ids=str)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_both_ways_give_the_oracle_s_snapshots(
    query: Plan, emit: str, grid: int, data: st.DataObject, seed: int
) -> None:
    rng = random.Random(seed)
    stream = query.build()
    drawn = histories(SCHEMA, max_events=7, max_time=12, allow_infinite=query.infinite)
    given_ = {name: data.draw(drawn, label=name) for name in sources(stream)}
    before, sweep.GRID = sweep.GRID, grid
    try:
        trial = Trial(stream, emit, given_)
        for epoch in epochs(streams_of(given_, rng, query.infinite), rng):
            trial.push(epoch)
            if rng.randrange(6) == 0:
                trial.restart(through_file)
        trial.close()
    finally:
        sweep.GRID = before


AGGREGATES: tuple[Plan, ...] = (
    plan("sum", lambda: S.group_by("k").agg(t=ew.sum("x"))),
    plan("counts", lambda: S.group_by("k").agg(n=ew.count(), v=ew.count("x"))),
    plan("extremes", lambda: S.group_by("k").agg(lo=ew.min("x"), hi=ew.max("x"))),
    plan("mixed", lambda: S.aggregate(t=ew.sum("x"), a=ew.avg("x"), d=ew.variance("x"), m=ew.median("x"))),
)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("query", AGGREGATES, ids=str)
@pytest.mark.parametrize("restart", ["never", "before", "after"])
def test_values_are_counted_apart_once_a_null_has_come(query: Plan, emit: str, restart: str) -> None:
    """State of many rows without a null, then nulls; also across a restart on either side of the first."""
    rng = random.Random(3)
    events: list[Insert] = []
    for i in range(40):
        start = rng.randrange(24)
        x = None if i >= 20 and rng.random() < 0.4 else rng.randrange(5)
        k = None if i >= 20 and rng.random() < 0.2 else rng.choice("ab")
        events.append(Insert(start, start + rng.randrange(1, 9), {"k": k, "x": x}))
    wrong = events[2]
    elements: list[Element] = [*events, Adjust(wrong.vs, wrong.ve, wrong.vs, wrong.row)]
    trial = Trial(query.build(), emit, {"S": History.of(elements, SCHEMA)})
    for at in range(0, len(elements), 10):
        if (restart, at) in (("before", 20), ("after", 30)):
            trial.restart(through_file)
        trial.push({"S": batch_of(elements[at : at + 10], SCHEMA)})
    trial.push({"S": batch_of([Cti(12)], SCHEMA)})
    trial.close()
