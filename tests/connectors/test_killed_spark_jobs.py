"""Jobs on Spark between systems, killed with SIGKILL, JVM and workers too: nothing lost, nothing doubled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from connectors.job_kills import COMPUTED, PLANNED, WRITTEN, OnSpark, kill_jobs
from connectors.kafka_broker import Broker
from connectors.killed_systems import Bids, Lines, Topic, delta_rows, iceberg_rows, net
from connectors.test_killed_jobs import delta_to_delta, postgres_to_postgres

pytestmark = [pytest.mark.slow, pytest.mark.spark]

FEW, MANY = 2, 20
LONGEST = 6.0
BEST = """
    CREATE STREAM Best AS
        SELECT item, MAX(price) AS price FROM Bid WINDOW(UNBOUNDED) WHERE price >= 0 GROUP BY item;"""


def killed(text: str, place: Path, kills: int, bids: Any, written: Callable[[], tuple[Any, Any]]) -> None:
    """Final rows of all bids, and the best of each item."""

    def is_done() -> bool:
        rows, best = written()
        return bool(rows == bids.rows and best == Counter(bids.best.items()))

    struck(kill_jobs(OnSpark, text, place / "state", kills, bids.feed, is_done, LONGEST))
    assert is_done()


def struck(happened: dict[str, Any]) -> None:
    """All runs had an epoch behind them, and at least half of the kills fell within one."""
    print(happened)
    within = sum(happened.get(where, 0) for where in (PLANNED, COMPUTED, WRITTEN))
    assert happened["at work"] == happened["kills"] and 2 * within >= happened["kills"], happened


def pairs(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["item"], row["price"]) for row in rows)


def topic_to_topic_and_delta(broker: Broker, place: Path, kills: int) -> None:
    bids = Topic(kills, broker, broker.topic(f"spark-in-{kills}"))
    out = broker.topic(f"spark-out-{kills}")
    text = f"""
        CREATE STREAM Bid (item BIGINT, price BIGINT, ts BIGINT) ORDERED BY ts SOURCE {bids.source};{BEST}
        CREATE SINK lines INTO kafka('{broker.servers}', '{out}', form = 'append') AS SELECT item, price FROM Bid;
        CREATE SINK best FROM Best INTO delta('{place}/best', form = 'retract')"""

    def written() -> tuple[Any, Any]:
        lines = [json.loads(message.value()) for message in broker.read(out)]
        return pairs(lines), net(delta_rows(place / "best"))

    killed(text, place, kills, bids, written)


def folder_to_postgres(server: str, place: Path, kills: int) -> None:
    bids: Bids = Lines(kills, place, folder=True)
    lines, best = f"lines_{kills}", f"best_{kills}"
    text = f"""
        CREATE STREAM Bid (item BIGINT, price BIGINT) SOURCE {bids.source};{BEST}
        CREATE SINK lines INTO postgres('{server}', '{lines}', form = 'append') AS SELECT item, price FROM Bid;
        CREATE SINK best FROM Best INTO postgres('{server}', '{best}')"""
    with psycopg.connect(server, autocommit=True) as client:

        def rows(table: str) -> Counter[tuple[Any, ...]]:
            if client.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
                return Counter()
            return Counter(client.execute(f"SELECT item, price FROM {table}").fetchall())

        killed(text, place, kills, bids, lambda: (rows(lines), rows(best)))


def file_to_iceberg(place: Path, kills: int) -> None:
    bids = Lines(kills, place, folder=False)
    where = f"'sqlite:///{place}/catalog.db', warehouse = 'file://{place}/warehouse'"
    text = f"""
        CREATE STREAM Bid (item BIGINT, price BIGINT) SOURCE {bids.source};{BEST}
        CREATE SINK lines INTO iceberg('shop.lines', {where}) AS SELECT item, price FROM Bid;
        CREATE SINK best FROM Best INTO iceberg('shop.best', {where}, form = 'upsert')"""

    def written() -> tuple[Any, Any]:
        return pairs(iceberg_rows(place, "shop.lines")), pairs(iceberg_rows(place, "shop.best"))

    killed(text, place, kills, bids, written)


@pytest.mark.parametrize("kills", [FEW, MANY])
def test_from_a_topic_to_a_topic_and_delta(broker: Broker, tmp_path: Path, kills: int) -> None:
    topic_to_topic_and_delta(broker, tmp_path, kills)


@pytest.mark.parametrize("kills", [FEW, MANY])
def test_from_a_folder_to_postgres(server: str, tmp_path: Path, kills: int) -> None:
    folder_to_postgres(server, tmp_path, kills)


@pytest.mark.parametrize("kills", [FEW, MANY])
def test_from_a_file_to_iceberg(tmp_path: Path, kills: int) -> None:
    file_to_iceberg(tmp_path, kills)


@pytest.mark.parametrize("kills", [FEW, MANY])
def test_from_delta_to_delta_on_spark(tmp_path: Path, kills: int) -> None:
    struck(delta_to_delta(tmp_path, kills, OnSpark, LONGEST))


@pytest.mark.parametrize("kills", [FEW, MANY])
def test_from_postgres_to_postgres_and_a_file(server: str, tmp_path: Path, kills: int) -> None:
    struck(postgres_to_postgres(server, tmp_path, kills, OnSpark, LONGEST))
