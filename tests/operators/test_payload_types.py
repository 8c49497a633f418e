"""Payloads of many Arrow types through the operators that compare, group and order them, against the oracle."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import history as reference_history
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from example_counts import sampled_pairs
from state_files import through_file

UTC = dt.UTC
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int8(), [-128, 0, 127]),
    "int32": (pa.int32(), [-(2**31), 5, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1, 2**53 + 1]),
    "uint8": (pa.uint8(), [0, 7, 255]),
    "uint64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "float16": (pa.float16(), [0.5, -2.0, 65504.0]),
    "float32": (pa.float32(), [0.1, -2.5, math.inf, math.nan]),
    "float64": (pa.float64(), [0.0, -0.0, 0.1, -1e300, math.nan, math.inf, -math.inf, 5e-324]),
    "decimal128": (pa.decimal128(20, 3), [Decimal("0.001"), Decimal("-12.500"), Decimal("12345678901234567.890")]),
    "string": (pa.string(), ["", "a", "b", "ä", "a\x00b", "a longer text than the others"]),
    "large string": (pa.large_string(), ["", "a", "ä"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"abc"]),
    "fixed binary": (pa.binary(2), [b"ab", b"\x00\xff"]),
    "date32": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "date64": (pa.date64(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "time32": (pa.time32("s"), [dt.time(0, 0, 1), dt.time(23, 59, 59)]),
    "time64": (pa.time64("us"), [dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999999)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2024, 5, 6, 7, 8, 9, 123456)]),
    "timestamp with zone": (
        pa.timestamp("ms", "Europe/Vienna"),
        [dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(2024, 7, 1, tzinfo=UTC)],
    ),
    "timestamp ns": (pa.timestamp("ns"), [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "duration": (pa.duration("us"), [dt.timedelta(microseconds=-1), dt.timedelta(days=3)]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], [None, 2]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 0, "b": "y"}],
    ),
}
ORDERED = [name for name in VALUES if name not in ("list", "struct")]
"""Types that can be ordered, so that min, max, first and last take them."""


def events(type_: pa.DataType, values: list[Any], seed: int) -> History:
    """A dozen events over the values, with a null, ties and duplicates."""
    rng = random.Random(seed)
    schema = Schema.of([("g", pa.int64()), ("v", type_)])
    elements: list[Element] = []
    for _ in range(14):
        vs = rng.randrange(8)
        row = {"g": rng.randrange(2), "v": rng.choice([*values, None])}
        elements += [Insert(vs, vs + rng.choice([1, 2, 5]), row)] * rng.choice([1, 1, 2])
    return History.of(elements, schema)


def batch(elements: list[Element], schema: Schema, source: str) -> ElementBatch:
    """Elements of a history, whose nested values and nanoseconds have a spelling of their own, as Arrow reads them."""

    def spelled(value: Any, type_: pa.DataType) -> Any:
        if pa.types.is_struct(type_) and value is not None:
            return dict(value)
        return np.datetime64(value) if isinstance(value, str) and pa.types.is_timestamp(type_) else value

    def row(given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: spelled(given[name], schema.field(name).type) for name in schema.names}

    return batch_of(
        [replace(e, row=row(e.row)) if isinstance(e, Insert | Adjust) else e for e in elements], schema, source
    )


def check(query: ew.Stream, inputs: dict[str, History], seed: int, tolerance: float = 0.0) -> None:
    rng = random.Random(seed)
    expected = reference_history(query.node, inputs)
    for emit in ("final", "current"):
        runtime = LocalRuntime(query, emit=emit)
        out: list[ElementBatch] = []
        streams = {name: reorder(inputs[name], rng, infinite=False) for name in runtime.inputs}
        while any(streams.values()):
            epoch = {name: batch(stream[:4], inputs[name].schema, name) for name, stream in streams.items()}
            streams = {name: stream[4:] for name, stream in streams.items()}
            out.append(runtime.push(epoch)["out"])
            runtime.plan.pool.collect(force=True)
            state = through_file(runtime.snapshot())
            runtime = LocalRuntime(query, emit=emit)
            runtime.restore(state)
        out.append(runtime.close()["out"])
        assert_valid(out)
        assert_same_history(History.of(out, query.schema), expected, tolerance)


PLANS: dict[str, Callable[[ew.Stream, ew.Stream], ew.Stream]] = {
    "distinct": lambda s, t: s.distinct(),
    "difference": lambda s, t: s.difference(t),
    "group by it": lambda s, t: s.group_by("v").agg(n=ew.count()),
    "join on it": lambda s, t: s.join(t, on="v"),
    "left join on it": lambda s, t: s.join(t, on={"v": "v"}, how="left"),
    "anti-join on it": lambda s, t: s.join(t, on="v", how="anti"),
    "count": lambda s, t: s.group_by("g").agg(n=ew.count("v")),
    "partition by it": lambda s, t: s.rows(2, partition_by=["v"]),
    "coalesce": lambda s, t: s.coalesce(),
    "istream": lambda s, t: s.istream(),
}
ORDERING: dict[str, Callable[[ew.Stream, ew.Stream], ew.Stream]] = {
    "min and max": lambda s, t: s.group_by("g").agg(lo=ew.min("v"), hi=ew.max("v")),
    "first and last by it": lambda s, t: s.aggregate(a=ew.first("g", by="v"), b=ew.last("g", by="v")),
    "first and last of it": lambda s, t: s.aggregate(a=ew.first("v", by="g"), b=ew.last("v", by="g")),
    "count distinct": lambda s, t: s.group_by("g").agg(n=ew.count_distinct("v")),
    "top k": lambda s, t: s.group_by("g").agg(top=ew.top_k("v", 2)),
    "median": lambda s, t: s.group_by("g").agg(m=ew.median("v"), q=ew.quantile("v", 0.3)),
    "rows": lambda s, t: s.rows(3),
}


@pytest.mark.property
@pytest.mark.parametrize(("name", "plan"), sampled_pairs(VALUES, PLANS, each=(len(PLANS) + 1) // 2))
def test_equality(name: str, plan: str) -> None:
    type_, values = VALUES[name]
    inputs = {"S": events(type_, values, 1), "T": events(type_, values, 2)}
    s, t = (ew.source(source, history.schema) for source, history in inputs.items())
    check(PLANS[plan](s, t), inputs, seed=3)


@pytest.mark.property
@pytest.mark.parametrize(
    ("name", "plan"),
    # a list of nanoseconds has no single spelling as Python values, so histories of it cannot be compared
    [(name, plan) for name in ORDERED for plan in ORDERING if (name, plan) != ("timestamp ns", "top k")],
)
def test_order(name: str, plan: str) -> None:
    type_, values = VALUES[name]
    inputs = {"S": events(type_, values, 4)}
    s = ew.source("S", inputs["S"].schema)
    check(ORDERING[plan](s, s), inputs, seed=5, tolerance=1e-12)


@pytest.mark.parametrize(
    "name", [n for n, (t, _) in VALUES.items() if pa.types.is_integer(t) or pa.types.is_decimal(t)]
)
def test_exact_sums(name: str) -> None:
    """Integers and decimals add up exactly, averages follow from them."""
    type_, values = VALUES[name]
    small = [value for value in values if abs(value) < 2**60]
    inputs = {"S": events(type_, small, 6)}
    s = ew.source("S", inputs["S"].schema)
    query = s.group_by("g").agg(t=ew.sum("v"), n=ew.count("v"))
    check(query, inputs, seed=7)
    check(s.aggregate(a=ew.avg("v"), s=ew.stddev("v"), p=ew.variance_pop("v")), inputs, seed=8, tolerance=1e-12)


def test_wide_rows() -> None:
    """More columns than fit one null mask word (63)."""
    names = [f"c{i}" for i in range(130)]
    schema = Schema.of([(name, pa.int64()) for name in names])
    rows = [{name: None if (i + j) % 3 == 0 else j for j, name in enumerate(names)} for i in range(4)]
    history = History.of([Insert(i, i + 3, row) for i, row in enumerate(rows)], schema)
    s, t = ew.source("S", schema), ew.source("T", schema)
    inputs = {"S": history, "T": history}
    check(s.distinct(), inputs, 1)
    check(s.join(t, on={"c64": "c64"}), inputs, 2)
    check(s.join(t, on=["c1", "c64", "c129"], how="full"), inputs, 2)
    check(s.group_by("c129", "c70").agg(n=ew.count("c63"), t=ew.sum("c62")), inputs, 3)
    check(s.select("c100", "c63", d=ew.col("c62") + 1), inputs, 4)


def test_rows_without_columns() -> None:
    """Rows may be empty; there are still so many of them."""
    schema = Schema.of([("x", pa.int64())])
    history = History.of([Insert(0, 4, {"x": 1}), Insert(1, 3, {"x": 2})], schema)
    s = ew.source("S", schema)
    check(s.drop("x"), {"S": history}, 1)
    check(s.drop("x").aggregate(n=ew.count()), {"S": history}, 1)


def test_dictionary_encoded_columns() -> None:
    """A column may come dictionary-encoded, also with nulls among its values."""
    schema = Schema.of([("k", pa.string())])
    s = ew.source("S", schema)
    plain = batch_of([Insert(i, i + 2, {"k": k}) for i, k in enumerate(["a", None, "b", "a"])] + [Cti(INF)], schema)
    encoded = type(plain)(
        plain.schema, plain.op, plain.vs, plain.ve, plain.vnew, tuple(c.dictionary_encode() for c in plain.columns)
    )
    found = [LocalRuntime(s.distinct(), emit="final").push({"S": batch})["out"] for batch in (plain, encoded)]
    assert_same_history(found[1], found[0])
