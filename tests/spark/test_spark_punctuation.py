"""Promises about data on Spark: closed auctions by punctuation alone, in partitions, over restarts, and bad input."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

import everwhen as ew
from everwhen.core.consistency import Consistency
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF
from everwhen.engine.files.run import run_files
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError
from everwhen.formats.parquet import read_elements
from everwhen.punctuation.api import PunctuationStore, show_promise
from everwhen.spark.api.run_files import run_files_on_spark
from everwhen.stream.element import Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History, first_difference
from everwhen.stream.validity import check
from spark.spark_epochs import read_epochs, write_epochs

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
    return [Punct(Punctuation.constants({name: item})) for item in items]


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


class EpochJob:
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
    together = PunctuationStore(schema)
    together.add(each.promise for each in elements if isinstance(each, Punct))
    return set(map(show_promise, together))


@pytest.mark.parametrize(("buckets", "emit"), [pytest.param(1, "current", marks=pytest.mark.slow), (2, "final")])
def test_closing_prices_are_those_of_one_process_also_over_a_restart(
    spark: SparkSession, tmp_path: Path, buckets: int, emit: str
) -> None:
    epochs = auctions(3 * buckets, at_once=4)
    expected = locally(CLOSING, epochs, emit)
    job = EpochJob(spark, tmp_path, CLOSING, buckets=buckets, emit=emit, snapshot_every=3)
    job.give(epochs[:3])
    first = job.run()
    assert first.status == "stopped", first.last_error
    assert sum(one.rows for one in first.state()) > 0
    job.give(epochs[3:])
    handle = job.run()
    found = job.answers()
    assert first_difference(History.of(expected), History.of(found)) is None
    assert said(found, CLOSING.schema) == said(expected, CLOSING.schema) != set()
    assert sum(one.rows for one in handle.state()) == 0
    report = check(job.batches())
    assert report.valid


def by_seller() -> list[Epoch]:
    """Auctions of three sellers; that a seller has no more items is said before their last auctions close."""
    epochs = auctions(5, seed=3, at_once=4)
    for at, seller in ((-3, "s0"), (-2, "s1"), (-1, "s2")):
        epochs[at]["Item"].append(Punct(Punctuation.constants({"seller": seller})))
    return epochs


def test_what_all_buckets_promise_holds_in_the_next_stage(spark: SparkSession, tmp_path: Path) -> None:
    epochs = by_seller()
    expected = locally(SELLERS, epochs)
    job = EpochJob(spark, tmp_path, SELLERS, buckets=2, emit="final", snapshot_every=2)
    job.give(epochs[:-2])
    assert "stage 2" in job.run().explain().lower()
    job.give(epochs[-2:])
    handle = job.run()
    found = job.answers()
    assert first_difference(History.of(expected), History.of(found)) is None and len(History.of(found))
    assert said(found, SELLERS.schema) == said(expected, SELLERS.schema) == {"punct seller in ('s0', 's1', 's2')"}
    assert check(job.batches()).valid
    assert sum(one.rows for one in handle.state()) == 0


def test_an_element_that_breaks_a_promise_is_named_and_nothing_of_its_epoch_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    epochs = auctions(2, at_once=2)
    job = EpochJob(spark, tmp_path, CLOSING, buckets=2, emit="final")
    job.give(epochs)
    assert job.run().last_error is None
    before = job.answers()
    job.give([{"Bid": [Insert(99, INF, {"item": 7, "price": 5}), *closed("item", 1)]}])
    told = r"^Bid: an element that an earlier promise .* has ruled out: punct item = 7; row {'item': 7, 'price': 5} \("
    with pytest.raises(InputError, match=told):
        job.run()
    assert job.answers() == before


def lines(epochs: list[Epoch], name: str) -> str:
    """A stream as JSON lines; constants of promises and rows are numbers and texts here."""
    found = []
    for element in (each for epoch in epochs for each in epoch[name]):
        if isinstance(element, Punct):
            ((column, pattern),) = element.promise.match.items()
            found.append({"op": "punct", "match": {column: pattern.values[0]}})
        else:
            assert isinstance(element, Insert)
            found.append({"vs": element.vs, "row": element.row, "ve": None})
    return "".join(json.dumps(each) + "\n" for each in found)


def test_over_files_the_answer_and_its_promises_are_those_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    epochs = by_seller()
    inputs = {}
    for name in ("Item", "Bid"):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(lines(epochs, name))
        inputs[name] = str(path)
    # what is declared of a source is worked out by the driver: who has no more items follows from the order, too
    query = (
        ITEM.punctuate(ew.punctuation.unique("item")).join(BID, on="item").group_by("item").agg(price=ew.max("price"))
    )
    outs = {}
    for engine, run in (("local", run_files), ("spark", run_files_on_spark)):
        outs[engine] = tmp_path / f"{engine}.jsonl"
        options: dict[str, Any] = {"buckets": 2} if engine == "spark" else {}
        run(query, inputs, str(outs[engine]), emit="final", batch=15, open=True, **options)
    local, on_spark = ([e for b in read_elements(out, query.schema) for e in b.elements()] for out in outs.values())
    assert first_difference(History.of(local), History.of(on_spark)) is None and len(History.of(local))
    assert said(local, query.schema) == said(on_spark, query.schema) != set()
    assert check(read_elements(outs["spark"], query.schema)).valid


def test_schemes_are_watched_by_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    """A partition that sees a larger item knows that smaller ones are over; who is not in order is named."""
    items = ITEM.punctuate(ew.punctuation.sorted_by("item"))
    query = items.group_by("item").agg(n=ew.count())
    give = [[(i, i // 2) for i in range(8)], [(i, i // 2) for i in range(8, 20)], [(30, 1)]]
    batches = [
        batch_of([Insert(at, INF, {"item": item, "seller": "s"}) for at, item in rows], ITEM.schema) for rows in give
    ]
    options: dict[str, Any] = {
        "sink": str(tmp_path / "answers"), "checkpoint": str(tmp_path / "checkpoint"), "trigger": "available",
        "emit": "final", "buckets": 2,
    }  # fmt: skip

    def run() -> Any:
        handle = ew.spark.start(query, {"Item": read_epochs(spark, tmp_path / "Item", ITEM.schema)}, **options)
        handle.await_termination()
        return handle

    write_epochs(tmp_path / "Item", batches[:2])
    assert run().last_error is None
    found = [e for b in ew.spark.read_changelog(str(tmp_path / "answers")) for e in b.elements()]
    final = {e.row["item"]: e.row["n"] for e in found if isinstance(e, Insert) and e.ve == INF}
    assert final and set(final.values()) == {2} and max(final) < 9
    assert any(isinstance(e, Punct) for e in found)
    write_epochs(tmp_path / "Item", batches[2:], 2)
    with pytest.raises(InputError, match=r"^Item: .*item.* SORTED BY .*; row {'item': 1, 'seller': 's'}"):
        run()


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(ew.consistency(4), id="waits", marks=pytest.mark.slow),
        pytest.param(ew.consistency(3, 9, emit="final"), id="waits and forgets, final"),
    ],
)
def test_levels_that_wait_or_forget_use_promises(spark: SparkSession, tmp_path: Path, level: Consistency) -> None:
    """A promise waits while rows that it matches do, and then frees state in every partition."""
    rng = random.Random(2)
    epochs = [
        {name: sorted(elements, key=lambda e: isinstance(e, Punct)) for name, elements in epoch.items()}
        for epoch in auctions(4, at_once=4)
    ]
    epochs.append({"Bid": [Insert(200, INF, {"item": 99, "price": 5})], "Item": []})  # what waits, waits no longer
    runtime, expected = LocalRuntime(CLOSING, consistency=level), []
    for epoch in epochs:
        batches = {name: batch_of(found, {"Item": ITEM, "Bid": BID}[name].schema) for name, found in epoch.items()}
        expected += runtime.push(batches)["out"].elements()
    job = EpochJob(spark, tmp_path, CLOSING, buckets=2, consistency=level, snapshot_every=2)
    job.give([{name: rng.sample(found, len(found)) for name, found in epoch.items()} for epoch in epochs[:3]])
    assert job.run().last_error is None
    job.give(epochs[3:])
    handle = job.run()
    assert handle.last_error is None
    found = job.answers()
    assert check(job.batches()).valid
    assert first_difference(History.of(expected), History.of(found)) is None and len(History.of(found)) >= 4
    assert said(found, CLOSING.schema) == said(expected, CLOSING.schema) != set()
    assert sum(one.rows for one in handle.state()) <= 3  # the last bid, in the intake, its guard and the join


def test_a_level_watches_what_is_declared(spark: SparkSession, tmp_path: Path) -> None:
    """Schemes are watched before rows wait, in the order of epochs: afterwards they come in another one."""
    item = ITEM.punctuate(ew.punctuation.sorted_by("item"))
    query = item.group_by("item").agg(n=ew.count())
    level = ew.consistency(5)
    # later items have earlier times, so that they are let through before items of the epochs before
    rows = [[Insert(9 - 2 * at + i, INF, {"item": 3 * at + i, "seller": "s"}) for i in range(3)] for at in range(3)]
    rows.append([Insert(60, INF, {"item": 100, "seller": "s"})])
    write_epochs(tmp_path / "Item", [batch_of(epoch, item.schema) for epoch in rows])

    def run() -> Any:
        handle = ew.spark.start(
            query, {"Item": read_epochs(spark, tmp_path / "Item", item.schema)}, sink=str(tmp_path / "answers"),
            checkpoint=str(tmp_path / "checkpoint"), trigger="available", buckets=2, consistency=level,
        )  # fmt: skip
        handle.await_termination()
        return handle

    assert run().last_error is None
    found = [e for b in ew.spark.read_changelog(str(tmp_path / "answers")) for e in b.elements()]
    assert next(e.row["item"] for e in found if isinstance(e, Insert)) == 6
    assert {e.row["item"] for e in found if isinstance(e, Insert)} == set(range(9))  # the last one waits
    assert said(found, query.schema) == {"punct item <= 99"}
    write_epochs(tmp_path / "Item", [batch_of([Insert(70, INF, {"item": 1, "seller": "s"})], item.schema)], 4)
    with pytest.raises(InputError, match=r"^Item: item = 1 behind .*SORTED BY.*; row {'item': 1, 'seller': 's'}"):
        run()


def test_a_level_tells_what_is_wrong_with_a_promise(spark: SparkSession, tmp_path: Path) -> None:
    job = EpochJob(spark, tmp_path, CLOSING, buckets=2, consistency=ew.consistency(3))
    job.give([{"Bid": [Insert(1, INF, {"item": 7, "price": 5}), *closed("item", 7)]}])
    wrong = pq.read_table(tmp_path / "Bid" / "000000.parquet").to_pylist()
    wrong[-1]["_match"] = '{"nothing": 1}'
    pq.write_table(pa.Table.from_pylist(wrong[-1:]), tmp_path / "Bid" / "000001.parquet")
    with pytest.raises(InputError, match=r"^Bid: .*nothing.*"):
        job.run()
