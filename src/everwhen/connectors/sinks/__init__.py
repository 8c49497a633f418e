"""Where the output of a running query goes, epoch by epoch, each exactly once."""

from everwhen.connectors.sinks.base import EpochSink
from everwhen.connectors.sinks.callback import CallbackSink
from everwhen.connectors.sinks.changelog import ChangelogSink, read_changelog
from everwhen.connectors.sinks.console import ConsoleSink
from everwhen.connectors.sinks.discard import DiscardSink
from everwhen.connectors.sinks.memory import MemorySink
from everwhen.connectors.sinks.postgres import PostgresSink

__all__ = [
    "CallbackSink",
    "ChangelogSink",
    "ConsoleSink",
    "DiscardSink",
    "EpochSink",
    "MemorySink",
    "PostgresSink",
    "read_changelog",
]
