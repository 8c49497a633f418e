"""Promises about data on their way between buckets, as control rows (Tucker et al.; `core/punctuation.py`).

    a  the bucket that says it        b  until when        c  the kind        w  the stream, or the query
    note  {"match": the other patterns, "slots": the columns whose constants stand in the row's slots}

A promise that binds all columns by which a stream's rows are spread, to constants, goes to the buckets of these
constants only: the row's slots hold them, and the JVM places the row as it places data.  Any other one goes to every
bucket.  Constants that a bucket has merged to a range are written out again.

    WHOLE   holds for the stream as it is: its source has said it
    OWNED   said by a bucket, about rows that one bucket alone can say; holds if it is that bucket (`own_words`)
    PART    said by a bucket of its own rows; holds when all buckets have said so (`PortIntersection`)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen.core.punctuation import AttributePattern, Frontier, OneOf, Punctuation, Range
from everwhen.core.scalars import Unfit, from_python, python_values
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.errors import EverwhenError, InputError
from everwhen.punctuation.api import read_match, write_match
from everwhen.spark.exchange.faults import fault_text
from everwhen.spark.exchange.schema import ERROR, PROMISE, ExchangeSchema, control, slots
from everwhen.values.order import Kind, order_of
from everwhen.values.sets import run_of

WHOLE: Final = 0
OWNED: Final = 1
PART: Final = 2
BY_HASH: Final = -1
"""The bucket of a row that is to be placed by its slots."""
MOST_CONSTANTS: Final = 100_000
"""So many combinations of constants stand in rows of their own; beyond, a promise goes as it is."""
LONGEST_RUN: Final = 4096
"""Constants that a bucket has merged to a range are written out again, if they are not more than that."""


@dataclass(frozen=True)
class Address:
    """Where the promises about a stream go: `by` as its rows (None: to every bucket); `own` are the columns that tell
    which bucket of the stage before says a row, if they do."""

    tag: int
    schema: Schema
    by: tuple[str, ...] | None
    own: tuple[str, ...] | None = None
    everywhere: bool = True
    """Else the driver alone reads them."""


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sort:
    """What the rows of several promises have in common; `listed` are the columns whose constants stand in slots."""

    kind: int
    until: int
    placed: bool
    listed: tuple[str, ...]
    rest: str


def promise_rows(
    layout: ExchangeSchema, address: Address, promises: Iterable[Punctuation], buckets: int, sender: int | None
) -> Iterator[pa.RecordBatch]:
    """Control rows for promises of a source (no sender), or of a bucket; one batch for those that are alike."""
    alike: dict[_Sort, list[tuple[Any, ...]]] = {}
    for promise in promises:
        longest = 1 if sender is None else LONGEST_RUN
        by = _constants(promise, address.by, address.schema, longest)
        own = _constants(promise, address.own, address.schema, longest) if sender is not None and buckets > 1 else {}
        listed = {**own, **by}
        counts = [len(values) for values in listed.values()]
        if prod(counts) > max(MOST_CONSTANTS, *counts, 0):  # a list of its own may be as long as it is
            listed, by, own = {}, {}, {}
        kind = WHOLE if sender is None or buckets == 1 else OWNED if own else PART
        rest = {name: pattern for name, pattern in promise.match.items() if name not in listed}
        text = json.dumps(write_match(rest, address.schema), ensure_ascii=False)
        sort = _Sort(kind, promise.t, bool(by), tuple(listed), text)
        alike.setdefault(sort, []).extend(product(*listed.values()))
    for sort, rows in alike.items():
        yield _batch(layout, address, sort, rows, buckets, sender)


def _batch(
    layout: ExchangeSchema,
    address: Address,
    sort: _Sort,
    rows: Sequence[tuple[Any, ...]],
    buckets: int,
    sender: int | None,
) -> pa.RecordBatch:
    targets = [BY_HASH] if sort.placed else list(range(buckets)) if address.everywhere else [0]
    n = len(rows) * len(targets)
    head = {
        "tag": PROMISE, "a": -1 if sender is None else sender, "b": sort.until, "c": sort.kind, "w": address.tag,
        "note": f'{{"match": {sort.rest}, "slots": {json.dumps(sort.listed)}}}',
    }  # fmt: skip
    named = dict(zip(address.schema.names, slots(address.schema), strict=True))
    columns = dict(zip((named[name][0] for name in sort.listed), zip(*rows, strict=True), strict=True)) if rows else {}
    arrays = []
    for name, type_ in layout.columns:
        if name == "bucket":
            found = pa.array(np.tile(targets, len(rows)), type_)
        elif name in columns:
            found = from_python([value for value in columns[name] for _ in targets], type_)
        else:
            found = pa.repeat(pa.scalar(head[name], type_), n) if name in head else pa.nulls(n, type_)
        arrays.append(found)
    return pa.RecordBatch.from_arrays(arrays, schema=layout.arrow)


def _constants(
    promise: Punctuation, names: Sequence[str] | None, schema: Schema, longest: int
) -> dict[str, tuple[Any, ...]]:
    """The constants to which a promise binds columns; empty if it does not bind all of them so."""
    found = {}
    for name in names or ():
        values = _values(promise.match.get(name), name, schema, longest)
        if values is None:
            return {}
        found[name] = values
    return found


def _values(pattern: AttributePattern | None, name: str, schema: Schema, longest: int) -> tuple[Any, ...] | None:
    match pattern:
        case OneOf(values):
            return values
        case Range():
            order = order_of(schema.field(name).type)
            run = run_of(pattern, order, name) if order.kind is Kind.RANK else None
            if run is None or run[1] is None or run[1] - run[0] > longest:
                return None
            return tuple(order.values(np.arange(run[0], run[1])))
    return None


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heard:
    """What control rows say about one stream: what holds of it, and what single buckets have said of their own rows."""

    whole: list[Punctuation] = field(default_factory=list)
    parts: dict[int, list[Punctuation]] = field(default_factory=dict)

    def frontiers(self, times: Mapping[int, int]) -> dict[int, Frontier]:
        """What each bucket has said, with what it has promised in time."""
        return {at: Frontier(times.get(at, NEVER), tuple(self.parts.get(at, ()))) for at in {*times, *self.parts}}


def heard(table: pa.Table, schemas: Mapping[int, Schema]) -> dict[int, Heard]:
    """The promises among the rows of a table, by stream; `schemas` are those of the streams."""
    rows = table.filter(pc.equal(table.column("tag"), PROMISE))
    found: dict[int, Heard] = {}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, key in enumerate(zip(*(rows.column(name).to_pylist() for name in (*"wabc", "note")), strict=True)):
        groups.setdefault(key, []).append(at)
    for (tag, sender, until, kind, note), places in groups.items():
        said = _read(rows.take(pa.array(places)), json.loads(note), until, schemas[tag])
        mine = found.setdefault(tag, Heard())
        (mine.parts.setdefault(sender, []) if kind == PART else mine.whole).extend(said)
    return found


def by_bucket(said: Iterable[Sequence[Any]], schema: Schema) -> dict[int, list[Punctuation]]:
    """What single buckets have said, from plain data: bucket, pattern, time."""
    found: dict[int, list[Punctuation]] = {}
    for bucket, match, until in said:
        found.setdefault(bucket, []).append(Punctuation(read_match(match, schema), until))
    return found


def _read(rows: pa.Table, note: Mapping[str, Any], until: int, schema: Schema) -> list[Punctuation]:
    rest = read_match(note["match"], schema)
    named = dict(zip(schema.names, slots(schema), strict=True))
    names = list(note["slots"])
    columns = [python_values(rows.column(named[name][0]).combine_chunks()) for name in names]
    if len(names) == 1:
        return [Punctuation({**rest, names[0]: OneOf(tuple(columns[0]))}, until)]
    if not names:
        return [Punctuation(rest, until)]
    return [
        Punctuation({**rest, **{name: OneOf((value,)) for name, value in zip(names, values, strict=True)}}, until)
        for values in zip(*columns, strict=True)
    ]


# -- in the JVM -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceWords:
    """The function that makes control rows of the rows with which sources promise something: `tag`, `vs`, `match`."""

    addresses: Mapping[int, Address]
    names: Mapping[int, str]
    layout: ExchangeSchema
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = zip(*(batch.column(name).to_pylist() for name in ("tag", "vs", "match")), strict=True)
            said: dict[int, list[Punctuation]] = {}
            try:
                for tag, until, text in rows:
                    match = match_of(text, self.addresses[tag].schema, self.names[tag])
                    said.setdefault(tag, []).append(Punctuation(match, until))
            except InputError as error:
                yield failure(self.layout, self.buckets, error, 0)
                return
            for tag, promises in said.items():
                yield from promise_rows(self.layout, self.addresses[tag], promises, self.buckets, None)


def match_of(text: str, schema: Schema, source: str) -> dict[str, AttributePattern]:
    """The patterns that a row of a source says."""
    try:
        return read_match(json.loads(text), schema)
    except Unfit as bad:
        raise InputError(f"{bad.problem}; in the punctuation {text}", source=source, remedy=bad.remedy) from None
    except ValueError as bad:
        raise InputError(f"a punctuation that is no JSON ({bad}): {text}", source=source) from None


def failure(layout: ExchangeSchema, buckets: int, error: EverwhenError, stage: int) -> pa.RecordBatch:
    """Why a task gave up, told to every bucket of the next stage."""
    text = fault_text(error, stage)
    return layout.controls([control(ERROR, to, note=text) for to in range(buckets)])


def own_words(addresses: Sequence[Address], buckets: int) -> Column | None:
    """Which rows of an exchange are not what a bucket says about the rows of another one; None: all are not."""
    owner: Column | None = None
    for address in addresses:
        if address.own:
            at = bucket_of(address.schema, address.own, buckets)
            owner = (F.when if owner is None else owner.when)(F.col("w") == address.tag, at)
    if owner is None:
        return None
    return (F.col("tag") != PROMISE) | (F.col("c") != OWNED) | (owner == F.col("a"))


def bucket_of(schema: Schema, by: Sequence[str], buckets: int) -> Column:
    """The bucket of a row, by the hash of some of its columns."""
    named = dict(zip(schema.names, slots(schema), strict=True))
    return F.pmod(F.xxhash64(*(_hashable(*named[name]) for name in by)), F.lit(buckets)).cast("int")


def _hashable(slot: str, type_: object) -> Column:
    """Values that are equal hash alike: one zero, one NaN."""
    column = F.col(slot)
    if str(type_) in ("float", "double"):
        return (
            F.when(column == 0, F.lit(0.0)).when(F.isnan(column), F.lit(float("nan"))).otherwise(column.cast("double"))
        )
    return column
