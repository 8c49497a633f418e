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

import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.scalars import python_values
from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
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


@dataclass(frozen=True)
class TableStream:
    """A stream read from a table: elements in arrival order, and their schema.

    >>> stream = stream_from_table('''
    ...     vs | ve | x
    ...     1  | 5  | 7
    ... ''')
    >>> len(stream), stream.batch().vs.tolist()
    (1, [1])
    >>> print(stream.history())
    [1, 5) x=7
    """

    elements: list[Element]
    schema: Schema

    def __iter__(self) -> Iterator[Element]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def history(self) -> History:
        """What the stream says once all its adjusts are applied."""
        return History.of(self.elements, self.schema)

    def batch(self) -> ElementBatch:
        """All elements as one batch."""
        return batch_of(self.elements, self.schema)


def stream_from_table(text: str, schema: Schema | None = None) -> TableStream:
    """A stream from a table literal: a header, then one element per line.

    Columns `op` (left out: all are inserts), `vs`, `ve` (empty: a chronon), `vnew`; every other column is an attribute.
    Times may be `inf` or `∞`.  An empty cell is null; text that looks like something else stands in quotes.  Without a
    schema a column is int64, float64 or bool if all its cells are, else a string.  A `cti` has its time in `vs`.  A
    `punct` promises something about the values in its row (empty: any value), for ever unless `vs` gives a time.

    >>> stream = stream_from_table('''
    ...     op     | vs | ve | vnew | item | price
    ...     insert | 1  | 5  |      | 7    | 2.5
    ...     adjust | 1  | 5  | 3    | 7    | 2.5
    ...     cti    | 4  |    |      |      |
    ... ''')
    >>> for element in stream: print(element)
    insert [1, 5) item=7 price=2.5
    adjust [1, 5 -> 3) item=7 price=2.5
    cti 4
    >>> print(stream.schema, stream.history(), sep=chr(10))
    (item int64, price double)
    [1, 3) item=7 price=2.5
    """
    numbered = [(i, line.strip()) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not numbered:
        raise InputError("an empty table", remedy="the first line names the columns, for example 'vs | ve | item'")
    if numbered[0][1].startswith("|"):  # a table with borders
        numbered = [(i, line.removeprefix("|").removesuffix("|")) for i, line in numbered]
    lines = [(i, [cell.strip() for cell in line.split("|")]) for i, line in numbered]
    header = lines[0][1]
    if "vs" not in header:
        raise InputError(f"a table of elements needs a column 'vs'; there is {', '.join(header)}", line=lines[0][0])
    cells: list[tuple[int, dict[str, str]]] = []
    for i, line in lines[1:]:
        if len(line) > len(header):
            raise InputError(f"{len(line)} cells under {len(header)} column names", line=i)
        line += [""] * (len(header) - len(line))
        cells.append((i, dict(zip(header, line, strict=True))))
    attributes = [name for name in header if name not in RESERVED]
    if schema is None:
        schema = Schema.of([(name, _type_of(row[name] for _, row in cells)) for name in attributes])
    elif sorted(schema.names) != sorted(attributes):
        raise InputError(f"the table has the attributes {attributes}, the schema is {schema}", line=lines[0][0])
    return TableStream([_element(i, row, schema) for i, row in cells], schema)


def _element(line: int, row: Mapping[str, str], schema: Schema) -> Element:
    values = {field.name: _value(row[field.name], field.type, line) for field in schema}
    op = row.get("op") or "insert"
    if op == "punct":
        match = {name: OneOf((value,)) for name, value in values.items() if value is not None}
        return Punct(Punctuation(match, _time(row, "vs", line, INF)))
    vs = _time(row, "vs", line, None)
    match op:
        case "insert":
            return Insert(vs, _time(row, "ve", line, vs + 1), values)
        case "adjust":
            return Adjust(vs, _time(row, "ve", line, vs + 1), _time(row, "vnew", line, None), values)
        case "cti":
            return Cti(vs)
    raise InputError(f"unknown op {op!r}", line=line, remedy="there are insert, adjust, cti and punct")


def _time(row: Mapping[str, str], name: str, line: int, default: int | None) -> int:
    cell = row.get(name, "")
    if cell in ("inf", "∞"):
        return INF
    if not cell and default is not None:
        return default
    try:
        return int(cell)
    except ValueError:
        raise InputError(f"{cell!r} in column {name!r} is no time", line=line, remedy="a whole number or ∞") from None


def _type_of(cells: Iterable[str]) -> pa.DataType:
    there = [cell for cell in cells if cell]
    for type_ in (pa.int64(), pa.float64(), pa.bool_()):
        if there and all(_reads(cell, type_) for cell in there):
            return type_
    return pa.string()


def _reads(cell: str, type_: pa.DataType) -> bool:
    try:
        _value(cell, type_, 0)
    except InputError:
        return False
    return True


def _value(cell: str, type_: pa.DataType, line: int) -> Any:
    if not cell:
        return None
    if cell[0] == cell[-1] and cell[0] in "'\"" and len(cell) > 1:
        if pa.types.is_string(type_):
            return cell[1:-1]
    elif pa.types.is_string(type_):
        return cell
    elif not pa.types.is_boolean(type_) or cell in ("true", "false"):
        try:
            return python_values(pa.array([cell]).cast(type_))[0]
        except pa.ArrowException:
            pass
    raise InputError(f"{cell!r} is not of type {type_}", line=line)


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
