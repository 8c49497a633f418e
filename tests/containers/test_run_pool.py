"""Runs and the guard's log: flat memory that is used again, against lists and counters."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.compiled.njit import loop
from everwhen.containers.run_pool import (
    FIRST,
    LENGTH,
    ROOM,
    SPARE,
    START,
    Runs,
    first_after,
    make_room,
    needed,
    replace,
)
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.event_log import EventLog
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from state_files import through_file

SOME = settings(max_examples=40)


def check(runs: Runs, known: dict[int, list[list[int]]]) -> None:
    """What each run holds, and that no two stretches overlap, those that are left included."""
    every = np.array(sorted(known))
    found, at = runs.gather(every)
    assert [found[a:b].tolist() for a, b in pairwise(at)] == [known[k] for k in every.tolist()]
    stretches = []
    for first, room, start, length in runs.place.tolist():
        assert length == 0 or first <= start <= start + length <= first + room
        if room:
            stretches.append((first, room))
    spare = 0
    for c, free in enumerate(runs.free[:SPARE].tolist()):
        size = int([8, 12][c % 2] * 2 ** (c // 2))
        while free >= 0:
            stretches.append((free, size))
            spare += size
            free = int(runs.pool[free, 0])
    assert spare == runs.free[SPARE]
    stretches.sort()
    assert all(a + room <= b for (a, room), (b, _) in pairwise(stretches))
    assert sum(room for _, room in stretches) == runs.end


@SOME
@given(seed=st.integers(0, 2**32))
def test_runs_are_lists_that_lose_their_heads(seed: int) -> None:
    rng = random.Random(seed)
    runs = Runs(3)
    runs.grow(12)
    known: dict[int, list[list[int]]] = {k: [] for k in range(12)}
    for _ in range(60):
        keys = np.array(rng.sample(range(12), rng.randrange(1, 6)))
        more = [rng.choice([0, 1, 2, 30]) for _ in keys]
        runs.reserve(needed(runs.place, keys, np.cumsum([0, *more]))[0])
        for k, n in zip(keys.tolist(), more, strict=True):
            runs.end = make_room(runs.place, runs.pool, runs.free, runs.end, k, n)
            new = [[rng.randrange(99) for _ in range(3)] for _ in range(n)]
            behind = runs.place[k, START] + runs.place[k, LENGTH]
            runs.pool[behind : behind + n] = np.array(new, np.int64).reshape(n, 3)
            runs.place[k, LENGTH] += n
            known[k] += new
        for k in keys.tolist():
            gone = rng.randrange(len(known[k]) + 1)
            known[k] = known[k][gone:]
            runs.place[k, START] += gone
            runs.place[k, LENGTH] -= gone
        if rng.randrange(4) == 0:
            empty = np.array([k for k in known if not known[k]], np.int64)
            runs.release(empty)
            assert not runs.place[empty][:, [FIRST, ROOM]].any()
        check(runs, known)
        if rng.randrange(9) == 0 or runs.crowded:
            runs.tidy()
            check(runs, known)
            assert runs.free[SPARE] == 0
        if rng.randrange(9) == 0:
            ids = np.array(sorted(known))
            records, offsets = runs.gather(ids)
            runs = Runs(3)
            runs.put(ids, offsets, records)
            check(runs, known)


def test_a_lane_more_is_a_copy_of_another() -> None:
    runs = Runs(2)
    runs.put(np.array([0, 3]), np.array([0, 2, 3]), np.array([[1, 10], [2, 20], [3, 30]]))
    runs.insert(2, 1)
    assert runs.records.tolist() == [[1, 10, 10], [2, 20, 20], [3, 30, 30]]


SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
Event = tuple[int, int, str, int]


@loop
def replaced(runs, end, k, after, gone, rest, kept):  # type: ignore[no-untyped-def]
    """Let `rest` stand for `gone` records from the first on whose time is more than `after`, as a loop would."""
    s = runs.place[k, START]
    to = first_after(runs.pool, s, runs.place[k, LENGTH], 0, after)
    return replace(runs, end, k, to, min(to + gone, s + runs.place[k, LENGTH]), rest, kept)


@SOME
@given(seed=st.integers(0, 2**32))
def test_runs_in_the_order_of_a_column_are_sorted_lists(seed: int) -> None:
    """Records in the middle are replaced, heads are dropped by time, all of some ids are forgotten."""
    rng = random.Random(seed)
    runs = Runs(3)
    runs.grow(8)
    known: dict[int, list[list[int]]] = {k: [] for k in range(8)}
    for _ in range(40):
        k, after, gone = rng.randrange(8), rng.randrange(-1, 50), rng.randrange(4)
        to = sum(time <= after for time, *_ in known[k])
        low = known[k][to - 1][0] if to else 0
        high = known[k][to + gone][0] if to + gone < len(known[k]) else 50
        rest = [[time, rng.randrange(9), 7] for time in sorted(rng.choices(range(low, high + 1), k=rng.randrange(6)))]
        known[k][to : to + gone] = rest
        runs.reserve(needed(runs.place, np.array([k]), np.array([0, len(rest)]))[0])
        records = np.array([*rest, [0, 0, 0]], np.int64)
        runs.end = replaced(runs.arrays, runs.end, k, after, gone, records, len(rest))
        check(runs, known)
        if rng.random() < 0.2:
            t = rng.randrange(60)
            runs.drop_heads(0, t)
            known = {key: [record for record in run if record[0] > t] for key, run in known.items()}
        if rng.random() < 0.2:
            over = rng.sample(range(8), 2)
            runs.forget(np.array([*over, len(runs.place) + 3]))
            known |= {key: [] for key in over}
        check(runs, known)


@SOME
@given(seed=st.integers(0, 2**32), lasting=st.booleans())
def test_the_log_is_a_multiset_of_what_an_adjust_may_name(seed: int, lasting: bool) -> None:
    """Against a counter: with a CTI per batch or none, adjusts in the same batch and later, errors, and undo."""
    rng = random.Random(seed)
    codec = RowCodec(SCHEMA, Interner())
    log, known, cti = EventLog(codec), Counter[Event](), 0
    for _ in range(40):
        until = cti + rng.choice([0, 0, 3, 9])
        now, elements, fails = known.copy(), [], False
        for _ in range(rng.choice([0, 1, 30, 200])):
            alive = [event for event, n in now.items() if n and event[1] >= cti]
            if alive and rng.random() < 0.4:
                event = rng.choice(alive)
                longer = [event[0] + 9] if event[1] == INF else [event[1] + 1, event[1] + 9]
                vnew = rng.choice([event[0], event[0] + 1, *longer, *([INF] if lasting else [])])
                if rng.random() < 0.01:
                    event, fails = (event[0] - 1000, *event[1:]), True
                elements.append((1, event, vnew))
                if fails:
                    break
                now[event] -= 1
                if vnew > event[0]:
                    now[event[0], vnew, *event[2:]] += 1
            else:
                vs = cti + rng.randrange(12)
                ve = INF if lasting and rng.random() < 0.02 else vs + rng.choice([1, 1, 1, 5])
                event = (vs, ve, rng.choice("ab"), rng.randrange(2))
                elements.append((0, event, 0))
                now[event] += 1
        n = len(elements)
        times = [np.array([e[1][i] for e in elements], np.int64) for i in (0, 1)]
        columns = (
            pa.array([e[1][2] for e in elements], pa.string()),
            pa.array([e[1][3] for e in elements], pa.int64()),
        )
        op, vnew = np.array([e[0] for e in elements], np.uint8), np.array([e[2] for e in elements], np.int64)
        arguments = (op, *times, vnew, codec.encode(columns, n), int(op.sum()), until)
        missing = log.apply(*arguments)
        assert missing == (n - 1 if fails else -1)
        if not fails:
            if rng.randrange(3) == 0:
                log.undo()
                assert log.apply(*arguments) == -1
            known = now
            if until > cti or until == 0:
                log.forget(until)
                cti = until
        known = Counter({event: n for event, n in known.items() if n and event[1] >= cti})
        assert log.state_size().rows == sum(known.values())
        if rng.randrange(5) == 0:
            state = through_file(log.snapshot())
            log = EventLog(codec)
            log.restore(state)
        if rng.randrange(5) == 0:
            codec.pool.collect(force=True)
        left = log.events()
        rows = zip(*(column.to_pylist() for column in codec.decode(left.rows)), strict=True)
        assert Counter(
            zip(left.lo.tolist(), left.hi.tolist(), *zip(*rows, strict=True), strict=True)
        ) == known or not len(left)


def test_nothing_is_kept_after_the_end() -> None:
    codec = RowCodec(SCHEMA, Interner())
    log = EventLog(codec)
    row = codec.encode((pa.array(["a"]), pa.array([1])), 1)
    zero = np.zeros(1, np.int64)
    assert log.apply(np.zeros(1, np.uint8), zero, np.full(1, INF, np.int64), zero, row, 0, NEVER) == -1
    log.forget(INF)
    assert log.state_size().rows == 0 and not len(log.events())
