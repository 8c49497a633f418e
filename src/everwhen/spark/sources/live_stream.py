"""An input of a run that goes on (`LiveInput`) as a streaming DataFrame: each connector is written once.

**Guarantee.**  An offset is a position of the input, and what lies between two positions is always the same
(`engine/files/live/inputs.py`), so an epoch that is run again reads the same rows.  The input is read where Spark plans
a batch, in one Python process of the driver's, and once; only what a killed job had planned is read again, by a task.
Rows are elements as the outside contract has them; the end of an input is a promise of everything.  Promises about data
(patterns) are left out.  When Spark says that a batch is done, the input is told so.
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
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StringType, StructField, StructType

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.errors import QueryError
from everwhen.spark.sources.changelog_stream import record_batch
from everwhen.spark.sources.source import CtiRows, SparkSource
from everwhen.spark.translate.terms import carried_type
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import CTI, ElementBatch, batch_of

FORMAT: Final = "everwhen_connector"
MOST: Final = 200_000
"""So many elements make an epoch at most, about."""
TIMES: Final = ("_everwhen_op", "_everwhen_vs", "_everwhen_ve", "_everwhen_vnew")
Opener = Callable[[], LiveInput]


def live_frame(spark: SparkSession, opener: Opener, reader: str) -> tuple[DataFrame, SparkSource]:
    """The input that `opener` opens, and what the columns mean.  It is called in other processes, so it must be
    possible to pickle it.  `reader`: by which name the input is told how far it is never asked again."""
    text = base64.b64encode(cloudpickle.dumps(opener)).decode()  # type: ignore[no-untyped-call]
    given = {"input": text, "most": str(MOST), "reader": reader}
    names = _opened(text).given.schema.names
    LiveSource(given).schema()  # what is wrong is said at once
    spark.dataSource.register(LiveSource)
    frame = spark.readStream.format(FORMAT).options(**given).load()
    op, vs, ve, vnew = TIMES
    return frame.toDF(*TIMES, *names), SparkSource(vs, end=ve, op=op, vnew=vnew, columns=names, progress=CtiRows())


class LiveSource(DataSource):
    """The format `everwhen_connector`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return element_columns(_opened(self.options["input"]).given.schema)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return LiveStreamReader(self.options["input"], schema, int(self.options["most"]), self.options["reader"])


def element_columns(schema: Schema) -> StructType:
    """The columns of elements with such a payload; those of the payload are numbered, so any name is free."""
    fields = [StructField("op", StringType()), *(StructField(name, LongType()) for name in ("vs", "ve", "vnew"))]
    for i, field in enumerate(schema):
        carried = carried_type(field.type)
        if carried is None:
            raise QueryError(
                f"the column {field.name!r} is of type {field.type}, which Spark cannot carry; leave it out of the "
                "declaration, declare another type, or start the job with --engine local"
            )
        fields.append(StructField(f"c{i}", carried))
    return StructType(fields)


def _opened(text: str) -> LiveInput:
    opener: Opener = cloudpickle.loads(base64.b64decode(text))
    return opener()


class LiveStreamReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from offset to offset."""

    def __init__(self, text: str, schema: StructType, most: int, reader: str) -> None:
        self._text, self._schema, self._most, self._reader = text, schema, most, reader
        self._feed: LiveInput | None = None
        self._only_now = self._all_read = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feed": None}

    def initialOffset(self) -> dict[str, Any]:
        feed = self._feed = _opened(self._text)
        begin = getattr(feed, "begin", None)
        if begin is not None:
            begin()
        return _offset(feed)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read until there is nothing more for a moment."""
        self._only_now = True

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        if start["ended"] or self._all_read:
            return iter(()), start
        if self._feed is None or _offset(self._feed) != start:
            self._close()
            self._feed = _opened(self._text)
            self._feed.seek(json.loads(start["position"]))
        found: list[ElementBatch] = []
        while (count := sum(map(len, found))) < self._most and not self._feed.ended:
            batch = self._feed.take(self._most - count)
            if batch is None:
                self._all_read = self._only_now
                break
            found.append(batch)
        return iter(self._batches(found, self._feed.ended)), _offset(self._feed)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        feed = _opened(self._text)
        try:
            feed.seek(json.loads(start["position"]))
            batch = feed.take_to(json.loads(end["position"])) if start["position"] != end["position"] else None
            return iter(self._batches([] if batch is None else [batch], end["ended"] and not start["ended"]))
        finally:
            feed.close()

    def commit(self, end: dict[str, Any]) -> None:
        if self._feed is not None and self._feed.is_there:
            self._feed.leave_word(self._reader, json.loads(end["position"]), NEVER)

    def _batches(self, batches: list[ElementBatch], ends: bool) -> list[pa.RecordBatch]:
        """Elements as rows; the end of an input is a promise of everything."""
        found = [batch for batch in batches if len(batch)]
        if ends and not any(((batch.op == CTI) & (batch.vs == INF)).any() for batch in found):
            found.append(batch_of([Cti(INF)], _opened(self._text).given.schema))
        return [record_batch(batch, self._schema, False) for batch in found]

    def _close(self) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed = None


def _offset(feed: LiveInput) -> dict[str, Any]:
    return {"position": json.dumps(feed.position, sort_keys=True), "ended": feed.ended}
