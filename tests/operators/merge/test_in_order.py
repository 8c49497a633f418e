"""The kernels R0 to R2 against the history, against the general operator, and where the paper slips."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import Frontier, OneOf, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.merge.merging import SCHEMA, Merge, a, texts

FIRST = MergePolicy()
Events = list[tuple[str, int, int]]


def drawn(rng: random.Random, kernel: str, instants: bool) -> Events:
    """A history in order: R0 has one event per start, the others several, R2 also equal ones."""
    found: Events = []
    vs = 0
    for at in range(rng.randrange(1, 14)):
        vs += rng.choice([1, 2, 5]) if kernel == "R0" else rng.choice([0, 0, 1, 3])
        p = rng.choice("ABC") if instants or kernel == "R2" else f"{at}"
        found.append((p, vs, vs + 1 if instants else rng.choice([INF, vs + 1 + rng.randrange(9)])))
    if not instants:
        found = [(f"{p}{at}", vs, ve) for at, (p, vs, ve) in enumerate(found)]  # a key of the history
    return found


def in_order(rng: random.Random, events: Events, kernel: str) -> list[Element]:
    """A copy in the order of starts; with R2 ties come in any order.  CTIs as high as the rest allows, or lower."""
    if kernel == "R2":
        events = sorted(events, key=lambda each: (each[1], rng.random()))
    out: list[Element] = []
    for at, (p, vs, ve) in enumerate(events):
        if rng.random() < 0.4:
            low = events[at - 1][1] if at else vs
            out.append(Cti(rng.randint(low, vs)))
        out.append(a(p, vs, ve))
    return [*out, Cti(INF)]


CASES = [(kernel, instants) for kernel in ("R0", "R1", "R2") for instants in (True, False)]


@pytest.mark.parametrize(("kernel", "instants"), CASES)
@settings(max_examples=35)
@given(seed=st.integers(0, 2**32))
def test_copies_become_one(kernel: str, instants: bool, seed: int) -> None:
    """Up to 8 copies at different speeds, with missing tails, leaves, late joins and restarts, however cut into epochs:
    valid, in order, and the history; as the general operator says it."""
    rng = random.Random(seed)
    n = rng.randrange(1, 9)
    found = drawn(rng, kernel, instants)
    streams = [in_order(rng, found, kernel) for _ in range(n)]
    since = [NEVER] * n
    for port in range(1, n):
        if rng.random() < 0.3:
            since[port] = rng.randrange(20)
            streams[port] = clipped(streams[port], since[port], rng.random() < 0.5)
        if rng.random() < 0.2:
            streams[port] = streams[port][: rng.randrange(len(streams[port]) + 1)]
    one, other = Merge(since, FIRST, False, kernel, instants), Merge(since, FIRST, False)
    places, ended = [0] * n, set()
    while any(at < len(each) for at, each in zip(places, streams, strict=True)):
        epoch, over = {}, []
        for port in range(n):
            step = rng.choice([0, 0, 1, 3])
            epoch[port] = streams[port][places[port] : places[port] + step]
            places[port] += step
            if port and places[port] >= len(streams[port]) and streams[port][-1:] != [Cti(INF)] and port not in ended:
                over.append(port)
        ended |= set(over)
        for merge in (one, other):
            merge.take(epoch, tuple(over))
            assert one.operator.promise == merge.operator.promise or (not instants and merge is other)
        if rng.random() < 0.2:
            one.restart()
    assert_valid(one.out)
    starts = [e.vs for e in one.out if isinstance(e, Insert)]
    assert starts == sorted(starts)
    assert not [e for e in one.out if not isinstance(e, Insert | Cti)]
    assert History.of(one.out, SCHEMA) == History.of([a(*each) for each in found], SCHEMA)
    assert History.of(other.out, SCHEMA).coalesced() == History.of(one.out, SCHEMA).coalesced()
    if kernel != "R2":
        assert one.operator.state_size().rows == 0


def clipped(stream: list[Element], since: int, clips: bool) -> list[Element]:
    """A copy that is right from an instant on: what has ended is missing, what goes on may begin there."""
    if not clips:
        return [e for e in stream if isinstance(e, Cti) or e.ve > since]
    inserts = [Insert(max(e.vs, since), e.ve, e.row) for e in stream if isinstance(e, Insert) and e.ve > since]
    first = [e for e in inserts if e.vs == since]
    later = [e for e in stream if (e.t if isinstance(e, Cti) else e.vs) > since]
    return first + later


# -- slips of the paper ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["R0", "R1", "R2"])
def test_nothing_is_inserted_behind_the_promise(kernel: str) -> None:
    """One input promises 10 in a lull; the other one has an element at 7 that the first lacks."""
    merge = Merge([NEVER, NEVER], FIRST, False, kernel, True)
    merge.take({0: [a("A", 5, 6), Cti(10)]})
    assert merge.take({1: [a("A", 5, 6), a("B", 7, 8)]}) == []
    assert texts(merge.take({1: [a("C", 10, 11)]})) == ["insert [10, 11) p='C'"]
    assert_valid(merge.out)


@pytest.mark.parametrize("kernel", ["R0", "R1", "R2"])
def test_the_data_of_a_joining_input_waits(kernel: str) -> None:
    """It is right from 40 on and ahead; nothing of the older one is lost because of it, and nothing comes twice."""
    merge = Merge([NEVER, 40], FIRST, False, kernel, True)
    merge.take({0: [a("X", 20, 21)]})
    assert merge.take({1: [a("Y", 41, 42), a("W", 43, 44), Cti(44)]}) == []
    assert texts(merge.take({0: [a("Z", 30, 31)]})) == ["insert [30, 31) p='Z'"]
    assert merge.operator._inputs[1].bag.size == 2, "they wait"
    merge.restart()
    assert texts(merge.take({0: [Cti(40)]})) == ["insert [41, 42) p='Y'", "insert [43, 44) p='W'", "cti 44"]
    assert merge.take({0: [a("Y", 41, 42)]}) == []
    assert_valid(merge.out)


def test_r1_counts_what_it_has_emitted_itself() -> None:
    """An input leaves; the maximum does not go with it."""
    merge = Merge([NEVER, NEVER], FIRST, False, "R1", True)
    merge.take({0: [a("A", 1, 2), a("B", 1, 2)]})
    merge.take({}, (0,))
    assert merge.take({1: [a("A", 1, 2)]}) == []
    assert texts(merge.take({1: [a("B", 1, 2), a("C", 1, 2)]})) == ["insert [1, 2) p='C'"]


def test_r1_needs_complete_inputs_and_r2_does_not() -> None:
    """One input lacks B: by number one is emitted twice and one lost, by row none is."""
    gap, whole = [a("A", 1, 2), a("C", 1, 2)], [a("A", 1, 2), a("B", 1, 2), a("C", 1, 2)]
    found = {}
    for kernel in ("R1", "R2"):
        merge = Merge([NEVER, NEVER], FIRST, False, kernel, True)
        merge.take({0: gap})
        merge.take({1: whole})
        found[kernel] = Counter(e.row["p"] for e in merge.out)
    assert found["R1"] == Counter("ACC")
    assert found["R2"] == Counter("ABC")


def test_a_restarted_input_is_a_new_one() -> None:
    """It says the present instant again from its beginning: neither counters nor counts of the old one count."""
    for kernel in ("R1", "R2"):
        merge = Merge([NEVER, NEVER], FIRST, False, kernel, True)
        merge.take({0: [a("A", 1, 2)], 1: [a("A", 1, 2), a("B", 1, 2)]})
        merge.take({}, (1,))
        merge.begin_anew(1, 1)
        merge.take({0: [Cti(1)]})
        assert merge.take({1: [a("A", 1, 2), a("B", 1, 2)]}) == []
        assert texts(merge.take({1: [a("C", 1, 2)]})) == ["insert [1, 2) p='C'"]


def test_where_lives_are_long_an_input_joins_past_its_since() -> None:
    """It may say an event that goes on as if it began at `since`."""
    merge = Merge([NEVER, 40], FIRST, False, "R2", False)
    merge.take({0: [a("A", 6, INF), Cti(40)]})
    assert merge.take({1: [a("A", 40, INF), a("B", 45, 50), Cti(46)]}) == []
    assert texts(merge.take({0: [Cti(41)]})) == ["insert [45, 50) p='B'", "cti 46"]
    alone = Merge([NEVER, 40], FIRST, False, "R2", False)
    alone.take({0: [a("A", 6, INF), Cti(40)]})
    alone.take({}, (0,))
    assert texts(alone.take({1: [a("B", 45, 50), Cti(46)]})) == ["insert [45, 50) p='B'", "cti 46"]


def test_when_all_have_ended_everything_is_promised() -> None:
    merge = Merge([NEVER, 90], FIRST, False, "R0", True)
    merge.take({0: [a("A", 1, 2), Cti(3)], 1: [a("B", 95, 96)]})
    said = texts(merge.take({}, (0, 1)))
    assert said == ["insert [95, 96) p='B'", "cti ∞"], "the first is believed up to 90, from there on the second"
    assert merge.operator.state_size().rows == 0


def test_nothing_is_inserted_behind_a_promise_about_rows() -> None:
    merge = Merge([NEVER, NEVER], FIRST, False, "R2", True)
    closed = Punctuation({"p": OneOf(("A",))}, 50)
    step = merge.operator.step(
        [merge._changes([]), merge._changes([])], [Frontier(NEVER, (closed,)), Frontier(NEVER)], 0
    )
    assert list(step.frontier.promises) == [closed]
    assert texts(merge.take({1: [a("A", 7, 8), a("B", 7, 8)]})) == ["insert [7, 8) p='B'"]
    merge.restart()
    assert merge.take({1: [a("A", 8, 9)]}) == []


@pytest.mark.parametrize("kernel", ["R0", "R1"])
def test_the_state_is_constant(kernel: str) -> None:
    merge = Merge([NEVER] * 3, FIRST, False, kernel, True)
    sizes = set()
    for t in range(0, 300, 3):
        merge.take({port: [a("A", t + 1, t + 2), Cti(t)] for port in range(3)})
        sizes.add(merge.operator.state_size().bytes)
    assert len(sizes) == 1


def test_a_snapshot_of_another_kernel_does_not_fit() -> None:
    one, other = (Merge([NEVER, NEVER], FIRST, False, kernel, True) for kernel in ("R0", "R2"))
    with pytest.raises(Exception, match="merged by R0, now by R2"):
        other.operator.restore(one.operator.snapshot())
