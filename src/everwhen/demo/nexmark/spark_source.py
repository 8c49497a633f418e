"""NEXMark as a Spark data source: `spark.readStream.format("nexmark")`, replayable, in parallel, columnar.

**Guarantee.**  An offset is a slot of the generator, and the rows between two offsets are a function of the options and
of these two numbers alone: whatever the number of partitions, read again after a crash or read a year later, they are
the same rows.  The only clock is in `latestOffset`, which paces how far a stream has come; `read` has none.

Rows are elements as the outside contract has them: `op, vs, ve, vnew`, then the payload; CTIs are rows among them.  A
bounded stream (`events`) goes on until nothing is under way, and then promises infinity.  Partitions of an epoch are
read at once, so within an epoch rows have no order; the epochs are in order.

    everwhen.demo.nexmark.spark_source.register(spark)
    bids = spark.readStream.format("nexmark").options(stream="bid", rows_per_second=10_000).load()

Options: `stream` (person, auction, closed_auction, bid), every field of `NexmarkConfig`, and those of `Reading`.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.generator import SCHEMAS, STREAMS, NexmarkGenerator
from everwhen.errors import QueryError
from everwhen.stream.element_batch import ADJUST, CTI, OPS, ElementBatch

FORMAT: Final = "nexmark"
_CHUNK: Final = 1 << 17  # slots per record batch: large enough for NumPy, small enough for the cache
_SMALL: Final = 1 << 14  # slots for which another task does not pay
_SPARK_TYPES: Final[Mapping[pa.DataType, DataType]] = {
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
}
_ELEMENT: Final = (("op", pa.string()), ("vs", pa.int64()), ("ve", pa.int64()), ("vnew", pa.int64()))
_NAMES: Final = {name.lower(): name for name in STREAMS} | {"auction": "OpenAuction"}
_OPS: Final = pa.array(OPS)


@dataclass(frozen=True, slots=True)
class Reading:
    """Which stream of a configuration is read, and how.  One that exists can be read."""

    stream: str
    config: NexmarkConfig = field(default_factory=NexmarkConfig)
    events: int = 0  # so many events ever happen; 0: they never end
    rows_per_second: float = (
        0.0  # events of all four streams per second of processing time; 0: as fast as they are read
    )
    rows_per_batch: int = 1 << 20  # at most so many events of all four streams per epoch
    first_rows: int = 0  # the first epoch has at most so many, each later one twice all before it; 0: all alike
    partitions: int = 0  # tasks per epoch; 0: one per core of the driver

    def __post_init__(self) -> None:
        if self.stream not in SCHEMAS:
            raise QueryError(f"NEXMark: there is no stream {self.stream!r}; there are {', '.join(_NAMES)}")
        for name, least in (
            ("events", 0),
            ("rows_per_second", 0),
            ("rows_per_batch", 1),
            ("first_rows", 0),
            ("partitions", 0),
        ):
            if not getattr(self, name) >= least:
                raise QueryError(f"NEXMark: {name} is at least {least}, not {getattr(self, name)}")
        NexmarkGenerator(self.config)  # says what is wrong with the configuration

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Reading:
        """From the options of a data source, which are text."""
        given = {name.lower(): text for name, text in options.items()}
        stream = given.pop("stream", None)
        if stream is None:
            raise QueryError(f"NEXMark: which stream? Give the option stream: {', '.join(_NAMES)}")
        known = {f.name: f.default for cls_ in (NexmarkConfig, Reading) for f in fields(cls_)}
        known = {name: default for name, default in known.items() if name not in ("stream", "config")}
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
                raise QueryError(f"NEXMark: there is no option {name!r}{hint}")
            values[name] = _number(name, text, type(known[name]))
        config = {f.name: values.pop(f.name) for f in fields(NexmarkConfig) if f.name in values}
        return cls(_stream(stream), NexmarkConfig(**config), **values)

    @property
    def last_slot(self) -> int | None:
        """The slot at which a bounded stream is over."""
        return NexmarkGenerator(self.config).last_slot(self.events) if self.events else None

    def split(self, start: int, stop: int) -> list[Slots]:
        """Slots in consecutive pieces of about the same size, one per task."""
        wanted = self.partitions or os.cpu_count() or 1
        pieces = max(1, min(wanted, -(-(stop - start) // _SMALL)))
        cuts = [start + (stop - start) * i // pieces for i in range(pieces + 1)]
        return [Slots(low, high) for low, high in pairwise(cuts) if low < high]

    def batches(self, start: int, stop: int, closing: bool) -> Iterator[pa.RecordBatch]:
        """The rows that arrive during the slots; with `closing`, the promise of infinity after the last of all."""
        generator = NexmarkGenerator(self.config)
        for low in range(start, stop, _CHUNK):
            elements = generator.read(low, min(low + _CHUNK, stop), self.events or None)[self.stream]
            if len(elements):
                yield _record_batch(elements)
        if closing and stop == self.last_slot:
            nothing = {name: pa.nulls(1, type_) for name, type_ in _columns(self.stream)}
            yield pa.RecordBatch.from_pydict({**nothing, "op": [OPS[CTI]]}, pa.schema(_columns(self.stream)))


def _stream(name: str) -> str:
    return _NAMES.get(name.replace("_", "").lower(), name)


def _number(name: str, text: str, type_: type) -> int | float:
    try:
        return float(text) if type_ is float else int(text.replace("_", ""))
    except ValueError:
        kind = "a number" if type_ is float else "a whole number"
        raise QueryError(f"NEXMark: the option {name} is {kind}, not {text!r}") from None


def _columns(stream: str) -> list[tuple[str, pa.DataType]]:
    return [*_ELEMENT, *((column.name, column.type) for column in SCHEMAS[stream])]


def _record_batch(elements: ElementBatch) -> pa.RecordBatch:
    """Elements as the contract's columns: a CTI has no end, and only an adjust has a new one."""
    op = elements.op
    special = bool(op.any())
    ve = pa.array(elements.ve, mask=op == CTI) if special else pa.array(elements.ve)
    vnew = pa.array(elements.vnew, mask=op != ADJUST) if special else pa.nulls(len(op), pa.int64())
    arrays = [_OPS.take(pa.array(op)), pa.array(elements.vs), ve, vnew, *elements.columns]
    names = [name for name, _ in _ELEMENT]
    return pa.RecordBatch.from_arrays(arrays, [*names, *elements.schema.names])


class Slots(InputPartition):
    """The slots that one task reads."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__((start, stop))
        self.start = start
        self.stop = stop


class NexmarkSource(DataSource):
    """The format `nexmark`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.reading = Reading.of(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return StructType([StructField(name, _SPARK_TYPES[type_]) for name, type_ in _columns(self.reading.stream)])

    def reader(self, schema: StructType) -> DataSourceReader:
        return NexmarkReader(self.reading)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NexmarkStreamReader(self.reading)


class NexmarkReader(DataSourceReader):
    """All of a bounded stream at once; the end of the frame is the end of the stream, so no promise says so."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        end = self._reading.last_slot
        if end is None:
            raise QueryError("NEXMark: a frame that is not streaming has an end; give the option events, how many")
        return list(self._reading.split(0, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slots)
        return self._reading.batches(partition.start, partition.stop, closing=False)


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Slots as they come due.  Call order, as Spark has it: `latestOffset`, `partitions`, `read` (in tasks), `commit`.

    A paced stream starts its clock at the first `latestOffset` and counts from the slot it is asked to go on from: a
    restart goes on at the same pace where it stopped, and does not try to make up for the time it was away.
    """

    def __init__(self, reading: Reading, clock: Callable[[], float] = time.monotonic) -> None:
        self._reading = reading
        self._clock = clock
        self._end = reading.last_slot
        self._begun: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"slot": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._reading.rows_per_batch)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How far an epoch from `start` may go: as much as is due, at most the limit, and not beyond the end.

        Of an endless stream that is not paced everything is due, so there a limit holds even if Spark gives none.
        """
        slot = start["slot"]
        endless = self._end is None and not self._reading.rows_per_second
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._reading.rows_per_batch if endless else None
        if rows is not None and self._reading.first_rows:
            rows = min(rows, max(2 * slot, self._reading.first_rows))
        latest = self._due(slot)
        bounds = [bound for bound in (latest, self._end, None if rows is None else slot + rows) if bound is not None]
        return {"slot": max(slot, min(bounds))}

    def prepareForTriggerAvailableNow(self) -> None:
        """What is available now is the whole of a bounded stream; an endless one has no such thing."""
        if self._end is None:
            raise QueryError("NEXMark: an endless stream is never read to its end; give the option events, how many")
        self._reading = replace(self._reading, rows_per_second=0.0)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return list(self._reading.split(start["slot"], end["slot"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slots)
        return self._reading.batches(partition.start, partition.stop, closing=True)

    def _due(self, slot: int) -> int | None:
        """The slot that the clock has reached; None when nothing is paced."""
        if not self._reading.rows_per_second:
            return None
        now = self._clock()
        if self._begun is None:
            self._begun = now, slot
        begun, first = self._begun
        return first + int((now - begun) * self._reading.rows_per_second)


def options(stream: str, config: NexmarkConfig | None = None, **reading: float) -> dict[str, str]:
    """The options of a stream, checked here and now instead of in a worker of Spark's.

    >>> options("bid", NexmarkConfig(late=0.1), events=1000)["late"]
    '0.1'
    """
    values = {"stream": stream, **asdict(config or NexmarkConfig()), **reading}
    texts = {name: str(value) for name, value in values.items()}
    Reading.of(texts)
    return texts


def register(spark: SparkSession) -> None:
    """Makes the format `nexmark` known to a session."""
    spark.dataSource.register(NexmarkSource)
