"""Sources on Spark: the same input as in process, as a streaming DataFrame."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from everwhen.connectors.options import Options
from everwhen.connectors.registry import OpenOnSpark, OpenSource, SourcePlace, SparkInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def on_spark(open_source: OpenSource) -> OpenOnSpark:
    """How a source is opened on Spark, by how it is opened in process."""
    return partial(_opened, open_source)


def _opened(open_source: OpenSource, options: Options, place: SourcePlace, session: SparkSession) -> SparkInput:
    from everwhen.spark.sources.live_stream import ELEMENTS, live_frame

    open_source(options, place)  # what is wrong with the options is said at once
    return SparkInput(live_frame(session, partial(open_source, options, place)), ELEMENTS)
