"""Align(B): the kernel does what the definition says; what goes on means the same, in order if B is long enough."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.guard import Guard
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference.admission import aligned
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, batches, reorder
from everwhen.testing.strategies import histories
from operators.ingress.test_finalize import SCHEMA, A, B, as_elements
from state_files import through_file


class Desk:
    """A guard with Align behind it, and the horizon of one input."""

    def __init__(self, block: int, insert_only: bool = False) -> None:
        self.block = block
        self.intake = SourcePipeline(Guard("S", RowCodec(SCHEMA, Interner()), insert_only), aligns=True)

    def take(self, elements: Iterable[Element]) -> list[Element]:
        intake = self.intake
        intake.check(batch_of(elements, SCHEMA))
        said, dropped = intake.take()
        assert said is None and not dropped
        latest = intake.latest
        horizon = NEVER if self.block == INF or latest == NEVER else latest - self.block
        released = intake.release(horizon, intake.cti)
        assert released is not None
        return as_elements(released)

    def all(self, *elements: Element) -> list[str]:
        return [str(element) for element in self.take(elements)]


def lag(elements: Iterable[Element]) -> int:
    """How late the latest element is, against the largest sync time before it."""
    latest, found = NEVER, 0
    for element in elements:
        if isinstance(element, Insert | Adjust):
            found = max(found, latest - element.sync if latest != NEVER else 0)
            latest = max(latest, element.sync)
    return found


@settings(max_examples=250)
@given(histories(SCHEMA, max_events=10), st.randoms(use_true_random=False), st.sampled_from([1, 2, 5, 20, INF]))
def test_it_is_the_definition(history: History, rng: random.Random, block: int) -> None:
    only = rng.random() < 0.4
    wrong = {"corrections": 0.0, "wrong": 0.0} if only else {}
    elements = reorder(history, rng, disorder=rng.choice([0, 3, None]), **wrong)
    epochs = [list(batch.elements()) for batch in batches(elements, SCHEMA, rng)]
    desk, said = Desk(block, only), list[Element]()
    for epoch, expected in zip(epochs, aligned(epochs, block), strict=True):
        if rng.random() < 0.2:
            fresh = Desk(block, only)
            fresh.intake.restore(through_file(desk.intake.snapshot()))
            desk = fresh
        if rng.random() < 0.2:
            desk.intake.codec.pool.collect(force=True)
        found = desk.take(epoch)
        assert sorted(map(str, found)) == sorted(map(str, expected))
        syncs = [element.sync for element in found if isinstance(element, Insert | Adjust)]
        assert syncs == sorted(syncs)
        assert desk.intake.promise <= desk.intake.cti
        said += found
    assert desk.intake.align is not None and desk.intake.align.state_size().rows == 0
    assert_same_history(History.of(said, SCHEMA), history)


@settings(max_examples=120)
@given(histories(SCHEMA, max_events=10), st.randoms(use_true_random=False), st.integers(0, 3))
def test_to_block_for_the_disorder_is_to_be_ordered(history: History, rng: random.Random, more: int) -> None:
    elements = reorder(history, rng, disorder=rng.choice([0, 2, 5, None]), ctis=0.0)
    block = lag(elements) + more
    desk, said = Desk(block), []
    for batch in batches(elements, SCHEMA, rng):
        said += desk.take(batch.elements())
    syncs = [element.sync for element in said if isinstance(element, Insert | Adjust)]
    assert all(before <= after for before, after in pairwise(syncs))
    assert_same_history(History.of(said, SCHEMA), history)


@pytest.mark.parametrize("late", [0, 3, 40, 400])
@pytest.mark.parametrize("seed", range(6))
def test_many_that_wait_are_the_definition(late: int, seed: int) -> None:
    """Long lines, cut and mended, and what is left for them when so many wait that few may not move them."""
    rng, now, epochs = random.Random(seed), 0, list[list[Element]]()
    for _ in range(30):
        epoch: list[Element] = []
        for _ in range(rng.choice([0, 1, 5, 60])):
            now += rng.choice([0, 0, 1, 2])
            start = now - (rng.randint(0, late) if rng.random() < 0.3 else 0)
            epoch.append(Insert(start, start + rng.randint(1, 5), {"k": "a", "x": len(epoch)}))
        epochs.append(epoch)
    epochs[20].append(Cti(now + 1))
    epochs = epochs[:21] + [
        [Insert(e.vs + now + late + 1, e.ve + now + late + 1, e.row) for e in epoch if isinstance(e, Insert)]
        for epoch in epochs[:9]
    ]
    block = rng.choice([5, 30, 200])
    desk, restored = Desk(block, insert_only=True), Desk(block, insert_only=True)
    for epoch, expected in zip(epochs, aligned(epochs, block), strict=True):
        found = desk.take(epoch)
        assert sorted(map(str, found)) == sorted(map(str, expected))
        starts = [element.vs for element in found if isinstance(element, Insert)]
        assert starts == sorted(starts)
        assert list(map(str, restored.take(epoch))) == list(map(str, found))
        if rng.random() < 0.3:
            restored = Desk(block, insert_only=True)
            restored.intake.restore(through_file(desk.intake.snapshot()))
            desk.intake.codec.pool.collect(force=True)


def test_what_waits_is_merged() -> None:
    desk = Desk(5)
    assert desk.all(Insert(3, 20, A), Insert(1, 9, B)) == []
    assert desk.all(Adjust(3, 20, 12, A), Adjust(3, 12, 14, A), Adjust(1, 9, 1, B)) == [
        "insert [3, 14) k='a' x=1"
    ]  # the adjusts to 12 moved the present to there
    assert desk.all(Adjust(3, 14, 13, A)) == []  # of what has gone on: an adjust that waits
    assert desk.all(Adjust(3, 13, 16, A)) == []  # 14 to 13 to 16 is 14 to 16
    assert desk.all(Insert(19, 20, B)) == ["adjust [3, 14 -> 16) k='a' x=1"]
    assert desk.all(Adjust(3, 16, 18, A), Adjust(3, 18, 16, A)) == []  # there and back is nothing
    assert desk.intake.state_size().rows == 2 + 1  # the guard's two events, one element that waits


def test_a_promise_lets_everything_before_it_through() -> None:
    desk = Desk(INF)
    assert desk.all(Insert(5, 9, A), Insert(2, INF, B), Insert(7, 8, A)) == []
    assert desk.intake.promise == NEVER
    assert desk.all(Cti(7)) == ["insert [2, ∞) k='b' x=2", "insert [5, 9) k='a' x=1"]
    assert desk.intake.promise == 7
    assert desk.all(Cti(INF)) == ["insert [7, 8) k='a' x=1"]


def test_progress_does_not_pass_what_waits() -> None:
    """Another input has promised less: what it may still bring could be earlier."""
    desk = Desk(INF)
    desk.intake.check(batch_of([Insert(5, 9, A), Insert(8, 9, A), Cti(10)], SCHEMA))
    desk.intake.take()
    released = desk.intake.release(NEVER, 6)
    assert released is not None and [str(e) for e in as_elements(released)] == ["insert [5, 9) k='a' x=1"]
    assert (desk.intake.cti, desk.intake.promise) == (10, 8)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_memory_is_bounded_by_what_waits(size: int) -> None:
    desk, sizes = Desk(50), []
    for i in range(0, 6_000, size):
        desk.take([Insert(t, t + 10, A) for t in range(i, i + size)] + [Cti(i)])
        assert desk.intake.align is not None
        state = desk.intake.align.state_size()
        assert state.rows <= 50
        sizes.append(state.bytes)
    assert sizes[-1] == sizes[len(sizes) // 2]
