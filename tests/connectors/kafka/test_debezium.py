"""Debezium's envelopes: a row lives from its change until the next, whatever is left out of the envelope."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.kafka_cluster import SCHEMA, Cluster
from everwhen.connectors.kafka.debezium import EnvelopeReader
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import InputError
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History

READER = EnvelopeReader(SCHEMA, ("item",), 10**6, "Kafka topic 'x'")


def envelope(op: str, t: int, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "ts_ms": t, "table": "bids", "lsn": 7}
    return {"before": before, "after": after, "op": op, "ts_ms": t + 1, "source": source, "transaction": None, **more}


def encoded(listed: list[Any]) -> list[bytes | None]:
    return [each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in listed]


LIFE = [
    envelope("r", 5, None, {"item": 1, "name": "old", "other": [1]}),
    envelope("c", 10, None, {"item": 2, "name": "a"}),
    envelope("u", 20, {"item": 2, "name": "a"}, {"item": 2, "name": "b"}),
    envelope("u", 20, None, {"item": 1, "name": None}),
    envelope("d", 30, {"item": 2}, None),
]
LIVES = {(5, 20, (1, "old")): 1, (10, 20, (2, "a")): 1, (20, 30, (2, "b")): 1, (20, INF, (1, None)): 1}


def history(batches: list[ElementBatch]) -> dict[Any, int]:
    return dict(History.of(batches, SCHEMA).multiset)


def until(source: Any, count: int) -> list[ElementBatch]:
    found: list[ElementBatch] = []
    limit = time.monotonic() + 10
    while sum(map(len, found)) < count and time.monotonic() < limit:
        batch = source.take(1000)
        if batch is not None:
            found.append(batch)
    return found


def test_quick_and_careful_reading_say_the_same() -> None:
    quick = READER._quick([value + b"\n" for value in encoded(LIFE) if value is not None])
    careful = READER.read(encoded([None, *({"schema": {}, "payload": each} for each in LIFE), None]))
    assert quick is not None
    assert quick.times.tolist() == careful.times.tolist() == [5, 10, 20, 20, 30]
    assert quick.gone.tolist() == careful.gone.tolist() == [False, False, False, False, True]
    assert [c.to_pylist() for c in quick.columns] == [c.to_pylist() for c in careful.columns]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (b"nonsense", "not JSON"),
        (envelope("t", 3), 'op" is the text "t"'),
        ({"item": 1}, 'op" is '),
        (envelope("u", 3, {"item": 1}, None), "no object 'after'"),
        (envelope("d", 3, None, None), "no object 'before'"),
        (envelope("d", 3, {"name": "x"}, None), "no value in the key column 'item'"),
        (envelope("c", 3, None, {"item": "x"}), "attribute 'item'"),
        ({"op": "c", "after": {"item": 1}}, "has no time"),
    ],
)
def test_a_wrong_envelope_is_named(cluster: Cluster, wrong: Any, what: str) -> None:
    topic = f"envelope-{len(what)}-{len(str(wrong))}"
    cluster.put(topic, [LIFE[0], wrong])
    source = cluster.source(topic, format="debezium", key="item")
    with pytest.raises(InputError) as bad:
        until(source, 2)
    assert f"Kafka topic '{topic}', partition 0, offset 1: " in str(bad.value) and what in str(bad.value)
    source.close()


def test_rows_live_from_change_to_change_and_progress_follows(cluster: Cluster) -> None:
    for part in range(4):
        cluster.put(
            "life", LIFE if part == 2 else [envelope("c", 40 + part, None, {"item": 90 + part, "name": "z"})], part
        )
    source = cluster.source("life", format="debezium", key="item")
    found = until(source, 11)
    source.close()
    others = {(40 + part, INF, (90 + part, "z")): 1 for part in (0, 1, 3)}
    assert history(found) == {**LIVES, **others}
    assert int(found[-1].vs[-1]) == 30 and found[-1].op[-1] == ElementBatch.CTI


def test_a_change_out_of_order_takes_effect_at_the_latest_time(cluster: Cluster) -> None:
    listed = [envelope("c", 50, None, {"item": 1, "name": "a"}), envelope("u", 40, None, {"item": 1, "name": "b"})]
    listed += [envelope("c", 45, None, {"item": 2, "name": "c"})]
    cluster.put("back", listed)
    source = cluster.source("back", format="debezium", key="item")
    assert history(until(source, 4)) == {(50, INF, (1, "b")): 1, (50, INF, (2, "c")): 1}
    source.close()
    source = cluster.source("back", format="debezium", key="item", disorder="8 ms")
    assert history(until(source, 4)) == {(50, INF, (1, "b")): 1, (45, INF, (2, "c")): 1}
    source.close()


@pytest.mark.parametrize("copies", [True, False])
def test_the_same_again_with_and_without_copies_of_the_table(
    cluster: Cluster, copies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everwhen.connectors.changes.change_input._EFFORT", 0)
    rng = random.Random(4)
    topic = f"changes-{copies}"
    more = {"state": str(tmp_path / "state")} if copies else {}

    def opened() -> Any:
        return cluster.source(topic, format="debezium", key="item", **more)

    def some(n: int, t: int) -> list[Any]:
        return [
            envelope("d", t, {"item": key})
            if rng.random() < 0.2
            else envelope("u", t, None, {"item": key, "name": str(t + i)})
            for i, key in enumerate(rng.randrange(20) for _ in range(n))
        ]

    cluster.put(topic, some(5, 0))
    source, told = opened(), []
    for i in range(12):
        cluster.put(topic, some(rng.randrange(1, 40), 10 * i))
        before = json.loads(json.dumps(source.position))
        batch = until(source, 1)[0]
        told.append((before, [] if batch is None else list(map(str, batch.elements())), source.position))
        if i in (3, 7):
            source.leave_word("job", source.position, 0)
    source.close()
    written = sorted(path.name for path in (tmp_path / "state").glob("*")) if copies else []
    assert written == (["table-1.arrow"] if copies else [])
    for first in (8, 11) if copies else (0, 5):
        other = opened()
        other.seek(told[first][0])
        for _, expected, position in told[first:]:
            batch = other.take_to(json.loads(json.dumps(position)))
            assert ([] if batch is None else list(map(str, batch.elements()))) == expected
            assert other.position == position
        other.close()


def test_ticks_and_types(cluster: Cluster) -> None:
    schema = Schema.of([("item", pa.int64()), ("price", pa.decimal128(6, 2))])
    reader = EnvelopeReader(schema, ("item",), 10**9, "x")
    found = reader.read(encoded([envelope("c", 5999, None, {"item": 1, "price": "2.50"})]))
    assert found.times.tolist() == [5] and str(found.columns[1][0].as_py()) == "2.50"
    assert np.array_equal(found.gone, [False])
