"""Which connectors there are: each is a value that says its options and how it is opened.

    SOURCE kafka(servers = 'localhost:9092', topic = 'bids')       a SourceConnector and its options
    INTO delta('/lake/best', form = 'upsert')                      a SinkConnector, its options, and a form

A module of connectors has two tuples, SOURCES and SINKS.  Those of the house are named in `_MODULES`, and a module is
imported only when one of its connectors is asked for.  Others are added with `register`.

**A source** gives a `LiveInput` in process, and a streaming DataFrame on Spark.  **A sink** takes the elements of a
query (an `EpochSink`), or rows in one of the other forms (a `RowSink`, see `sinks/rows.py`), or both.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from everwhen.connectors.options import Option, OptionError, Options, checked
from everwhen.core.schema import Schema
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.errors import QueryError
from everwhen.formats.input_file import InputFile, Kind
from everwhen.sinks.base import EpochSink
from everwhen.sinks.rows import FORMS, RowSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from everwhen.spark.sources.source import SparkSource


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """What the text declares of the stream that a source feeds.  `time`: the column of ORDERED BY, which is in the data
    and not in the schema; `period`: those of a temporal relation; `types`: the declared types of these columns.  In a
    job `state` is a folder of its checkpoint, for what the source keeps, and `reader` says which of several readers of
    the stream this is."""

    name: str
    schema: Schema
    kind: Kind = "stream"
    time: str | None = None
    period: tuple[str, str] | None = None
    tick: str = "1ms"
    types: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None
    reader: int = 0

    def file(self, place: str, shown: str = "") -> InputFile:
        """What a `LiveInput` is made with.  `place`: a path, or a name such as 'kafka://host:9092/bids'."""
        return InputFile(place, self.schema, self.kind, self.time, self.period, self.tick, shown)


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """What is written: the sink's name, the columns of the rows, in which form, and the columns that are the key.
    `writer`: a name for who writes that is the same after a restart, and nobody else's."""

    name: str
    schema: Schema
    form: str = "elements"
    key: tuple[str, ...] = ()
    tick: str = "1ms"
    writer: str = ""


@dataclass(frozen=True)
class SparkInput:
    """A streaming DataFrame, and what its columns mean."""

    frame: DataFrame
    source: SparkSource | None = None


OpenSource = Callable[[Options, SourcePlace], LiveInput]
OpenOnSpark = Callable[[Options, SourcePlace, "SparkSession"], SparkInput]
OpenElements = Callable[[Options, SinkPlace], EpochSink]
OpenRows = Callable[[Options, SinkPlace], RowSink]


@dataclass(frozen=True, slots=True)
class SourceConnector:
    """Something that streams come from.  `promise`: what it promises, in a sentence, for the help."""

    name: str
    help: str
    options: tuple[Option, ...]
    open: OpenSource
    spark: OpenOnSpark | None = None
    promise: str = ""
    aliases: tuple[str, ...] = ()

    def on_spark(
        self, options: Options, place: SourcePlace, session: SparkSession, reader: str = "spark"
    ) -> SparkInput:
        """A source as Spark reads it: by Spark's own means, or the same input as in process, as a streaming DataFrame.
        `reader`: by which name it is told how far it is never asked again."""
        if self.spark is not None:
            return self.spark(options, place, session)
        from everwhen.spark.sources.live_stream import live_frame

        return SparkInput(*live_frame(session, partial(self.open, options, place), reader))


@dataclass(frozen=True, slots=True)
class SinkConnector:
    """Something that answers go to.  `elements` opens it for the form of that name, `rows` for all others of `forms`.
    The first of `forms` is the default.  `promise`: how it is exactly once, or that it is not."""

    name: str
    help: str
    options: tuple[Option, ...]
    forms: tuple[str, ...]
    elements: OpenElements | None = None
    rows: OpenRows | None = None
    promise: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.forms and set(self.forms) <= set(FORMS), self.name
        assert (self.elements is not None) == ("elements" in self.forms), self.name
        assert (self.rows is not None) == (set(self.forms) != {"elements"}), self.name

    @property
    def all_options(self) -> tuple[Option, ...]:
        """Its own options, then those of every sink."""
        return (*self.options, Option("form", "text", "what is written", choices=self.forms), KEY)


STATE: Final = Option("state", "text", "outside of jobs: a folder for what the source keeps; a job has its checkpoint")


def state_of(options: Options, place: SourcePlace) -> str | None:
    """The folder for what a source keeps: in the checkpoint of its job, else the option `state`, if it is given."""
    if place.state is not None and options["state"]:
        raise OptionError(f"{options.of}: a job keeps this in its checkpoint; leave the option state out", "state")
    return place.state or options.maybe("state")


KEY: Final = Option("key", "names", "the columns that tell rows apart; else those that the query has as a key")

# Connector by name, and the module that has it.
_MODULES: Final[dict[str, str]] = {
    "changelog": "everwhen.connectors.changelogs",
    "console": "everwhen.connectors.trying_out",
    "delta": "everwhen.connectors.delta",
    "discard": "everwhen.connectors.trying_out",
    "file": "everwhen.connectors.files",
    "folder": "everwhen.connectors.files",
    "iceberg": "everwhen.connectors.iceberg",
    "kafka": "everwhen.connectors.kafka",
    "nexmark": "everwhen.connectors.nexmark",
    "postgres": "everwhen.connectors.postgres",
    "postgresql": "everwhen.connectors.postgres",
}
_ADDED: Final[dict[str, dict[str, Any]]] = {"source": {}, "sink": {}}


def register(*connectors: SourceConnector | SinkConnector) -> None:
    """Add connectors, or replace those of the same name."""
    for each in connectors:
        known = _ADDED["source" if isinstance(each, SourceConnector) else "sink"]
        for name in (each.name, *each.aliases):
            known[name.lower()] = each


def source_connector(name: str) -> SourceConnector:
    """The source of that name."""
    found = _found("source", name)
    assert isinstance(found, SourceConnector)
    return found


def sink_connector(name: str) -> SinkConnector:
    """The sink of that name."""
    found = _found("sink", name)
    assert isinstance(found, SinkConnector)
    return found


def connector_names(side: str) -> list[str]:
    """The names of all sources or sinks."""
    for module in dict.fromkeys(_MODULES.values()):
        _load(module)
    return sorted({each.name for each in _ADDED[side].values()})


def source_options(connector: SourceConnector, arguments: Sequence[Any], named: Mapping[str, Any]) -> Options:
    """The options of a source as they were written, checked."""
    return checked(connector.name, connector.options, arguments, named)


def sink_options(connector: SinkConnector, arguments: Sequence[Any], named: Mapping[str, Any]) -> Options:
    """The options of a sink as they were written, checked; `form` is there, `key` may be."""
    found = checked(connector.name, connector.all_options, arguments, named)
    return Options(found.of, {**found, "form": found["form"] or connector.forms[0]}, found.declared)


def _found(side: str, name: str) -> SourceConnector | SinkConnector:
    wanted = name.lower()
    if wanted not in _ADDED[side] and wanted in _MODULES:
        _load(_MODULES[wanted])
    found: SourceConnector | SinkConnector | None = _ADDED[side].get(wanted)
    if found is not None:
        return found
    there = connector_names(side)
    other = "sink" if side == "source" else "source"
    if wanted in _ADDED[other]:
        raise OptionError(f"{name} is no {side}, only a {other}; {side}s are {', '.join(there)}")
    near = difflib.get_close_matches(wanted, there, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(there)}"
    raise OptionError(f"there is no {side} {name!r}; {hint}")


def _load(module: str) -> None:
    found = import_module(module)
    fresh: Iterable[SourceConnector | SinkConnector] = (*found.SOURCES, *found.SINKS)
    for each in fresh:
        known = _ADDED["source" if isinstance(each, SourceConnector) else "sink"]
        for name in (each.name, *each.aliases):
            known.setdefault(name.lower(), each)


def needs(module: str, package: str, extra: str, what: str) -> Any:
    """A module of a package that is not always there; `QueryError` says what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise QueryError(
            f"{what} needs the package {package}, which is not installed ({missing}); install everwhen[{extra}]"
        ) from None
