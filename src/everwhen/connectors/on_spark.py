"""Sources on Spark: by Spark's own means, or the same input as in process, as a streaming DataFrame."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from everwhen.connectors.options import Options
from everwhen.connectors.registry import SourceConnector, SourcePlace, SparkInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_input(
    connector: SourceConnector, options: Options, place: SourcePlace, session: SparkSession, reader: str = "spark"
) -> SparkInput:
    """A source as Spark reads it.  `reader`: by which name it is told how far it is never asked again."""
    if connector.spark is not None:
        return connector.spark(options, place, session)
    from everwhen.spark.sources.live_stream import live_frame

    return SparkInput(*live_frame(session, partial(connector.open, options, place), reader))
