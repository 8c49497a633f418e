"""A plan's meaning: every node as a logical stream, straight from its definition.

`evaluate` gives the stream of any plan, `history` its events in canonical level form, and `events` the events
themselves for the nodes whose definition is about events (CEDR report, definitions 3 and 6) and not about snapshots.
Slow on purpose: each snapshot is computed from nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from everwhen.algebra.nodes import (
    Aggregate,
    AlterLifetime,
    Coalesce,
    Deletes,
    Distinct,
    Filter,
    Fixpoint,
    Granularity,
    Join,
    LMerge,
    Map,
    MatchRecognize,
    Node,
    Over,
    Punctuate,
    Rank,
    Recursion,
    RelationToStream,
    RowsWindow,
    SetOperation,
    Sort,
    Source,
    Span,
    Split,
    Stamp,
    TimeWindow,
    Union,
    Unnest,
    Values,
    reads_recursion,
    walk,
)
from everwhen.algebra.table_nodes import BEGINS
from everwhen.core.time import INF
from everwhen.errors import InputError, QueryError
from everwhen.reference import instants, relational, temporal
from everwhen.reference.logical import Event, Instants, LogicalStream, Snapshot, stream_of
from everwhen.reference.order import canonical_row
from everwhen.reference.patterns import matches
from everwhen.reference.ranks.frames import framed
from everwhen.reference.ranks.rank import ranked
from everwhen.reference.recursion import fixpoint
from everwhen.stream.history import History

Inputs = Mapping[str, History]


def evaluate(node: Node, inputs: Inputs) -> LogicalStream:
    """The logical stream that a plan defines over the histories of its sources."""
    done: dict[Node, LogicalStream] = {}
    for each in walk(node):
        if isinstance(each, Fixpoint):
            done[each] = _fixpoint(each, done)
        elif all(child in done for child in each.inputs) and not isinstance(each, Recursion):
            done[each] = _stream(each, [done[child] for child in each.inputs], inputs)
    return done[node]


def _fixpoint(node: Fixpoint, done: Mapping[Node, LogicalStream]) -> LogicalStream:
    """A recursion is snapshot-reducible in what its base and its step read from outside."""
    below = [each for each in walk(node.base, node.step) if not reads_recursion(each, node.token)]
    read = {each: done[each] for each in below if each in done}  # not what is on a loop further in
    start = min(s.start for s in read.values())
    return LogicalStream(
        start, lambda t: fixpoint(node, lambda each: read[each].at(t), snapshot), instants.same_as(*read.values())
    )


def history(node: Node, inputs: Inputs, first: int | None = None, last: int | None = None) -> History:
    """The result as a history in canonical level form, whole or on the instants `first <= t < last`."""
    levels = evaluate(node, inputs).levels(first, last)
    return History(node.schema, MappingProxyType(dict(Counter(levels))))


def _stream(node: Node, streams: list[LogicalStream], inputs: Inputs) -> LogicalStream:
    match node:
        case Source() | Values() | AlterLifetime() | Deletes() | Stamp():
            return stream_of(events(node, inputs))
        case Span():
            return stream_of(events(node, inputs))
        case Split() | Coalesce():  # lifetimes cut otherwise, the same snapshots (11.7)
            return streams[0]
        case Punctuate() | Sort():  # promises and the order of the output are no part of a history
            return streams[0]
        case TimeWindow(_, size, slide):
            (s,) = streams
            return _over(s, lambda t: temporal.time_window(s, size, slide, t), instants.of_time_window(s, size, slide))
        case RowsWindow(input, rows, slide, partition):
            (s,) = streams
            keys = tuple(input.schema.index(name) for name in partition)
            found = instants.of_rows_window(s, rows, slide, keys)
            return _over(s, lambda t: temporal.rows_window(s, rows, slide, keys, t), found)
        case LMerge(_, since):  # copies of one history: any that is right there

            def at_copy(t: int) -> Snapshot:
                return next((s.at(t) for s, first in zip(streams, since, strict=True) if first <= t), Snapshot())

            return LogicalStream(min(s.start for s in streams), at_copy, instants.same_as(*streams))
        case Granularity(_, granule):
            (s,) = streams
            return _over(s, lambda t: temporal.granularity(s, granule, t), instants.of_granularity(s, granule))
        case RelationToStream(_, kind):
            (s,) = streams
            return _over(s, lambda t: temporal.relation_to_stream(s, kind, t), instants.of_difference(s))
        case _:  # snapshot-reducible (definition 10.2)
            start = min(s.start for s in streams)
            at: Callable[[int], Snapshot] = lambda t: snapshot(node, *(s.at(t) for s in streams))  # noqa: E731
            return LogicalStream(start, at, instants.same_as(*streams))


def _over(s: LogicalStream, at: Callable[[int], Snapshot], changes: Instants) -> LogicalStream:
    return LogicalStream(s.start, at, changes)


def snapshot(node: Node, *inputs: Snapshot) -> Snapshot:
    """A standard operator applied to one snapshot of each input."""
    match node:
        case Filter(input, predicate):
            return relational.filtered(inputs[0], input.schema, predicate)
        case Map(input, columns):
            return relational.mapped(inputs[0], input.schema, columns)
        case Unnest():
            return relational.unnested(inputs[0], node)
        case Union():
            return relational.union(*inputs)
        case Join():
            return relational.joined(node, *inputs)
        case Distinct():
            return relational.distinct(*inputs)
        case SetOperation(_, _, kind):
            return relational.set_operation(kind, *inputs)
        case Aggregate(input, keys, aggregations):
            return relational.aggregated(inputs[0], input.schema, keys, aggregations)
        case MatchRecognize():
            return matches(node, *inputs)
        case Rank():
            return ranked(node, *inputs)
        case Over():
            return framed(node, *inputs)
        case _:
            raise QueryError(f"{type(node).__name__} has no meaning on a single snapshot")


def events(node: Node, inputs: Inputs) -> list[Event]:
    """The events `(vs, ve, row)` of a node that keeps its input's event boundaries, or makes new ones."""
    match node:
        case Source(name):
            if name not in inputs:
                raise QueryError(f"no history for the source {name!r}; there is {', '.join(inputs) or 'none'}")
            return [(vs, ve, canonical_row(row)) for vs, ve, row in inputs[name].events()]
        case Values(_, rows):
            return [(BEGINS, INF, canonical_row(row)) for row in rows]
        case Filter(input, predicate):  # definition 3
            return [e for e in events(input, inputs) if relational.holds(predicate, input.schema, e[2])]
        case Map(input, columns):
            found = events(input, inputs)
            return [(vs, ve, relational.mapped_row(row, input.schema, columns)) for vs, ve, row in found]
        case Unnest(input):
            found = events(input, inputs)
            return [(vs, ve, made) for vs, ve, row in found for made in relational.unnested_row(row, node)]
        case Union(left, right):
            return events(left, inputs) + events(right, inputs)
        case Punctuate(input):
            return events(input, inputs)
        case LMerge(copies):
            return events(copies[0], inputs)
        case Coalesce(input, longest):
            return [piece for e in evaluate(input, inputs).levels() for piece in _pieces(e, longest)]
        case AlterLifetime(input):  # definition 6
            return [(*altered(node, vs, ve), row) for vs, ve, row in events(input, inputs)]
        case Stamp(input, _, end):
            stamped = [
                (e, (e[0],) if end is None else (e[0], None if e[1] == INF else e[1])) for e in events(input, inputs)
            ]
            return [(vs, ve, (*row, *times)) for (vs, ve, row), times in stamped]
        case Span(input, start, end):  # a row for each instant of a row
            at = [input.schema.index(name) for name in (start, end)]
            found = evaluate(input, inputs).levels()
            return [(row[at[0]], row[at[1]], row) for vs, ve, row in found for _ in range(vs, ve)]
        case Deletes(input):  # Π(Ve, ∞); what never ends is never deleted
            return [(ve, INF, row) for _, ve, row in events(input, inputs) if ve != INF]
        case _:
            raise QueryError(f"{type(node).__name__} is defined by its snapshots: its events have no fixed boundaries")


def altered(node: AlterLifetime, vs: int, ve: int) -> tuple[int, int]:
    """The new lifetime of an event (definition 6, in the vocabulary of `AlterLifetime`)."""
    start = vs // node.hop * node.hop + node.shift
    if node.length is None:
        return start, INF if ve == INF else ve + node.shift
    return start, INF if node.length == INF else start + node.length


def _pieces(event: Event, longest: int | None) -> list[Event]:
    """An event cut into pieces of at most `longest`, anchored at its start (11.7)."""
    vs, ve, row = event
    if longest is None:
        return [event]
    if ve == INF:
        raise InputError(
            "a lifetime without end was to be cut into pieces", remedy="leave the longest lifetime out of coalesce"
        )
    return [(at, min(at + longest, ve), row) for at in range(vs, ve, longest)]
