"""Values in their order over time, against a list of rows; neither time nor memory may grow with rows × instants."""

from __future__ import annotations

import bisect
import math
import tracemalloc
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.compiled.interpreted import interpreted
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.sweep.loops import cursor
from everwhen.operators.sweep.order_statistics import Code, OrderStatistics
from everwhen.reference import history as reference_history
from everwhen.rows.interner import Interner
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import INSERT, ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, reorder

SCHEMA = Schema.of([("k", pa.int64()), ("x", pa.int64())])
S = ew.source("S", SCHEMA)
Q = np.array([0.5])


def alive(rows: list[tuple[int, int, int, int, int]], key: int, t: int) -> list[int]:
    found: dict[int, int] = {}
    for k, lo, hi, weight, value in rows:
        if k == key and lo <= t < hi:
            found[value] = found.get(value, 0) + weight
    return sorted(value for value, times in found.items() for _ in range(times))


@pytest.mark.parametrize(("seed", "way"), [*((seed, "compiled") for seed in range(6)), (0, "interpreted")])
def test_it_is_what_is_alive_at_any_instant(seed: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "interpreted":
        for name in ("take", "ask", "fold", "dump", "load", "rows", "caught_up"):
            monkeypatch.setattr(cursor, name, interpreted(getattr(cursor, name)))
    random = np.random.default_rng(seed)
    statistics = OrderStatistics([Code(pa.int64())], Interner())
    statistics.grow(4)
    rows: list[tuple[int, int, int, int, int]] = []
    cti = 0
    for step in range(40):
        new = []
        for _ in range(int(random.integers(0, 60))):
            if rows and random.random() < 0.4:  # the end of a row is moved
                k, lo, hi, weight, value = rows[int(random.integers(len(rows)))]
                if weight > 0 and hi > cti and (k, lo, hi, -weight, value) not in rows + new:
                    new.append((k, max(lo, cti), hi, -weight, value))
                    rows = [row for row in rows if row != (k, lo, hi, weight, value)] + [
                        (k, lo, max(lo, cti), weight, value)
                    ]
                    continue
            lo = cti + int(random.integers(0, 30))
            hi = INF if random.random() < 0.1 else lo + int(random.integers(1, 40))
            row = (int(random.integers(4)), lo, hi, int(random.integers(1, 3)), int(random.integers(0, 60)))
            new.append(row)
            rows.append(row)
        if new:
            given = np.array(new, np.int64)
            statistics.apply(*(given[:, c].copy() for c in range(4)), given[:, 4:].copy())
        for key in random.permutation(4)[:2].tolist():
            times = cti + np.sort(random.choice(60, 5, replace=False))
            found = statistics.ask(np.full(5, key), times, Q, top=3)
            for t, row in zip(times.tolist(), found.tolist(), strict=True):
                values = alive(rows, key, t)
                assert row[:2] == [len(values), len(set(values))]
                if values:
                    assert row[2] == values[(len(values) - 1) // 2]
                    assert row[3] == values[math.ceil((len(values) - 1) / 2)]
                    assert row[4:] == [*reversed(values[-3:]), 0, 0][:3]
        if random.random() < 0.5:
            cti += int(random.integers(0, 15))
            statistics.expire(cti)
            kept = sum(hi > cti and lo < hi for _, lo, hi, *_ in rows)
            assert statistics.state_size().rows <= kept
        if step % 7 == 6:
            ids = np.arange(4)
            state, statistics = statistics.snapshot(ids), OrderStatistics([Code(pa.int64())], Interner())
            statistics.grow(4)
            statistics.restore(ids, state)
    statistics.expire(INF)
    assert statistics.state_size().rows == 0


def test_a_tree_of_many_values_gives_its_nodes_back() -> None:
    statistics = OrderStatistics([Code(pa.int64())], Interner())
    statistics.grow(1)
    values = np.random.default_rng(0).permutation(50_000)
    n = len(values)
    ids, one = np.zeros(n, np.int64), np.ones(n, np.int64)
    statistics.apply(ids, np.arange(n), np.arange(n) + n, one, values[:, None].copy())
    found = statistics.ask(np.zeros(2, np.int64), np.array([99, n - 1]), Q)
    assert found[:, 0].tolist() == [100, n]
    assert found[1, 2:].tolist() == [24_999, 25_000]
    statistics.expire(n - 1)
    large = statistics.state_size()
    assert large.rows == n
    statistics.expire(2 * n)
    assert statistics.state_size().rows == 0
    assert statistics.state_size().bytes < large.bytes / 2


TEXTS = Schema.of([("k", pa.int64()), ("s", pa.string()), ("d", pa.decimal128(9, 2)), ("x", pa.float64())])


@pytest.mark.parametrize("emit", ["current", "all", "final"])
@pytest.mark.parametrize("seed", range(3))
def test_values_of_any_type_with_nulls_while_codes_and_state_move(seed: int, emit: str) -> None:
    """New values change the ranks of others, the pool is renumbered, and the state is restored, all in mid-run."""
    random = np.random.default_rng(seed)
    t = ew.source("S", TEXTS)
    query = t.range(7).group_by("k").agg(
        lo=ew.min("s"), hi=ew.max("d"), m=ew.median("d"), n=ew.count_distinct("s"), top=ew.top_k("s", 2),
        f=ew.first("s", by="x"), l=ew.last("s", by="d"), q=ew.quantile("s", 0.3), e=ew.count_distinct("x"),
    )  # fmt: skip

    def row() -> dict[str, object]:
        s, d, x = random.integers(0, 60, 3).tolist()
        return {
            "k": int(random.integers(3)),
            "s": None if s < 9 else "z" * (s % 4) + str(s),
            "d": None if d < 9 else Decimal(d - 30) / 4,
            "x": [math.nan, -0.0, 0.0, -math.inf, None][x] if x < 5 else (x - 30) / 2,
        }

    events = [Insert(i // 2 + int(random.integers(0, 9)), 10**6, row()) for i in range(120)]
    events = [Insert(e.vs, e.vs + int(random.integers(1, 5)), e.row) for e in events]
    elements = reorder(History.of(events, TEXTS), Random(seed), infinite=False)
    runtime, out = LocalRuntime(query, emit=emit), []
    for i in range(0, len(elements), 15):
        out += runtime.push({"S": batch_of(elements[i : i + 15], TEXTS)})["out"].elements()
        runtime.plan.pool.collect(force=True)
        if i % 45 == 0:
            state, runtime = runtime.snapshot(), LocalRuntime(query, emit=emit)
            runtime.restore(state)
    out += runtime.push({"S": batch_of([Cti(INF)], TEXTS)})["out"].elements()
    expected = reference_history(query.node, {"S": History.of(events, TEXTS)})
    assert_same_history(History.of(out, query.schema), expected)


def batch(times: np.ndarray, ends: np.ndarray, k: np.ndarray, x: np.ndarray) -> ElementBatch:
    op, none = np.full(len(times), INSERT, np.uint8), np.zeros(len(times), np.int64)
    return ElementBatch(SCHEMA, op, times, ends, none, (pa.array(k), pa.array(x)))


@pytest.mark.parametrize("epochs", [1, 40])
def test_one_group_that_only_grows_is_not_quadratic(epochs: int) -> None:
    """20,000 events of one group: rows × instants would be 200 million pairs, which no memory has."""
    n = 20_000
    x = np.random.default_rng(1).integers(0, 5_000, n)
    query = S.unbounded().aggregate(
        m=ew.median("x"),
        d=ew.count_distinct("x"),
        top=ew.top_k("x", 2),
        f=ew.first("x", by="k"),
        l=ew.last("x", by="k"),
    )
    runtime = LocalRuntime({"out": query}, emit="current")
    tracemalloc.start()
    rows = []
    for part in np.array_split(np.arange(n), epochs):
        out = runtime.push({"S": batch(part, part + 1, part, x[part])})["out"]
        rows += [tuple(e.row.values()) for e in out.elements() if isinstance(e, Insert)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400 * 2**20
    seen: set[int] = set()
    ordered: list[int] = []
    expected = []
    for value in x.tolist():
        bisect.insort(ordered, value)
        seen.add(value)
        m = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        expected.append((m, len(seen), ordered[:-3:-1], int(x[0]), value))
    assert rows == [row for i, row in enumerate(expected) if i == 0 or row != expected[i - 1]]
