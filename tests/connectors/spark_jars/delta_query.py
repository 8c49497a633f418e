"""A query over Delta's own source, in a process that may be killed: `python -m … JARS PLACE TABLE rows|feed`.

One answer goes into a Delta table by our sink.  In the end Delta's own reader tells what is in it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import everwhen as ew
from connectors.spark_jars.asked import BOUND, WITH_DELTA, answer, queries, report, session
from everwhen.connectors.registry import SinkPlace, sink_connector, sink_options

SAID = "said"


def rows_of(spark: SparkSession, table: str) -> tuple[DataFrame, ew.spark.SparkSource]:
    """What is appended: a file is an epoch."""
    frame = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table)
    return frame, ew.spark.SparkSource("at", progress=ew.spark.Disorder(BOUND))


def feed_of(spark: SparkSession, table: str) -> tuple[DataFrame, ew.spark.SparkSource]:
    """The change feed: what was deleted or replaced was wrong, and is taken back."""
    reader = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = reader.option("maxFilesPerTrigger", 1).load(table)
    came = F.col("_change_type").isin("insert", "update_postimage")
    frame = changes.select(
        F.when(came, "insert").otherwise("adjust").alias("op"), F.when(~came, F.col("at")).alias("vnew"),
        "at", "item", "price",
    )  # fmt: skip
    return frame, ew.spark.SparkSource("at", op="op", vnew="vnew", progress=ew.spark.Disorder(BOUND))


def main(jars: str, place: Path, table: str, kind: str) -> None:
    spark = session(jars, WITH_DELTA)
    frame, source = {"rows": rows_of, "feed": feed_of}[kind](spark, table)
    best, path = queries()["best"], str(place / SAID)
    connector = sink_connector("delta")
    assert connector.elements is not None
    sink = connector.elements(sink_options(connector, (path,), {}), SinkPlace(SAID, best.schema))
    told = answer(frame, source, place, {SAID: (best, sink)})
    said = spark.read.format("delta").load(path).orderBy("_epoch", "_sequence")
    report(place, {**told, SAID: [json.loads(line) for line in said.toJSON().collect()]})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
