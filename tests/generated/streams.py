"""Random dirty streams: late, out of order, corrected, taken back, doubled, with CTIs and promises about data.

Everything is legal: a promise is put only where all that still comes keeps it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa

import everwhen as ew
from everwhen.algebra.nodes import Source
from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.language.catalog import Catalog, Declaration, Entry
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from generated.lifetimes import FOR_EVER, Event

_ARROW = {"i": pa.int64(), "s": pa.string(), "f": pa.float64(), "d": pa.decimal128(9, 2)}
_ARROW |= {"t": pa.timestamp("us"), "y": pa.date32()}
LATEST = 24
"""No event of a stream starts or ends later, unless it never ends."""


@dataclass(frozen=True)
class Declared:
    """A source of the generated queries."""

    name: str
    columns: tuple[tuple[str, str], ...]
    stream: ew.Stream
    chronons: bool = False
    insert_only: bool = False
    keyed: bool = False
    constant: bool = False
    copy_of: str = ""
    """It says what this other source says, in its own way."""
    since: int | None = None
    """From when on it does so; before that it says nothing."""
    within: int | None = None
    """How far its rows are out of order at most, as it declares (ORDERED BY … WITHIN)."""
    time: str = ""
    """The column of ORDERED BY: in no row, but queries may read it."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(type_ for _, type_ in self.columns)

    @property
    def timed(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and types of the columns with that of its time."""
        return (*self.names, self.time), (*self.types, "i")

    @property
    def schema(self) -> Schema:
        return self.stream.schema


def _declared(
    name: str, columns: str, copy_of: str = "", since: int | None = None, time: str = "", **how: Any
) -> Declared:
    pairs = tuple((each[:-1], each[-1]) for each in columns.replace(":", "").split())
    keys = "k" if how.pop("keyed", False) else ()
    kind = "constant" if how.pop("constant", False) else "stream"
    stream = ew.source(name, {column: _ARROW[t] for column, t in pairs}, keys=keys, kind=kind, **how)
    constant = kind == "constant"
    return Declared(
        name, pairs, stream, keyed=bool(keys), constant=constant, copy_of=copy_of, since=since, time=time, **how
    )


SOURCES: Mapping[str, Declared] = {
    each.name: each
    for each in (
        _declared("A", "k:i v:i s:s"),
        _declared("B", "k:i w:i s:s"),
        _declared("C", "k:i v:i s:s"),
        _declared("P", "k:i v:i x:f", chronons=True),
        _declared("N", "k:i w:i d:d", insert_only=True),
        _declared("K", "k:i v:i s:s", keyed=True),
        _declared("R", "k:i label:s", keyed=True, constant=True),
        _declared("O", "k:i v:i s:s", chronons=True, within=6, time="ts"),
        _declared("D", "k:i t:t y:y s:s"),
        _declared("A2", "k:i v:i s:s", copy_of="A"),
        _declared("A3", "k:i v:i s:s", copy_of="A", since=6),
        _declared("P2", "k:i v:i x:f", copy_of="P", chronons=True),
        _declared("N2", "k:i w:i d:d", copy_of="N", insert_only=True),
        _declared("K2", "k:i v:i s:s", copy_of="K", keyed=True),
    )
}
COPIES: Mapping[str, tuple[str, ...]] = {
    name: found for name in SOURCES if (found := tuple(e.name for e in SOURCES.values() if e.copy_of == name))
}


def _entry(each: Declared) -> Entry:
    node = each.stream.node
    assert isinstance(node, Source)
    ordered = (each.time, pa.int64()) if each.time else None
    return Entry(each.name, node, None if ordered is None else Declaration(node, ordered))


CATALOG = Catalog({each.name: _entry(each) for each in SOURCES.values()})

DATED = ("D",)
"""Sources with dates and timestamps."""
_MOMENTS = tuple(
    map(datetime.fromisoformat, ("2024-02-29 12:30", "2024-01-31", "2024-01-31 23:59:59.999999", "1969-12-31 05:00"))
)

Epoch = tuple[tuple[str, tuple[Element, ...]], ...]


@dataclass(frozen=True)
class World:
    """The streams of a case, as epochs: what each source brings in each."""

    epochs: tuple[Epoch, ...]

    def elements(self, name: str) -> list[Element]:
        return [each for epoch in self.epochs for source, part in epoch if source == name for each in part]

    def events(self, name: str) -> list[Event]:
        history = History.of(self.elements(name), SOURCES[name].schema)
        return [(vs, FOR_EVER if ve == INF else ve, row) for vs, ve, row in history.events()]

    def batches(self) -> list[dict[str, ElementBatch]]:
        return [{name: batch_of(part, SOURCES[name].schema, name) for name, part in epoch} for epoch in self.epochs]

    def promises(self) -> int:
        return sum(isinstance(each, Punct) for epoch in self.epochs for _, part in epoch for each in part)


def value(type_: str, rng: random.Random, nulls: float) -> Any:
    if rng.random() < nulls:
        return None
    match type_:
        case "i":
            return rng.choice((0, 1, 1, 2, 2, 3, -2))
        case "s":
            return rng.choice(("a", "a", "b", "ab", ""))
        case "t":
            return rng.choice(_MOMENTS)
        case "y":
            return rng.choice(_MOMENTS).date()
        case "f":
            return rng.choice((0.0, 0.5, 0.5, -1.25, 2.0, math.inf, -math.inf))
    return Decimal(rng.choice(("0.00", "1.25", "1.25", "-0.50", "2.00")))


def world(rng: random.Random, names: Sequence[str] = tuple(SOURCES), infinite: bool = False) -> World:
    """Streams for the sources, some of them calm, some wild.  That of dates has a generator of its own."""
    own = random.Random()
    own.setstate(rng.getstate())
    dated = [name for name in names if name in DATED]
    names = [name for name in names if name not in DATED]
    streams = {name: _stream(SOURCES[name], rng, infinite) for name in names if not SOURCES[name].copy_of}
    for copy in (SOURCES[name] for name in names if SOURCES[name].copy_of in streams):
        streams[copy.name] = _copied(streams[copy.copy_of], copy, rng, infinite)
    epochs = [dict(epoch) for epoch in cut(streams, rng)] or [{}]
    for name in dated:
        rest = _stream(SOURCES[name], own, infinite)
        for at, epoch in enumerate(epochs):
            n = len(rest) if at == len(epochs) - 1 else own.randint(0, 4)
            taken, rest = rest[:n], rest[n:]
            if taken:
                epoch[name] = tuple(taken)
    return World(tuple(tuple(epoch.items()) for epoch in epochs if epoch))


def in_bound(elements: Sequence[Element], within: int | None) -> bool:
    """Whether nothing is further out of order than is declared, so that nothing is late however it is cut."""
    latest = -INF
    for each in elements:
        if isinstance(each, Insert | Adjust):
            if within is not None and each.sync < latest - within:
                return False
            latest = max(latest, each.vs if isinstance(each, Insert) else latest)
    return True


def cut(streams: Mapping[str, list[Element]], rng: random.Random) -> tuple[Epoch, ...]:
    """Random epochs; relations that are known whole come first."""
    rest = {name: list(elements) for name, elements in streams.items()}
    first = {name: rest.pop(name) for name in list(rest) if SOURCES[name].constant}
    most = rng.choice((1, 2, 4, 8, 40))
    epochs: list[Epoch] = []
    while any(rest.values()) or first:
        taken = {name: tuple(part) for name, part in first.items()}
        first = {}
        for name in rest:
            n = rng.randint(0, most)
            taken[name], rest[name] = tuple(rest[name][:n]), rest[name][n:]
        epochs.append(tuple((name, part) for name, part in taken.items() if part))
    return tuple(epoch for epoch in epochs if epoch)


def without_promises(given: World) -> World:
    """The same world without promises about data."""
    epochs = []
    for epoch in given.epochs:
        kept = [(name, tuple(each for each in part if not isinstance(each, Punct))) for name, part in epoch]
        epochs.append(tuple((name, part) for name, part in kept if part))
    return World(tuple(epochs))


def _stream(source: Declared, rng: random.Random, infinite: bool) -> list[Element]:
    if source.constant:
        rows = [{"k": k, "label": value("s", rng, 0.1)} for k in rng.sample((0, 1, 2, 3, -2), rng.randint(1, 4))]
        return [*(Insert(0, INF, row) for row in rows), Cti(INF)]
    nulls = rng.choice((0.0, 0.15, 0.4))
    longest = 1 if source.chronons else rng.choice((1, 3, 8, 15))
    events: list[tuple[int, int, dict]] = []
    keys = rng.sample(range(-2, 9), 11)
    for _ in range(rng.randint(1, 9)):
        row = {name: value(type_, rng, nulls) for name, type_ in source.columns}
        if source.keyed:
            row["k"] = keys.pop()
        vs = rng.randint(0, LATEST - longest)
        ve = vs + rng.randint(1, longest)
        if infinite and not source.chronons and rng.random() < 0.25:
            ve = INF
        events += [(vs, ve, row)] * (2 if rng.random() < 0.2 and not source.keyed else 1)
    return _said(events, source, rng, infinite)


def _said(events: list[tuple[int, int, dict]], source: Declared, rng: random.Random, infinite: bool) -> list[Element]:
    """A way to say these events, with wrong ends, and others that are taken back."""
    longest = 1 if source.chronons else rng.choice((1, 3, 8, 15))
    chains = [_chain(vs, ve, row, source, rng, infinite) for vs, ve, row in events]
    for vs, _, row in events:
        if rng.random() < 0.25 and not source.insert_only and not source.keyed:
            at = vs if rng.random() < 0.4 else rng.randint(source.since or 0, LATEST - longest)
            chain = _chain(at, at + rng.randint(1, longest), row, source, rng, infinite)
            last = chain[-1]
            chain.append(Adjust(at, last.vnew if isinstance(last, Adjust) else last.ve, at, row))
            chains.append(chain)
    disorder = rng.choice((0, 3, 10)) if source.within is None else rng.randint(0, source.within)
    return _promising(_arrival(chains, rng, disorder), source, rng)


def _copied(original: list[Element], source: Declared, rng: random.Random, infinite: bool) -> list[Element]:
    """The same events, said in another way."""
    first = 0 if source.since is None else source.since
    events = [
        (max(vs, first), ve, dict(zip(source.names, row, strict=True)))
        for vs, ve, row in History.of(original, source.schema).events()
        if ve > first
    ]
    return _said(events, source, rng, infinite)


def _chain(vs: int, ve: int, row: dict, source: Declared, rng: random.Random, infinite: bool) -> list[Insert | Adjust]:
    """An event whose end is wrong at first, sometimes again and again."""
    ends = [ve]
    while not source.insert_only and not source.chronons and rng.random() < 0.3:
        end = INF if infinite and rng.random() < 0.3 else rng.randint(vs + 1, LATEST)
        if end != ends[0]:
            ends.insert(0, end)
    steps = [Adjust(vs, old, new, row) for old, new in pairwise(ends)]
    return [Insert(vs, ends[0], row), *steps]


def _arrival(chains: list[list[Insert | Adjust]], rng: random.Random, disorder: int) -> list[Insert | Adjust]:
    placed = []
    for number, chain in enumerate(chains):
        due = -1.0
        for step, element in enumerate(chain):
            due = max(due, min(element.sync, LATEST) + rng.random() * (disorder + 0.01))
            placed.append((due, number, step, element))
    return [each[3] for each in sorted(placed, key=lambda each: each[:3])]


def _promising(elements: list[Insert | Adjust], source: Declared, rng: random.Random) -> list[Element]:
    """CTIs and promises about data between the elements, where what still comes keeps them."""
    ctis, puncts = rng.choice((0.0, 0.2, 0.6)), rng.choice((0.0, 0.0, 0.15, 0.5))
    found: list[Element] = []
    last = -1
    for at in range(len(elements) + 1):
        rest = elements[at:]
        if rng.random() < ctis:
            limit = min((each.sync for each in rest), default=INF)
            t = limit if limit == INF or rng.random() < 0.6 else rng.randint(min(limit - 4, last), limit)
            if t > last:
                found.append(Cti(t))
                last = t
        if rng.random() < puncts and (promise := _promise(elements, rest, source, rng)) is not None:
            found.append(Punct(promise))
        if rest:
            found.append(rest[0])
    return found


def _promise(
    all_: list[Insert | Adjust], rest: list[Insert | Adjust], source: Declared, rng: random.Random
) -> Punctuation | None:
    columns = rng.sample(source.columns, rng.choice((1, 1, 1, 2)))
    likely = rng.choice(all_).row if all_ else {}
    match = {name: _pattern(type_, likely.get(name), rng) for name, type_ in columns}
    until = min((each.sync for each in rest if Punctuation(match).matches(each.row)), default=INF)
    if until > 0 and rng.random() < 0.3:
        until = min(until, rng.randint(1, LATEST))
    return Punctuation(match, until) if until > 0 else None


def _pattern(type_: str, likely: Any, rng: random.Random) -> AttributePattern:
    drawn = [value(type_, rng, 0.1) for _ in range(3)]
    if rng.random() < 0.6:
        return OneOf((likely if rng.random() < 0.8 else drawn[0],))
    if rng.random() < 0.5:
        return OneOf(tuple(dict.fromkeys([likely, *drawn])))
    low = likely if likely is not None else value(type_, rng, 0.0)
    below = Range(le=low) if low in ("", -math.inf) else Range(lt=low)  # nothing is less than these
    return rng.choice((Range(ge=low), Range(le=low), Range(gt=low), below, Range(ge=low, le=low)))
