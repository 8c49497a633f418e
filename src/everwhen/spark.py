"""`ew.spark`: the Spark runtime, and the sinks of all runtimes.

`start` runs a query over streaming DataFrames, `run` over bounded ones; `session` starts Spark, also on a bare machine.
They need PySpark, the extra `everwhen[spark]`; the sinks do not.  `import everwhen` does not import this module,
and this module imports PySpark on first use of a name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

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
from everwhen.runtime.spark import require_pyspark

if TYPE_CHECKING:
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

_WITH_PYSPARK: Final = {
    "CtiRows": "source",
    "Disorder": "source",
    "EpochReport": "epoch",
    "Handle": "handle",
    "NoProgress": "source",
    "SparkSource": "source",
    "run": "batch",
    "session": "session",
    "start": "start",
}


def __getattr__(name: str) -> object:
    """The names that need PySpark, on first use."""
    if name not in _WITH_PYSPARK:
        raise AttributeError(f"module 'everwhen.spark' has no attribute {name!r}")
    require_pyspark()
    value = getattr(import_module(f"everwhen.runtime.spark.{_WITH_PYSPARK[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
