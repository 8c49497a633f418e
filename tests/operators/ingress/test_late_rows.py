"""Late rows: what a policy makes of batches is what the definition says, over random disorder and batching."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.source_policy import SourcePolicy
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.errors import InputError
from everwhen.operators.ingress.finalize import Reason
from everwhen.operators.ingress.guard import Guard
from everwhen.operators.ingress.late_rows import LateRows
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference.late_rows import LateError, on_time
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from operators.ingress.test_finalize import as_elements
from state_files import through_file

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])


def row(x: int) -> dict[str, object]:
    return {"k": "abc"[x % 3], "x": x}


class Desk:
    """The intake of a source with a policy."""

    def __init__(self, policy: SourcePolicy, insert_only: bool = False, remember: int | None = None) -> None:
        guard = Guard("S", RowCodec(SCHEMA, Interner()), insert_only)
        late = LateRows("S", policy)
        self.late, self.policy = late, policy
        self.intake = SourcePipeline(guard, INF if remember is None else remember, remember is not None, False, late)
        self.dropped: list[tuple[Element, Reason]] = []

    def take(self, batch: ElementBatch) -> list[Element]:
        self.intake.check(batch)
        taken, dropped = self.intake.take()
        for each in dropped:
            self.dropped += zip(each.elements.elements(), each.reasons, strict=True)
        assert taken is not None
        return as_elements(taken)


def drawn(rng: random.Random, corrections: bool, ctis: bool) -> list[list[Element]]:
    """Batches of a disordered stream, right but for late rows: adjusts name events that were said."""
    batches: list[list[Element]] = []
    known: list[tuple[int, int, dict[str, object]]] = []
    now = 0
    for _ in range(rng.randint(1, 12)):
        batch: list[Element] = []
        for _ in range(rng.randint(0, 12)):
            now += rng.randint(0, 3)
            if ctis and rng.random() < 0.1:
                batch.append(Cti(now - rng.randint(0, 12)))
            elif corrections and known and rng.random() < 0.3:
                vs, ve, payload = known.pop(rng.randrange(len(known)))
                vnew = rng.randint(vs, ve + 6)
                batch.append(Adjust(vs, ve, vnew, payload))
                if vnew > vs:
                    known.append((vs, vnew, payload))
            else:
                vs = now - (0 if rng.random() < 0.5 else rng.randint(0, 15))
                event = (vs, vs + rng.choice([1, 1, 2, 5, 20]), row(rng.randint(0, 5)))
                known.append(event)
                batch.append(Insert(*event))
        batches.append(batch)
    return batches


@pytest.mark.parametrize("late", ["drop", "adjust", "error"])
@pytest.mark.parametrize("seed", range(60))
def test_the_definition_is_kept_over_random_disorder_and_batching(late: str, seed: int) -> None:
    rng = random.Random(f"{late} {seed}")
    policy = SourcePolicy(rng.choice([None, 0, 3, 8]), None, late)  # type: ignore[arg-type]
    given = drawn(rng, corrections=late == "drop", ctis=rng.random() < 0.6)
    desk = Desk(policy, insert_only=late == "adjust")
    try:
        wanted = on_time(given, policy)
    except LateError as wrong:
        number, at = wrong.args
        batches = [batch_of(batch, SCHEMA, "s.jsonl") for batch in given]
        for batch in batches[:number]:
            desk.take(batch)
        before = desk.intake.snapshot()
        with pytest.raises(InputError) as error:
            desk.take(batches[number])
        assert (error.value.source, error.value.line) == ("s.jsonl", at + 1)
        assert desk.intake.snapshot()["guard"]["cti"] == before["guard"]["cti"]
        return
    said, ctis = [], []
    for number, batch in enumerate(given):
        if rng.random() < 0.2:  # another process goes on
            fresh = Desk(policy, insert_only=late == "adjust")
            fresh.intake.restore(through_file(desk.intake.snapshot()))
            fresh.dropped, desk = desk.dropped, fresh
        said.append(desk.take(batch_of(batch, SCHEMA)))
        ctis.append(desk.intake.cti)
        assert ctis[-1] == on_time(given[: number + 1], policy).cti
    assert said == [[each for each in batch if not isinstance(each, Cti)] for batch in wanted.said]
    assert desk.intake.cti == wanted.cti
    lost = sorted(str(given[number][at]) for number, at in wanted.dropped)
    assert sorted(str(element) for element, _ in desk.dropped) == lost
    assert (desk.late.count.dropped, desk.late.count.moved) == (len(wanted.dropped), len(wanted.moved))
    assert desk.late.count.rows == sum(not isinstance(each, Cti) for batch in given for each in batch)


def test_with_finalize_behind_it_the_promise_is_the_same() -> None:
    policy = SourcePolicy(3, None, "drop")
    for seed in range(30):
        given = drawn(random.Random(seed), corrections=True, ctis=False)
        plain, desk = Desk(policy), Desk(policy, remember=MAX_TIME)
        for batch in given:
            plain.take(batch_of(batch, SCHEMA))
            desk.take(batch_of(batch, SCHEMA))
            assert desk.intake.cti == plain.intake.cti


def test_a_batch_that_is_refused_changes_nothing() -> None:
    desk = Desk(SourcePolicy(2, None, "drop"))
    desk.take(batch_of([Insert(10, 11, row(1))], SCHEMA))
    desk.intake.check(batch_of([Insert(3, 4, row(2)), Insert(20, 30, row(3))], SCHEMA))
    assert desk.intake.cti == 18
    desk.intake.undo()
    assert (desk.intake.cti, desk.late.count.rows, desk.late.count.dropped) == (8, 1, 0)
    desk.take(batch_of([Insert(9, 10, row(2))], SCHEMA))
    assert (desk.dropped, desk.late.count.rows) == ([], 2)


def test_lines_and_promises_keep_their_places() -> None:
    desk = Desk(SourcePolicy(0, None, "drop"))
    desk.take(batch_of([Insert(10, 11, row(1))], SCHEMA))
    promise = Punct(Punctuation.constants({"x": 4}))
    wrong = [Insert(3, 4, row(2)), Insert(12, 13, row(4)), promise, Insert(2, 9, row(1)), Insert(14, 15, row(4))]
    with pytest.raises(InputError) as error:
        desk.take(batch_of(wrong, SCHEMA, "s.jsonl"))
    assert error.value.line == 5
    desk.intake.undo()
    assert [type(each) for each in desk.take(batch_of(wrong[:4], SCHEMA))] == [Insert]
    assert [str(promise) for promise in desk.intake.frontier.promises] != []


def test_the_error_names_the_row_how_late_it_is_and_what_to_write() -> None:
    desk = Desk(SourcePolicy(5))
    desk.take(batch_of([Insert(100, 101, row(1))], SCHEMA))
    with pytest.raises(InputError) as error:
        desk.take(batch_of([Insert(96, 97, row(1)), Insert(90, 97, row(1))], SCHEMA, "t.csv"))
    assert str(error.value) == (
        "t.csv:2: a row that starts at 90, 5 ticks behind 95, before which S had promised to change nothing "
        "(WITHIN 5 ticks) "
        "(widen WITHIN by 5 ticks or more, or say what becomes of late rows: LATE ROWS DROP or ADJUST (--late S=drop))"
    )


def test_what_is_given_up_can_be_looked_at() -> None:
    desk = Desk(SourcePolicy(5, None, "drop"))
    desk.take(batch_of([Insert(100, 101, row(1))], SCHEMA))
    desk.take(batch_of([Insert(90, 150, row(2)), Insert(100, 130, row(0)), Insert(120, 130, row(0))], SCHEMA))
    desk.take(batch_of([Adjust(90, 150, 140, row(2)), Adjust(100, 130, 110, row(0))], SCHEMA))
    assert [(str(element), reason) for element, reason in desk.dropped] == [
        ("insert [90, 150) k='c' x=2", Reason.LATE),
        ("adjust [100, 130 -> 110) k='a' x=0", Reason.LATE),
        ("adjust [90, 150 -> 140) k='c' x=2", Reason.UNKNOWN),
    ]


def test_a_bound_that_reaches_before_all_times_promises_nothing() -> None:
    desk = Desk(SourcePolicy(MAX_TIME))
    desk.take(batch_of([Insert(MIN_TIME, INF, row(1))], SCHEMA))
    assert desk.intake.cti == NEVER
