"""Public helpers for tests of streams: table literals, histories compared, adversarial arrival orders, batches.

`stream_from_table` reads a stream from a table in a docstring.  `assert_same_history` compares two streams as
histories, that is at every instant, and tells the first one at which they differ.  `reorder` turns a history into
one of the many physical streams that mean it: late, corrected, with wrong events that are taken back, and with CTIs
wherever they are legal.  Hypothesis strategies built on these are in `everwhen.testing.strategies`.

The definitions of the CEDR paper (ordered, closed, consistent, progressive …) come from
`everwhen.testing.cedr_definitions`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from typing import Any, TypeAlias

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History, first_difference
from everwhen.stream.validity import Report, check
from everwhen.testing.cedr_definitions import (
    Verdict,
    closed_up_to,
    concatenated,
    consistent,
    is_closed,
    is_closed_at,
    is_ordered,
    is_perfect,
    is_prefix,
    is_shrink_only,
    is_valid,
    latency_no_greater,
    logical,
    output_watermark,
    physical,
    preserves_order,
    preserves_perfectness,
    progressive,
    strongly_consistent,
    ultra_consistent,
    up_to,
)
from everwhen.testing.tables import TableStream, stream_from_table

__all__ = [
    "Report",
    "Streamlike",
    "TableStream",
    "Verdict",
    "assert_same_history",
    "assert_valid",
    "batches",
    "check",
    "closed_up_to",
    "concatenated",
    "consistent",
    "history_of",
    "is_closed",
    "is_closed_at",
    "is_ordered",
    "is_perfect",
    "is_prefix",
    "is_shrink_only",
    "is_valid",
    "latency_no_greater",
    "logical",
    "output_watermark",
    "physical",
    "preserves_order",
    "preserves_perfectness",
    "progressive",
    "reorder",
    "stream_from_table",
    "strongly_consistent",
    "ultra_consistent",
    "up_to",
]

Streamlike: TypeAlias = "History | TableStream | ElementBatch | Iterable[Element | ElementBatch]"

# --- streams as tables --------------------------------------------------------------------------------------------


# --- comparing ----------------------------------------------------------------------------------------------------


def history_of(stream: Streamlike) -> History:
    """The history of a `Streamlike`: a history, a table, a batch, or elements.  Values give the types.

    >>> print(history_of([Insert(0, 9, {"x": 1}), Adjust(0, 9, 4, {"x": 1})]))
    [0, 4) x=1
    """
    if isinstance(stream, History):
        return stream
    return stream.history() if isinstance(stream, TableStream) else History.of(stream)


def assert_same_history(actual: Streamlike, expected: Streamlike, tolerance: float = 0.0) -> None:
    """Fails unless both streams have the same snapshot at every instant, however they are cut into events.

    >>> assert_same_history([Insert(0, 9, {"x": 1})], [Insert(0, 4, {"x": 1}), Insert(4, 9, {"x": 1})])
    >>> assert_same_history([Insert(0, 9, {"x": 1})], [Insert(0, 5, {"x": 1})])
    Traceback (most recent call last):
    ...
    AssertionError: the histories differ first at instant 5
      extra: x=1
    """
    difference = first_difference(history_of(expected), history_of(actual), tolerance)
    if difference is not None:
        raise AssertionError(f"the histories {difference}")


def assert_valid(stream: TableStream | ElementBatch | Iterable[Element | ElementBatch]) -> Report:
    """Fails unless the stream keeps to its CTIs and punctuation and adjusts existing events only; returns a report.

    >>> assert_valid([Insert(3, 5, {"x": 1}), Cti(5)]).perfect
    True
    >>> assert_valid([Cti(5), Insert(3, 5, {"x": 1})])
    Traceback (most recent call last):
    ...
    AssertionError: the stream is not valid: line 2: insert [3, 5) x=1 changes instant 3, but cti 5 came before
    """
    report = check(stream.elements, stream.schema) if isinstance(stream, TableStream) else check(stream)
    if report.first_offence is not None:
        raise AssertionError(f"the stream is not valid: {report.first_offence}")
    return report


# --- arrival ------------------------------------------------------------------------------------------------------


def reorder(
    stream: Streamlike,
    rng: random.Random,
    *,
    disorder: int | None = 5,
    corrections: float = 0.4,
    wrong: float = 0.2,
    ctis: float = 0.2,
    infinite: bool = True,
    close: bool = True,
    shrink_only: bool = False,
) -> list[Element]:
    """A random legal stream of elements whose history is that of `stream`, event by event.

    `disorder`: an element arrives up to so many ticks late; None: in any order.  `corrections`: the chance that an end
    is wrong at first and adjusted later, again and again, growing and shrinking.  `wrong`: the chance per event of
    another event that is inserted and removed.  `ctis`: the chance of a CTI before an element, as far as what is still
    to come allows.  `infinite`: whether wrong ends may be infinite.  `close`: whether a CTI(∞) comes last.
    `shrink_only`: whether adjusts only shorten lifetimes, as in the CEDR papers.

    >>> history = History.of([Insert(t, t + 3, {"x": t}) for t in range(4)])
    >>> stream = reorder(history, random.Random(1))
    >>> assert_same_history(stream, history)
    >>> len(stream) > 4 and assert_valid(stream).valid
    True
    """
    history = history_of(stream)
    events = [(vs, ve, dict(zip(history.schema.names, row, strict=True))) for vs, ve, row in history.events()]
    times = [t for vs, ve, _ in events for t in (vs, ve) if t != INF]
    kind = _Corrections(max(times, default=0) + 2, rng, corrections, infinite, shrink_only)
    chains = [kind.chain(vs, ve, row) for vs, ve, row in events]
    for _ in events:
        if rng.random() < wrong:
            chains.append(_taken_back(events, times, kind))
    lag = 5 if disorder is None else disorder
    return list(_with_ctis(_arrival(chains, rng, disorder), rng, ctis, lag, close))


@dataclass(frozen=True)
class _Corrections:
    """How the ends of events are wrong at first."""

    latest: int
    rng: random.Random
    chance: float
    infinite: bool
    shrink_only: bool

    def chain(self, vs: int, ve: int, row: Mapping[str, Any]) -> list[Insert | Adjust]:
        """An insert and up to four adjusts, the last of which is right."""
        ends = [ve]
        for _ in range(4):
            if self.rng.random() >= self.chance:
                break
            end = self._end(vs + 1)
            if end != ends[0] and not (self.shrink_only and end < ends[0]):
                ends.insert(0, end)
        return [Insert(vs, ends[0], row), *(Adjust(vs, old, new, row) for old, new in pairwise(ends))]

    def _end(self, first: int) -> int:
        if self.infinite and self.rng.random() < 0.2:
            return INF
        return self.rng.randint(first, max(self.latest, first))


def _taken_back(
    events: list[tuple[int, int, dict[str, Any]]], times: list[int], kind: _Corrections
) -> list[Insert | Adjust]:
    """An event that never was: sometimes the copy of a true one."""
    rng = kind.rng
    vs, ve, row = rng.choice(events)
    if rng.random() < 0.6:
        vs = rng.randint(min(times) - 1, max(times) + 1)
        ve = rng.randint(vs + 1, max(times) + 2)
    elif ve == INF and not kind.infinite:
        ve = vs + 1
    return [*kind.chain(vs, ve, row), Adjust(vs, ve, vs, row)]


def _arrival(chains: list[list[Insert | Adjust]], rng: random.Random, disorder: int | None) -> list[Insert | Adjust]:
    """The elements by sync time plus a random delay; those of one event stay in their order."""
    placed: list[tuple[float, float, int, int, Insert | Adjust]] = []
    for number, elements in enumerate(chains):
        place: tuple[float, float] = (NEVER, 0.0)
        for step, element in enumerate(elements):
            due = rng.random() if disorder is None else element.sync + rng.randint(0, disorder)
            place = max(place, (due, rng.random()))
            placed.append((*place, number, step, element))
    return [element for *_, element in sorted(placed, key=lambda item: item[:4])]


def _with_ctis(
    elements: list[Insert | Adjust], rng: random.Random, ctis: float, lag: int, close: bool
) -> Iterator[Element]:
    """The elements with CTIs in between, up to `lag` behind what no later element contradicts."""
    to_come = [INF] * (len(elements) + 1)
    for i in range(len(elements) - 1, -1, -1):
        to_come[i] = min(to_come[i + 1], elements[i].sync)
    last = NEVER
    for element, limit in zip(elements, to_come, strict=False):
        if rng.random() < ctis:
            t = limit if rng.random() < 0.5 else rng.randint(max(limit - lag, last), limit)
            if t > last:
                yield Cti(t)
                last = t
        yield element
    if close:
        yield Cti(INF)


def batches(
    elements: Iterable[Element], schema: Schema, sizes: int | Iterable[int] | random.Random
) -> list[ElementBatch]:
    """The elements cut into batches: of one size, of the given sizes in turn, or of random ones.

    >>> import pyarrow as pa
    >>> elements = [Insert(t, t + 1, {"x": t}) for t in range(5)]
    >>> [len(batch) for batch in batches(elements, Schema.of([("x", pa.int64())]), 2)]
    [2, 2, 1]
    """
    whole = batch_of(elements, schema)
    if isinstance(sizes, random.Random):
        lengths: Iterator[int] = iter(partial(sizes.choice, (1, 1, 2, 3, 5, 8, 13)), 0)
    else:
        lengths = cycle([sizes] if isinstance(sizes, int) else sizes)
    cut: list[ElementBatch] = []
    offset = 0
    while offset < len(whole):
        length = max(1, next(lengths))
        cut.append(whole.slice(offset, length))
        offset += length
    return cut
