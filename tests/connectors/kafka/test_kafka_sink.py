"""A topic as a sink: one transaction per epoch, and which epoch is in is read from the topic."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.kafka_cluster import SCHEMA, Cluster
from everwhen.connectors.registry import SinkPlace
from everwhen.core.schema import Schema
from everwhen.errors import SinkError
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import batch_of


def changes(form: str, *listed: tuple[int, Any, Any]) -> RowChanges:
    rows = pa.record_batch(
        [pa.array([i for _, i, _ in listed], pa.int64()), pa.array([n for _, _, n in listed], pa.string())],
        names=["item", "name"],
    )
    return RowChanges(form, np.array([op for op, _, _ in listed], np.uint8), rows, 0)


def said(cluster: Cluster, topic: str) -> list[tuple[Any, Any]]:
    return [
        (message.key() and json.loads(message.key()), message.value() and json.loads(message.value()))
        for message in cluster.read(topic)
    ]


def created(cluster: Cluster, topic: str) -> str:
    """The mock makes a topic when it is asked for by name."""
    cluster._producer.list_topics(topic, timeout=10)
    return topic


def test_elements_once_each_in_one_partition(cluster: Cluster) -> None:
    topic = created(cluster, "out-elements")
    place = SinkPlace("best", SCHEMA)
    row = {"item": 1, "name": "a"}
    batches = [
        batch_of([Insert(0, 5, row), Cti(3)], SCHEMA),
        batch_of([], SCHEMA),
        batch_of([Adjust(0, 5, 4, row), Cti(4)], SCHEMA),
    ]
    sink = pickle.loads(pickle.dumps(cluster.sink(topic, place)))
    sink.prepare(SCHEMA)
    assert sink.committed() == -1
    for epoch, batch in enumerate(batches):
        sink.commit(epoch, batch)
        sink.commit(epoch, batch)
    sink.close()
    again = cluster.sink(topic, place)
    again.prepare(SCHEMA)
    assert again.committed() == 2
    again.commit(1, batches[0])
    again.commit(2, batches[2])
    again.commit(5, batch_of([Cti(9)], SCHEMA))
    again.close()
    assert [value["op"] for _, value in said(cluster, topic)] == ["insert", "cti", "adjust", "cti", "cti"]
    source = cluster.source(topic)
    found = source.take(100)
    while found is None:
        found = source.take(100)
    assert next(str(each) for each in found.elements()) == "insert [0, 5) item=1 name='a'"
    source.close()


def test_upserts_have_keys_and_deletes_are_tombstones(cluster: Cluster) -> None:
    topic = created(cluster, "out-upsert")
    sink = cluster.sink(topic, SinkPlace("best", SCHEMA, "upsert", ("item",)))
    sink.prepare(SCHEMA)
    sink.commit(0, changes("upsert", (PUT, 1, "a"), (PUT, 2, "b")))
    sink.commit(1, changes("upsert", (DELETE, 1, None), (PUT, 2, "c")))
    sink.close()
    found = said(cluster, topic)
    assert [value for key, value in found if key == {"item": 1}] == [{"item": 1, "name": "a"}, None]
    assert [value for key, value in found if key == {"item": 2}] == [{"item": 2, "name": n} for n in "bc"]
    where = {message.key(): message.partition() for message in cluster.read(topic)}
    assert all(where[message.key()] == message.partition() for message in cluster.read(topic))


def test_retracts_are_envelopes_that_our_own_source_reads(cluster: Cluster) -> None:
    topic = created(cluster, "out-retract")
    sink = cluster.sink(topic, SinkPlace("best", SCHEMA, "retract", ("item",)))
    sink.prepare(SCHEMA)
    sink.commit(0, changes("retract", (PUT, 1, "a"), (PUT, 2, 'b"%s')))
    sink.commit(1, changes("retract", (DELETE, 1, "a"), (BEFORE, 2, 'b"%s'), (AFTER, 2, "c")))
    sink.close()
    found = [(value["op"], value["before"], value["after"]) for _, value in said(cluster, topic)]
    assert sorted(found, key=str) == sorted(
        [
            ("c", None, {"item": 1, "name": "a"}),
            ("c", None, {"item": 2, "name": 'b"%s'}),
            ("d", {"item": 1, "name": "a"}, None),
            ("u", {"item": 2, "name": 'b"%s'}, {"item": 2, "name": "c"}),
        ],
        key=str,
    )
    source = cluster.source(topic, format="debezium", key="item")
    elements = 0
    while elements < 5:
        batch = source.take(100)
        elements += 0 if batch is None else int((batch.op <= 1).sum())
    assert source._rows.table().column("name").to_pylist() == ["c"]
    source.close()


def test_append_has_the_rows_as_they_are(cluster: Cluster) -> None:
    topic = created(cluster, "out-append")
    sink = cluster.sink(topic, SinkPlace("best", SCHEMA, "append"))
    sink.prepare(SCHEMA)
    sink.commit(3, changes("append", (PUT, 1, None), (PUT, 1, None)))
    assert sink.committed() == 3
    sink.close()
    assert said(cluster, topic) == [(None, {"item": 1, "name": None})] * 2


def test_the_epoch_is_found_far_back_and_not_that_of_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from everwhen.connectors.kafka import transactions

    monkeypatch.setattr(transactions, "_FIRST_LOOK", 3)
    topic = created(cluster, "out-shared")
    mine, other = (cluster.sink(topic, SinkPlace(name, SCHEMA, "append"), {"id": name}) for name in ("mine", "mine2"))
    mine.prepare(SCHEMA)
    mine.commit(7, changes("append", (PUT, 1, "a")))
    other.prepare(SCHEMA)
    for epoch in range(20):
        other.commit(epoch + 100, changes("append", (PUT, 2, "b")))
    again = cluster.sink(topic, SinkPlace("mine", SCHEMA, "append"), {"id": "mine"})
    again.prepare(SCHEMA)
    assert (again.committed(), other.committed()) == (7, 119)
    for sink in (mine, other, again):
        sink.close()


def test_broker_away_topic_missing_and_types_without_json(cluster: Cluster) -> None:
    place = SinkPlace("best", SCHEMA, "append")
    away = Cluster("127.0.0.1:9").sink("x", place, {"timeout": "500 ms"})
    with pytest.raises(SinkError, match=r"topic 'x': cannot read it: .*no broker answers at 127.0.0.1:9"):
        away.prepare(SCHEMA)
    with pytest.raises(SinkError, match=r"topic 'no-such' is not there"):
        cluster.sink("no-such", place).prepare(SCHEMA)
    odd = Schema.of([("x", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(SinkError, match=r"Kafka topic 'out-append'.*cast the column"):
        cluster.sink("out-append", SinkPlace("best", odd)).prepare(odd)
