"""A stream, a relation or a query of a session's catalogue, as users see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from everwhen.algebra.nodes import Source
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.schema import Schema
from everwhen.engine.session.query_registry import State
from everwhen.errors import QueryError
from everwhen.language.catalog import Entry


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream or relation of the catalogue.

    `kind` is stream, constant, temporal, varying or derived; `times` are the columns that tell lifetimes; `made_from`
    the entries that a derived one reads; `read_by` derived streams and running queries; `is_running`: it is part of the
    running graph.
    """

    name: str
    kind: str
    schema: Schema
    keys: tuple[tuple[str, ...], ...]
    times: tuple[str, ...]
    made_from: tuple[str, ...]
    read_by: tuple[str, ...]
    is_running: bool
    text: str


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query of the session.  `reads` names streams of the catalogue, `sources` those that bring its data.

    `since` counts epochs; from the instant `valid_from` on every snapshot of the answer is right (`session.py`).
    """

    name: str
    text: str
    schema: Schema
    state: State
    since: int
    valid_from: int
    reads: tuple[str, ...]
    sources: tuple[str, ...]
    error: str
    consistency: Consistency = MIDDLE


def looked_at(query: SqlQuery) -> str:
    """The name of a query that runs."""
    if query.state != "running":
        how = f"has failed ({query.error})" if query.error else f"is {query.state}"
        raise QueryError(f"the query {query.name!r} {how}, so there is nothing to look at")
    return query.name


def stream_infos(
    entries: Mapping[str, Entry], queries: Mapping[str, Collection[str]], derived: Collection[str]
) -> list[StreamInfo]:
    """The entries of a catalogue; `queries`: what each running query reads, `derived`: which entries are derived."""
    used: set[str] = set()
    left = [name for reads in queries.values() for name in reads]
    while left:
        name = left.pop()
        if name not in used:
            used.add(name)
            left += entries[name].reads
    return [_stream_info(entry, entries, queries, derived, entry.name in used) for entry in entries.values()]


def _stream_info(
    entry: Entry,
    entries: Mapping[str, Entry],
    queries: Mapping[str, Collection[str]],
    derived: Collection[str],
    is_running: bool,
) -> StreamInfo:
    readers = [other.name for other in entries.values() if entry.name in other.reads]
    readers += [name for name, reads in queries.items() if entry.name in reads]
    times: tuple[str, ...] = ()
    if entry.declaration is not None:
        pairs = (entry.declaration.ordered_by, *(entry.declaration.period or ()))
        times = tuple(pair[0] for pair in pairs if pair is not None)
    source = entry.node if isinstance(entry.node, Source) and entry.name not in derived else None
    return StreamInfo(
        entry.name,
        "derived" if source is None else source.kind,
        entry.node.schema,
        () if source is None else source.keys,
        times,
        tuple(sorted(entry.reads)),
        tuple(readers),
        is_running,
        entry.text,
    )
