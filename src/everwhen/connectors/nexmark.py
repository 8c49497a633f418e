"""nexmark(rate = …, events = …): the auction streams of NEXMark, made where they are read.

The stream is a function of the options and of a slot number, so any part of it can be made again.
"""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from everwhen.connectors.options import Option, OptionError, Options
from everwhen.connectors.registry import SourceConnector, SourcePlace, SparkInput
from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.generator import SCHEMAS, NexmarkGenerator
from everwhen.engine.files.live.inputs import LiveInput, Position
from everwhen.errors import QueryError
from everwhen.formats.input_file import InputFile
from everwhen.stream.element_batch import ElementBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARES: Final = ("late", "corrections", "duplicates")
_NAMES: Final = {name.lower(): name for name in SCHEMAS} | {"auction": "OpenAuction"}
_MOST: Final = 100_000


class NexmarkInput(LiveInput):
    """One of the streams.  `rate`: events of all four per second of the clock; 0: as fast as they are taken."""

    def __init__(
        self, name: str, given: InputFile, stream: str, config: NexmarkConfig, events: int, rate: float
    ) -> None:
        super().__init__(name, given)
        self._stream, self._rate, self._events = stream, rate, events
        self._generator = NexmarkGenerator(config)
        self._end = self._generator.last_slot(events) if events else None
        self._slot = 0
        self._begun: tuple[float, int] | None = None

    @property
    def is_there(self) -> bool:
        return True

    @property
    def position(self) -> dict[str, Any]:
        return {"slot": self._slot}

    def seek(self, position: Position) -> None:
        self._slot = position["slot"]

    def take(self, most: int) -> ElementBatch | None:
        if self._slot == self._end:
            self.ended = True
            return None
        now = time.monotonic()
        self._begun = self._begun or (now, self._slot)
        due = self._slot + min(most, _MOST)
        if self._rate:
            due = min(due, self._begun[1] + int((now - self._begun[0]) * self._rate))
        return self._to(max(self._slot, due if self._end is None else min(due, self._end)))

    def take_to(self, position: Position) -> ElementBatch | None:
        return self._to(position["slot"])

    def _to(self, slot: int) -> ElementBatch | None:
        if slot == self._slot:
            return None
        found = self._generator.read(self._slot, slot, self._events or None)[self._stream]
        self._slot = slot
        return found if len(found) else None


def _chosen(options: Options, place: SourcePlace) -> tuple[str, NexmarkConfig]:
    written = options.maybe("stream") or place.name
    stream = _NAMES.get(written.replace("_", "").lower())
    if stream is None:
        raise OptionError(f"nexmark: there is no stream {written!r}; there are {', '.join(SCHEMAS)}", "stream")
    if place.schema != SCHEMAS[stream] or place.time is not None:
        columns = ", ".join(f"{f.name} {_TYPES[str(f.type)]}" for f in SCHEMAS[stream])
        raise OptionError(f"nexmark: declare the stream as CREATE STREAM {place.name} ({columns}), without ORDERED BY")
    known = ({f.name for f in fields(NexmarkConfig)} & set(options)) - {"rate"}  # there a rate of its own time
    try:
        return stream, NexmarkConfig(**{name: options[name] for name in known if options[name] is not None})
    except QueryError as bad:
        raise OptionError(str(bad)) from None


_TYPES: Final = {"int64": "INT", "double": "REAL", "string": "TEXT"}


def _open(options: Options, place: SourcePlace) -> LiveInput:
    stream, config = _chosen(options, place)
    given = place.file(f"nexmark {stream}")
    return NexmarkInput(place.name, given, stream, config, options.whole("events"), options.number("rate"))


def _spark(options: Options, place: SourcePlace, session: SparkSession) -> SparkInput:
    from everwhen.demo.nexmark import spark_source

    stream, config = _chosen(options, place)
    spark_source.register(session)
    paced = {"events": options.whole("events"), "rows_per_second": options.number("rate")}
    if not paced["events"] and not paced["rows_per_second"]:
        paced["rows_per_batch"] = _MOST
    texts = spark_source.options(stream.lower(), config, **paced)
    return SparkInput(session.readStream.format(spark_source.FORMAT).options(**texts).load())


SOURCES: Final = (
    SourceConnector(
        "nexmark",
        "the auction streams of the NEXMark benchmark: Person, OpenAuction, ClosedAuction, Bid",
        (
            Option("stream", "text", "which one; else the one that the stream is called by"),
            Option(
                "rate", "number", "events of all four streams per second; 0: as fast as possible", default=0.0, least=0
            ),
            Option("events", "whole", "so many events of all four streams; 0: for ever", default=0, least=0),
            Option("seed", "whole", "another seed gives other streams", default=7),
            *(Option(name, "number", "the share of such elements, 0 to 1", default=0.0) for name in _SHARES),
        ),
        _open,
        _spark,
        "Promises every second of its own time; a stream of so many events ends with a promise of everything.",
    ),
)
SINKS: Final = ()
