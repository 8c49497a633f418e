"""Live rows: signed segments per key, kept in the order of their ends, cut and forgotten as a plain counter says."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.containers import live_runs as kernel
from everwhen.core.time import INF, NEVER
from everwhen.operators.live_rows import LiveRows
from everwhen.rows.interner import Interner

KEYS, TIMES = 3, range(-2, 30)
Segment = tuple[int, int, int, int]
"""Key, start, end, value."""


def at(live: LiveRows, t: int) -> Counter[tuple[int, int]]:
    """Key and value of what is alive."""
    records, offsets = live.runs.gather(np.arange(KEYS))
    keys = np.repeat(np.arange(KEYS), np.diff(offsets))
    found: Counter[tuple[int, int]] = Counter()
    for key, (lo, hi, weight, value) in zip(keys.tolist(), records.tolist(), strict=True):
        found[key, value] += weight if lo <= t < hi else 0
    return +found


def changed(rng: random.Random, there: Counter[Segment], cti: int) -> list[tuple[Segment, int]]:
    """Segments that are added, and parts of some that are there and end after the promise taken back."""
    found: list[tuple[Segment, int]] = []
    for _ in range(rng.choice((1, 3, 40))):
        live = sorted(each for each, copies in there.items() if copies and each[2] > max(cti, each[1]))
        if live and rng.random() < 0.4:
            key, lo, hi, value = segment = rng.choice(live)
            since = rng.randint(max(lo, cti), min(hi, 28) - 1) if min(hi, 28) > max(lo, cti) else max(lo, cti)
            until = hi if hi == INF or rng.random() < 0.6 else rng.randint(since + 1, hi)
            there[segment] -= 1
            for left in ((key, lo, since, value), (key, until, hi, value)):
                there[left] += left[1] < left[2]
            found.append(((key, since, until, value), -1))
        else:
            lo = rng.randint(max(cti, 0), max(cti, 0) + 8)
            hi = rng.choice((lo + 1, lo + 3, lo + 9, INF))
            segment, copies = (rng.randrange(KEYS), lo, hi, rng.randrange(2)), rng.choice((1, 1, 2))
            there[segment] += copies
            found.append((segment, copies))
    return found


@settings(max_examples=4 * settings().max_examples)
@given(seed=st.integers(0, 2**32))
def test_a_counter_says_the_same(seed: int) -> None:
    rng = random.Random(seed)
    live = LiveRows(1, (), Interner())
    live.grow(KEYS)
    there: Counter[Segment] = Counter()
    cti = NEVER
    for _ in range(6):
        batch = changed(rng, there, cti)
        records = np.array([(lo, hi, weight, value) for (_, lo, hi, value), weight in batch], np.int64)
        live.apply(np.array([key for (key, *_), _ in batch], np.int64), records)
        if rng.random() < 0.5:
            cti = max(cti, 0) + rng.randint(0, 6)
            live.expire(cti)
        if rng.random() < 0.3:
            ids = np.arange(KEYS)
            state, live = live.snapshot(ids), LiveRows(1, (), Interner())
            live.grow(KEYS)
            live.restore(ids, state, state["records"])
        for t in TIMES:
            expected: Counter[tuple[int, int]] = Counter()
            for (key, lo, hi, value), copies in there.items():
                expected[key, value] += copies if lo <= t < hi else 0
            if t >= cti:
                assert at(live, t) == +expected
        for key in range(KEYS):
            ends = live.runs.gather(np.array([key]))[0][:, kernel.HI]
            assert (np.diff(ends) >= 0).all() and (ends > cti).all()
        assert live.rows == len(live.runs.records)


def test_what_ended_before_a_change_is_left_alone() -> None:
    """Their values are not read, nor are they moved."""
    live = LiveRows(1, (), Interner())
    live.grow(1)
    old = np.array([(t, t + 2, 1, 5) for t in range(1000)], np.int64)
    live.apply(np.zeros(len(old), np.int64), old)
    start = int(live.runs.place[0, 2])
    live.runs.pool[start : start + 900, 3] = -1
    more = np.array([(1500, 1600, 1, 7), (999, 1001, -1, 5)], np.int64)
    live.apply(np.zeros(2, np.int64), more)
    records = live.runs.gather(np.array([0]))[0]
    assert (records[:900, 3] == -1).all()
    assert records[900:].tolist() == [*old[900:999].tolist(), [1500, 1600, 1, 7]]
