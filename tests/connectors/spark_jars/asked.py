"""What is asked of bids, in process and by programs on Spark that may be killed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import everwhen as ew

COLUMNS = {"item": "string", "price": "float64"}
BOUND = 25_000
"""By so many milliseconds rows are late at most."""
WITH_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 are for large tables
    "spark.sql.shuffle.partitions": "2",
}


def queries() -> dict[str, Any]:
    """What is asked, here and in process."""
    bids = ew.source("Bid", COLUMNS)
    recent = bids.range("30 seconds")
    best = recent.group_by("item").agg(bids=ew.count(), best=ew.max("price"))
    return {"rows": bids, "best": best, "dear": recent.where(ew.col("price") > 50).select("item").distinct()}


def session(jars: str, settings: Mapping[str, str] = {}) -> SparkSession:
    return ew.spark.session("local[2]", **{"spark.jars": jars, "spark.driver.memory": "1g", **settings})


def answer(
    frame: DataFrame,
    source: Any,
    place: Path,
    more: Mapping[str, tuple[Any, Any]] = {},
) -> dict[str, Any]:
    """Answers what is asked, and more queries with sinks of their own, until there is a file `stop` in its place;
    then it takes what is there, and says what it has read."""
    asked = queries()
    sinks = {name: ew.spark.ChangelogSink(place / name) for name in asked}
    handle = ew.spark.start(
        asked | {name: query for name, (query, _) in more.items()},
        {"Bid": frame},
        sources={"Bid": source},
        sink=sinks | {name: sink for name, (_, sink) in more.items()},
        checkpoint=place / "checkpoint",
        buckets=2,
    )
    while not (place / "stop").exists():
        if handle.last_error is not None:
            raise handle.last_error
        time.sleep(0.05)
    handle.process_available()
    handle.stop()
    sources = [source["description"] for source in handle.spark_progress["sources"]]
    return {"spark": frame.sparkSession.version, "sources": sources, "late": handle.late}


def report(place: Path, told: Mapping[str, Any]) -> None:
    (place / "report.json").write_text(json.dumps(told), encoding="utf-8")
