"""Generated queries on Spark, many in one job, judged by DuckDB at every instant; `make explore` has more."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from generated.cases import Tally
from generated.on_spark import judged
from generated.reproduction import shown


def test_generated_queries_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    tally = Tally()
    judged(spark, "ci", 3, tmp_path, tally)
    assert not tally.failures, "\n\n".join(
        shown(each.case.alone(each.at), each.what, each.seed) for each in tally.failures
    )
    assert tally.queries["spark: ran"] >= 2, tally.queries
