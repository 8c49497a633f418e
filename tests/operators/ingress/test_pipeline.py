"""The way of a source: check, then take or undo, then release; and how a level changes while it runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError
from everwhen.operators.ingress.guard import CheckedBatch, Guard
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from state_files import through_file

SCHEMA = Schema.of([("k", pa.int64())])
ROW = {"k": 1}


def pipeline(**options: object) -> SourcePipeline:
    return SourcePipeline(Guard("S", RowCodec(SCHEMA, Interner())), **options)  # type: ignore[arg-type]


def taken(source: SourcePipeline, *elements: Element) -> CheckedBatch | None:
    source.check(batch_of(elements, SCHEMA, "S"))
    return source.take()[0]


def starts(batch: CheckedBatch | None) -> list[int]:
    return [] if batch is None else batch.vs.tolist()


def test_without_a_level_what_comes_goes_on() -> None:
    source = pipeline()
    assert starts(taken(source, Insert(5, 9, ROW), Insert(3, 4, ROW))) == [5, 3]
    assert source.tau == 5 and source.cti == NEVER and source.known_from == NEVER
    taken(source, Cti(4))
    assert source.cti == 4 and source.state_size().rows == 2, "an adjust from 4 on may name both"
    taken(source, Cti(10))
    assert source.state_size().rows == 0
    source.close()
    assert source.cti == INF


def test_a_batch_that_is_refused_or_undone_has_never_come() -> None:
    source = pipeline()
    taken(source, Insert(0, 9, ROW))
    before = source.snapshot()
    with pytest.raises(InputError):
        source.check(batch_of([Adjust(0, 9, 5, ROW), Adjust(0, 9, 6, ROW)], SCHEMA, "S"))
    source.check(batch_of([Adjust(0, 9, 5, ROW), Cti(7)], SCHEMA, "S"))
    source.undo()
    assert source.take() == (None, ()), "nothing is checked"
    assert source.cti == NEVER and source.snapshot().keys() == before.keys()
    assert starts(taken(source, Adjust(0, 9, 5, ROW))) == [0]


def test_what_waits_goes_on_in_order_up_to_the_horizon() -> None:
    source = pipeline(aligns=True)
    assert taken(source, Insert(5, 9, ROW), Insert(3, 4, ROW)) is None
    assert source.latest == 5
    assert starts(source.release(3, NEVER)) == [3] and source.tau == 3
    taken(source, Insert(1, 2, ROW))
    assert starts(source.release(5, NEVER)) == [1, 5], "late, but not later than it must be"
    state, again = through_file(source.snapshot()), pipeline(aligns=True)
    again.restore(state)
    assert again.tau == source.tau and starts(again.release(INF, INF)) == []


def test_what_is_older_than_the_memory_is_given_up_and_counted() -> None:
    source = pipeline(remember=4, finalizes=True)
    taken(source, Insert(10, 12, ROW))
    assert source.cti == 6
    source.check(batch_of([Insert(2, 3, ROW), Insert(7, 8, ROW)], SCHEMA, "S"))
    said, dropped = source.take()
    assert starts(said) == [7] and len(dropped) == 1
    assert source.known_from >= 6


def test_a_memory_may_begin_late_and_progress_is_not_lost() -> None:
    source = pipeline()
    taken(source, Insert(0, 20, ROW), Insert(10, 12, ROW), Cti(3))
    source.remember(INF)
    assert source.cti == 3 and starts(taken(source, Adjust(0, 20, 15, ROW))) == [0], "events are handed over"
    source.remember(2)
    assert source.cti == 8
    source.hurry(11)
    assert source.cti == 11
    events = source.standing()
    assert events is not None and sorted(events.hi.tolist()) == [12, 15]


def test_another_beside_it_has_seen_all_that_came() -> None:
    first, second = pipeline(), pipeline(aligns=True)
    taken(first, Insert(4, 9, ROW), Cti(2))
    second.begin(first)
    assert second.cti == 2 and second.tau == 4
    events = second.standing()
    assert events is not None and events.lo.tolist() == [4]
    assert taken(second, Adjust(4, 9, 6, ROW)) is None
    found = second.release(INF, INF)
    assert found is not None and found.adjusts == 1
