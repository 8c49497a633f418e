"""A text of statements: what it declares, and the query it ends with.

    >>> found = program('''
    ...     CREATE STREAM Bid (itemID INT, price REAL, at TIMESTAMP) ORDERED BY at;
    ...     CREATE STREAM Best AS SELECT itemID, MAX(price) AS price FROM Bid WINDOW(RANGE 10 MINUTES) GROUP BY itemID;
    ...     SELECT itemID FROM Best WHERE price > 100''')
    >>> print(found.query)
    Select itemID
    └─ Filter price > 100
       └─ Aggregate by itemID: price = max(price)
          └─ Window range 600000
             └─ Source Bid (itemID int64, price double), one tick each
    >>> list(found.sources)
    ['Bid']

A statement either takes effect whole or raises an SqlError and leaves the catalogue as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import UserAggregate
from everwhen.algebra.builder import Stream
from everwhen.core.kinds import kind
from everwhen.core.row_times import RowTimes
from everwhen.core.schema import Field, Schema
from everwhen.core.source_policy import SourcePolicy
from everwhen.core.time import ticks
from everwhen.core.time_axis import TimeAxis, tick_length
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding.binder import Binder
from everwhen.language.binding.punctuation import schemes_of, sorted_node
from everwhen.language.binding.sources import named
from everwhen.language.binding.types import type_named
from everwhen.language.catalog import Catalog, Connector, Declaration, Entry, UserFunction
from everwhen.language.parse import parse

Functions = Mapping[str, UserFunction | UserAggregate]
Level = Literal["strong", "middle", "weak"]


@dataclass(frozen=True, slots=True)
class AskedConsistency:
    """What a CONSISTENCY clause asks for: a level by name, or bounds in ticks."""

    level: Level | None = None
    block: int | None = None
    remember: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A query as a plan, with the catalogue entries that it reads by name."""

    node: n.Node
    reads: frozenset[str]
    consistency: AskedConsistency | None


@dataclass(frozen=True, slots=True)
class Program:
    """A text as a query over inputs.

    `sources` tells of each input that the query reads how its elements are read.
    """

    text: str
    query: Stream
    sources: Mapping[str, Declaration]
    consistency: AskedConsistency | None
    catalog: Catalog = field(repr=False)


def program(text: str, catalog: Catalog | None = None, tick: str = "1ms") -> Program:
    """The text's last statement as a query; the ones before it declare streams."""
    catalog = catalog or Catalog()
    statements = parse(text)
    for statement in statements[:-1]:
        if isinstance(statement, s.Ask):
            raise SqlError(
                "a text has one query, at its end; to use this one further on write CREATE STREAM … AS",
                text,
                statement.span.start,
                statement.span.end,
            )
        catalog = declare(statement, text, catalog, tick)
    last = statements[-1]
    if not isinstance(last, s.Ask):
        declare(last, text, catalog, tick)
        raise SqlError("the text ends without a query; add a SELECT", text, last.span.start, last.span.end)
    answer, catalog = ask(last, text, catalog, tick)
    found = {node.name: _declaration(node, catalog) for node in n.walk(answer.node) if isinstance(node, n.Source)}
    return Program(text, Stream(answer.node), MappingProxyType(found), answer.consistency, catalog)


def _declaration(source: n.Source, catalog: Catalog) -> Declaration:
    entry = catalog.stream(source.name, quoted=True)
    if entry is None or entry.declaration is None:
        return Declaration(source, declared=False)
    return entry.declaration


# -- statements --------------------------------------------------------------------------------------------------------


def ask(statement: s.Ask, text: str, catalog: Catalog, tick: str) -> tuple[Answer, Catalog]:
    """The plan of a query, and the catalogue with what was found for it."""
    binder = Binder(text, catalog, tick)
    node = binder.query(statement.query).node
    asked = None if statement.consistency is None else _consistency(statement.consistency, binder)
    if statement.order:
        node = sorted_node(node, statement.order, binder)
        if asked is not None and asked.level in ("middle", "weak"):
            raise binder.error(
                f"CONSISTENCY {asked.level.upper()} corrects what it has said, so it cannot say rows in the order of "
                "ORDER BY; write CONSISTENCY STRONG",
                statement.order[0].span,
            )
    return Answer(node, frozenset(binder.read), asked), binder.catalog


def declare(statement: s.Statement, text: str, catalog: Catalog, tick: str) -> Catalog:
    """The catalogue after a CREATE or DROP."""
    binder = Binder(text, catalog, tick)
    match statement:
        case s.CreateSource():
            entry = _source(statement, binder)
        case s.CreateDerived(name, columns, query):
            bound = binder.query(query)
            before = catalog.stream(name.text)
            if before is not None and before.name in binder.read:
                raise binder.error(
                    f"{before.name} cannot be made from itself: write what it is made from, or take another name",
                    name.span,
                )
            node = named(bound, columns, binder)
            entry = Entry(name.text, node, None, frozenset(binder.read), _text(statement, text))
        case s.CreateSink() | s.InsertInto() | s.Drop(sink=True):
            raise binder.error(
                "CREATE SINK and INSERT INTO make a job, which is started with everwhen start; leave them out to ask "
                "a query",
                statement.span,
            )
        case s.Drop(name, if_exists):
            if if_exists and catalog.stream(name.text, name.quoted) is None:
                return catalog
            return _said(lambda: catalog.without(name.text, name.quoted), name, binder)
        case s.AlterQuery():
            raise binder.error(
                "ALTER QUERY changes a query that runs: in a session, or in everwhen shell; everwhen run goes on with "
                "another text if it is given that and --migrate, and in Python there is handle.replace",
                statement.span,
            )
        case s.Ask():
            raise AssertionError("a query declares nothing")
    return _said(lambda: binder.catalog.with_entry(entry, statement.or_replace), statement.name, binder)


def _said(change: Callable[[], Catalog], name: s.Ident, binder: Binder) -> Catalog:
    try:
        return change()
    except QueryError as error:
        raise binder.error(str(error), name.span) from None


def _text(statement: s.Statement, text: str) -> str:
    return text[statement.span.start : statement.span.end].strip()


def _source(e: s.CreateSource, binder: Binder) -> Entry:
    types: dict[str, pa.DataType] = {}
    seen: set[str] = set()
    for column in e.columns:
        if column.name.text.lower() in seen:
            raise binder.error(f"two columns are called {column.name.text}", column.name.span)
        seen.add(column.name.text.lower())
        try:
            types[column.name.text] = type_named(column.type.text)
        except QueryError as error:
            raise binder.error(str(error), column.type.span) from None
    clock = None if e.ordered_by is None else (_column(e.ordered_by, types, binder), e.ordered_by)
    period = None if e.period is None else tuple(_column(name, types, binder) for name in e.period)
    times = [*([clock[0]] if clock else []), *(period or ())]
    for name, ident in zip(times, [x for x in (e.ordered_by, *(e.period or ())) if x is not None], strict=True):
        if kind(types[name]) not in ("integer", "timestamp", "date"):
            raise binder.error(f"a time is an integer or a timestamp; {name} is of type {types[name]}", ident.span)
    schema = Schema(tuple(Field(name, type_) for name, type_ in types.items() if name not in times))
    axis = TimeAxis(tick_length(binder.tick), any(kind(types[name]) in ("timestamp", "date") for name in times))
    keys = [(c.name,) for c in e.columns if c.key] + list(e.keys)
    for key in keys:
        for ident in key:
            if _column(ident, types, binder) in times:
                raise binder.error(f"{ident.text} is a time, not a column of the stream", ident.span)
    found = tuple(tuple(_column(ident, types, binder) for ident in key) for key in keys)
    try:
        schemes = schemes_of(e.punctuate, schema, times, e.name.text, binder)
        policy = _policy(e, None if clock is None else clock[0], binder)
        start, end = (period[0], period[1]) if period else (clock[0] if clock else None, None)
        source = n.Source(
            e.name.text,
            schema,
            e.insert_only,
            clock is not None,
            found,
            False,
            e.kind,
            schemes,
            e.arrives,
            policy,
            axis,
            RowTimes(start, end),
        )
    except SqlError:
        raise
    except QueryError as error:
        raise binder.error(str(error), e.span if e.progress is None else e.progress.span) from None
    declaration = Declaration(
        source,
        None if clock is None else (clock[0], types[clock[0]]),
        None if period is None else ((period[0], types[period[0]]), (period[1], types[period[1]])),
        None if e.source is None else connector_of(e.source),
    )
    return Entry(e.name.text, source, declaration, text=_text(e, binder.text))


def _policy(e: s.CreateSource, time: str | None, binder: Binder) -> SourcePolicy:
    """What the declaration says of progress and late rows."""
    said = e.progress or s.ProgressSyntax()
    idle = None if said.idle is None else _length(said.idle, binder, "1ns")
    within = None if said.within is None else _length(said.within, binder, binder.tick)
    return SourcePolicy(within, None if idle is None else idle / 1e9, said.late or "error", time)


def _length(written: s.Length, binder: Binder, tick: str) -> int:
    """A length in ticks."""
    try:
        return int(written.number) if written.unit is None else ticks(f"{written.number} {written.unit}", tick)
    except (QueryError, ValueError) as error:
        raise binder.error(str(error), written.span) from None


def connector_of(call: s.SourceCall) -> Connector:
    """A connector as it was written, with the places of its options."""
    places: dict[str | int, tuple[int, int]] = {"": (call.span.start, call.span.end)}
    for number, each in enumerate(call.written):
        places[each.name or number] = (each.span.start, each.span.end)
    named = MappingProxyType({each.name: each.value for each in call.written if each.name})
    return Connector(call.name, call.args, named, MappingProxyType(places))


def _column(name: s.Ident, types: Mapping[str, pa.DataType], binder: Binder) -> str:
    for known in types:
        if known == name.text or (not name.quoted and known.lower() == name.text.lower()):
            return known
    raise binder.error(f"unknown column {name.text!r}; there is {', '.join(types)}", name.span)


def _consistency(e: s.Consistency, binder: Binder) -> AskedConsistency:
    def length(written: s.Length | None) -> int | None:
        return None if written is None else _length(written, binder, binder.tick)

    return AskedConsistency(e.level, length(e.block), length(e.remember))
