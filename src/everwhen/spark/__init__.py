"""`ew.spark`: the Spark runtime, and the sinks of all runtimes.

`start` runs a query over streaming DataFrames, `run` over bounded ones; `session` starts Spark, also on a bare machine.
They need PySpark, the extra `everwhen[spark]`; the sinks do not.  Names are imported on first use.

    api        what is called from outside            driver     an epoch on the driver
    sources    what the columns of a frame mean       exchange   what crosses between stages
    translate  expressions as Spark SQL               worker     partitions in Python workers
    state      versioned state                        internals  private parts of PySpark
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from everwhen.errors import EverwhenError

if TYPE_CHECKING:
    from everwhen.sinks import (
        CallbackSink,
        ChangelogSink,
        ConsoleSink,
        DiscardSink,
        EpochSink,
        MemorySink,
        PostgresSink,
        read_changelog,
    )
    from everwhen.spark.api.handle import Handle
    from everwhen.spark.api.replacing import Replacement
    from everwhen.spark.api.run_bounded import run
    from everwhen.spark.api.session import session
    from everwhen.spark.api.start import start
    from everwhen.spark.driver.epoch_runner import EpochReport
    from everwhen.spark.sources.changelog_stream import read_changelog_stream
    from everwhen.spark.sources.source import CtiRows, Disorder, NoProgress, SparkSource

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
    "Replacement",
    "SparkSource",
    "read_changelog",
    "read_changelog_stream",
    "run",
    "session",
    "start",
]

_WHERE: Final = {
    name: module
    for module, names in {
        "everwhen.sinks": "CallbackSink ChangelogSink ConsoleSink DiscardSink EpochSink MemorySink PostgresSink "
        "read_changelog",
        "everwhen.spark.api.handle": "Handle",
        "everwhen.spark.api.replacing": "Replacement",
        "everwhen.spark.api.run_bounded": "run",
        "everwhen.spark.api.session": "session",
        "everwhen.spark.api.start": "start",
        "everwhen.spark.driver.epoch_runner": "EpochReport",
        "everwhen.spark.sources.changelog_stream": "read_changelog_stream",
        "everwhen.spark.sources.source": "CtiRows Disorder NoProgress SparkSource",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    """Names come when they are asked for: workers import parts of this package and not the rest."""
    if name not in _WHERE:
        raise AttributeError(f"module 'everwhen.spark' has no attribute {name!r}")
    if not _WHERE[name].startswith("everwhen.sinks"):
        require_pyspark()
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def require_pyspark() -> None:
    """Raise an error with the remedy if PySpark is not installed; it comes with the extra `everwhen[spark]`."""
    if find_spec("pyspark") is None:
        raise EverwhenError(
            "Spark needs PySpark, which is not installed. Remedy: pip install 'everwhen[spark]'; or run in this "
            "process, with --engine local or ew.run"
        )


def __dir__() -> list[str]:
    return [*globals(), *__all__]
