"""Kafka's options in SQL, and how its sources and sinks are opened.

CREATE STREAM Bid (item BIGINT, ts TIMESTAMP) ORDERED BY ts SOURCE kafka('localhost:9092', 'bids');
CREATE SINK best INTO kafka('localhost:9092', 'best', form = 'upsert', key = 'item') AS SELECT …
"""

from __future__ import annotations

import re
from typing import Final

from everwhen.connectors.changes.change_input import ChangeInput
from everwhen.connectors.kafka.client import Topic
from everwhen.connectors.kafka.debezium import EnvelopeReader
from everwhen.connectors.kafka.sink import TopicElements, TopicRows
from everwhen.connectors.kafka.source import TopicInput
from everwhen.connectors.kafka.topic_log import TopicLog
from everwhen.connectors.kafka.transactions import Transactions
from everwhen.connectors.options import Option, OptionError, Options
from everwhen.connectors.registry import STATE, SinkConnector, SinkPlace, SourceConnector, SourcePlace, state_of
from everwhen.core.time import ticks
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.sinks.base import EpochSink
from everwhen.sinks.rows import RowSink

_WHERE: Final = (
    Option(
        "servers",
        "text",
        "the brokers, as 'host:9092, host2:9092'",
        required=True,
        free=True,
        aliases=("properties.bootstrap.servers", "bootstrap.servers"),
    ),
    Option("topic", "text", "the topic", required=True),
)
_HOW: Final = (
    Option("timeout", "duration", "how long a broker is waited for", default="10 s", free=True),
    Option(
        "properties.*", "texts", "settings of librdkafka, as 'properties.security.protocol'", secret=True, free=True
    ),
)
_READ: Final = (
    *_WHERE,
    Option("format", "text", "what messages hold", default="json", choices=("json", "debezium")),
    Option("start", "text", "where a new job begins", default="earliest", choices=("earliest", "latest")),
    Option("disorder", "duration", "by how much a row may be behind others of its partition"),
    Option("idle", "duration", "after this time without messages a partition is not waited for"),
    Option("key", "names", "the columns that tell rows apart (debezium)"),
    STATE,
    *_HOW,
)
_WRITE: Final = (
    *_WHERE,
    Option("id", "text", "the transactional id; one job at a time writes with it (default: the job and the sink)"),
    Option("partition", "whole", "where elements go", default=0, least=0),
    *_HOW,
)


def _topic(options: Options) -> Topic:
    servers = ",".join(part.strip() for part in options.text("servers").split(","))
    topic = options.text("topic")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic):
        raise OptionError(f"kafka: {topic!r} is no name of a topic: letters, digits, '.', '_', '-'", "topic")
    return Topic(servers, topic, options.texts("properties.*"), options.seconds("timeout"))


def open_source(options: Options, place: SourcePlace) -> LiveInput:
    """A topic as an input."""
    topic = _topic(options)
    log = TopicLog(topic, options.text("start"))
    given = place.file(f"kafka://{topic.servers}/{topic.topic}", topic.shown)
    if place.kind not in ("stream", "varying"):
        raise OptionError(f"kafka: a topic goes on and on, and {place.name} is {place.kind}; declare a stream")
    disorder = None if options["disorder"] is None else ticks(options["disorder"], place.tick)
    if options.text("format") == "debezium":
        if place.time is not None:
            raise OptionError(f"kafka: rows of {place.name} live from change to change; leave ORDERED BY out", "format")
        if options["idle"] is not None:
            raise OptionError("kafka: idle is for rows; every partition of a table's changes counts", "idle")
        key = options.names("key")
        if not key:
            raise OptionError("kafka: which rows replace each other? Write key = 'id'", "format")
        for name in key:
            place.schema.index(name, "the key")
        reader = EnvelopeReader(place.schema, key, given.tick_length, topic.shown)
        return ChangeInput(place.name, given, log, reader.decode, key, disorder or 0, state_of(options, place))
    for name in ("key", "state"):
        if options[name]:
            raise OptionError(f"kafka: {name} is for format = 'debezium'", name)
    idle = None if options["idle"] is None else options.seconds("idle")
    return TopicInput(place.name, given, log, disorder, idle)


def _transactions(options: Options, place: SinkPlace) -> Transactions:
    topic = _topic(options)
    return Transactions(topic, options.maybe("id") or f"everwhen-{place.writer or place.name}-{topic.topic}")


def open_elements(options: Options, place: SinkPlace) -> EpochSink:
    """A topic as a sink of elements."""
    return TopicElements(_transactions(options, place), options.whole("partition"))


def open_rows(options: Options, place: SinkPlace) -> RowSink:
    """A topic as a sink of rows."""
    return TopicRows(_transactions(options, place), place.key)


SOURCES: Final = (
    SourceConnector(
        "kafka",
        "messages of a topic: JSON rows, elements, or Debezium's envelopes",
        _READ,
        open_source,
        promise="every message once: positions are offsets, and the same offsets are read again after a crash",
    ),
)
SINKS: Final = (
    SinkConnector(
        "kafka",
        "messages into a topic, one transaction per epoch",
        _WRITE,
        ("append", "upsert", "retract", "elements"),
        open_elements,
        open_rows,
        promise="exactly once for consumers with isolation.level=read_committed: the epoch is in its transaction",
    ),
)
