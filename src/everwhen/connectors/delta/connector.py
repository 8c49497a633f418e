"""Delta's options in SQL, and how its sources and sinks are opened.

CREATE STREAM Sale (item BIGINT, ts TIMESTAMP) ORDERED BY ts SOURCE delta('/lake/sales');
CREATE STREAM Price (item BIGINT, price DOUBLE) SOURCE delta('/lake/prices', key = 'item');
CREATE SINK best INTO delta('/lake/best', form = 'upsert', key = 'item') AS SELECT …
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.connectors.changes.change_input import ChangeInput
from everwhen.connectors.changes.log_input import LogInput
from everwhen.connectors.changes.relation import RelationInput
from everwhen.connectors.delta.feed import KIND, ChangeFeed, FeedReader, at_rest, payload, stamps
from everwhen.connectors.delta.sink import Commits, DeltaElements, DeltaRows
from everwhen.connectors.delta.table import Place, library, plain
from everwhen.connectors.options import Option, OptionError, Options
from everwhen.connectors.registry import STATE, SinkConnector, SinkPlace, SourceConnector, SourcePlace, state_of
from everwhen.core.time import ticks
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.errors import InputError, SourceError
from everwhen.formats.input_file import InputFile
from everwhen.sinks.base import EpochSink
from everwhen.sinks.rows import RowSink
from everwhen.stream.element_batch import ElementBatch

_WHERE: Final = (Option("path", "text", "the table's path or address", required=True),)
_HOW: Final = (Option("storage.*", "texts", "options of the store, as 'storage.AWS_REGION'", secret=True, free=True),)
_READ: Final = (
    *_WHERE,
    Option("key", "names", "the columns that tell rows apart: rows then live from change to change"),
    Option("start", "text", "the first version that is read: 'earliest', 'latest', or its number", default="earliest"),
    Option("disorder", "duration", "by how much a row may be behind others"),
    Option("heartbeat", "duration", "how often a table at rest is said to be at rest", default="1 s", free=True),
    STATE,
    *_HOW,
)
_WRITE: Final = (
    *_WHERE,
    Option("id", "text", "the application's id in the table (default: the job and the sink)"),
    *_HOW,
)


def _place(options: Options) -> Place:
    return Place(options.text("path"), options.texts("storage.*"))


def open_source(options: Options, place: SourcePlace) -> LiveInput:
    """A table as an input: its change feed, or, of a relation, the table as it is."""
    library()
    table = _place(options)
    given = place.file(table.path, table.shown)
    if given.known_whole:
        return RelationInput(place.name, given, table.shown, partial(_relation, table, given))
    start = options.text("start")
    if start not in ("earliest", "latest") and not start.isdecimal():
        raise OptionError(f"delta: start is 'earliest', 'latest' or the number of a version, not {start!r}", "start")
    feed = ChangeFeed(table, place.schema, given.times, start, options.seconds("heartbeat"))
    disorder = None if options["disorder"] is None else ticks(options["disorder"], place.tick)
    key = options.names("key")
    if not key:
        if options["state"]:
            raise OptionError("delta: state is for a table with a key", "state")
        return AppendedInput(place.name, given, feed, disorder)
    if place.time is not None:
        raise OptionError(f"delta: rows of {place.name} live from change to change; leave ORDERED BY out", "key")
    for name in key:
        place.schema.index(name, "the key")
    reader = FeedReader(place.schema, given.tick_length, table.shown)
    return ChangeInput(place.name, given, feed, reader.decode, key, disorder or 0, state_of(options, place))


class AppendedInput(LogInput):
    """Rows that are added to a table: each lives one tick.

    The time of a row is its column of ORDERED BY; where none is declared, the time of the commit that added it.
    """

    def said(self, records: pa.Table) -> ElementBatch | None:
        table, times, until = _appended(self.given, self.log.shown, records)
        if until is not None and self.given.time is None:
            self._reached.reach(self.log.parts[0], until)
        if not len(times):
            return None
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        if self.given.time is None:
            columns["vs"] = pa.array(times)
        (found,) = self.given.rows.of_table(pa.RecordBatch.from_pydict(columns), self.log.shown, 1)
        self._reached.see(self.log.parts[0], found.vs)
        return found


def _appended(given: InputFile, shown: str, table: pa.Table) -> tuple[pa.Table, np.ndarray, int | None]:
    """Rows that were added, and until when there are no others; that any was changed or removed is an error."""
    other = pc.not_equal(table.column(KIND), "insert")
    if pc.any(other).as_py():
        at = int(np.argmax(other.to_numpy()))
        kind, version = (table.column(name)[at].as_py() for name in (KIND, "_commit_version"))
        remedy = "say which rows replace each other: key = 'id'"
        raise InputError(f"version {version} has a change {kind!r}, not only new rows", source=shown, remedy=remedy)
    columns = dict(zip(given.schema.names, payload(table, given.schema, shown), strict=True))
    columns |= {name: table.column(name) for name in given.times if name not in columns}
    return pa.table(columns), stamps(table, given.tick_length), at_rest(table, given.tick_length)


def _relation(place: Place, given: InputFile, version: int | None) -> tuple[pa.Table, int | None]:
    with place.explained(SourceError, "read it"):
        table = place.table(version)
        found = plain(table.to_pyarrow_table())
    wanted = [name for name in (*given.schema.names, *given.times) if name in found.column_names]
    return found.select(list(dict.fromkeys(wanted))), int(table.version())


def _commits(options: Options, place: SinkPlace) -> Commits:
    library()
    return Commits(_place(options), options.maybe("id") or f"everwhen-{place.writer or place.name}")


def open_elements(options: Options, place: SinkPlace) -> EpochSink:
    """A table as a sink of elements."""
    return DeltaElements(_commits(options, place))


def open_rows(options: Options, place: SinkPlace) -> RowSink:
    """A table as a sink of rows."""
    return DeltaRows(_commits(options, place), place.form, place.key)


SOURCES: Final = (
    SourceConnector(
        "delta",
        "a Delta table: appended rows, its change feed, or the table as it is",
        _READ,
        open_source,
        promise="every version once: positions are versions, and the same versions are read again after a crash",
    ),
)
SINKS: Final = (
    SinkConnector(
        "delta",
        "a Delta table, one commit per epoch",
        _WRITE,
        ("append", "upsert", "retract", "elements"),
        open_elements,
        open_rows,
        promise="exactly once: a commit carries its epoch as an application transaction",
    ),
)
