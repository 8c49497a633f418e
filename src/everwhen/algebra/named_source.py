"""`source`: a named input with its payload columns, and what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import pyarrow as pa

from everwhen.algebra import nodes
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import type_of
from everwhen.core.schema import Schema
from everwhen.core.source_policy import Late, SourcePolicy
from everwhen.core.time import ticks
from everwhen.errors import QueryError


def source(
    name: str,
    columns: Mapping[str, str | type | pa.DataType] | Schema | pa.Schema,
    insert_only: bool = False,
    chronons: bool = False,
    keys: str | Sequence[str | Sequence[str]] = (),
    ordered: bool = False,
    kind: nodes.SourceKind = "stream",
    arrives: nodes.Arrival = "any",
    within: int | str | None = None,
    idle: float | None = None,
    late: Late = "error",
) -> Stream:
    """A named input with its payload columns; types are Arrow types or their names.

    Checked for each element: `insert_only` (no adjusts), `chronons` (all lifetimes are one tick), `arrives` (in order:
    starts of inserts never go down; strictly: they always go up).  Trusted: `ordered` (no late elements), `keys`:
    "id" or ["id", ("day", "no")] says that no two events of the whole history have the same id, nor the same day and
    no; for the kinds "temporal" and "varying", no two rows alive at one instant.

    `within`: rows start at most so long (ticks, or text such as "30 minutes") before the latest start, so every batch
    promises everything before that.  `idle`: seconds without a row after which it holds nobody back.  `late`: what
    becomes of a row that breaks a promise: "error"; "drop"; "adjust", then it starts at the promise.

    >>> import everwhen as ew
    >>> ew.source("Bid", {"item": "int64", "price": "float64"}, insert_only=True).schema.names
    ('item', 'price')
    >>> bids = ew.source("Bid", {"item": "int64"}, within=5, late="drop")
    >>> rows = [ew.Insert(t, t + 1, {"item": t}) for t in (20, 3, 21)]
    >>> print(*ew.run(bids, {"Bid": rows}, batch=1, open=True), sep=", ")
    insert [20, 21) item=20, cti 15, insert [21, 22) item=21, cti 16
    """
    if not name or not isinstance(name, str):
        raise QueryError(f"a source needs a name, not {name!r}")
    if isinstance(columns, Mapping):
        schema = Schema.of([(column, type_of(type_)) for column, type_ in columns.items()])
    elif isinstance(columns, Schema | pa.Schema):
        schema = Schema.of(columns)
    else:
        raise QueryError(f"the columns of source {name!r} are a mapping of names to types, not {columns!r}")
    if kind not in get_args(nodes.SourceKind):
        raise QueryError(f"kind={kind!r} is no kind of source; there are {', '.join(get_args(nodes.SourceKind))}")
    found = tuple((key,) if isinstance(key, str) else tuple(key) for key in ([keys] if isinstance(keys, str) else keys))
    policy = SourcePolicy(None if within is None else ticks(within), idle, late)
    return Stream(
        nodes.Source(name, schema, insert_only, chronons, found, ordered, kind, arrives=arrives, policy=policy)
    )
