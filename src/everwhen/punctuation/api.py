"""The door: all that the rest of the engine uses of punctuation.  What else is in this package is private to it.

A port hands on a `Frontier(time, PunctuationTable)`: how far everything is promised, and the punctuation that is new
(`core/punctuation.py`).  Four operations follow from it:

    store.add(table)                     keep it (`PunctuationStore`)
    store.upto(columns, n) -> times      until when each row is promised
    projection.project(table)            what it says of some columns, renamed (`Projection`)
    intersection.intersect(frontiers)    what several ports say together (`Intersection`, `PortIntersection`)

The last two keep what waits for other punctuation.  What no rule carries over is dropped: less is promised, never too
much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.punctuation.columns.intervals import NO_PIECES
from everwhen.punctuation.first_violation import first_before, first_violation
from everwhen.punctuation.intersect import Intersection, PortIntersection
from everwhen.punctuation.pattern_algebra import combine, patterns_of
from everwhen.punctuation.pattern_json import read_match, show_promise, write_match
from everwhen.punctuation.plain import promises_of, promises_state
from everwhen.punctuation.projection import Projection
from everwhen.punctuation.read import NO_PATTERN, read_promises
from everwhen.punctuation.store import PunctuationStore
from everwhen.punctuation.table import PunctuationTable, joined

__all__ = [
    "NO_PATTERN",
    "NO_PIECES",
    "Frontier",
    "Intersection",
    "PortIntersection",
    "Projection",
    "Punctuation",
    "PunctuationStore",
    "PunctuationTable",
    "combine",
    "compacted",
    "first_before",
    "first_violation",
    "joined",
    "make_frontier",
    "moved",
    "patterns_of",
    "promises_of",
    "promises_state",
    "read_match",
    "read_promises",
    "show_promise",
    "write_match",
]


def make_frontier(time: int, promises: Iterable[Punctuation]) -> Frontier:
    """A frontier with new punctuation: one about everything is progress in time, and what time has passed goes."""
    if isinstance(promises, PunctuationTable):
        time = max(time, promises.everything)
        promises = promises.after(time)
        return Frontier(time, promises) if promises else Frontier(time)
    found = tuple(promises)
    time = max([time, *(promise.t for promise in found if not promise.match)])
    return Frontier(time, tuple(promise for promise in found if promise.match and promise.t > time))


def moved(frontier: Frontier, to: Callable[[int], int]) -> Frontier:
    """The frontier of an operator that maps lifetimes and leaves payloads alone."""
    promises = frontier.promises
    if isinstance(promises, PunctuationTable):
        return make_frontier(to(frontier.time), promises.moved(to))
    return make_frontier(to(frontier.time), (Punctuation(promise.match, to(promise.t)) for promise in promises))


def compacted(promises: Sequence[Punctuation], schema: Schema) -> Sequence[Punctuation]:
    """The same said in fewer punctuations."""
    return read_promises(promises, schema).united() if promises else ()
