"""Systems around a job that is killed: each is fed, and says by its own client whether all of it is in, once."""

from __future__ import annotations

import json
import random
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from connectors.kafka_cluster import Cluster

FAR = 10**9
"""A time behind all others, with which an input ends."""
FEED = {"delta.enableChangeDataFeed": "true"}


def iceberg_rows(place: Path, table: str) -> list[dict[str, Any]]:
    """By pyiceberg's own scan."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        catalog = load_catalog("everwhen", type="sql", uri=f"sqlite:///{place}/catalog.db")
        try:
            return list(catalog.load_table(table).scan().to_arrow().to_pylist())
        except NoSuchTableError:
            return []


def delta_rows(path: Path) -> list[dict[str, Any]]:
    """By delta-rs."""
    return list(DeltaTable(str(path)).to_pyarrow_table().to_pylist()) if (path / "_delta_log").exists() else []


def net(changes: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What changes that were appended leave."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in changes:
        values = tuple(value for name, value in row.items() if name not in ("_epoch", "_sequence", "op"))
        found[values] += 1 if row["op"] in ("insert", "update_postimage") else -1
    return +found


class Bids:
    """Rows with a time, of which the best price per item is asked; each row is sent once."""

    def __init__(self, kills: int) -> None:
        self.rng, self.last = random.Random(kills), 2 * kills
        self.rows: Counter[tuple[int, int]] = Counter()

    def more(self, i: int, count: int = 10) -> list[dict[str, int]]:
        found = []
        for j in range(count):
            row = {"item": self.rng.randrange(8), "price": self.rng.randrange(1000), "ts": i * 100 + j}
            self.rows[row["item"], row["price"]] += 1
            found.append(row)
        return found

    @property
    def best(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for item, price in self.rows:
            found[item] = max(price, found.get(item, 0))
        return found


class Topic(Bids):
    """Bids in four partitions of a topic."""

    def __init__(self, kills: int, cluster: Cluster, topic: str) -> None:
        super().__init__(kills)
        self.cluster, self.topic = cluster, topic
        self.source = f"kafka('{cluster.servers}', '{topic}', disorder = '1 s')"

    def feed(self, i: int) -> None:
        for part in range(4):
            self.cluster.put(self.topic, self.more(i), part)
            if i == self.last:
                self.cluster.put(self.topic, [{"item": -1, "price": -1, "ts": FAR}], part)


class Lines(Bids):
    """Bids in a file that grows, or in files of a folder."""

    def __init__(self, kills: int, place: Path, folder: bool) -> None:
        super().__init__(kills)
        self.place, self.folder = place / ("in" if folder else "in.jsonl"), folder
        self.source = f"folder('{self.place}')" if folder else f"file('{self.place}')"
        if folder:
            self.place.mkdir()

    def feed(self, i: int) -> None:
        lines = [{"vs": row.pop("ts"), "row": row} for row in self.more(i, 40)]
        ends: list[dict[str, Any]] = [{"op": "cti", "t": i * 100 + 50 if i < self.last else None}]
        text = "".join(json.dumps(line) + "\n" for line in [*lines, *ends])
        if self.folder:
            (self.place / f".{i:06d}").write_text(text)
            (self.place / f".{i:06d}").rename(self.place / f"{i:06d}.jsonl")
        else:
            with self.place.open("a") as file:
                file.write(text)


class Table:
    """A table of PostgreSQL whose rows replace each other; every version of a row has a name of its own."""

    def __init__(self, kills: int, server: str, table: str) -> None:
        self.rng, self.client, self.table = random.Random(kills), psycopg.connect(server, autocommit=True), table
        self.client.execute(f"CREATE TABLE {table} (item bigint PRIMARY KEY, name text)")
        self.now: dict[int, str] = {}
        self.over: list[tuple[int, str]] = []

    def feed(self, i: int) -> None:
        for j in range(10):
            with self.client.transaction():
                for item in self.rng.sample(range(20), 2):
                    if item in self.now:
                        self.over.append((item, self.now.pop(item)))
                    if self.rng.random() < 0.3:
                        self.client.execute(f"DELETE FROM {self.table} WHERE item = %s", [item])
                        continue
                    self.now[item] = f"{i} {j} {item}"
                    self.client.execute(
                        f"INSERT INTO {self.table} VALUES (%s, %s) "
                        "ON CONFLICT (item) DO UPDATE SET name = excluded.name",
                        [item, self.now[item]],
                    )
            time.sleep(0.003)  # versions of a row live for a tick at least
        if not i:
            self.over = []  # of what was before the first start the job has seen the last versions only

    def rows(self, table: str) -> list[Any]:
        if self.client.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            return []
        return self.client.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()


class Lake:
    """A Delta table whose rows replace each other, and one that is appended to."""

    def __init__(self, kills: int, place: Path) -> None:
        self.rng, self.place, self.last = random.Random(kills), place, 2 * kills
        self.now: dict[int, int] = {}
        self.added: Counter[int] = Counter()
        empty = pa.table({"item": pa.array([], pa.int64()), "price": pa.array([], pa.int64())})
        write_deltalake(str(place / "prices"), empty, configuration=FEED)
        empty = pa.table({"item": pa.array([], pa.int64()), "ts": pa.array([], pa.int64())})
        write_deltalake(str(place / "sales"), empty, configuration=FEED)

    def feed(self, i: int) -> None:
        gone = self.rng.randrange(20)
        DeltaTable(str(self.place / "prices")).delete(f"item = {gone}")
        self.now.pop(gone, None)
        put = {item: self.rng.randrange(1000) for item in self.rng.sample(range(20), 6)}
        table = DeltaTable(str(self.place / "prices"))
        rows = pa.table({"item": pa.array(put, pa.int64()), "price": pa.array(put.values(), pa.int64())})
        names = {name: f"s.{name}" for name in ("item", "price")}
        merger = table.merge(rows, "t.item = s.item", source_alias="s", target_alias="t")
        merger.when_matched_update(names).when_not_matched_insert(names).execute()
        self.now |= put
        items = [10 * i + j for j in range(10)]
        self.added.update(items)
        ends = [-1] if i == self.last else []
        rows = pa.table({"item": pa.array([*items, *ends]), "ts": pa.array([*items, *[FAR for _ in ends]])})
        write_deltalake(str(self.place / "sales"), rows, mode="append")
