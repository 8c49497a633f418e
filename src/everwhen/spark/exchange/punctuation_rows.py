"""Punctuations on their way between partitions, as control messages (Tucker et al.; `core/punctuation.py`).

A punctuation that binds all columns by which a stream's rows are spread, to constants, goes to the partitions of these
constants only: the row's slots hold them, and the JVM places the row as it places data.  Any other one goes to every
partition.  Constants that a partition has merged to a range are written out again.  The scope of a message is

    WHOLE   holds for the stream as it is: its source has said it
    OWNED   said by a partition, about rows that one partition alone can say; holds if it is that one (`own_words`)
    PART    said by a partition of its own rows; holds when all partitions have said so (`PortIntersection`)
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
from everwhen.errors import InputError
from everwhen.punctuation.api import read_match, write_match
from everwhen.spark.exchange.messages import (
    PUNCTUATION,
    Failure,
    PunctuationRows,
    decode,
    encode,
    field_in_jvm,
    message_rows,
)
from everwhen.spark.exchange.schema import ExchangeSchema, slots
from everwhen.values.order import Kind, order_of
from everwhen.values.sets import run_of

WHOLE: Final = 0
OWNED: Final = 1
PART: Final = 2
BY_HASH: Final = -1
"""The partition of a row that is to be placed by its slots."""
MOST_CONSTANTS: Final = 100_000
"""So many combinations of constants stand in rows of their own; beyond, a promise goes as it is."""
LONGEST_RUN: Final = 4096
"""Constants that a partition has merged to a range are written out again, if they are not more than that."""


@dataclass(frozen=True)
class Address:
    """Where the promises about a stream go: `by` as its rows (None: to every partition); `own` are the columns that
    tell which partition of the stage before says a row, if they do."""

    tag: int
    schema: Schema
    by: tuple[str, ...] | None
    own: tuple[str, ...] | None = None
    everywhere: bool = True
    """Else the driver alone reads them."""


# -- writing ----------------------------------------------------------------------------------------------------------


def promise_rows(
    layout: ExchangeSchema, address: Address, promises: Iterable[Punctuation], partitions: int, sender: int | None
) -> Iterator[pa.RecordBatch]:
    """Control messages for promises of a source (no sender), or of a partition; one batch for those that are alike."""
    alike: dict[tuple[str, tuple[str, ...], bool], list[tuple[Any, ...]]] = {}
    for promise in promises:
        longest = 1 if sender is None else LONGEST_RUN
        by = _constants(promise, address.by, address.schema, longest)
        own = _constants(promise, address.own, address.schema, longest) if sender is not None and partitions > 1 else {}
        listed = {**own, **by}
        counts = [len(values) for values in listed.values()]
        if prod(counts) > max(MOST_CONSTANTS, *counts, 0):  # a list of its own may be as long as it is
            listed, by, own = {}, {}, {}
        scope = WHOLE if sender is None or partitions == 1 else OWNED if own else PART
        rest = {name: pattern for name, pattern in promise.match.items() if name not in listed}
        says = -1 if sender is None else sender
        said = PunctuationRows(address.tag, says, promise.t, scope, [*listed], write_match(rest, address.schema))
        alike.setdefault((encode(said), tuple(listed), bool(by)), []).extend(product(*listed.values()))
    for (text, names, placed), rows in alike.items():
        targets = [BY_HASH] if placed else list(range(partitions)) if address.everywhere else [0]
        n = len(rows) * len(targets)
        given = {
            "partition": pa.array(np.tile(targets, len(rows)), pa.int32()),
            "kind": pa.repeat(pa.scalar(PUNCTUATION, pa.int32()), n),
            "message": pa.repeat(pa.scalar(text), n),
        }
        in_slots = dict(zip(address.schema.names, slots(address.schema), strict=True))
        for name, values in zip(names, zip(*rows, strict=True), strict=False):
            slot, type_ = in_slots[name]
            given[slot] = from_python([value for value in values for _ in targets], type_)
        yield layout.batch(n, given)


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
    """What is said about one stream: what holds of it, and what single partitions have said of their own rows."""

    whole: list[Punctuation] = field(default_factory=list)
    parts: dict[int, list[Punctuation]] = field(default_factory=dict)

    def frontiers(self, times: Mapping[int, int]) -> dict[int, Frontier]:
        """What each partition has said, with what it has promised in time."""
        return {at: Frontier(times.get(at, NEVER), tuple(self.parts.get(at, ()))) for at in {*times, *self.parts}}


def heard(table: pa.Table, schemas: Mapping[int, Schema]) -> dict[int, Heard]:
    """The promises among the rows of a table, by stream; `schemas` are those of the streams."""
    rows = table.filter(pc.equal(table.column("kind"), PUNCTUATION))
    found: dict[int, Heard] = {}
    groups: dict[str, list[int]] = {}
    for at, text in enumerate(rows.column("message").to_pylist()):
        groups.setdefault(text, []).append(at)
    for text, places in groups.items():
        said = decode(PUNCTUATION, text)
        assert isinstance(said, PunctuationRows)
        mine = found.setdefault(said.stream, Heard())
        told = mine.parts.setdefault(said.sender, []) if said.scope == PART else mine.whole
        told += _read(rows.take(pa.array(places)), said, schemas[said.stream])
    return found


def by_partition(said: Iterable[Sequence[Any]], schema: Schema) -> dict[int, list[Punctuation]]:
    """What single partitions have said, from plain data: partition, pattern, time."""
    found: dict[int, list[Punctuation]] = {}
    for partition, match, until in said:
        found.setdefault(partition, []).append(Punctuation(read_match(match, schema), until))
    return found


def _read(rows: pa.Table, said: PunctuationRows, schema: Schema) -> list[Punctuation]:
    rest, names, until = read_match(said.match, schema), said.listed, said.until
    named = dict(zip(schema.names, slots(schema), strict=True))
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
    """The function that makes messages of the rows with which sources promise something: `kind`, `vs`, `match`."""

    addresses: Mapping[int, Address]
    names: Mapping[int, str]
    layout: ExchangeSchema
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = zip(*(batch.column(name).to_pylist() for name in ("kind", "vs", "match")), strict=True)
            said: dict[int, list[Punctuation]] = {}
            try:
                for tag, until, text in rows:
                    match = match_of(text, self.addresses[tag].schema, self.names[tag])
                    said.setdefault(tag, []).append(Punctuation(match, until))
            except InputError as error:
                yield message_rows(self.layout, range(self.partitions), [Failure.of(error, 0)])
                return
            for tag, promises in said.items():
                yield from promise_rows(self.layout, self.addresses[tag], promises, self.partitions, None)


def match_of(text: str, schema: Schema, source: str) -> dict[str, AttributePattern]:
    """The patterns that a row of a source says."""
    try:
        return read_match(json.loads(text), schema)
    except Unfit as bad:
        raise InputError(f"{bad.problem}; in the punctuation {text}", source=source, remedy=bad.remedy) from None
    except ValueError as bad:
        raise InputError(f"a punctuation that is no JSON ({bad}): {text}", source=source) from None


def own_words(addresses: Sequence[Address], partitions: int) -> Column | None:
    """A filter that leaves out what a partition says about rows that it does not own; None if none is needed."""
    owner: Column | None = None
    for address in addresses:
        if address.own:
            at = partition_of(address.schema, address.own, partitions)
            owner = (F.when if owner is None else owner.when)(field_in_jvm("stream") == address.tag, at)
    if owner is None:
        return None
    return (F.col("kind") != PUNCTUATION) | (field_in_jvm("scope") != OWNED) | (owner == field_in_jvm("sender"))


def partition_of(schema: Schema, by: Sequence[str], partitions: int) -> Column:
    """The partition of a row, by the hash of some of its columns."""
    named = dict(zip(schema.names, slots(schema), strict=True))
    hashed = [_hashable(F.col(slot), type_) for slot, type_ in (named[name] for name in by)]
    return F.pmod(F.xxhash64(*hashed), F.lit(partitions)).cast("int")


def _hashable(column: Column, type_: pa.DataType) -> Column:
    """Values that are equal hash alike: one zero, one NaN, also within lists and structures."""
    if pa.types.is_list(type_):
        return F.transform(column, lambda item: _hashable(item, type_.value_type))
    if pa.types.is_struct(type_):
        return F.struct(*(_hashable(column.getField(field.name), field.type) for field in type_))
    if str(type_) in ("float", "double"):
        return (
            F.when(column == 0, F.lit(0.0)).when(F.isnan(column), F.lit(float("nan"))).otherwise(column.cast("double"))
        )
    return column
