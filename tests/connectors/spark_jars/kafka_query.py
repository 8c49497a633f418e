"""A query over Spark's own Kafka source, in a process that may be killed: `python -m … SERVERS TOPIC PLACE JARS`.

It goes on until there is a file `stop` in its place; then it takes what is there, and leaves a report.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import everwhen as ew

COLUMNS = {"item": "string", "price": "float64"}
BOUND = 25_000
"""By so many milliseconds rows are late at most."""
AT_A_TIME = 50
"""So many messages make an epoch at most, in all partitions: a feed is several epochs."""


def queries() -> dict[str, Any]:
    """What is asked, here and in process."""
    bids = ew.source("Bid", COLUMNS)
    recent = bids.range("30 seconds")
    best = recent.group_by("item").agg(bids=ew.count(), best=ew.max("price"))
    return {"rows": bids, "best": best, "dear": recent.where(ew.col("price") > 50).select("item").distinct()}


def main(servers: str, topic: str, place: Path, jars: str) -> None:
    spark = ew.spark.session("local[2]", **{"spark.jars": jars, "spark.driver.memory": "1g"})
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    raw = kafka.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", AT_A_TIME).load()
    bid = F.from_json(F.col("value").cast("string"), "at timestamp, item string, price double")
    frame = raw.select(bid.alias("bid")).select("bid.*")
    asked = queries()
    handle = ew.spark.start(
        asked,
        {"Bid": frame},
        sources={"Bid": ew.spark.SparkSource("at", progress=ew.spark.Disorder(BOUND))},
        sink={name: ew.spark.ChangelogSink(place / name) for name in asked},
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
    report = {"spark": spark.version, "sources": sources, "late": handle.late}
    (place / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
