"""Any source on Spark: a `LiveInput` as a streaming DataFrame, by a data source in Python.

**Guarantee.**  An offset is a position of the input, and what lies between two positions is always the same
(`live_inputs.py`), so an epoch that is run again reads the same rows.  The driver's reader takes elements only to find
out how far there is something; the task reads them again from position to position.  Rows are elements as the outside
contract has them; the end of an input is a promise of everything.  Promises about data (patterns) are left out.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from everwhen.connectors.options import Options
from everwhen.connectors.registry import SourceConnector, SourcePlace, SparkInput, source_connector
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live_inputs import LiveInput
from everwhen.errors import QueryError
from everwhen.spark.sources.changelog_stream import record_batch
from everwhen.spark.sources.source import SparkSource
from everwhen.spark.translate.expressions import spark_type
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import batch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = "everwhen_live"
_TIMES: Final = ("_everwhen_op", "_everwhen_vs", "_everwhen_ve", "_everwhen_vnew")
MOST: Final = 200_000
"""So many elements make an epoch at most."""


def spark_input(
    connector: SourceConnector, options: Options, place: SourcePlace, session: SparkSession, reader: str
) -> SparkInput:
    """A source as Spark reads it: by its own means, or through its `LiveInput`.  `reader`: by which name it is told how
    far it is never asked again."""
    if connector.spark is not None:
        return connector.spark(options, place, session)
    given = {"of": connector.name, "reader": reader}
    given["place"] = base64.b64encode(pickle.dumps((place, dict(options.values_), options.declared))).decode()
    LiveSource(given).schema()
    session.dataSource.register(LiveSource)
    frame = session.readStream.format(FORMAT).options(**given).load()
    op, vs, ve, vnew = _TIMES
    source = SparkSource(vs, end=ve, op=op, vnew=vnew, columns=place.schema.names)
    return SparkInput(frame.toDF(*_TIMES, *place.schema.names), source)


class LiveSource(DataSource):
    """The format `everwhen_live`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _given(self) -> tuple[SourcePlace, Options]:
        place, values, declared = pickle.loads(base64.b64decode(self.options["place"]))
        return place, Options(self.options["of"], values, declared)

    def schema(self) -> StructType:
        place, _ = self._given()
        fields = [StructField("op", StringType()), *(StructField(name, LongType()) for name in ("vs", "ve", "vnew"))]
        for i, field in enumerate(place.schema):
            carried = spark_type(field.type)
            if carried is None:
                raise QueryError(
                    f"the column {field.name!r} of {place.name} is of type {field.type}, which Spark cannot carry; "
                    "leave it out of the declaration, declare another type, or start the job with --engine local"
                )
            fields.append(StructField(f"c{i}", carried))
        return StructType(fields)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        place, options = self._given()
        return LiveReader(self.options["of"], options, place, schema, self.options["reader"])


class _Span(InputPartition):
    """What lies between two offsets."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        super().__init__(json.dumps([start, end]))
        self.start, self.end = start, end


class LiveReader(DataSourceStreamReader):
    """Offsets are `{"at": position, "ended": whether nothing can follow}`."""

    def __init__(self, of: str, options: Options, place: SourcePlace, schema: StructType, reader: str) -> None:
        self._of, self._options, self._place = of, options, place
        self._schema, self._reader = schema, reader
        self._input: LiveInput | None = None

    def _open(self) -> LiveInput:
        return source_connector(self._of).open(self._options, self._place)

    def _held(self) -> LiveInput:
        self._input = self._input or self._open()
        return self._input

    def initialOffset(self) -> dict[str, Any]:
        return {"at": self._open().position, "ended": False}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(MOST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As far as there is something, at most the limit."""
        if start["ended"]:
            return start
        input_ = self._held()
        if input_.position != start["at"]:
            input_.seek(start["at"])
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else MOST
        taken = 0
        while taken < most and (found := input_.take(most - taken)) is not None:
            taken += len(found)
        return {"at": input_.position, "ended": input_.ended}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [_Span(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Span)
        start, end = partition.start, partition.end
        input_ = self._open()
        try:
            if start["at"] != end["at"]:
                input_.seek(start["at"])
                found = input_.take_to(end["at"])
                if found is not None and len(found):
                    yield record_batch(found, self._schema, False)
            if end["ended"] and not start["ended"]:
                yield record_batch(batch_of([Cti(INF)], self._place.schema), self._schema, False)
        finally:
            input_.close()

    def commit(self, end: dict[str, Any]) -> None:
        """What lies before is never asked for again."""
        input_ = self._held()
        if input_.is_there:
            input_.leave_word(self._reader, end["at"], NEVER)

    def stop(self) -> None:
        if self._input is not None:
            self._input.close()
