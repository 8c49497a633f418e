"""Promises about data on Spark: closed auctions by punctuation alone, in buckets, over restarts, and bad input."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType
from spark_epochs import read_epochs, write_epochs

import everwhen as ew
from everwhen.errors import InputError, QueryError
from everwhen.model.element import Element, Insert, Punct
from everwhen.model.elements import ElementBatch, batch_of
from everwhen.model.history import History, first_difference
from everwhen.model.parquet import read_elements
from everwhen.model.patterns import show_promise
from everwhen.model.promise_set import PromiseSet
from everwhen.model.punctuation import Promise, Range
from everwhen.model.time import INF
from everwhen.model.validity import check
from everwhen.runtime.files import run_files
from everwhen.runtime.local import LocalRuntime
from everwhen.runtime.spark.files import run_files_on_spark

ITEM = ew.source("Item", {"item": "int64", "seller": "string"})
BID = ew.source("Bid", {"item": "int64", "price": "int64"})
CLOSING = ew.sql(
    "SELECT Item.item, MAX(Bid.price) AS price FROM Item, Bid WHERE Item.item = Bid.item GROUP BY Item.item", ITEM, BID
)
SELLERS = (
    ITEM.join(BID, on="item")
    .group_by("item", "seller").agg(price=ew.max("price"))
    .group_by("seller").agg(earned=ew.sum("price"))
)  # fmt: skip

Epoch = dict[str, list[Element]]


def closed(name: str, *items: int) -> list[Element]:
    return [Punct(Promise.constants({name: item})) for item in items]


def auctions(count: int, seed: int = 1, at_once: int = 5) -> list[Epoch]:
    """Auctions open, get bids and close, some of them at a time; who is sold by whom is promised at the end."""
    rng = random.Random(seed)
    running: list[int] = []
    epochs: list[Epoch] = []
    now, opened = 0, 0
    while opened < count or running:
        items: list[Element] = []
        bids: list[Element] = []
        while len(running) < at_once and opened < count:
            now += 1
            items.append(Insert(now, INF, {"item": opened * 7, "seller": f"s{opened % 3}"}))
            items += closed("item", opened * 7)
            running.append(opened * 7)
            opened += 1
        for _ in range(6):
            if running:
                now += 1
                bids.append(Insert(now, INF, {"item": rng.choice(running), "price": rng.randrange(1000)}))
        if running and epochs:
            over = running.pop(rng.randrange(len(running)))
            bids += closed("item", over)
        epochs.append({"Item": items, "Bid": bids})
    return epochs


def locally(query: ew.Stream, epochs: list[Epoch], emit: str = "final") -> list[Element]:
    runtime = LocalRuntime(query, emit)
    sources = {"Item": ITEM, "Bid": BID}
    found: list[Element] = []
    for epoch in epochs:
        batches = {name: batch_of(elements, sources[name].schema) for name, elements in epoch.items()}
        found += runtime.push(batches)["out"].elements()
    assert runtime.state_size().rows == 0
    return found


def reading(spark: SparkSession, folder: Path, source: ew.Stream) -> DataFrame:
    """The files of a stream with a column for the patterns of promises."""
    plain = read_epochs(spark, folder, source.schema)
    fields = StructType([*plain.schema.fields]).add("_match", StringType())
    return spark.readStream.schema(fields).option("maxFilesPerTrigger", 1).parquet(str(folder))


class Job:
    """A query over the epochs' files, started as often as wanted."""

    def __init__(self, spark: SparkSession, place: Path, query: Any, **options: Any) -> None:
        self.spark, self.place, self.query, self.options = spark, place, query, options
        self.given = 0

    def give(self, epochs: list[Epoch]) -> None:
        for name, source in (("Item", ITEM), ("Bid", BID)):
            batches = [batch_of(epoch.get(name, []), source.schema) for epoch in epochs]
            write_epochs(self.place / name, batches, self.given)
        self.given += len(epochs)

    def run(self) -> Any:
        frames = {name: reading(self.spark, self.place / name, s) for name, s in (("Item", ITEM), ("Bid", BID))}
        handle = ew.spark.start(
            self.query, frames, sink=str(self.place / "answers"), checkpoint=str(self.place / "checkpoint"),
            trigger="available", **self.options,
        )  # fmt: skip
        handle.await_termination()
        return handle

    def answers(self) -> list[Element]:
        return [each for batch in self.batches() for each in batch.elements()]

    def batches(self) -> list[ElementBatch]:
        return list(ew.spark.read_changelog(str(self.place / "answers")))


def said(elements: list[Element], schema: Any) -> set[str]:
    """All that the promises of a stream say, in one form."""
    together = PromiseSet(schema)
    together.add(each.promise for each in elements if isinstance(each, Punct))
    return set(map(show_promise, together))


@pytest.mark.parametrize(("buckets", "emit"), [(1, "final"), (2, "final"), (2, "current")])
def test_closing_prices_are_those_of_one_process_also_over_a_restart(
    spark: SparkSession, tmp_path: Path, buckets: int, emit: str
) -> None:
    epochs = auctions(12)
    expected = locally(CLOSING, epochs, emit)
    job = Job(spark, tmp_path, CLOSING, buckets=buckets, emit=emit, snapshot_every=3)
    job.give(epochs[:8])
    first = job.run()
    assert first.status == "stopped", first.last_error
    assert sum(one.rows for one in first.state()) > 0
    job.give(epochs[8:])
    handle = job.run()
    found = job.answers()
    assert first_difference(History.of(expected), History.of(found)) is None
    assert said(found, CLOSING.schema) == said(expected, CLOSING.schema) != set()
    assert sum(one.rows for one in handle.state()) == 0
    report = check(job.batches())
    assert report.valid
