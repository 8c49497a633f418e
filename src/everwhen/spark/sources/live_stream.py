"""An input of a run that goes on (`LiveInput`) as a streaming DataFrame: each connector is written once.

An offset is a position of the input, as JSON.  Rows are elements as the outside contract has them, and CTIs are rows
among them.  The input is read where Spark plans a batch, in one Python process of the driver's; what lies between two
offsets is read again in the same way after a failure.  When Spark says that a batch is done, the input is told so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import LongType, StringType, StructField, StructType

from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live_inputs import LiveInput
from everwhen.errors import QueryError
from everwhen.spark.sources.changelog_stream import record_batch
from everwhen.spark.sources.source import CtiRows, SparkSource
from everwhen.spark.translate.expressions import spark_type
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import CTI, ElementBatch, batch_of

FORMAT: Final = "everwhen_connector"
MOST: Final = 100_000
"""So many elements come together at most."""
Opener = Callable[[], LiveInput]
ELEMENTS: Final = SparkSource("vs", end="ve", op="op", vnew="vnew", progress=CtiRows())
"""What the columns of such a frame mean."""


def live_frame(spark: SparkSession, opener: Opener, most: int = MOST) -> DataFrame:
    """The input that `opener` opens; it is called in other processes, so it must be possible to pickle it."""
    text = base64.b64encode(cloudpickle.dumps(opener)).decode()  # type: ignore[no-untyped-call]
    spark.dataSource.register(LiveSource)
    return spark.readStream.format(FORMAT).options(input=text, most=str(most)).load()


class LiveSource(DataSource):
    """The format `everwhen_connector`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return element_columns(_opened(self.options["input"]).given.schema)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return LiveStreamReader(self.options["input"], schema, int(self.options["most"]))


def element_columns(schema: Schema) -> StructType:
    """The columns of elements with such a payload."""
    fields = [StructField("op", StringType()), *(StructField(name, LongType()) for name in RESERVED[1:])]
    for field in schema:
        carried = spark_type(field.type)
        if carried is None:
            raise QueryError(f"the column {field.name!r} is of type {field.type}, which Spark cannot carry; cast it")
        if field.name in RESERVED:
            raise QueryError(f"a column named {field.name!r} has no place among elements; rename it")
        fields.append(StructField(field.name, carried))
    return StructType(fields)


def _opened(text: str) -> LiveInput:
    opener: Opener = cloudpickle.loads(base64.b64decode(text))
    return opener()


class LiveStreamReader(SimpleDataSourceStreamReader):
    """Reads on from offset to offset."""

    def __init__(self, text: str, schema: StructType, most: int) -> None:
        self._text, self._schema, self._most = text, schema, most
        self._feed: LiveInput | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feed": None}

    def initialOffset(self) -> dict[str, Any]:
        feed = self._feed = _opened(self._text)
        begin = getattr(feed, "begin", None)
        if begin is not None:
            begin()
        return _offset(feed)

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        if self._feed is None or _offset(self._feed) != start:
            self._close()
            self._feed = _opened(self._text)
            self._feed.seek(json.loads(start["position"]))
        if start["ended"]:
            return iter(()), start
        batch = self._feed.take(self._most)
        return iter(self._batches(batch, self._feed.ended)), _offset(self._feed)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        feed = _opened(self._text)
        try:
            feed.seek(json.loads(start["position"]))
            batch = feed.take_to(json.loads(end["position"])) if start["position"] != end["position"] else None
            return iter(self._batches(batch, end["ended"] and not start["ended"]))
        finally:
            feed.close()

    def commit(self, end: dict[str, Any]) -> None:
        if self._feed is not None:
            self._feed.leave_word("spark", json.loads(end["position"]), NEVER)

    def _batches(self, batch: ElementBatch | None, ends: bool) -> list[pa.RecordBatch]:
        """Elements as rows; the end of an input is a promise of everything."""
        found = [] if batch is None or not len(batch) else [batch]
        if ends and not (found and bool(((found[0].op == CTI) & (found[0].vs == INF)).any())):
            found.append(batch_of([Cti(INF)], _opened(self._text).given.schema))
        return [record_batch(each, self._schema, False) for each in found]

    def _close(self) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed = None


def _offset(feed: LiveInput) -> dict[str, Any]:
    return {"position": json.dumps(feed.position, sort_keys=True), "ended": feed.ended}
