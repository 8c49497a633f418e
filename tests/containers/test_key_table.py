"""Ids of rows and keys: given out, found again, freed and reused; regions and calendars that hang on them."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.containers.calendar import Calendar
from everwhen.containers.key_table import KeyTable
from everwhen.containers.regions import Regions
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import batch_of
from operators.differential import SCHEMA
from plans import S

SOME = settings(max_examples=30)


@SOME
@given(seed=st.integers(0, 2**32))
def test_a_key_table_is_a_dict(seed: int) -> None:
    """Interning, removing and finding at random, against a dict; ids stay below the most ever held at once."""
    rng = random.Random(seed)
    table = KeyTable(2)
    known: dict[tuple[int, int], int] = {}
    most = 0
    for _ in range(30):
        rows = [(rng.randrange(40), rng.randrange(3)) for _ in range(rng.randrange(12))]
        ids = table.intern(np.array(rows, np.int64).reshape(-1, 2)).tolist()
        for row, id_ in zip(rows, ids, strict=True):
            assert known.setdefault(row, id_) == id_
        assert len(set(known.values())) == len(known) == len(table)
        most = max(most, len(known))
        assert all(id_ < most for id_ in known.values())
        gone = rng.sample(sorted(known), rng.randrange(len(known) + 1))
        table.remove(np.array([known.pop(row) for row in gone], np.int64))
        wanted = [(i, j) for i in range(40) for j in range(3)]
        found = table.find(np.array(wanted, np.int64)).tolist()
        assert found == [known.get(row, -1) for row in wanted]
        assert sorted(table.ids().tolist()) == sorted(known.values())


@SOME
@given(seed=st.integers(0, 2**32))
def test_regions_are_lists(seed: int) -> None:
    rng = random.Random(seed)
    regions = Regions(2)
    regions.grow(64)
    known: dict[int, list[list[int]]] = {}
    for _ in range(40):
        ids = rng.sample(range(20), rng.randrange(1, 6))
        lists = [[[rng.randrange(9), rng.randrange(9)] for _ in range(rng.randrange(30))] for _ in ids]
        offsets = np.cumsum([0, *map(len, lists)])
        records = np.array([record for each in lists for record in each], np.int64).reshape(-1, 2)
        regions.put(np.array(ids), offsets, records)
        known.update(zip(ids, lists, strict=True))
        every = np.array(sorted(known))
        found, at = regions.gather(every)
        assert [found[a:b].tolist() for a, b in pairwise(at)] == [known[i] for i in every.tolist()]
        assert regions.rows == sum(map(len, known.values()))


@SOME
@given(
    times=st.lists(st.tuples(st.integers(0, 999), st.integers(-5, 5) | st.just(INF)), max_size=40),
    bound=st.integers(-6, 6),
)
def test_a_calendar_finds_what_is_due(times: list[tuple[int, int]], bound: int) -> None:
    calendar = Calendar()
    calendar.grow(1000)
    for id_, t in times:
        calendar.schedule(np.array([id_]), np.array([t]))
        calendar.before(bound - 1)
    latest = dict(times)
    assert sorted(calendar.before(bound).tolist()) == sorted(id_ for id_, t in latest.items() if t < bound)


def test_dead_keys_give_their_ids_back() -> None:
    """A thousand keys one after the other need room for a few."""
    query = S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x"))
    runtime = LocalRuntime(query, emit="current")
    for t in range(1000):
        runtime.push({"S": batch_of([Insert(t, t + 1, {"k": f"key {t}", "x": t}), Cti(t)], SCHEMA)})
    (aggregate,) = (placed.operator for placed in runtime.plan.operators if placed.name == "aggregate")
    assert aggregate._sweep.keys.capacity <= 64  # type: ignore[attr-defined]
    assert len(aggregate._sweep.keys) <= 5  # type: ignore[attr-defined]
