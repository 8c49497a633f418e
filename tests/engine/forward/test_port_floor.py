"""The floor of a port: what is cut, what is promised, and by which starts events go on."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from everwhen.core.punctuation import Frontier, OneOf, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.engine.forward.port_floor import EventPortFloor, PortFloor
from everwhen.operators.contract import Output
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Insert
from everwhen.stream.element_batch import batch_of
from operators.differential import SCHEMA
from state_files import through_file

CODEC = RowCodec(SCHEMA, Interner())
ROWS = {k: CODEC.encode(batch_of([Insert(0, 1, {"k": k, "x": 0})], SCHEMA).columns, 1)[0] for k in "ab"}

Event = tuple[int, int, str]


def changes(*given: tuple[int, int, int, str]) -> Changes:
    lo, hi, weight = (np.array([each[j] for each in given], np.int64) for j in range(3))
    return Changes(CODEC, lo, hi, weight, np.array([ROWS[each[3]] for each in given]).reshape(-1, CODEC.width))


def texts(found: Changes) -> Counter[Event]:
    total: Counter[Event] = Counter()
    names = {tuple(row): k for k, row in ROWS.items()}
    for lo, hi, weight, row in zip(found.lo, found.hi, found.weight, found.rows, strict=True):
        total[int(lo), int(hi), names[tuple(row)]] += int(weight)
    return Counter({event: n for event, n in total.items() if n})


def test_segments_are_cut_and_the_floor_is_promised() -> None:
    floor = PortFloor(CODEC)
    floor.raise_to(10)
    promise = Punctuation({"k": OneOf(("a",))}, 30)
    found = floor.apply(Output(changes((1, 5, 1, "a"), (3, 20, 1, "a"), (8, 12, -1, "b")), Frontier(4, (promise,))))
    assert texts(found.changes) == {(10, 20, "a"): 1, (10, 12, "b"): -1}
    assert found.frontier == Frontier(10, (promise,)) and floor.forces
    assert floor.apply(Output(changes(), Frontier(40, (promise,)))).frontier.time == 40 and not floor.forces


def test_a_floor_never_goes_back() -> None:
    floor = PortFloor(CODEC)
    for time, wanted in ((10, 10), (4, 10), (12, 12)):
        floor.raise_to(time)
        assert floor.time == wanted


def test_two_equal_events_of_which_one_was_there() -> None:
    """One is known by its start, the other by the floor; either may be meant by an adjust, and both are found."""
    floor = EventPortFloor(CODEC)
    floor.apply(Output(changes((1, 30, 1, "a")), Frontier(0)))
    floor.raise_to(10)
    assert texts(floor.apply(Output(changes((1, 30, 1, "a")), Frontier(0))).changes) == {(10, 30, "a"): 1}
    said = Counter({(1, 30, "a"): 1, (10, 30, "a"): 1})
    for change in ((1, 30, -1, "a"), (1, 25, 1, "a")), ((1, 30, -1, "a"), (1, 22, 1, "a")):
        said.update(texts(floor.apply(Output(changes(*change), Frontier(0))).changes))
    assert {event for event, n in said.items() if n} in (
        {(1, 25, "a"), (10, 22, "a")},
        {(1, 22, "a"), (10, 25, "a")},
    )


@pytest.mark.parametrize("seed", range(40))
def test_events_mean_what_the_source_says(seed: int) -> None:
    """Random sources, floors and restarts: after each step the events said are, from the floor on, those of the source,
    and no change touches an instant before what was promised."""
    rng = random.Random(seed)
    floor, said, source = EventPortFloor(CODEC), Counter[Event](), Counter[Event]()
    promised, own = NEVER, 0
    for _ in range(40):
        given: list[tuple[int, int, int, str]] = []
        for _ in range(rng.randrange(4)):
            alive = [event for event, n in source.items() if n > 0 and event[1] >= own]
            if alive and rng.random() < 0.6:
                vs, ve, k = rng.choice(alive)
                end = max(rng.randrange(vs, vs + 30), own)
                given.append((vs, ve, -1, k))
                source[vs, ve, k] -= 1
            else:
                vs, end, k = own + rng.randrange(12), INF if rng.random() < 0.1 else 0, rng.choice("ab")
                end = end or vs + rng.choice((1, 5, 20))
            if end > vs:
                given.append((vs, end, 1, k))
                source[vs, end, k] += 1
        if rng.random() < 0.2:
            floor.raise_to(rng.randrange(own, own + 25))
        if rng.random() < 0.2:
            state, floor = floor.snapshot(), EventPortFloor(CODEC)
            floor.restore(through_file(state))
        own += rng.choice((0, 0, 1, 3))
        kept = [each for each in given if each[1] > floor.time or each[0] >= floor.time]
        found = floor.apply(Output(changes(*(kept if rng.random() < 0.5 else given)), Frontier(own)))
        news = texts(found.changes)
        ends: dict[tuple[int, str], Counter[int]] = {}
        for (vs, ve, k), n in news.items():
            ends.setdefault((vs, k), Counter())[ve] += n
        for (vs, k), moved in ends.items():  # an insert begins at the promise or later; an adjust has both ends there
            assert vs >= promised or (sum(moved.values()) == 0 and min(moved) >= promised), (vs, k, moved, promised)
        said.update(news)
        assert min(said.values(), default=0) >= 0
        promised = found.frontier.time
        for u in range(max(floor.time, 0), own + 60):
            wanted, got = Counter[str](), Counter[str]()
            for total, into in ((source, wanted), (said, got)):
                for (vs, ve, k), n in total.items():
                    if n and vs <= u < ve:
                        into[k] += n
            assert got == wanted, u
        events = [(vs, ve, k) for (vs, ve, k), n in source.items() if ve > max(floor.time, own) for _ in range(n)]
        known = texts(floor.known(changes(*((vs, ve, 1, k) for vs, ve, k in events))))
        assert known == Counter({each: n for each, n in said.items() if n and each[1] > max(floor.time, own)})
