"""A query over Spark's own Kafka source, in a process that may be killed: `python -m … JARS PLACE SERVERS TOPIC`."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions as F

import everwhen as ew
from connectors.spark_jars.asked import BOUND, answer, report, session

AT_A_TIME = 50
"""So many messages make an epoch at most, in all partitions: a feed is several epochs."""


def main(jars: str, place: Path, servers: str, topic: str) -> None:
    spark = session(jars)
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    raw = kafka.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", AT_A_TIME).load()
    bid = F.from_json(F.col("value").cast("string"), "at timestamp, item string, price double")
    frame = raw.select(bid.alias("bid")).select("bid.*")
    report(place, answer(frame, ew.spark.SparkSource("at", progress=ew.spark.Disorder(BOUND)), place))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
