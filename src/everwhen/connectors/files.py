"""file('…') and folder('…'): JSON lines, CSV and Parquet, in and out.

A file of JSON lines is followed as it grows; Parquet and CSV are read to their end, which is the end of the stream,
unless `follow = TRUE` says that CSV grows, too.  A folder is followed for new files.
"""

from __future__ import annotations

import os
from typing import Final

from everwhen.connectors.file_sinks import FileRows, FolderRows
from everwhen.connectors.folder_source import FolderOfFiles
from everwhen.connectors.options import Option, OptionError, Options
from everwhen.connectors.registry import SinkConnector, SinkPlace, SourceConnector, SourcePlace
from everwhen.engine.files.live.growing_csv import GrowingCsv
from everwhen.engine.files.live.inputs import LiveInput, live_input
from everwhen.formats.input_file import is_csv
from everwhen.formats.parquet import is_parquet
from everwhen.sinks.rows import RowSink

_ROWS: Final = ("append", "upsert", "retract")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _file(options: Options, place: SourcePlace) -> LiveInput:
    path = options.text("path")
    if path == "-" or path.endswith("/") or os.path.isdir(_absolute(path)):
        other = "folder('…') or changelog('…')"
        raise OptionError(f"file: {path!r} is no file that can be read again; for a folder write {other}", "path", 0)
    given = place.file(_absolute(path), path)
    if not options.truth("follow"):
        return live_input(place.name, given)
    if is_parquet(path):
        raise OptionError("file: a Parquet file cannot grow; write folder('…') and add files to it", "follow")
    if given.known_whole:
        raise OptionError(f"file: {place.name} is a relation that is known whole, so its file cannot grow", "follow")
    return GrowingCsv(place.name, given) if is_csv(path) else live_input(place.name, given)


def _folder(options: Options, place: SourcePlace) -> LiveInput:
    if place.kind in ("constant", "temporal"):
        raise OptionError("folder: a relation that is known whole is one file, not a folder that grows", "path", 0)
    return FolderOfFiles(place.name, place.file(_absolute(options.text("path"))), options.text("files"))


def _file_rows(options: Options, place: SinkPlace) -> RowSink:
    path = options.text("path")
    if is_parquet(path) or is_csv(path) or path.endswith("/"):
        raise OptionError(f"file: lines can be appended to, {path!r} cannot; write folder('…') for Parquet", "path", 0)
    return FileRows(_absolute(path), place.form, place.key, place.writer)


def _folder_rows(options: Options, place: SinkPlace) -> RowSink:
    path = _absolute(options.text("path"))
    return FolderRows(path, place.form, options.text("format"), place.key, place.writer)


SOURCES: Final = (
    SourceConnector(
        "file",
        "a file: JSON lines, which may grow, CSV or Parquet",
        (
            Option("path", "text", "the file", required=True),
            Option("follow", "boolean", "CSV, too, is followed as it grows", default=False),
        ),
        _file,
        promise="Promises are the CTIs in it; the end of CSV and Parquet promises everything.",
    ),
    SourceConnector(
        "folder",
        "the files of a folder, each read whole, in the order of names; new ones as they appear",
        (
            Option("path", "text", "the folder", required=True),
            Option("files", "text", "which files: a pattern", default="*"),
        ),
        _folder,
        promise="Promises are the CTIs in the files.",
    ),
)
SINKS: Final = (
    SinkConnector(
        "file",
        "a file of JSON lines that is appended to",
        (Option("path", "text", "the file", required=True),),
        _ROWS,
        rows=_file_rows,
        promise="Exactly once: what a killed job has half written is cut off when it is started again.",
    ),
    SinkConnector(
        "folder",
        "a file per epoch: JSON lines or Parquet",
        (
            Option("path", "text", "the folder", required=True),
            Option("format", "text", "of the files", default="jsonl", choices=("jsonl", "parquet")),
        ),
        _ROWS,
        rows=_folder_rows,
        promise="Exactly once: a file appears whole, and its name is its epoch.",
    ),
)
