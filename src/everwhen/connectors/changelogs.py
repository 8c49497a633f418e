"""changelog('folder'): our own wire between runs and jobs, in and out.

Exactly once: an epoch is a manifest that appears whole, and committing it again changes nothing (`sinks/changelog.py`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from everwhen.connectors.options import Option, Options
from everwhen.connectors.registry import SinkConnector, SinkPlace, SourceConnector, SourcePlace, SparkInput
from everwhen.engine.files.live.inputs import LiveFolder, LiveInput
from everwhen.sinks.base import EpochSink
from everwhen.sinks.changelog import KEEPS, ChangelogSink, changelog_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATH: Final = Option("path", "text", "the folder of the changelog", required=True)


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _open(options: Options, place: SourcePlace) -> LiveInput:
    return LiveFolder(place.name, place.file(_absolute(options.text("path")) + "/"))


def _spark(options: Options, place: SourcePlace, session: SparkSession) -> SparkInput:
    from everwhen.spark.sources.changelog_stream import read_changelog_stream

    return SparkInput(read_changelog_stream(session, _absolute(options.text("path"))))


def _sink(options: Options, place: SinkPlace) -> EpochSink:
    format_ = options.maybe("format") or changelog_format(place.schema)
    return ChangelogSink(_absolute(options.text("path")), format_, keep=options.text("keep"))


SOURCES: Final = (
    SourceConnector(
        "changelog",
        "the changelog that another run or job writes",
        (_PATH,),
        _open,
        _spark,
        "Promises as the changelog does; each epoch is read whole, once.",
    ),
)
SINKS: Final = (
    SinkConnector(
        "changelog",
        "a folder of all elements, epoch by epoch, for other runs and jobs",
        (
            _PATH,
            Option("format", "text", "of the files", choices=("parquet", "jsonl")),
            Option("keep", "text", "which epochs stay", default="all", choices=KEEPS),
        ),
        ("elements",),
        _sink,
        promise="Exactly once: an epoch is in when its manifest is.",
    ),
)
