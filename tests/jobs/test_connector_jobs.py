"""Jobs between Kafka, Delta and PostgreSQL: the answer is in all of them, once, also if the job is killed."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

from connectors.kafka_broker import Broker, jars, real_broker
from connectors.kafka_cluster import Cluster, mock_cluster
from connectors.postgres_server import logical_server
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from jobs import job_process

TEXT = """
    CREATE STREAM Bid (item BIGINT, price BIGINT) SOURCE kafka('{servers}', 'bids');
    CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(UNBOUNDED) GROUP BY item;
    CREATE SINK lake FROM Best INTO delta('{place}/best', form = 'upsert', key = 'item');
    CREATE SINK rows INTO delta('{place}/bids');
    INSERT INTO rows SELECT item, price FROM Bid CONSISTENCY STRONG;
    CREATE SINK base FROM Best INTO postgres('{database}', 'best', key = 'item')"""
ALSO = """;
    CREATE SINK back FROM Best INTO kafka('{servers}', 'best', form = 'upsert', key = 'item');
    CREATE SINK said FROM Best INTO kafka('{servers}', 'said', form = 'elements')"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with logical_server(tmp_path_factory.mktemp("postgres") / "data") as uri:
        yield uri


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with mock_cluster() as found:
        for topic in ("best", "said"):
            found._producer.list_topics(topic, timeout=10)
        yield found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if jars() is None:
        pytest.skip("left out: there is no Kafka broker here (make test-connectors fetches its jars with mvn)")
    with real_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


class Bids:
    """Bids into four partitions, each of which promises; what the best of them are."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.rng, self.t = cluster, random.Random(7), 0
        self.rows: list[tuple[int, int]] = []

    def more(self, count: int) -> None:
        for part in range(4):
            listed = []
            for i in range(count):
                row = {"item": self.rng.randrange(8), "price": self.rng.randrange(10_000)}
                self.rows.append((row["item"], row["price"]))
                listed.append({"op": "insert", "vs": self.t + i, "row": row})
            self.cluster.put("bids", [*listed, {"op": "cti", "t": self.t + count}], part)
        self.t += count

    def end(self) -> None:
        for part in range(4):
            self.cluster.put("bids", [{"op": "cti", "t": None}], part)

    @property
    def best(self) -> list[tuple[int, int]]:
        return sorted({item: max(p for i, p in self.rows if i == item) for item, _ in self.rows}.items())


def check(bids: Bids, place: Path, database: str) -> None:
    """The answer as each system's own client sees it."""
    lake = DeltaTable(str(place / "best")).to_pyarrow_table().to_pylist()
    assert sorted((row["item"], row["price"]) for row in lake) == bids.best
    rows = DeltaTable(str(place / "bids")).to_pyarrow_table().to_pylist()
    assert sorted((row["item"], row["price"]) for row in rows) == sorted(bids.rows)
    with psycopg.connect(database) as client:
        assert client.execute("SELECT item, price FROM best ORDER BY item").fetchall() == bids.best


def check_topics(bids: Bids, cluster: Cluster) -> None:
    table: dict[int, Any] = {}
    for message in cluster.read("best"):
        key = json.loads(message.key())["item"]
        table.pop(key, None)
        if message.value() is not None:
            table[key] = json.loads(message.value())["price"]
    assert sorted(table.items()) == bids.best
    said = [json.loads(message.value()) for message in cluster.read("said")]
    living = [(each["row"]["item"], each["row"]["price"]) for each in said if each["op"] == "insert"]
    for each in said:
        if each["op"] == "adjust":
            living.remove((each["row"]["item"], each["row"]["price"]))
            if each["vnew"] is None or each["vnew"] > each["vs"]:
                living.append((each["row"]["item"], each["row"]["price"]))
    assert said[-1] == {"op": "cti", "t": None} and set(bids.best) <= set(living)


def test_a_job_between_three_systems(cluster: Cluster, database: str, tmp_path: Path) -> None:
    bids = Bids(cluster)
    bids.more(30)
    bids.end()
    text = (TEXT + ALSO).format(servers=cluster.servers, place=tmp_path, database=database)
    assert LocalJob(job_plan(text, unbounded=True), tmp_path / "state").run() == "done"
    check(bids, tmp_path, database)
    check_topics(bids, cluster)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [20, 100])
def test_jobs_that_are_killed(broker: Broker, database: str, tmp_path: Path, kills: int) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.servers})
    if "bids" in admin.list_topics(timeout=10).topics:
        for future in admin.delete_topics(["bids", "best", "said"]).values():
            future.result(20)
        time.sleep(2)
    for topic in ("bids", "best", "said"):
        broker.topic(topic)
    with psycopg.connect(database, autocommit=True) as client:
        client.execute("DROP TABLE IF EXISTS best, everwhen_epochs")
    bids, rng = Bids(broker), random.Random(kills)
    text = (TEXT + ALSO).format(servers=broker.servers, place=tmp_path, database=database)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["jobs.job_process"])
    for i in range(kills + 1):
        bids.more(10)
        if i == kills:
            bids.end()
        every, batch = rng.choice([0.0, 0.3, 5.0]), 40 if i < kills else 400
        job = processes.Process(target=job_process.run_job, args=(text, str(tmp_path / "state"), every, batch))
        job.start()
        job.join(rng.uniform(0.5, 3.0) if i < kills else 600)
        if i == kills:
            assert job.exitcode == 0
        else:
            assert job.exitcode is None, f"it ended by itself: {job.exitcode}"
        job.kill()
        job.join()
    check(bids, tmp_path, database)
    check_topics(bids, broker)
