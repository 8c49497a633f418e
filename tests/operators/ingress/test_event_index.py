"""Entries found by start, end and row: forgotten by time or by promise, and never more than twice what is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.event_index import EventIndex
from everwhen.punctuation.store import PunctuationStore
from operators.stepping import codec_of
from state_files import through_file

CODEC = codec_of({"k": pa.int64()})
END = 2
"""Finalize forgets by a third number, which is the end as it was at first."""


def note(index: EventIndex, *events: tuple[int, int, int]) -> None:
    vs, ve, k = (np.array([each[c] for each in events], np.int64) for c in range(3))
    index.note(vs, ve, CODEC.encode([pa.array(k)], len(events)))


def there(index: EventIndex) -> list[tuple[int, int, int]]:
    alive = index.alive()
    fields, rows = index.fields[: index.count][alive], index.rows[: index.count][alive]
    return sorted(zip(fields[:, 0].tolist(), fields[:, 1].tolist(), CODEC.column(rows, 0).to_pylist(), strict=True))


def test_entries_are_forgotten_by_their_column() -> None:
    index = EventIndex(CODEC, END)
    note(index, (0, 10, 1), (0, 20, 2), (5, INF, 3))
    index.forget(11)
    assert there(index) == [(0, 20, 2), (5, INF, 3)]
    index.forget(3)
    assert there(index) == [(0, 20, 2), (5, INF, 3)], "what is forgotten does not come back"
    note(index, (0, 4, 4), (0, 40, 4))
    assert there(index) == [(0, 20, 2), (0, 40, 4), (5, INF, 3)], "and what comes too late is not noted"


def test_promised_rows_go_and_the_largest_end_is_told() -> None:
    index = EventIndex(CODEC, END)
    note(index, (0, 10, 1), (0, 12, 1), (0, 30, 1), (0, 10, 2))
    over = PunctuationStore(CODEC.schema)
    over.add([Punctuation.constants({"k": 1}, 20)])
    assert index.drop_promised(over) == 12
    assert there(index) == [(0, 10, 2), (0, 30, 1)]
    assert index.drop_promised(PunctuationStore(CODEC.schema)) == NEVER


def test_memory_is_bounded_by_what_is_kept() -> None:
    index = EventIndex(CODEC, END)
    for t in range(0, 50_000, 50):
        note(index, *((t + i, t + i + 20, 1) for i in range(50)))
        index.forget(t + 25)
    assert len(there(index)) < 100
    assert index.nbytes < 100_000, "of 50,000 that have come"


def test_a_restart_keeps_what_is_alive() -> None:
    index = EventIndex(CODEC, END)
    note(index, (0, 10, 1), (0, 20, 2))
    index.forget(15)
    again = EventIndex(CODEC, END)
    again.restore(through_file(index.snapshot()))
    assert there(again) == [(0, 20, 2)] and again.least == 15
    CODEC.pool.collect(force=True)
    heads, *_ = again.searched
    assert (heads >= 0).sum() == 1
