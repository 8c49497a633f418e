"""Promises about data on their way between buckets, as control rows (Tucker et al.; `model/punctuation.py`).

    a  the bucket that says it        b  until when        c  the kind        w  the stream, or the query
    note  {"match": the other patterns, "slots": the columns whose constants stand in the row's slots}

A promise that binds all columns by which a stream's rows are spread, to constants, goes to the buckets of these
constants only: the row's slots hold them, and the JVM places the row as it places data.  Any other one goes to every
bucket.  Constants that were merged to a range on the way are written out again, if they are not too many.

    WHOLE   holds for the stream as it is: its source has said it
    OWNED   said by a bucket, about rows that one bucket alone can say; holds if it is that bucket (`kept_words`)
    PART    said by a bucket of its own rows; holds when all buckets have said so (`Gathering`)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.errors import InputError
from everwhen.model.patterns import read_match, write_match
from everwhen.model.punctuation import AttributePattern, Frontier, OneOf, Promise, Range
from everwhen.model.scalars import Unfit, from_python, python_values
from everwhen.model.schema import Schema
from everwhen.model.value_order import Kind, order_of
from everwhen.model.value_spans import spans_of
from everwhen.operators.promised import MOST_CONSTANTS
from everwhen.runtime.spark.layout import ERROR, PROMISE, Layout, control, slots

WHOLE: Final = 0
OWNED: Final = 1
PART: Final = 2
BY_HASH: Final = -1
"""The bucket of a row that is to be placed by its slots."""


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


def promise_rows(
    layout: Layout, address: Address, promises: Iterable[Promise], buckets: int, sender: int | None
) -> Iterator[pa.RecordBatch]:
    """Control rows for promises of a source (no sender), or of a bucket."""
    for promise in promises:
        by = _constants(promise, address.by, address.schema)
        own = _constants(promise, address.own, address.schema) if sender is not None and buckets > 1 else {}
        listed = {**own, **by}
        if prod(map(len, listed.values())) > MOST_CONSTANTS:
            listed, by, own = {}, {}, {}
        kind = WHOLE if sender is None or buckets == 1 else OWNED if own else PART
        targets = [BY_HASH] if by else list(range(buckets)) if address.everywhere else [0]
        rest = {name: pattern for name, pattern in promise.match.items() if name not in listed}
        note = json.dumps({"match": write_match(rest, address.schema), "slots": list(listed)}, ensure_ascii=False)
        rows = list(product(*listed.values()))
        head = {
            "bucket": np.tile(targets, len(rows)), "tag": PROMISE, "a": -1 if sender is None else sender,
            "b": promise.t, "c": kind, "w": address.tag, "note": note,
        }  # fmt: skip
        named = dict(zip(address.schema.names, slots(address.schema), strict=True))
        columns = dict(zip((named[name][0] for name in listed), zip(*rows, strict=True), strict=True))
        yield _batch(layout, len(rows) * len(targets), head, columns, len(targets))


def _batch(
    layout: Layout, n: int, head: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], times: int
) -> pa.RecordBatch:
    arrays = []
    for name, type_ in layout.columns:
        if name in columns:
            found = from_python([value for value in columns[name] for _ in range(times)], type_)
        elif isinstance(given := head.get(name), np.ndarray):
            found = pa.array(given, type_)
        else:
            found = pa.nulls(n, type_) if given is None else pa.repeat(pa.scalar(given, type_), n)
        arrays.append(found)
    return pa.RecordBatch.from_arrays(arrays, schema=layout.arrow)


def _constants(promise: Promise, names: Sequence[str] | None, schema: Schema) -> dict[str, tuple[Any, ...]]:
    """The constants to which a promise binds columns; empty if it does not bind all of them so."""
    found = {}
    for name in names or ():
        values = _values(promise.match.get(name), name, schema)
        if values is None:
            return {}
        found[name] = values
    return found


def _values(pattern: AttributePattern | None, name: str, schema: Schema) -> tuple[Any, ...] | None:
    match pattern:
        case OneOf(values):
            return values
        case Range():
            type_ = schema.field(name).type
            order = order_of(type_)
            if order.kind is not Kind.RANK:
                return None
            lowest, highest = _ends(pattern, name, type_)
            if highest - lowest >= MOST_CONSTANTS:
                return None
            return tuple(order.values(np.arange(lowest, highest + 1)))
    return None
