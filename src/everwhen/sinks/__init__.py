"""Where the output of a running query goes, epoch by epoch, each exactly once."""

from everwhen.sinks.base import EpochSink
from everwhen.sinks.callback import CallbackSink
from everwhen.sinks.changelog import ChangelogSink, read_changelog
from everwhen.sinks.console import ConsoleSink
from everwhen.sinks.discard import DiscardSink
from everwhen.sinks.memory import MemorySink
from everwhen.sinks.postgres import PostgresSink

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
