"""oracle = local = Spark for the nine NEXMark queries, streaming and bounded, with late, wrong and doubled bids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Source, walk
from everwhen.demo.nexmark import SCHEMAS, STREAMS, NexmarkConfig, NexmarkGenerator
from everwhen.demo.nexmark import queries as nexmark
from everwhen.demo.nexmark.spark_source import options, register
from everwhen.engine.local import LocalRuntime
from everwhen.formats.parquet import elements_of_table, write_elements
from everwhen.reference.evaluation import evaluate
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.run_bounded import run
from everwhen.spark.api.start import start
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.spark_epochs import read_epochs, write_epochs

EVENTS = 400
CONFIG = NexmarkConfig(
    rate=50,
    auctions=4,
    bids=12,
    auction_length=6_000,
    hot_item_every=8,
    hot_items=0.3,
    active_people=6,
    late=0.1,
    corrections=0.1,
    duplicates=0.1,
    lateness=800,
    correction_delay=1_200,
    cti_interval=500,
)
CLOSING = nexmark.closing_price(CONFIG.auction_length)
QUERIES: dict[str, Stream] = {
    "q1": nexmark.currency_conversion(),
    "q2": nexmark.selection(),
    "q3": nexmark.short_auctions(2_000),
    "q4": nexmark.highest_bid(1_500),
    "q5": CLOSING,
    "q6": nexmark.hot_items(1_500),
    "q7": nexmark.average_selling_price(3, CONFIG.auction_length, CLOSING),
    "q8": nexmark.new_sellers(3_000),
    "q9": nexmark.highest_bid_tumbling(1_500),
}
INSTANTS = range(200, 8_200, 700)


def epochs_of(many: int) -> list[dict[str, ElementBatch]]:
    """The four streams in so many epochs; the last one closes them."""
    generator = NexmarkGenerator(CONFIG)
    end = generator.last_slot(EVENTS)
    cuts = [end * at // many for at in range(many + 1)]
    epochs = [generator.read(low, high, EVENTS) for low, high in pairwise(cuts)]
    for name, batch in epochs[-1].items():
        epochs[-1][name] = batch_of([*batch.elements(), ew.Cti(ew.INF)], SCHEMAS[name])
    return epochs


@pytest.fixture(scope="module")
def histories() -> dict[str, History]:
    """What the four streams mean."""
    epochs = epochs_of(1)
    return {name: History.of([epoch[name] for epoch in epochs], SCHEMAS[name]) for name in STREAMS}


@pytest.fixture(scope="module")
def expected() -> dict[str, History]:
    """What the local runtime makes of them."""
    runtime = LocalRuntime(QUERIES, emit="final")
    said: dict[str, list[ElementBatch]] = {name: [] for name in QUERIES}
    for epoch in epochs_of(7):
        for name, batch in runtime.push(epoch).items():
            said[name].append(batch)
    return {name: History.of(batches, QUERIES[name].schema) for name, batches in said.items()}


def rounded(rows: Any) -> Counter[tuple[object, ...]]:
    return Counter(
        {tuple(round(v, 6) if isinstance(v, float) else v for v in row): copies for row, copies in rows.items()}
    )


def test_the_local_runtime_answers_as_the_oracle_does(
    histories: dict[str, History], expected: dict[str, History]
) -> None:
    for name, query in QUERIES.items():
        oracle = evaluate(query.node, {s: histories[s] for s in sources_of([query])})
        assert len(expected[name]) or name == "q2", name
        for t in INSTANTS[:: 4 if name == "q7" else 1]:
            assert rounded(expected[name].snapshot(t)) == rounded(oracle.at(t)), (name, t)


def sources_of(queries: Iterable[Stream]) -> list[str]:
    read = {node.name for query in queries for node in walk(query.node) if isinstance(node, Source)}
    return [name for name in STREAMS if name in read]


def files(spark: SparkSession, place: Path, epochs: list[dict[str, ElementBatch]]) -> dict[str, DataFrame]:
    for name in STREAMS:
        write_epochs(place / name, [epoch[name] for epoch in epochs])
    return {name: read_epochs(spark, place / name, SCHEMAS[name]) for name in STREAMS}


def answers(
    inputs: dict[str, DataFrame], place: Path, emit: str, buckets: int, done: Callable[[ew.spark.Handle], None]
) -> dict[str, MemorySink]:
    """All nine queries in one start."""
    sinks = {name: MemorySink() for name in QUERIES}
    handle = start(QUERIES, inputs, sink=sinks, checkpoint=place, trigger="available", emit=emit, buckets=buckets)
    try:
        assert handle.await_termination(400)
        assert handle.status == "stopped"
        done(handle)
    finally:
        handle.stop()
    return sinks


@pytest.mark.parametrize(
    ("buckets", "many", "emit"),
    [
        pytest.param(1, 1, "ended", marks=pytest.mark.slow),
        (2, 3, "current"),
        pytest.param(5, 1, "final", marks=pytest.mark.slow),
    ],
)
def test_spark_answers_as_the_local_runtime_does(
    spark: SparkSession, tmp_path: Path, expected: dict[str, History], buckets: int, many: int, emit: str
) -> None:
    epochs = epochs_of(many)

    def check(handle: ew.spark.Handle) -> None:
        report = handle.progress
        assert report is not None and report.epoch == many - 1
        assert set(report.answered.values()) == {ew.INF} and report.holding == ()
        assert "nothing is waited for" in handle.waits_for()

    sinks = answers(files(spark, tmp_path / "in", epochs), tmp_path / "checkpoint", emit, buckets, check)
    for name, sink in sinks.items():
        out = list(sink.batches())
        report = assert_valid(out)
        assert report.insert_only or emit != "final", name
        assert list(sink.elements())[-1] == ew.Cti(ew.INF)
        assert_same_history(sink.history(), expected[name], 1e-9)


@pytest.mark.slow
def test_the_nexmark_source_feeds_the_queries(
    spark: SparkSession, tmp_path: Path, expected: dict[str, History]
) -> None:
    register(spark)
    wanted = {name: QUERIES[name] for name in ("q3", "q8")}
    inputs = {
        name: spark.readStream.format("nexmark").options(**options(name, CONFIG, events=EVENTS)).load()
        for name in sources_of(wanted.values())
    }
    sinks = {name: MemorySink() for name in wanted}
    handle = start(wanted, inputs, sink=sinks, checkpoint=tmp_path / "checkpoint", trigger="available", buckets=2)
    assert handle.await_termination(400)
    for name, sink in sinks.items():
        assert_same_history(sink.history(), expected[name], 1e-9)


def without_op(spark: SparkSession, history: History) -> DataFrame:
    batch = history.batch()
    times = [pa.array(batch.vs), pa.array(batch.ve, mask=batch.ve == ew.INF)]
    return spark.createDataFrame(pa.table([*times, *batch.columns], ["vs", "ve", *history.schema.names]))


@pytest.mark.parametrize(
    "name", [pytest.param("q3", marks=pytest.mark.slow), "q4", pytest.param("q6", marks=pytest.mark.slow), "q8"]
)  # plans of all kinds: `test_run_bounded`
def test_a_bounded_run_gives_the_same_history(
    spark: SparkSession, tmp_path: Path, expected: dict[str, History], histories: dict[str, History], name: str
) -> None:
    """Corrections in the input are netted; with `q3` and `q8` the input has none and no `op` column."""
    query = QUERIES[name]
    frames = {}
    for stream in sources_of([query]):
        path = tmp_path / f"{stream}.parquet"
        if name in ("q3", "q8"):
            frames[stream] = without_op(spark, histories[stream])
        else:
            write_elements([epoch[stream] for epoch in epochs_of(1)], path, SCHEMAS[stream])
            frames[stream] = spark.read.parquet(str(path))
    found = run(query, frames, form="history", buckets=(2, 5, 1)[int(name[1]) % 3]).toArrow()
    history = History.of(elements_of_table(found, query.schema), query.schema)
    assert_same_history(history, expected[name], 1e-9)
