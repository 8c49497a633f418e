"""The events that an adjust may still name: against a plain list, with undo, forgetting and restarts."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.event_log import EventLog
from everwhen.stream.element_batch import ADJUST, INSERT
from operators.stepping import codec_of
from state_files import through_file

CODEC = codec_of({"k": pa.int64(), "s": pa.string()})
Event = tuple[int, int, int]


def apply(log: EventLog, elements: list[tuple[int, int, int, int, int]]) -> int:
    """Elements (op, vs, ve, vnew, k)."""
    op, vs, ve, vnew, k = (np.array([each[c] for each in elements], np.int64) for c in range(5))
    rows = CODEC.encode([pa.array(k), pa.array([f"s{each}" for each in k])], len(elements))
    return log.apply(op.astype(np.uint8), vs, ve, vnew, rows, int((op == ADJUST).sum()))


def events(log: EventLog) -> list[Event]:
    found = log.events()
    return sorted(zip(found.lo.tolist(), found.hi.tolist(), CODEC.column(found.rows, 0).to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_it_is_a_list_of_events(seed: int) -> None:
    rng = random.Random(seed)
    log, there, cti = EventLog(CODEC), list[Event](), 0
    for _ in range(40):
        mine, batch = there.copy(), []
        for _ in range(rng.randint(0, 12)):
            if mine and rng.random() < 0.5:
                vs, ve, k = mine.pop(rng.randrange(len(mine)))
                vnew = rng.choice((vs, max(vs, cti) + rng.randint(0, 9), INF))
                batch.append((ADJUST, vs, ve, vnew, k))
                if vnew > vs:
                    mine.append((vs, vnew, k))
            else:
                vs = cti + rng.randint(0, 9)
                event = vs, rng.choice((vs + rng.randint(1, 20), INF)), rng.randint(0, 3)
                batch.append((INSERT, *event[:2], 0, event[2]))
                mine.append(event)
        assert apply(log, batch) == -1
        if rng.random() < 0.25:
            log.undo()
        else:
            there = mine
        if rng.random() < 0.4:
            cti += rng.randint(0, 6)
            log.forget(cti)
            there = [event for event in there if event[1] >= cti]
        if rng.random() < 0.2:
            state, log = through_file(log.snapshot()), EventLog(CODEC)
            log.restore(state)
        assert log.state_size().rows == len(there)
        if rng.random() < 0.3:  # tidies
            assert events(log) == sorted(there)


def test_an_adjust_without_its_event_is_named_and_nothing_is_taken() -> None:
    log = EventLog(CODEC)
    assert apply(log, [(INSERT, 0, 10, 0, 1)]) == -1
    assert apply(log, [(ADJUST, 0, 10, 5, 1), (ADJUST, 0, 10, 7, 1)]) == 1
    assert events(log) == [(0, 10, 1)]
    assert apply(log, [(ADJUST, 0, 10, 5, 2)]) == 0, "of another row"


def test_rows_that_are_promised_are_no_longer_named() -> None:
    log = EventLog(CODEC)
    apply(log, [(INSERT, 0, 10, 0, 1), (INSERT, 0, 30, 0, 1), (INSERT, 0, INF, 0, 2)])
    assert log.forgotten == NEVER
    log.close([Punctuation.constants({"k": 1}, 20)])
    assert log.state_size().rows == 2 and log.forgotten == 10
    log.close([Punctuation.constants({"k": 2})])
    assert events(log) == [(0, 30, 1)]


def test_memory_goes_back() -> None:
    log = EventLog(CODEC)
    small = log.state_size().bytes
    apply(log, [(INSERT, t, t + 1, 0, 1) for t in range(20_000)])
    assert log.state_size().bytes > small
    log.forget(INF)
    assert log.state_size().rows == 0
    events(log)
    assert log.state_size().bytes == small
