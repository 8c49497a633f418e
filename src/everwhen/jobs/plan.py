"""A job as it was written, checked: every connector is there, every option fits, every sink has its form and its key.

What is wrong is an `SqlError` at the option, before anything is opened or written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Filter, Map, Node, Union, walk
from everwhen.algebra.properties.derive import properties
from everwhen.connectors.options import OptionError, Options
from everwhen.connectors.registry import (
    SinkConnector,
    SinkPlace,
    SourceConnector,
    SourcePlace,
    sink_connector,
    sink_options,
    source_connector,
    source_options,
)
from everwhen.core.consistency import LEVELS, MIDDLE, Consistency, consistency
from everwhen.core.emit import Emit
from everwhen.core.kinds import kind
from everwhen.core.schema import Schema
from everwhen.core.time_axis import TimeAxis, tick_length
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.errors import LoopError, QueryError, SqlError
from everwhen.jobs.formed_sink import FormedSink
from everwhen.jobs.forms import Form, form_of
from everwhen.language.catalog import Catalog, Connector, Declaration
from everwhen.language.job import JobProgram, SinkText, job_program
from everwhen.language.program import AskedConsistency
from everwhen.plan.sanity.bounded import require_bounded
from everwhen.plan.sanity.instants import one_instant
from everwhen.query import optimized
from everwhen.sinks.base import EpochSink

T = TypeVar("T")


@dataclass(frozen=True)
class JobSource:
    """Where a stream comes from."""

    connector: SourceConnector
    options: Options
    place: SourcePlace
    written: Connector


@dataclass(frozen=True)
class JobSink:
    """Where an answer goes, and which.  `stamped`: nanoseconds of a tick, if its times are told as timestamps."""

    connector: SinkConnector
    options: Options
    node: Node
    level: Consistency
    form: str
    key: tuple[str, ...]
    stamped: int | None
    written: Connector
    asked: Node
    """The plan as it was asked; `node` is the one rewritten."""

    def new_form(self) -> Form | None:
        """How its elements become rows; None if they stay elements."""
        if self.form == "elements":
            return None
        return form_of(self.form, self.node.schema, self.key, self.level.emit is Emit.FINAL, self.stamped)

    @property
    def schema(self) -> Schema:
        """The columns that are written."""
        form = self.new_form()
        return self.node.schema if form is None else form.schema


@dataclass(frozen=True)
class JobPlan:
    """A job, ready to be started.  `grows`: what state nothing bounds; `alone`: where rows of one tick
    hardly ever meet; in sentences."""

    program: JobProgram
    tick: str
    sources: Mapping[str, JobSource]
    sinks: Mapping[str, JobSink]
    grows: tuple[str, ...] = field(default=())
    alone: tuple[str, ...] = field(default=())

    @property
    def axis(self) -> TimeAxis:
        """How its times are shown: as timestamps if a source has them."""
        return TimeAxis(tick_length(self.tick), any(each.stamped is not None for each in self.sinks.values()))

    def identity(self, asked: bool = False) -> dict[str, str]:
        """What must not change while the job has state: its queries as they run, or as they were asked."""
        found = {f"source {name}": each.options.lasting for name, each in self.sources.items()}
        for name, each in self.sinks.items():
            found[f"sink {name}"] = f"{each.options.lasting}, form {each.form}, key {', '.join(each.key) or '-'}"
            found[f"query of {name}"] = explain(each.asked if asked else each.node)
            found[f"level of {name}"] = each.level.in_words()
        return found

    def source_place(self, name: str, checkpoint: Path, reader: int = 0) -> SourcePlace:
        """What is declared of a source, and where in a checkpoint it keeps what it needs."""
        state = checkpoint / "sources" / (f"{name} {reader}" if reader else name)
        return replace(self.sources[name].place, state=str(state), reader=reader)

    def open_source(self, name: str, checkpoint: Path) -> LiveInput:
        """An input in process."""
        each, place = self.sources[name], self.source_place(name, checkpoint)
        return self._placed(each.written, lambda: each.connector.open(each.options, place))

    def open_sink(self, name: str, writer: str) -> EpochSink:
        """A sink of elements, or of rows in its form."""
        each = self.sinks[name]
        place = SinkPlace(name, each.schema, each.form, each.key, self.tick, f"{writer} {name}")
        connector = each.connector
        form = each.new_form()
        if form is None:
            assert connector.elements is not None
            opened = connector.elements
            return self._placed(each.written, lambda: opened(each.options, place))
        assert connector.rows is not None
        rows = connector.rows
        return FormedSink(form, self._placed(each.written, lambda: rows(each.options, place)))

    def _placed(self, written: Connector, work: Callable[[], T]) -> T:
        return placed(self.program, written, work)


def placed(program: JobProgram, written: Connector, work: Callable[[], T]) -> T:
    """What `work` gives; an option that is wrong is an error at its place in the text."""
    try:
        return work()
    except OptionError as bad:
        wanted = bad.option if bad.option is not None else "" if bad.place is None else bad.place
        places = written.places
        lower = {str(name).lower(): place for name, place in places.items()}
        found = places.get(wanted) or lower.get(str(wanted).lower())
        if found is None and bad.place is not None:
            found = places.get(bad.place)
        raise program.error(str(bad), found or places.get("") or (0, 1)) from None


def job_plan(text: str, tick: str = "1ms", catalog: Catalog | None = None, *, unbounded: bool = False) -> JobPlan:
    """The text of a job, checked.  `unbounded`: state that nothing bounds is allowed."""
    program = job_program(text, catalog, tick, _replacing)
    sources = {name: _source(program, each, tick) for name, each in program.sources.items()}
    stamped = tick_length(tick) if any(map(_has_timestamps, program.sources.values())) else None
    sinks = {name: _sink(program, each, stamped) for name, each in program.sinks.items()}
    grows: list[str] = []
    for each in sinks.values():
        grows += [text for text in map(str, require_bounded(each.node, unbounded)) if text not in grows]
    alone = dict.fromkeys(hint for each in sinks.values() for hint in one_instant(each.asked))
    return JobPlan(program, tick, sources, sinks, tuple(grows), tuple(alone))


def _replacing(declaration: Declaration) -> tuple[str, ...]:
    """The key by which rows of a source replace each other.  What is wrong with its options is told later, at its
    place."""
    written = declaration.connector
    if written is None:
        return ()
    try:
        connector = source_connector(written.name)
        options = source_options(connector, written.arguments, written.options)
    except QueryError:
        return ()
    lower = {name.lower(): name for name in declaration.schema.names}
    return tuple(lower.get(name.lower(), name) for name in options.get("key") or ())


def _has_timestamps(declaration: Declaration) -> bool:
    times = [*([declaration.ordered_by] if declaration.ordered_by else []), *(declaration.period or ())]
    return any(kind(type_) in ("timestamp", "date") for _, type_ in times)


def _source(program: JobProgram, declaration: Declaration, tick: str) -> JobSource:
    written = declaration.connector
    if written is None:
        raise QueryError(
            f"the stream {declaration.name} has no source; write CREATE STREAM {declaration.name} (…) SOURCE "
            "kafka(…), or another connector"
        )
    connector = placed(program, written, lambda: source_connector(written.name))
    options = placed(program, written, lambda: source_options(connector, written.arguments, written.options))
    time = None if declaration.ordered_by is None else declaration.ordered_by[0]
    period = None if declaration.period is None else (declaration.period[0][0], declaration.period[1][0])
    types = dict([*([declaration.ordered_by] if declaration.ordered_by else []), *(declaration.period or ())])
    place = SourcePlace(declaration.name, declaration.schema, declaration.kind, time, period, tick, types)
    return JobSource(connector, options, place, written)


def _sink(program: JobProgram, sink: SinkText, stamped: int | None) -> JobSink:
    written = sink.connector
    connector = placed(program, written, lambda: sink_connector(written.name))
    options = placed(program, written, lambda: sink_options(connector, written.arguments, written.options))
    try:
        node = optimized(sink.query).node
    except LoopError as error:
        raise error.within(program.text) from None
    key = placed(program, written, lambda: _key(node, options))
    level = level_of(sink.consistency)
    asked = sink.query.node
    found = JobSink(connector, options, node, level, options.text("form"), key, stamped, written, asked)
    if found.form in ("upsert", "retract") and level.emit is Emit.ALL:
        raise program.error("the future has no answer as of now; leave the level that says all", sink.span)
    try:
        found.new_form()
    except SqlError:
        raise
    except QueryError as bad:
        raise program.error(str(bad), sink.span) from None
    return found


def level_of(asked: AskedConsistency | None) -> Consistency:
    """The level that a CONSISTENCY clause asks for; MIDDLE if there is none."""
    if asked is None:
        return MIDDLE
    if asked.level is not None:
        return LEVELS[asked.level]
    return consistency(asked.block, asked.remember)


def _key(node: Node, options: Options) -> tuple[str, ...]:
    form, wanted, of = options.text("form"), options.names("key"), options.of
    if form not in ("upsert", "retract"):
        if wanted:
            raise OptionError(f"{of}: form {form!r} has no key", "key")
        return ()
    schema = node.schema
    lower = {name.lower(): name for name in schema.names}
    proven = [key for key in properties(node).keys if key <= set(schema.names)]
    if wanted:
        for name in wanted:
            if name.lower() not in lower:
                raise OptionError(f"{of}: the query has no column {name!r} for a key; it has {schema}", "key")
        named = tuple(lower[name.lower()] for name in wanted)
        if not any(key <= set(named) for key in proven):
            raise OptionError(
                f"{of}: two rows of one instant may agree on {', '.join(named)}, so it is no key of the answer: GROUP "
                "BY it, declare it as the KEY of the stream, or keep the last row of each (WINDOW(PARTITION BY "
                f"{', '.join(named)} ROWS 1)); or write form = 'retract' without a key",
                "key",
            )
        return named
    possible = sorted((tuple(n for n in schema.names if n in key) for key in proven if key), key=lambda k: (len(k), k))
    if not possible and form == "upsert":
        raise OptionError(f"{of}: an upsert needs a key: {_no_key(node, proven)}; or write form = 'retract'", "form")
    return possible[0] if possible else ()


def _no_key(node: Node, proven: Sequence[frozenset[str]]) -> str:
    """Why an answer has no key, and what to write."""
    if frozenset() in proven:
        return "the answer is one row, so give it one: SELECT 'all' AS id, …, and key = 'id'"
    hidden = _hidden_key(node)
    if hidden:
        return f"{', '.join(hidden)} would be one, and is not in the answer: SELECT {', '.join(hidden)}, …"
    if any(isinstance(each, Union) for each in walk(node)):
        return "rows of both sides of a UNION ALL, or of several INSERT INTO, may agree: GROUP BY what is to be the key"
    return (
        "the query has none: GROUP BY it, declare it as the KEY of the stream, or keep the last row of each "
        "(WINDOW(PARTITION BY … ROWS 1))"
    )


def _hidden_key(node: Node) -> tuple[str, ...]:
    """The key of what a projection is made of, if it leaves columns of it out."""
    while isinstance(node, Map | Filter):
        below = node.input
        found = sorted(tuple(n for n in below.schema.names if n in key) for key in properties(below).keys if key)
        if isinstance(node, Map) and found:
            return found[0]
        node = below
    return ()
