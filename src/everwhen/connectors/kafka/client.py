"""Connections to Kafka, and what their errors mean to a user.

`confluent_kafka` is imported when a connection is opened, not before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from everwhen.connectors.registry import needs
from everwhen.errors import EverwhenError, QueryError, SourceError

_LOG: Final = logging.getLogger("everwhen.kafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


@dataclass(frozen=True)
class Topic:
    """A topic and where it is.  `settings`: those of the client library, by their own names."""

    servers: str
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 10.0

    @property
    def shown(self) -> str:
        return f"Kafka topic {self.topic!r}"

    def consumer(self, **more: Any) -> Any:
        """A consumer that remembers nothing at the broker."""
        defaults = {
            "group.id": "everwhen",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "enable.partition.eof": True,
        }
        return self._client("Consumer", {**defaults, **more})

    def producer(self, **more: Any) -> Any:
        return self._client("Producer", {"partitioner": "murmur2_random", "linger.ms": 5, **more})

    def _client(self, kind: str, settings: Mapping[str, Any]) -> Any:
        kafka = needs("confluent_kafka", "confluent-kafka", "kafka", "kafka")
        whole = {**settings, **self.settings, "bootstrap.servers": self.servers}
        try:
            return getattr(kafka, kind)(whole, logger=_LOG)
        except kafka.KafkaException as bad:
            raise QueryError(f"kafka: {_text(bad)} (the options properties.… are those of librdkafka)") from None

    def cluster(self, client: Any) -> str | None:
        """Which cluster answers, if it says so."""
        with self.explained(SourceError):
            found = client.list_topics(timeout=self.timeout).cluster_id
        return None if found is None else str(found)

    def partitions(self, client: Any, error: type[EverwhenError]) -> tuple[int, ...]:
        """The partitions of the topic, which must be there."""
        with self.explained(error):
            found = client.list_topics(timeout=self.timeout).topics
        topic = found.get(self.topic)
        if topic is None or not topic.partitions:
            there = sorted(name for name in found if not name.startswith("__"))
            shown = ", ".join(there[:10]) + (", …" if len(there) > 10 else "") or "none"
            raise error(
                f"{self.shown} is not there at {self.servers} (create it, or check the option topic; there is {shown})"
            )
        return tuple(sorted(topic.partitions))

    @contextmanager
    def explained(self, error: type[EverwhenError], wanted: str = "read it") -> Iterator[None]:
        """Errors of the library as ours."""
        kafka = needs("confluent_kafka", "confluent-kafka", "kafka", "kafka")
        try:
            yield
        except (kafka.KafkaException, kafka.KafkaError) as bad:
            raise error(f"{self.shown}: cannot {wanted}: {_text(bad)} ({self.remedy(bad)})") from bad

    def remedy(self, bad: Any) -> str:
        """What to do about an error."""
        from confluent_kafka import KafkaError

        code = _error(bad).code()
        if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
            return f"no broker answers at {self.servers}: is it running, and is the option servers right?"
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return "give the user of the connection the rights on the topic"
        if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            return "check the options properties.sasl.…"
        if code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return "another job writes with the same transaction id; stop it, or give this one an id of its own"
        return "see the message of the broker; nothing was lost: start again when it is mended"


def _error(bad: Any) -> Any:
    return bad.args[0] if isinstance(bad, Exception) and bad.args and hasattr(bad.args[0], "code") else bad


def _text(bad: Any) -> str:
    found = _error(bad)
    return str(found.str()) if hasattr(found, "str") else str(found)
