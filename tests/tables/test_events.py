"""`standing` and `coalesced` against `History`, which has the same as Python values."""

from __future__ import annotations

import random
from collections import Counter
from math import nan

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History, canonical_rows
from everwhen.tables.events import Events, coalesced, standing

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.float64()), ("tags", pa.list_(pa.int64()))])
ROWS = [
    {"k": "a", "x": 1.0, "tags": None},
    {"k": "a", "x": nan, "tags": [1]},
    {"k": None, "x": None, "tags": []},
    {"k": "b", "x": 0.0, "tags": [1, 2]},
]


def drawn(seed: int) -> list[Element]:
    """Inserts, and adjusts of events that are there."""
    chance = random.Random(seed)
    alive: list[tuple[int, int, int]] = []
    found: list[Element] = []
    for _ in range(chance.randrange(60)):
        if alive and chance.random() < 0.45:
            vs, ve, row = alive.pop(chance.randrange(len(alive)))
            new = chance.choice([vs, vs + 1, vs + chance.randrange(1, 9), INF])
            found.append(Adjust(vs, ve, new, ROWS[row]))
            if new > vs:
                alive.append((vs, new, row))
        else:
            vs, row = chance.randrange(6), chance.randrange(len(ROWS))
            ve = chance.choice([vs + 1, vs + 3, INF])
            found.append(Insert(vs, ve, ROWS[row]))
            alive.append((vs, ve, row))
        if chance.random() < 0.1:
            found.append(Cti(-5))
    return found


def batches(elements: list[Element]) -> list[ElementBatch]:
    cut = len(elements) // 3
    return [batch_of(part, SCHEMA) for part in (elements[:cut], elements[cut:])]


def counted(events: Events) -> Counter[object]:
    columns = tuple(column.combine_chunks() for column in events.rows.columns)
    zeros = np.zeros(len(events), np.int64)
    batch = ElementBatch(SCHEMA, zeros.astype(np.uint8), events.vs, events.ve, zeros, columns)
    return Counter(zip(events.vs.tolist(), events.ve.tolist(), canonical_rows(batch), strict=True))


@pytest.mark.property
def test_what_stands_is_the_history() -> None:
    for seed in range(200):
        elements = drawn(seed)
        history = History.of(batches(elements), SCHEMA)
        events = standing(batches(elements), SCHEMA)
        assert counted(events) == Counter(history.multiset), seed
        assert (np.diff(events.vs) >= 0).all()
        assert counted(coalesced(events, SCHEMA)) == Counter(history.coalesced().multiset), seed
        assert events.corrections == sum(isinstance(each, Adjust) for each in elements)


def test_rows_stay_in_the_order_in_which_they_came_where_that_is_asked_for() -> None:
    elements = [Insert(t, t + 1, ROWS[0]) for t in (5, 1, 3)]
    assert standing(batches(elements), SCHEMA, in_order=True).vs.tolist() == [5, 1, 3]
    assert standing(batches(elements), SCHEMA).vs.tolist() == [1, 3, 5]


def test_equal_histories_are_equal_tables() -> None:
    plain = Schema.of([("k", pa.string()), ("x", pa.float64())])
    rows = [{"k": "a", "x": 1.0}, {"k": None, "x": None}, {"k": "b", "x": nan}]
    whole = [Insert(1, 9, row) for row in rows]
    parts: list[Element] = [Insert(1, 4, row) for row in reversed(rows)] + [Insert(4, 9, row) for row in rows]
    one, other = (coalesced(standing([batch_of(each, plain)], plain), plain) for each in (whole, parts))
    assert one.vs.tolist() == other.vs.tolist() == [1, 1, 1] and one.rows.to_pylist()[:1] == other.rows.to_pylist()[:1]
    assert one.rows.column("k").to_pylist() == other.rows.column("k").to_pylist() == ["a", "b", None]


def test_nothing_and_rows_without_columns() -> None:
    assert len(standing([], SCHEMA)) == 0 and len(coalesced(standing([], SCHEMA), SCHEMA)) == 0
    none = Schema(())
    bare = [batch_of([Insert(1, 5, {}), Insert(5, 9, {}), Insert(1, 3, {}), Adjust(1, 3, 1, {}), Cti(4)], none)]
    events = standing(bare, none)
    assert events.ve.tolist() == [5, 9] and events.promised == 4
    assert coalesced(events, none).ve.tolist() == [9]
