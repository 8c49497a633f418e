"""Changes of a table as elements: the history is that of the table, however the log is cut."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from everwhen.connectors.changes.live_rows import LiveRows, TableChanges
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History

SCHEMA = Schema.of([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])

Change = tuple[int, bool, tuple[Any, ...]]


def changes(listed: list[Change], kept: np.ndarray | None = None) -> TableChanges:
    columns = tuple(pa.array([row[j] for _, _, row in listed], type_) for j, type_ in enumerate(SCHEMA.types))
    times = np.array([t for t, _, _ in listed], np.int64)
    return TableChanges(times, np.array([gone for _, gone, _ in listed], np.bool_), columns, kept)


def table_history(listed: list[Change]) -> dict[tuple[int, int, tuple[Any, ...]], int]:
    """The lifetimes of rows by the definition: from the change that made a row until the next one of its key."""
    living: dict[Any, tuple[int, tuple[Any, ...]]] = {}
    found: dict[tuple[int, int, tuple[Any, ...]], int] = {}
    for t, gone, row in listed:
        start, old = living.get(row[0], (t, None))
        now = max(t, start)
        if old == row and not gone:
            continue
        if old is not None and now > start:
            found[start, now, old] = found.get((start, now, old), 0) + 1
        living.pop(row[0], None)
        if not gone:
            living[row[0]] = (now, row)
    for start, row in living.values():
        found[start, INF, row] = found.get((start, INF, row), 0) + 1
    return found


def drawn(seed: int, count: int) -> list[Change]:
    rng = random.Random(seed)
    t, found = 0, []
    for _ in range(count):
        t += rng.choice([0, 0, 1, 5])
        row = (rng.randrange(6), rng.choice(["a", "b", None, "ß"]), rng.choice([1.5, None, -0.0]))
        gone = rng.random() < 0.3
        found.append((t, gone, (row[0], None, None) if gone else row))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_history_is_that_of_the_table_however_the_log_is_cut(seed: int) -> None:
    listed = drawn(seed, 60)
    rng = random.Random(seed)
    table, said, at = LiveRows(SCHEMA, ["id"]), [], 0
    while at < len(listed):
        n = rng.randrange(1, 20)
        said.append(table.take(changes(listed[at : at + n])))
        at += n
        if rng.random() < 0.3:
            other = LiveRows(SCHEMA, ["id"])
            other.restore(table.table())
            assert other.table().num_rows == table.table().num_rows == len(table)
            table = other
    assert dict(History.of(said, SCHEMA).multiset) == table_history(listed)


def test_a_row_changed_at_its_own_start_was_never_there() -> None:
    said = LiveRows(SCHEMA, ["id"]).take(changes([(5, False, (1, "a", 1.0)), (5, False, (1, "b", 1.0))]))
    assert [str(each) for each in said.elements()] == [
        "insert [5, ∞) id=1 name='a' price=1.0",
        "adjust [5, ∞ -> 5) id=1 name='a' price=1.0",
        "insert [5, ∞) id=1 name='b' price=1.0",
    ]


def test_what_changes_nothing_says_nothing() -> None:
    table = LiveRows(SCHEMA, ["id"])
    table.take(changes([(5, False, (1, "a", 1.0))]))
    assert len(table.take(changes([(7, False, (1, "a", 1.0)), (8, True, (2, None, None))]))) == 0


def test_values_that_the_log_leaves_out_are_those_of_before() -> None:
    table = LiveRows(SCHEMA, ["id"])
    table.take(changes([(5, False, (1, "a long text", 1.0)), (5, False, (2, None, 3.0))]))
    kept = np.array([[False, True, False], [False, True, False]])
    said = table.take(changes([(6, False, (1, "?", 2.0)), (6, False, (2, "?", 4.0))], kept))
    rows = [(column.to_pylist()) for column in said.columns]
    assert rows[1] == ["a long text", "a long text", None, None] and rows[2] == [1.0, 2.0, 3.0, 4.0]


def test_values_that_no_row_has_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from everwhen.connectors.changes import live_rows

    monkeypatch.setattr(live_rows, "_FRESH", 100)
    table = LiveRows(SCHEMA, ["id"])
    batches: list[ElementBatch] = []
    listed: list[Change] = [(i, False, (i % 3, f"text {i}", 0.0)) for i in range(500)]
    for at in range(0, 500, 50):
        batches.append(table.take(changes(listed[at : at + 50])))
    assert dict(History.of(batches, SCHEMA).multiset) == table_history(listed)
    assert len(table._pool.dictionary(pa.string())) <= 250
