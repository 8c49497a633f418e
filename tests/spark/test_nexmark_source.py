"""The rows between two offsets are the generator's, however they are cut, paced, restarted or read again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.generator import SCHEMAS, NexmarkGenerator
from everwhen.demo.nexmark.spark_source import NexmarkReader, NexmarkStreamReader, Reading, options, register
from everwhen.errors import QueryError
from everwhen.formats.parquet import elements_of_table
from everwhen.spark.sources.source import SparkSource, describe
from everwhen.stream.history import History

TROUBLED = NexmarkConfig(late=0.1, corrections=0.05, duplicates=0.05, rate=2_000, auction_length=3_600_000)
EVENTS = 40_000
Row = tuple[object, ...]


def rows(stream: str, start: int = 0, stop: int | None = None) -> list[Row]:
    """What the generator says, as the contract's columns."""
    generator = NexmarkGenerator(TROUBLED)
    batch = generator.read(start, generator.last_slot(EVENTS) if stop is None else stop, EVENTS)[stream]
    names = ("insert", "adjust", "cti")
    payload = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    times = zip(batch.op.tolist(), batch.vs.tolist(), batch.ve.tolist(), batch.vnew.tolist(), payload, strict=True)
    return [
        (names[op], vs, None if op == 2 else ve, vnew if op == 1 else None, *values)
        for op, vs, ve, vnew, values in times
    ]


def closing(stream: str) -> Row:
    return ("cti", *(None,) * (3 + len(SCHEMAS[stream])))


def read(reader: NexmarkReader | NexmarkStreamReader, pieces: list[object]) -> list[Row]:
    table = pa.Table.from_batches([batch for piece in pieces for batch in reader.read(piece)])  # type: ignore[arg-type]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "which stream"),
        ({"stream": "bids"}, "no stream 'bids'; there are person, openauction"),
        ({"stream": "bid", "sed": "3"}, "no option 'sed'; did you mean 'seed'"),
        ({"stream": "bid", "xyz": "3"}, "no option 'xyz'; there are seed"),
        ({"stream": "bid", "config": "3"}, "no option 'config'"),
        ({"stream": "bid", "rate": "fast"}, "rate is a whole number, not 'fast'"),
        ({"stream": "bid", "late": "often"}, "late is a number, not 'often'"),
        ({"stream": "bid", "late": "2"}, "late is a share"),
        ({"stream": "bid", "events": "-1"}, "events is at least 0"),
        ({"stream": "bid", "rows_per_second": "nan"}, "rows_per_second is at least 0"),
        ({"stream": "bid", "rows_per_batch": "0"}, "rows_per_batch is at least 1"),
        ({"stream": "bid", "auction_length": "10", "rate": "100"}, "make auction_length longer"),
    ],
)
def test_wrong_options(given: dict[str, str], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        Reading.of(given)


def test_options_carry_a_configuration() -> None:
    texts = options("auction", TROUBLED, events=10, rows_per_second=2.5)
    assert Reading.of(texts) == Reading("OpenAuction", TROUBLED, events=10, rows_per_second=2.5)
    names = ["person", "Auction", "open_auction", "CLOSED_AUCTION", "Bid"]
    found = [Reading.of({"stream": name, "Rate": "10_000"}).stream for name in names]
    assert found == ["Person", "OpenAuction", "OpenAuction", "ClosedAuction", "Bid"]


# -- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", list(SCHEMAS))
def test_any_cut_gives_the_same_rows_in_the_same_order(stream: str) -> None:
    whole = rows(stream)
    for partitions in (1, 3):
        reader = NexmarkReader(Reading(stream, TROUBLED, events=EVENTS, partitions=partitions))
        pieces = reader.partitions()
        assert len(pieces) == partitions
        assert read(reader, list(pieces)) == whole


def test_epochs_replay_and_end_with_infinity() -> None:
    reading = Reading("Bid", TROUBLED, events=EVENTS, rows_per_batch=17_000, partitions=2)
    first, again = NexmarkStreamReader(reading), NexmarkStreamReader(reading)
    offset, seen, cuts = first.initialOffset(), [], 0
    while True:
        end = first.latestOffset(offset, first.getDefaultReadLimit())
        if end == offset:
            break
        epoch = read(first, list(first.partitions(offset, end)))
        assert epoch == read(again, list(again.partitions(offset, end)))
        seen += epoch
        offset, cuts = end, cuts + 1
    assert cuts == 4
    assert seen == [*rows("Bid"), closing("Bid")]
    assert first.partitions(offset, offset) == []


def test_a_paced_stream_follows_the_clock_and_goes_on_where_it_stopped() -> None:
    now = [100.0]
    reading = Reading("Bid", events=5_000, rows_per_second=1_000.0, rows_per_batch=400)
    reader = NexmarkStreamReader(reading, clock=lambda: now[0])
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"slot": 3_000}, limit) == {"slot": 3_000}
    now[0] += 0.25
    assert reader.latestOffset({"slot": 3_000}, limit) == {"slot": 3_250}
    now[0] += 1.0
    assert reader.latestOffset({"slot": 3_250}, limit) == {"slot": 3_650}
    assert reader.latestOffset({"slot": 3_250}, ReadAllAvailable()) == {"slot": 4_250}
    now[0] += 100.0
    assert reader.latestOffset({"slot": 4_250}, ReadAllAvailable()) == {"slot": 5_000}
    assert reader.latestOffset({"slot": 5_000}, limit) == {"slot": 5_000}


def test_what_is_available_now() -> None:
    bounded = NexmarkStreamReader(Reading("Bid", events=5_000, rows_per_second=1.0))
    bounded.prepareForTriggerAvailableNow()
    assert bounded.latestOffset({"slot": 0}, ReadAllAvailable()) == {"slot": 5_000}
    endless = NexmarkStreamReader(Reading("Bid", rows_per_batch=70))
    assert endless.latestOffset({"slot": 10}, ReadAllAvailable()) == {"slot": 80}
    assert endless.latestOffset({"slot": 10}, ReadMaxRows(30)) == {"slot": 40}
    with pytest.raises(QueryError, match="give the option events"):
        endless.prepareForTriggerAvailableNow()
    with pytest.raises(QueryError, match="give the option events"):
        NexmarkReader(Reading("Bid")).partitions()


def test_the_first_epochs_may_be_small() -> None:
    reader = NexmarkStreamReader(Reading("Bid", rows_per_batch=1_000, first_rows=100))
    slot, sizes = {"slot": 0}, []
    for _ in range(4):
        following = reader.latestOffset(slot, reader.getDefaultReadLimit())
        sizes.append(following["slot"] - slot["slot"])
        slot = following
    assert sizes == [100, 200, 600, 1_000]


# -- in Spark --------------------------------------------------------------------------------------------------------


def test_a_frame_holds_the_stream(spark: SparkSession) -> None:
    register(spark)
    df = spark.read.format("nexmark").options(**options("bid", TROUBLED, events=EVENTS, partitions=3)).load()
    assert df.schema.simpleString() == (
        "struct<op:string,vs:bigint,ve:bigint,vnew:bigint,itemID:bigint,bid_price:double,bidderID:bigint>"
    )
    assert describe(df.schema, "Bid") == SparkSource("vs", end="ve", op="op", vnew="vnew")
    assert df.rdd.getNumPartitions() == 3
    assert Counter(map(tuple, df.collect())) == Counter(rows("Bid"))


@pytest.mark.slow
def test_a_stream_that_is_stopped_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    epochs: dict[int, list[Row]] = {}

    def keep(frame: object, epoch: int) -> None:
        epochs.setdefault(epoch, []).extend(map(tuple, frame.collect()))  # type: ignore[attr-defined]
        if epoch == 1 and len(runs) == 1:
            raise RuntimeError("the machine goes down")

    texts = options("bid", TROUBLED, events=EVENTS, rows_per_batch=20_000, partitions=2)
    runs: list[int] = []
    for attempt in range(2):
        runs.append(attempt)
        writer = spark.readStream.format("nexmark").options(**texts).load().writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(600)
            assert attempt == 1
        except Exception as stopped:
            assert attempt == 0, stopped
            assert "the machine goes down" in str(stopped)
    assert sorted(epochs) == [0, 1, 2]
    twice, once = epochs[1], epochs[1][: len(epochs[1]) // 2]
    assert Counter(once) == Counter(twice[len(once) :])
    assert Counter(epochs[0] + once + epochs[2]) == Counter([*rows("Bid"), closing("Bid")])


def test_the_history_does_not_depend_on_the_trouble() -> None:
    """The rows are valid elements: trouble and its correction leave the history of the same run without either."""
    calm = NexmarkConfig(rate=2_000, auction_length=3_600_000)
    histories = []
    for config in (TROUBLED, calm):
        reading = Reading("Bid", config, events=5_000)
        table = pa.Table.from_batches(reading.batches(0, reading.last_slot or 0, closing=True))
        histories.append(History.of(elements_of_table(table, SCHEMAS["Bid"])))
    assert histories[0] == histories[1]
