"""What windows, granularities, lifetimes and conversions mean, from their definitions, at every instant.

A stream here is its events; the snapshot of a derived stream is given for each instant, and its events are then the
maximal intervals in which a row is there at least k times.  Slow, short, and independent of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from generated.tree import Lifetimes

FIRST, LAST = -10, 64
"""All that changes does so between these instants."""
INSTANTS = range(FIRST, LAST)
FOR_EVER = 10**9

Row = tuple[Any, ...]
Event = tuple[int, int, Row]
Snapshots = list[Counter[Row]]


def snapshots(events: Sequence[Event]) -> Snapshots:
    """What is alive at each instant."""
    found: Snapshots = [Counter() for _ in INSTANTS]
    for vs, ve, row in events:
        for t in range(max(vs, FIRST), min(ve, LAST)):
            found[t - FIRST][row] += 1
    return found


def events_of(given: Snapshots) -> list[Event]:
    """Canonical level form; what is alive at the last instant lives for ever."""
    found: list[Event] = []
    for row in {row for each in given for row in each}:
        counts = [each[row] for each in given]
        for level in range(1, max(counts) + 1):
            start: int | None = None
            for t, count in zip([*INSTANTS, LAST], [*counts, 0], strict=True):
                if count >= level and start is None and t < LAST:
                    start = t
                elif start is not None and (count < level or t == LAST):
                    found.append((start, FOR_EVER if t == LAST else t, row))
                    start = None
    return found


def changed(events: Sequence[Event] | None, given: Snapshots, how: Lifetimes, names: Sequence[str]) -> Snapshots:
    """The snapshots of a stream after what is done to its lifetimes; `events` only of a source."""
    found = given
    match how.around:
        case "ISTREAM":
            found = [now - before for before, now in zip([Counter(), *found], found, strict=False)]
            events = None
        case "DSTREAM":
            found = [before - now for before, now in zip([Counter(), *found], found, strict=False)]
            events = None
        case "INSERTS" | "DELETES":
            known = events_of(found) if events is None else events
            ends = how.around == "DELETES"
            events = [(ve if ends else vs, FOR_EVER, row) for vs, ve, row in known if not (ends and ve == FOR_EVER)]
            found = snapshots(events)
        case "COALESCE" | "RSTREAM":
            events = None
    if how.window is not None:
        found, events = _windowed(found, how, names), None
    if how.granularity:
        found = [found[max(t // how.granularity * how.granularity, FIRST) - FIRST] for t in INSTANTS]
        events = None
    if how.lifetime is not None:
        found = snapshots([_altered(each, how.lifetime) for each in (events_of(found) if events is None else events)])
    return found


def _altered(event: Event, lifetime: tuple[int, int, int, int]) -> Event:
    vs, ve, row = event
    hop, align, shift, length = lifetime
    start = (vs - align) // max(hop, 1) * max(hop, 1) + align + shift
    return start, start + length if length else ve + shift if ve != FOR_EVER else ve, row


def _windowed(given: Snapshots, how: Lifetimes, names: Sequence[str]) -> Snapshots:
    assert how.window is not None
    kind, length, slide = how.window
    match kind:
        case "now":
            return given
        case "unbounded":
            return list(accumulate(given))
        case "range":
            step = max(slide, 1)
            found = []
            for t in INSTANTS:
                last = (t + 1) // step * step - 1
                seen: Counter[Row] = Counter()
                for u in range(max(last - length + 1, FIRST), last + 1):
                    seen += given[u - FIRST]
                found.append(seen)
            return found
    keys = [names.index(name) for name in how.partition]
    arrived: dict[Row, list[Row]] = {}
    found = []
    for now in given:
        for row in sorted(now.elements(), key=order):
            arrived.setdefault(tuple(row[key] for key in keys), []).append(row)
        shown: Counter[Row] = Counter()
        for rows in arrived.values():
            until = len(rows) // max(slide, 1) * max(slide, 1)
            shown.update(rows[max(until - length, 0) : until])
        found.append(shown)
    return found


def order(row: Row) -> tuple[Any, ...]:
    """By value, column by column, nulls first; floats that are no numbers are texts in rows, NaN is the largest."""
    return tuple(_placed(value) for value in row)


def _placed(value: Any) -> tuple[Any, ...]:
    match value:
        case None:
            return (0,)
        case "inf" | "-inf":
            return (1, float(value))
        case "nan":
            return (2,)
        case _:
            return (1, value)
