"""Jobs killed with SIGKILL: nothing is lost and nothing is doubled, read back with the system's own client."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable

from connectors.kafka_broker import Broker
from connectors.kafka_cluster import Cluster
from connectors.kill_driver import LAST
from connectors.killing import kill_often

QUICK, MANY = 20, 100
FEW = 6
"""In the tests of every day, where a start costs a second."""


def kafka_to_delta(cluster: Cluster, place: Path, kills: int) -> None:
    topic, sent = f"kills-{kills}", Counter[int]()

    def feed(i: int) -> None:
        for part in range(4):
            items = [4 * (30 * i + j) + part for j in range(30)]
            cluster.put(topic, [{"item": item, "name": "x", "ts": item} for item in items], part)
            sent.update(items)
            if i == kills:
                cluster.put(topic, [{"item": LAST, "name": "", "ts": 10**6}], part)

    source = ("kafka", (cluster.servers, topic), {"disorder": "1 s"})
    kill_often(source, ("delta", (str(place / "out"),), {}), "append", place, kills, feed, "ts", 4)
    found = Counter(DeltaTable(str(place / "out")).to_pyarrow_table().column("item").to_pylist())
    assert found == sent + Counter({LAST: 4})


def postgres_to_postgres(server: str, place: Path, kills: int) -> None:
    with psycopg.connect(server, autocommit=True) as client:
        client.execute("DROP TABLE IF EXISTS prices, copy, everwhen_epochs")
        client.execute("DROP PUBLICATION IF EXISTS everwhen_in")
        client.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        client.execute("CREATE TABLE prices (item bigint PRIMARY KEY, name text)")

        def feed(i: int) -> None:
            for j in range(20):
                with client.transaction():
                    client.execute("DELETE FROM prices WHERE item = %s", [(i * 7 + j) % 40])
                    client.execute(
                        "INSERT INTO prices VALUES (%s, %s) ON CONFLICT (item) DO UPDATE SET name = excluded.name",
                        [(i * 3 + j) % 40, f"{i} {j}"],
                    )
            if i == kills:
                client.execute("INSERT INTO prices VALUES (%s, 'last')", [LAST])

        source = ("postgres", (server, "prices"), {"key": "item", "state": str(place / "state")})
        kill_often(source, ("postgres", (server, "copy"), {}), "upsert", place, kills, feed)
        both = [client.execute(f"SELECT * FROM {name} ORDER BY item").fetchall() for name in ("prices", "copy")]
        assert both[0] == both[1] and len(both[0]) > 10


def kafka_to_kafka(broker: Broker, place: Path, kills: int) -> None:
    """Elements in a transaction each: the consumer reads what is committed."""
    into, out, sent = broker.topic(f"in-{kills}"), broker.topic(f"out-{kills}"), Counter[int]()

    def feed(i: int) -> None:
        for part in range(4):
            items = [4 * (30 * i + j) + part for j in range(30)]
            broker.put(into, [{"item": item, "name": "x", "ts": item} for item in items], part)
            sent.update(items)
            if i == kills:
                broker.put(into, [{"item": LAST, "name": "", "ts": 10**6}], part)

    source = ("kafka", (broker.servers, into), {"disorder": "1 s"})
    kill_often(source, ("kafka", (broker.servers, out), {}), "elements", place, kills, feed, "ts", 4)
    found = [json.loads(message.value()) for message in broker.read(out)]
    items = Counter(each["row"]["item"] for each in found if each["op"] == "insert")
    assert items == sent + Counter({LAST: 4})


def test_kafka_to_delta(cluster: Cluster, tmp_path: Path) -> None:
    kafka_to_delta(cluster, tmp_path, FEW)


def test_postgres_to_postgres(server: str, tmp_path: Path) -> None:
    postgres_to_postgres(server, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [QUICK, MANY])
def test_kafka_to_delta_often(cluster: Cluster, tmp_path: Path, kills: int) -> None:
    kafka_to_delta(cluster, tmp_path, kills)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [QUICK, MANY])
def test_postgres_to_postgres_often(server: str, tmp_path: Path, kills: int) -> None:
    postgres_to_postgres(server, tmp_path, kills)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [QUICK, MANY])
def test_kafka_to_kafka_often(broker: Broker, tmp_path: Path, kills: int) -> None:
    kafka_to_kafka(broker, tmp_path, kills)
