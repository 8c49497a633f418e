"""`ew.spark`: what a user of the Spark runtime needs, by one name.

`import everwhen` does not import this module; the first use of `ew.spark` does, and PySpark with it.  `start` runs a
query over streaming DataFrames, `run` over bounded ones, `session` gives a Spark session that starts on a bare machine.
"""

from everwhen.connectors.sinks import (
    CallbackSink,
    ChangelogSink,
    ConsoleSink,
    DiscardSink,
    EpochSink,
    MemorySink,
    PostgresSink,
    read_changelog,
)
from everwhen.runtime.spark.batch import run
from everwhen.runtime.spark.epoch import EpochReport
from everwhen.runtime.spark.handle import Handle
from everwhen.runtime.spark.session import session
from everwhen.runtime.spark.source import CtiRows, Disorder, NoProgress, SparkSource
from everwhen.runtime.spark.start import start

__all__ = [
    "CallbackSink",
    "ChangelogSink",
    "ConsoleSink",
    "CtiRows",
    "DiscardSink",
    "Disorder",
    "EpochReport",
    "EpochSink",
    "Handle",
    "MemorySink",
    "NoProgress",
    "PostgresSink",
    "SparkSource",
    "read_changelog",
    "run",
    "session",
    "start",
]
