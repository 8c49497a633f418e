"""A Kafka cluster inside the client library: it listens on a free port of the loopback, and ends with the test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from everwhen.connectors.registry import (
    SinkPlace,
    SourcePlace,
    sink_connector,
    sink_options,
    source_connector,
    source_options,
)
from everwhen.core.schema import Schema

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])


class Cluster:
    """Where it listens, and a way to put messages there."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self.servers = servers
        self._producer = Producer({"bootstrap.servers": servers}, logger=_QUIET)

    def put(self, topic: str, values: Sequence[Any], partition: int = 0, stamps: Sequence[int] | None = None) -> None:
        """Values that are no bytes become JSON."""
        for i, value in enumerate(values):
            raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            more: dict[str, Any] = {} if stamps is None else {"timestamp": stamps[i]}
            self._producer.produce(topic, raw, partition=partition, **more)
        assert self._producer.flush(20) == 0

    def read(self, topic: str, partitions: Sequence[int] = (0, 1, 2, 3)) -> list[Any]:
        """All messages, with the library's own consumer that reads what is committed."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.servers, "group.id": "test", "isolation.level": "read_committed"}
        client = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False}, logger=_QUIET)
        client.assign([TopicPartition(topic, part, 0) for part in partitions])
        found, ended = [], set()
        while len(ended) < len(partitions):
            for message in client.consume(1000, 0.05):
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().code() == -191, message.error()
                    ended.add(message.partition())
        client.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def source(self, topic: str, place: SourcePlace | None = None, **options: Any) -> Any:
        connector = source_connector("kafka")
        named = {name.replace("__", "."): value for name, value in options.items()}
        found = source_options(connector, (self.servers, topic), {"timeout": "5 s", **named})
        return connector.open(found, place or SourcePlace("Bid", SCHEMA))

    def sink(self, topic: str, place: SinkPlace, options: Mapping[str, Any] | None = None) -> Any:
        connector = sink_connector("kafka")
        found = sink_options(connector, (self.servers, topic), {"timeout": "5 s", **(options or {})})
        opened = connector.elements if place.form == "elements" else connector.rows
        assert opened is not None
        return opened(found, place)


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("everwhen.tests.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


_QUIET = _quiet()


@contextmanager
def mock_cluster() -> Iterator[Cluster]:
    """A cluster of one broker, whose topics have four partitions and come into being when they are written to."""
    from confluent_kafka import Producer

    mock = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1}, logger=_QUIET)
    brokers = mock.list_topics(timeout=20).brokers.values()
    yield Cluster(",".join(f"{broker.host}:{broker.port}" for broker in brokers))
    del mock
