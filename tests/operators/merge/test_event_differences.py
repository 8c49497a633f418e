"""What inputs say and what was emitted, in one index: differences are the bits that differ."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError, StateError
from everwhen.operators.merge.event_differences import EventDifferences
from everwhen.operators.merge.lmerge import LMergeOperator
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.merge.merging import SCHEMA

CODEC = RowCodec(SCHEMA, Interner())


def events(*found: tuple[str, int, int, int]) -> Changes:
    """Of (row, start, end, weight)."""
    rows = CODEC.encode([pa.array([p for p, *_ in found])], len(found))
    start, hi, weight = (np.array(column) for column in list(zip(*found, strict=True))[1:])
    return Changes(CODEC, start, hi, weight, np.concatenate([rows, start[:, None]], axis=1))


def shown(changes: Changes) -> list[tuple[str, int, int, int, int]]:
    """Row, start, and the segment with its weight."""
    rows = CODEC.decode(np.ascontiguousarray(changes.rows[:, :-1]))[0].to_pylist()
    columns = (rows, changes.rows[:, -1].tolist(), changes.lo.tolist(), changes.hi.tolist(), changes.weight.tolist())
    return sorted(zip(*columns, strict=True))


def test_what_differs() -> None:
    index = EventDifferences(CODEC)
    index.add(0, events(("A", 1, 9, 1), ("A", 1, 9, 1), ("B", 2, 5, 1)), NEVER)
    index.emit(events(("A", 1, 9, 1)))
    assert shown(index.ahead(0, 3)) == [("A", 1, 3, 9, 1), ("B", 2, 3, 5, 1)]
    assert shown(index.ahead(1, NEVER)) == [("A", 1, 1, 9, -1)]
    index.add(1, events(("A", 1, 7, -1), ("A", 1, 7, 1), ("A", 1, 9, 1)), NEVER)  # a chain in one batch, in any order
    assert shown(index.ahead(1, NEVER)) == []
    index.begin(1)
    assert shown(index.ahead(1, NEVER)) == [("A", 1, 1, 9, -1)]
    longer = events(("A", 1, 12, 1))
    index.emit(Changes(CODEC, np.array([9]), longer.hi, longer.weight, longer.rows))  # from 9 on: it grows
    assert shown(index.emitted(NEVER)) == [("A", 1, 1, 12, 1)]
    with pytest.raises(AssertionError, match="has been emitted"):
        index.emit(events(("C", 1, 9, -1)))


def test_what_is_over_is_forgotten_and_snapshots_go_on() -> None:
    index = EventDifferences(CODEC)
    index.add(0, events(("A", 1, 9, 1), ("B", 2, 5, 1), ("C", 1, 3, 1)), 3)
    assert index.state_size().rows == 2, "C ends too early to count"
    index.emit(events(("B", 2, 5, 1)))
    index.forget(5)
    assert index.state_size().rows == 2, "what ends just at the promise may grow"
    index.forget(6)
    again = EventDifferences(CODEC)
    again.restore(index.snapshot())
    assert shown(again.ahead(0, 6)) == [("A", 1, 6, 9, 1)]
    again.close(lambda rows: np.full(len(rows), 20))
    assert again.state_size().rows == 0
    index.forget(INF)
    assert index.state_size().rows == 0
    with pytest.raises(StateError, match="said by nobody"):
        one = np.array([1])
        again.restore({"final": 0, "start": one, "end": one + 1, "have": one - 1, "rows": (pa.array(["A"]),)})


def test_other_starts_are_for_inputs_only() -> None:
    index = EventDifferences(CODEC)
    index.add(0, events(("A", 1, 9, 1), ("B", 1, 9, 1)), NEVER)
    index.add(2, events(("A", 1, 9, 1)), NEVER)
    index.emit(events(("A", 1, 5, 1)))

    def known(rows: np.ndarray) -> np.ndarray:
        rows = rows.copy()
        rows[:, -1][rows[:, 1] == rows[0, 1]] = 5
        return rows

    index.rename(known, 5)
    assert shown(index.emitted(NEVER)) == [("A", 1, 1, 5, 1)]
    assert sorted(each[:2] for each in shown(index.ahead(0, 5))) == [("A", 5), ("B", 1)]
    assert shown(index.ahead(2, 5)) == [("A", 5, 5, 9, 1)]


def test_so_many_inputs_have_a_bit() -> None:
    with pytest.raises(QueryError, match="events of 62 inputs are merged, and 61 can be"):
        LMergeOperator(CODEC, [NEVER] * 62, MergePolicy(), True)
    LMergeOperator(CODEC, [NEVER] * 62, MergePolicy(), False)
