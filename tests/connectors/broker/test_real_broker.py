"""What only a real broker can show: fencing, aborted transactions, offsets in transactions, a broker that goes away."""

from __future__ import annotations

import time
from typing import Any

import pytest

from connectors.kafka.test_kafka_sink import changes, said
from connectors.kafka.test_kafka_source import ORDERED, rows, taken
from connectors.kafka_broker import Broker
from connectors.kafka_cluster import SCHEMA
from everwhen.connectors.registry import SinkPlace
from everwhen.errors import SinkError, SourceError, StateError
from everwhen.sinks.rows import PUT

pytestmark = pytest.mark.slow
PLACE = SinkPlace("best", SCHEMA, "append")


def test_a_second_job_with_the_same_id_ends_the_first(broker: Broker) -> None:
    topic = broker.topic("fenced")
    first, second = broker.sink(topic, PLACE), broker.sink(topic, PLACE)
    first.prepare(SCHEMA)
    first.commit(0, changes("append", (PUT, 1, "a")))
    second.prepare(SCHEMA)
    assert second.committed() == 0
    with pytest.raises(SinkError, match="another job writes with the same transaction id"):
        first.commit(1, changes("append", (PUT, 2, "b")))
    second.commit(1, changes("append", (PUT, 3, "c")))
    second.close()
    first.close()
    assert sorted(value["item"] for _, value in said(broker, topic)) == [1, 3]


def test_what_was_not_committed_is_not_read_and_the_epoch_is_found(broker: Broker) -> None:
    topic = broker.topic("aborted")
    sink = broker.sink(topic, PLACE)
    sink.prepare(SCHEMA)
    sink.commit(0, changes("append", (PUT, 1, "a")))
    producer = sink.transactions._producer
    producer.begin_transaction()
    producer.produce(topic, b'{"item":99}', partition=0, headers={"everwhen-epoch": f"{sink.transactions.id}:1"})
    producer.flush(10)
    again = broker.sink(topic, PLACE)  # the transaction of the first is open, and is aborted
    again.prepare(SCHEMA)
    assert again.committed() == 0
    again.commit(1, changes("append", (PUT, 2, "b")))
    assert sorted(value["item"] for _, value in said(broker, topic)) == [1, 2]
    assert again.transactions._find() == 1
    assert max(again.transactions._newest_in(part) for part in range(4)) == 1
    source = broker.source(topic, disorder="0 ms")
    found = taken(source, 2)
    positions = source.position
    other = broker.source(topic, disorder="0 ms")
    batch = other.take_to(positions)
    assert sorted(text for text in found if "insert" in text) == sorted(
        str(each) for each in batch.elements() if "insert" in str(each)
    )
    for each in (sink, again, source, other):
        each.close()


def test_records_that_the_broker_deleted_are_missed(broker: Broker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = broker.topic("deleted", 1)
    broker.put(topic, rows(10))
    source = broker.source(topic, ORDERED)
    start = None
    found: list[Any] = []
    while len(found) < 10:
        found += taken(source, 1)
        start = start or source.position
    source.close()
    place = TopicPartition(topic, 0, 10)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_records([place])[place].result(20)
    assert start is not None
    other = broker.source(topic, ORDERED, timeout="2 s")
    with pytest.raises(StateError, match=r"partition 0.*(is gone|any more)"):
        other.seek({**start, "offsets": {"0": 3}})
        other.take_to(start)
    other.close()
    later = broker.source(topic, ORDERED)  # a new job begins with what is there
    broker.put(topic, rows(1, 10))
    assert taken(later, 1) == ["insert [100, 101) item=10 name='n10'"]
    later.close()


def test_a_broker_that_goes_away_is_named_and_nothing_is_lost(broker: Broker) -> None:
    topic = broker.topic("away")
    broker.put(topic, rows(5))
    source = broker.source(topic, ORDERED, timeout="2 s")
    sink = broker.sink(broker.topic("away-out"), PLACE, {"timeout": "2 s", "properties.delivery.timeout.ms": "2500"})
    sink.prepare(SCHEMA)
    assert len(taken(source, 5)) == 5
    position = source.position
    broker.down()
    with pytest.raises(SourceError, match="no broker answers at"):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            assert source.take(10) is None
    with pytest.raises(SinkError, match="Kafka topic 'away-out'"):
        sink.commit(0, changes("append", (PUT, 1, "a")))
    broker.up()
    sink.commit(0, changes("append", (PUT, 1, "a")))
    broker.put(topic, rows(1, 7))
    again = broker.source(topic, ORDERED)
    again.seek(position)
    assert "insert [70, 71) item=7 name='n7'" in taken(again, 1)
    for each in (source, sink, again):
        each.close()
