"""Finalize(M): the kernel does what the definition says, element by element, in any batching; CEDR's Table 5."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MIN_TIME, NEVER
from everwhen.errors import InputError
from everwhen.operators.ingress.finalize import Finalize, Reason
from everwhen.operators.ingress.guard import CheckedBatch, Guard
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference.admission import finalized
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, batches, reorder
from everwhen.testing.strategies import histories
from state_files import through_file

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}


def as_elements(said: CheckedBatch) -> list[Element]:
    """What is said, as elements."""
    times = zip(said.op.tolist(), said.vs.tolist(), said.ve.tolist(), said.vnew.tolist(), strict=True)
    columns = [column.to_pylist() for column in said.codec.decode(said.rows)]
    rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [
        Adjust(vs, ve, vnew, row) if op else Insert(vs, ve, row)
        for (op, vs, ve, vnew), row in zip(times, rows, strict=True)
    ]


class Desk:
    """A guard with Finalize behind it."""

    def __init__(self, remember: int) -> None:
        self.intake = SourcePipeline(Guard("S", RowCodec(SCHEMA, Interner())), remember, finalizes=True)
        self.dropped: Counter[tuple[str, str]] = Counter()

    @property
    def finalize(self) -> Finalize:
        assert self.intake.finalize is not None
        return self.intake.finalize

    def take(self, batch: ElementBatch) -> list[Element]:
        before = self.intake.cti
        self.intake.check(batch)
        said, dropped = self.intake.take()
        assert said is not None
        for each in dropped:
            reasons = (reason.value for reason in each.reasons)
            self.dropped.update(zip(map(str, each.elements.elements()), reasons, strict=True))
        now = self.intake.cti
        return [*as_elements(said), *([Cti(now)] if now > before else [])]

    def all(self, *elements: Element) -> list[str]:
        return [str(element) for element in self.take(batch_of(elements, SCHEMA))]


def mangled(elements: list[Element], rng: random.Random) -> list[Element]:
    """The elements without their CTIs, some of them swapped: late beyond what they were, chains broken."""
    out = [element for element in elements if not isinstance(element, Cti)]
    for _ in range(rng.choice([0, 1, 4])):
        if len(out) > 1:
            i = rng.randrange(len(out) - 1)
            out[i], out[i + 1] = out[i + 1], out[i]
    return out


@settings(max_examples=250)
@given(histories(SCHEMA, max_events=10), st.randoms(use_true_random=False), st.sampled_from([0, 1, 3, 8, 100, INF]))
def test_it_is_the_definition_in_any_batching(history: History, rng: random.Random, remember: int) -> None:
    elements = reorder(history, rng, disorder=rng.choice([0, 3, None]), close=False)
    if rng.random() < 0.7:
        elements = mangled(elements, rng)
    expected = finalized(elements, remember)
    desk = Desk(remember)
    for batch in batches(elements, SCHEMA, rng):
        if rng.random() < 0.2:  # restored, it goes on as if nothing had happened
            fresh = Desk(remember)
            fresh.intake.restore(through_file(desk.intake.snapshot()))
            desk.intake = fresh.intake
        if rng.random() < 0.2:
            desk.intake.codec.pool.collect(force=True)
        at = batch.line(0) - 1
        said = desk.take(batch)
        wanted = [element for part in expected.said[at : at + len(batch)] for element in part]
        ctis = [element.t for element in wanted if isinstance(element, Cti)]
        changes = [str(element) for element in wanted if not isinstance(element, Cti)]
        assert [str(element) for element in said if not isinstance(element, Cti)] == changes
        assert [element.t for element in said if isinstance(element, Cti)] == ctis[-1:]
    wanted = Counter((str(elements[at]), reason) for at, reason in expected.dropped)
    assert desk.dropped == wanted
    assert {reason.value: n for reason, n in desk.finalize.counts.items()} == dict(
        Counter(reason for _, reason in expected.dropped)
    )
    assert desk.finalize.state_size().rows >= len(expected.waiting)
    if elements:
        assert_valid(expected.elements or [Cti(0)])


@settings(max_examples=100)
@given(histories(SCHEMA, max_events=12), st.randoms(use_true_random=False), st.sampled_from([0, 1, 3, 8, INF]))
def test_a_source_of_inserts_only_keeps_nothing(history: History, rng: random.Random, remember: int) -> None:
    elements = reorder(history, rng, disorder=rng.choice([0, 3, None]), corrections=0.0, wrong=0.0, close=False)
    if rng.random() < 0.3:
        elements.insert(rng.randint(0, len(elements)), ExternalCti(0, 4, rng.randint(0, 3)))
    elements = [e for e in elements if not isinstance(e, Cti)] if rng.random() < 0.6 else elements
    expected = finalized(elements, remember)
    guard = Guard("S", RowCodec(SCHEMA, Interner()), insert_only=True)
    intake, said = SourcePipeline(guard, remember, finalizes=True), list[str]()
    if any(isinstance(e, Cti) for e in elements) and any(isinstance(e, ExternalCti) for e in elements):
        return  # which of the two speaks first is the test above's matter
    for batch in batches(elements, SCHEMA, rng):
        intake.check(batch)
        arrived, _ = intake.take()
        assert arrived is not None and intake.state_size().rows == 0
        said += map(str, as_elements(arrived))
        assert intake.cti == max([NEVER, *(e.t for e in _until(expected.said, batch) if isinstance(e, Cti))])
    assert said == [str(e) for e in expected.elements if not isinstance(e, Cti)]
    assert intake.finalize is not None and intake.finalize.counts.total() == len(expected.dropped)


def _until(said: list[list[Element]], batch: ElementBatch) -> list[Element]:
    return [element for part in said[: batch.line(0) - 1 + len(batch)] for element in part]


@settings(max_examples=100)
@given(histories(SCHEMA, max_events=10), st.randoms(use_true_random=False), st.integers(0, 6))
def test_to_remember_the_disorder_is_to_give_nothing_up(history: History, rng: random.Random, disorder: int) -> None:
    elements = reorder(history, rng, disorder=disorder, ctis=0.0, close=False)
    latest, lag = NEVER, 0
    for element in elements:
        assert isinstance(element, Insert | Adjust)
        if latest != NEVER:
            lag = max(lag, latest - element.sync)
        latest = max(latest, element.vs)
    desk = Desk(lag)
    said = [element for batch in batches(elements, SCHEMA, rng) for element in desk.take(batch)]
    assert not desk.dropped
    assert_same_history(History.of(said, SCHEMA), history)


def test_table_5_step_by_step() -> None:
    """CEDR, Table 5, with the count of 4 after which its interval is complete (its 5 is a slip)."""
    desk = Desk(INF)
    assert desk.all(Adjust(0, 10, 8, A)) == []
    assert desk.all(Adjust(0, 6, 4, A)) == []
    assert desk.all(Adjust(0, 8, 6, A)) == []
    assert desk.finalize.state_size().rows == 3
    assert desk.all(Insert(0, 10, A)) == ["insert [0, 4) k='a' x=1"]
    assert desk.finalize.state_size().rows == 1
    # the sync times so far are 8, 4, 6 and 0: three of them lie before 8
    assert desk.all(ExternalCti(0, 8, 4)) == []
    assert desk.all(Insert(1, 5, B)) == ["insert [1, 5) k='b' x=2", "cti 8"]
    assert desk.finalize.state_size().rows == 0 and not desk.dropped
    assert desk.all(Insert(7, 9, B)) == [] and desk.dropped == {("insert [7, 9) k='b' x=2", "late"): 1}


def test_table_5_in_one_batch_and_with_the_count_of_the_paper() -> None:
    stream = [Adjust(0, 10, 8, A), Adjust(0, 6, 4, A), Adjust(0, 8, 6, A), Insert(0, 10, A)]
    said = ["insert [0, 4) k='a' x=1", "insert [1, 5) k='b' x=2"]
    assert Desk(INF).all(*stream, ExternalCti(0, 8, 4), Insert(1, 5, B)) == [*said, "cti 8"]
    assert Desk(INF).all(*stream, ExternalCti(0, 8, 5), Insert(1, 5, B)) == said


def test_external_ctis_come_in_any_order_and_leave_no_gap() -> None:
    desk = Desk(INF)
    assert desk.all(ExternalCti(8, 12, 1), ExternalCti(12, 20, 0), ExternalCti(30, 40, 0), Insert(9, 30, A)) == [
        "insert [9, 30) k='a' x=1"
    ]
    assert desk.all(ExternalCti(0, 8, 0)) == ["cti 20"]
    assert desk.all(ExternalCti(20, 30, 1), Adjust(9, 30, 25, A)) == ["adjust [9, 30 -> 25) k='a' x=1", "cti 40"]
    assert desk.all(ExternalCti(0, 8, 3)) == []  # long passed


def test_a_forced_cti_skips_what_was_announced() -> None:
    desk = Desk(5)
    assert desk.all(ExternalCti(0, 8, 9), ExternalCti(8, 10, 0), Insert(1, 2, A)) == [
        "insert [1, 2) k='a' x=1",
        "cti -4",
    ]
    assert desk.all(Insert(13, 14, A)) == ["insert [13, 14) k='a' x=1", "cti 10"]


@pytest.mark.parametrize(
    ("elements", "line", "problem"),
    [
        ([ExternalCti(0, 8, 1), ExternalCti(7, 9, 1)], 2, "for \\[7, 9\\) beside one for \\[0, 8\\)"),
        ([Insert(0, 1, A), ExternalCti(-1, 8, 1)], 2, "the interval \\[-1, 8\\)"),
        ([ExternalCti(8, 8, 1)], 1, "the interval \\[8, 8\\)"),
    ],
)
def test_a_wrong_external_cti_changes_nothing(elements: list[Element], line: int, problem: str) -> None:
    desk = Desk(INF)
    with pytest.raises(InputError, match=problem) as caught:
        desk.all(*elements)
    assert caught.value.line == line and desk.intake.state_size().rows == 0
    assert desk.all(ExternalCti(0, 8, 0)) == ["cti 8"]


def test_promises_of_the_source_itself_still_hold() -> None:
    with pytest.raises(InputError, match="behind the CTI 5"):
        Desk(0).all(Cti(5), Insert(4, 9, A))


def test_what_is_late_by_kind() -> None:
    desk = Desk(2)
    assert desk.all(Insert(0, 9, A), Insert(10, 20, B)) == [
        "insert [0, 9) k='a' x=1", "insert [10, 20) k='b' x=2", "cti 8",
    ]  # fmt: skip
    assert desk.all(Insert(7, 30, B)) == []  # dropped whole, although it would reach beyond
    assert desk.all(Adjust(7, 30, 25, B)) == []  # and so is what follows
    assert desk.all(Adjust(0, 9, 3, A)) == ["adjust [0, 9 -> 8) k='a' x=1"]  # cut at the CTI
    assert desk.all(Adjust(0, 3, 12, A)) == ["adjust [0, 8 -> 12) k='a' x=1"]  # found by the source's name for it
    assert desk.all(Adjust(0, 12, 0, A)) == ["adjust [0, 12 -> 8) k='a' x=1"]
    assert desk.all(Insert(15, 16, B)) == ["insert [15, 16) k='b' x=2", "cti 13"]
    assert desk.all(Adjust(10, 20, 13, B)) == ["adjust [10, 20 -> 13) k='b' x=2"]
    assert desk.all(Adjust(10, 13, 14, B)) == ["adjust [10, 13 -> 14) k='b' x=2"]  # ve = c may still grow
    assert desk.all(Adjust(16, 18, 17, A), Insert(19, 20, A)) == ["insert [19, 20) k='a' x=1", "cti 17"]
    assert desk.finalize.counts == {Reason.LATE: 1, Reason.UNKNOWN: 1, Reason.CUT: 2, Reason.IN_VAIN: 1}


def test_what_waits_in_vain_when_the_input_ends_is_an_error() -> None:
    desk = Desk(10)
    desk.all(Insert(1, 5, B), Adjust(3, 9, 4, A))
    with pytest.raises(InputError, match="an adjust of an event that never came: \\[3, 9\\)") as caught:
        desk.intake.check_end()
    assert caught.value.line == 2
    desk.all(Insert(3, 9, A))
    desk.intake.check_end()


def test_memory_is_bounded_by_what_is_remembered() -> None:
    """A stream without a single CTI; what is kept is what may still be named."""
    desk = Desk(50)
    sizes = []
    for i in range(0, 40_000, 400):
        desk.take(batch_of([Insert(t, t + 10, A) for t in range(i, i + 400)], SCHEMA))
        size = desk.intake.state_size()
        sizes.append(size.bytes)
        assert size.rows <= 61
    assert sizes[-1] == sizes[10]


def test_events_that_are_promised_are_not_remembered() -> None:
    desk = Desk(INF)
    desk.all(*(Insert(t, INF, {"k": "ab"[t % 2], "x": t}) for t in range(1000)), Insert(5, 9, B), Insert(7, 20, B))
    assert desk.intake.state_size().rows == 1002
    desk.all(Punct(Punctuation.constants({"k": "a"})), Punct(Punctuation({"k": OneOf(("b",))}, 15)))
    assert desk.intake.state_size().rows == 501  # those of b that may still be changed at 15 or later
    assert desk.all(Adjust(7, 20, 16, B), Adjust(1, INF, 30, {"k": "b", "x": 1})) == [
        "adjust [7, 20 -> 16) k='b' x=2", "adjust [1, ∞ -> 30) k='b' x=1",
    ]  # fmt: skip
    again = Desk(INF)
    again.intake.restore(through_file(desk.intake.snapshot()))
    assert again.intake.state_size().rows == 501 and not desk.dropped


def test_room_is_used_again_when_events_are_promised() -> None:
    desk, sizes = Desk(INF), []
    for x in range(60):
        desk.all(*(Insert(t, INF, {"k": "a", "x": x}) for t in range(100)), Punct(Punctuation.constants({"x": x})))
        sizes.append(desk.finalize.state_size().bytes if x % 20 == 19 else 0)  # which drops them, too
    assert sizes[59] - sizes[19] <= 8 * 40 * 100  # the sync times, which no CTI has passed


def test_the_far_past_and_future() -> None:
    desk = Desk(100)
    assert desk.all(Insert(MIN_TIME, MIN_TIME + 1, A))[1:] == []  # nothing is forced out of the range of times
    assert desk.all(Insert(0, INF, A), Adjust(0, INF, 7, A)) == [
        "insert [0, ∞) k='a' x=1", "adjust [0, ∞ -> 7) k='a' x=1", "cti -100",
    ]  # fmt: skip


def test_progress_never_goes_back() -> None:
    rng = random.Random(5)
    desk, seen = Desk(3), []
    for _ in range(60):
        start = rng.randint(0, 40)
        desk.all(Insert(start, start + rng.randint(1, 9), A))
        desk.intake.remember(rng.choice([0, 2, 9, INF]))
        seen.append(desk.intake.cti)
    assert all(before <= after for before, after in pairwise(seen))
