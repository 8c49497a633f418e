"""Spark's own Kafka source feeds a query, as docs/spark.md writes it: over a real broker, killed and started again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from connectors.kafka_broker import Broker
from connectors.spark_jars.kafka_query import AT_A_TIME
from connectors.spark_jars.killed import Bids, Row, killed_and_started_again

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PARTITIONS = 3


class Topic(Bids):
    """Bids in three partitions."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__(name)
        self._broker, self._topic = broker, broker.topic(name, PARTITIONS)

    def put(self, rows: list[Row]) -> None:
        for part in range(PARTITIONS):
            self._broker.put(self._topic, [_message(*row) for row in rows[part::PARTITIONS]], part)
        self.rows += rows


def _message(at: int, item: str, price: float) -> dict[str, Any]:
    written = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"at": written, "item": item, "price": price}


def test_killed_and_started_again_it_answers_as_in_process(jars: str, broker: Broker, tmp_path: Path) -> None:
    name = "spark-bids"
    bids, words = Topic(broker, name), (jars, str(tmp_path), broker.servers, name)
    report = killed_and_started_again("kafka_query", tmp_path, bids, 5 * AT_A_TIME, *words)
    assert report["sources"] == [f"KafkaV2[Subscribe[{name}]]"]
