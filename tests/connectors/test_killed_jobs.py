"""Jobs in process between systems, killed with SIGKILL: nothing lost, nothing doubled, by the systems' own clients."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.job_kills import InProcess, Running, kill_jobs
from connectors.kafka_cluster import Cluster
from connectors.killed_systems import Lake, Table, Topic, delta_rows, iceberg_rows, net

FEW, MANY = 3, 100
LONGEST = 2.0
Start = Callable[[str, Path, float], Running]


def topic_to_iceberg(cluster: Cluster, place: Path, kills: int) -> None:
    bids = Topic(kills, cluster, f"to-iceberg-{kills}")
    where = f"'sqlite:///{place}/catalog.db', warehouse = 'file://{place}/warehouse'"
    text = f"""
        CREATE STREAM Bid (item BIGINT, price BIGINT, ts BIGINT) ORDERED BY ts SOURCE {bids.source};
        CREATE STREAM Best AS
            SELECT item, MAX(price) AS price FROM Bid WINDOW(UNBOUNDED) WHERE price >= 0 GROUP BY item;
        CREATE SINK lines INTO iceberg('shop.lines', {where}) AS SELECT item, price FROM Bid;
        CREATE SINK best FROM Best INTO iceberg('shop.best', {where}, form = 'upsert');
        CREATE SINK changes FROM Best INTO iceberg('shop.changes', {where}, form = 'retract')"""

    def written() -> tuple[Counter[tuple[int, int]], dict[int, int], Counter[tuple[int, ...]]]:
        lines = Counter((row["item"], row["price"]) for row in iceberg_rows(place, "shop.lines"))
        best = {row["item"]: row["price"] for row in iceberg_rows(place, "shop.best")}
        return lines, best, net(iceberg_rows(place, "shop.changes"))

    def wanted() -> tuple[Counter[tuple[int, int]], dict[int, int], Counter[tuple[int, ...]]]:
        return bids.rows, bids.best, Counter(bids.best.items())

    print(kill_jobs(InProcess, text, place / "state", kills, bids.feed, lambda: written() == wanted(), LONGEST))
    assert written() == wanted()
    assert len(iceberg_rows(place, "shop.best")) == len(bids.best)


def postgres_to_postgres(
    server: str, place: Path, kills: int, how: Start = InProcess, longest: float = LONGEST
) -> dict[str, Any]:
    """Its state is the checkpoint's; the table at rest lets its versions become final."""
    table = Table(kills, server, f"stock_{kills}")
    text = f"""
        CREATE STREAM Stock (item BIGINT, name TEXT)
            SOURCE postgres('{server}', '{table.table}', key = 'item', slot = 'kills_{kills}', heartbeat = '50 ms');
        CREATE SINK copy FROM Stock INTO postgres('{server}', 'copy_{kills}');
        CREATE SINK changes FROM Stock INTO delta('{place}/changes', form = 'retract');
        CREATE SINK versions FROM Stock INTO file('{place}/versions.jsonl', form = 'append')"""

    def versions() -> list[tuple[int, str]]:
        file = place / "versions.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return sorted((line["item"], line["name"]) for line in lines)

    def is_done() -> bool:
        return (
            table.rows(f"copy_{kills}") == table.rows(table.table)
            and net(delta_rows(place / "changes")) == Counter(table.now.items())
            and versions() == sorted(table.over)
        )

    try:
        happened = kill_jobs(how, text, place / "state", kills, table.feed, is_done, longest)
        print(happened)
        assert is_done() and table.rows(f"copy_{kills}") == sorted(table.now.items())
        table.client.execute("SELECT pg_drop_replication_slot(%s)", [f"kills_{kills}"])
        return happened
    finally:
        table.client.close()


def delta_to_delta(place: Path, kills: int, how: Start = InProcess, longest: float = LONGEST) -> dict[str, Any]:
    lake = Lake(kills, place)
    text = f"""
        CREATE STREAM Price (item BIGINT, price BIGINT) SOURCE delta('{place}/prices', key = 'item');
        CREATE STREAM Sale (item BIGINT, ts BIGINT) ORDERED BY ts SOURCE delta('{place}/sales', disorder = '100 ms');
        CREATE SINK copy FROM Price INTO delta('{place}/copy', form = 'upsert');
        CREATE SINK sold FROM Sale INTO delta('{place}/sold')"""

    def written() -> tuple[dict[int, int], Counter[int]]:
        return (
            {row["item"]: row["price"] for row in delta_rows(place / "copy")},
            Counter(row["item"] for row in delta_rows(place / "sold")),
        )

    happened = kill_jobs(
        how, text, place / "state", kills, lake.feed, lambda: written() == (lake.now, lake.added), longest
    )
    print(happened)
    assert written() == (lake.now, lake.added) and len(delta_rows(place / "copy")) == len(lake.now)
    return happened


def test_from_a_topic_to_iceberg(cluster: Cluster, tmp_path: Path) -> None:
    topic_to_iceberg(cluster, tmp_path, FEW)


def test_from_postgres_to_postgres(server: str, tmp_path: Path) -> None:
    postgres_to_postgres(server, tmp_path, FEW)


def test_from_delta_to_delta(tmp_path: Path) -> None:
    delta_to_delta(tmp_path, FEW)


@pytest.mark.slow
def test_from_a_topic_to_iceberg_often(cluster: Cluster, tmp_path: Path) -> None:
    topic_to_iceberg(cluster, tmp_path, MANY)


@pytest.mark.slow
def test_from_postgres_to_postgres_often(server: str, tmp_path: Path) -> None:
    postgres_to_postgres(server, tmp_path, MANY)


@pytest.mark.slow
def test_from_delta_to_delta_often(tmp_path: Path) -> None:
    delta_to_delta(tmp_path, MANY)
