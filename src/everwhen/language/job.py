"""The text of a job: streams and where they come from, sinks, and what is written to each.

    >>> found = job_program('''
    ...     CREATE STREAM Bid (item INT, price INT, at TIMESTAMP) ORDERED BY at SOURCE file('bids.jsonl');
    ...     CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10 MINUTES) GROUP BY item;
    ...     CREATE SINK best FROM Best INTO changelog('best');
    ...     CREATE SINK dear INTO file('dear.jsonl', form = 'append');
    ...     INSERT INTO dear SELECT item FROM Best WHERE price > 100''')
    >>> for name, sink in found.sinks.items():
    ...     print(name, sink.connector, sink.query.schema)
    best changelog('best') (item int64, price int64)
    dear file('dear.jsonl', form = 'append') (item int64)

A job ends with no query of its own.  Several INSERT INTO one sink write the rows of all of them (UNION ALL), so they
have the same columns and ask for the same consistency.  Every sink is written.  A sink may be called as a stream is:
INSERT INTO means sinks, FROM means streams.  DROP SINK forgets one, unless an INSERT INTO writes to it.  What
connectors are there and which options they have is not known here: `everwhen.jobs` checks it, at the places that are
kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.errors import SqlError
from everwhen.language import syntax as s
from everwhen.language.binding.binder import Binder
from everwhen.language.catalog import Catalog, Connector, Declaration
from everwhen.language.parse import parse
from everwhen.language.program import Answer, AskedConsistency, ask, connector_of, declare


@dataclass(frozen=True, slots=True)
class SinkText:
    """A sink and the query that it takes.  `span`: where it was declared."""

    name: str
    connector: Connector
    query: Stream
    consistency: AskedConsistency | None
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class JobProgram:
    """A text as a job.  `sources`: the streams that are read, by name."""

    text: str
    sinks: Mapping[str, SinkText]
    sources: Mapping[str, Declaration]
    catalog: Catalog = field(repr=False)

    def error(self, problem: str, place: tuple[int, int]) -> SqlError:
        """An error at a place of the text."""
        return SqlError(problem, self.text, *place)


@dataclass(frozen=True)
class _Sink:
    statement: s.CreateSink
    answer: Answer | None = None
    inserts: tuple[s.Span, ...] = ()


KeyOf = Callable[[Declaration], tuple[str, ...]]


def job_program(
    text: str, catalog: Catalog | None = None, tick: str = "1ms", key_of: KeyOf = lambda _: ()
) -> JobProgram:
    """The text of a job; `SqlError` says what is wrong and where.  `key_of`: the columns by which rows of a source
    replace each other, if they do."""
    catalog = catalog or Catalog()
    sinks: dict[str, _Sink] = {}
    for statement in parse(text):
        match statement:
            case s.Ask():
                raise _error(
                    "a job has no answer of its own: write INSERT INTO a sink in front of the query (everwhen run "
                    "answers a query)",
                    text,
                    statement.span,
                )
            case s.CreateSink():
                catalog = _create(statement, text, catalog, tick, sinks)
            case s.InsertInto(name, query):
                known = _known(name, text, catalog, sinks)
                answer, catalog = _asked(query, text, catalog, tick, sinks)
                both = _both(sinks[known].answer, answer, text, statement.span)
                inserts = (*sinks[known].inserts, statement.span)
                sinks[known] = replace(sinks[known], answer=both, inserts=inserts)
            case s.Drop(name, if_exists, sink=True):
                if not if_exists or _named(name, sinks) is not None:
                    _drop(_known(name, text, catalog, sinks), name, text, sinks)
            case s.CreateSource():
                catalog = _keyed(declare(statement, text, catalog, tick), statement.name, key_of)
            case _:
                catalog = declare(statement, text, catalog, tick)
    return _program(text, catalog, sinks)


def _keyed(catalog: Catalog, name: s.Ident, key_of: KeyOf) -> Catalog:
    """The catalogue after a source was declared.  If its rows replace each other, it varies, and no two rows that are
    there together agree on its key."""
    entry = catalog.stream(name.text, quoted=True)
    assert entry is not None and entry.declaration is not None
    declared = entry.declaration
    key = key_of(declared)
    if not key or not set(key) <= set(declared.schema.names) or declared.source.is_finite:
        return catalog
    keys = declared.source.keys if key in declared.source.keys else (*declared.source.keys, key)
    source = replace(declared.source, kind="varying", keys=keys)
    return catalog.with_entry(replace(entry, node=source, declaration=replace(declared, source=source)), replacing=True)


def _drop(known: str, name: s.Ident, text: str, sinks: dict[str, _Sink]) -> None:
    if sinks[known].inserts:
        line = text.count("\n", 0, sinks[known].inserts[0].start) + 1
        problem = (
            f"the sink {known} cannot be dropped: INSERT INTO in line {line} writes to it; leave that out, or this"
        )
        raise _error(problem, text, name.span)
    del sinks[known]


def _create(statement: s.CreateSink, text: str, catalog: Catalog, tick: str, sinks: dict[str, _Sink]) -> Catalog:
    name = statement.name
    if any(known.lower() == name.text.lower() for known in sinks):
        raise _error(f"there is a sink {name.text!r} already", text, name.span)
    answer: Answer | None = None
    if statement.stream is not None:
        answer, catalog = _whole(statement.stream, text, catalog, tick)
    elif statement.query is not None:
        answer, catalog = _asked(statement.query, text, catalog, tick, sinks)
    sinks[name.text] = _Sink(statement, answer)
    return catalog


def _whole(stream: s.Ident, text: str, catalog: Catalog, tick: str) -> tuple[Answer, Catalog]:
    """A stream as it is."""
    binder = Binder(text, catalog, tick)
    node = binder.stream(stream)
    if node is None:
        raise binder.error(catalog.unknown(stream.text), stream.span)
    return Answer(node, frozenset(binder.read), None), binder.catalog


def _asked(query: s.Ask, text: str, catalog: Catalog, tick: str, sinks: Mapping[str, _Sink]) -> tuple[Answer, Catalog]:
    try:
        return ask(query, text, catalog, tick)
    except SqlError as bad:
        for name in sinks:
            if bad.problem.lower().startswith(f"unknown stream {name.lower()!r}"):
                problem = f"{name} is a sink, which is written and not read; name the query with CREATE STREAM … AS"
                raise SqlError(problem, text, bad.start, bad.start + len(name)) from None
        raise


def _named(name: s.Ident, sinks: Mapping[str, _Sink]) -> str | None:
    for known in sinks:
        if known == name.text or (not name.quoted and known.lower() == name.text.lower()):
            return known
    return None


def _known(name: s.Ident, text: str, catalog: Catalog, sinks: Mapping[str, _Sink]) -> str:
    found = _named(name, sinks)
    if found is not None:
        return found
    if catalog.stream(name.text, name.quoted) is not None:
        raise _error(f"{name.text} is a stream; what is written to is a sink: CREATE SINK … INTO …", text, name.span)
    near = difflib.get_close_matches(name.text.lower(), [known.lower() for known in sinks], n=1)
    there = f"there is {', '.join(sinks)}" if sinks else "declare it first: CREATE SINK name INTO …"
    hint = f"did you mean {near[0]!r}?" if near else there
    raise _error(f"unknown sink {name.text!r}; {hint}", text, name.span)


def _both(first: Answer | None, second: Answer, text: str, span: s.Span) -> Answer:
    if first is None:
        return second
    if first.consistency != second.consistency:
        raise _error("all that is written to one sink asks for the same CONSISTENCY", text, span)
    if first.node.schema != second.node.schema:
        raise _error(
            f"all that is written to one sink has the same columns: before {first.node.schema}, here "
            f"{second.node.schema}",
            text,
            span,
        )
    return Answer(n.Union(first.node, second.node), first.reads | second.reads, first.consistency)


def _program(text: str, catalog: Catalog, sinks: Mapping[str, _Sink]) -> JobProgram:
    found: dict[str, SinkText] = {}
    for name, sink in sinks.items():
        place = sink.statement.span.start, sink.statement.span.end
        if sink.answer is None:
            problem = f"nothing is written to the sink {name}; write INSERT INTO {name} SELECT …, or CREATE SINK … FROM"
            raise _error(problem, text, sink.statement.name.span)
        answer = sink.answer
        found[name] = SinkText(name, connector_of(sink.statement.into), Stream(answer.node), answer.consistency, place)
    if not found:
        raise SqlError("the job writes nothing: add CREATE SINK name INTO …, and INSERT INTO it", text, 0, 0)
    sources: dict[str, Declaration] = {}
    for sink_text in found.values():
        for node in n.walk(sink_text.query.node):
            if isinstance(node, n.Source) and node.name not in sources:
                entry = catalog.stream(node.name, quoted=True)
                declared = None if entry is None else entry.declaration
                sources[node.name] = Declaration(node, declared=False) if declared is None else declared
    return JobProgram(text, MappingProxyType(found), MappingProxyType(sources), catalog)


def _error(problem: str, text: str, span: s.Span) -> SqlError:
    return SqlError(problem, text, span.start, span.end)
