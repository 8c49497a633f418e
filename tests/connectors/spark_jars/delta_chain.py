"""Delta's own source and sink around a query, and around a changelog: `python -m … JARS PLACE`.

    in/*.json ─▶ Delta's sink ─▶ bids ─▶ Delta's source ─▶ Everwhen ─▶ changelog ─▶ Delta's sink ─▶ answers

Each of the three is a streaming query of its own, which takes what is there.  The tables in `made` are read by Delta's
reader, and their change feeds as streams.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import everwhen as ew
from connectors.spark_jars.asked import BOUND, WITH_DELTA, queries, report, session


def into_delta(frame: DataFrame, table: Path) -> None:
    """By Delta's own sink."""
    writer = frame.writeStream.format("delta").option("checkpointLocation", f"{table}-state")
    writer.trigger(availableNow=True).start(str(table)).awaitTermination()


def chain(spark: SparkSession, place: Path) -> None:
    arriving = spark.readStream.schema("at timestamp, item string, price double").json(str(place / "in"))
    into_delta(arriving, place / "bids")
    bids = spark.readStream.format("delta").load(str(place / "bids"))
    source = ew.spark.SparkSource("at", progress=ew.spark.Disorder(BOUND))
    handle = ew.spark.start(
        queries()["best"], {"Bid": bids}, sources={"Bid": source}, sink=ew.spark.ChangelogSink(place / "best"),
        checkpoint=place / "best-state", consistency=ew.STRONG, buckets=2, trigger="available",
    )  # fmt: skip
    assert handle.await_termination()
    into_delta(ew.spark.read_changelog_stream(spark, place / "best"), place / "answers")


def lines(frame: DataFrame) -> list[Any]:
    return [json.loads(line) for line in frame.toJSON().collect()]


def streamed(spark: SparkSession, table: Path) -> list[Any]:
    """The change feed, by Delta's streaming source."""
    reader = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    name = f"feed_of_{table.name}"
    writer = reader.load(str(table)).writeStream.format("memory").queryName(name)
    writer.trigger(availableNow=True).start().awaitTermination()
    return lines(spark.table(name))


def main(jars: str, place: Path) -> None:
    spark = session(jars, WITH_DELTA)
    chain(spark, place)
    made = sorted((place / "made").glob("*")) if (place / "last").exists() else []
    report(
        place,
        {
            "read": {table.name: lines(spark.read.format("delta").load(str(table))) for table in made},
            "feeds": {table.name: streamed(spark, table) for table in made},
        },
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
